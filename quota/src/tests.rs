//! The facts file's examples, the tree of the walkthrough, and laws.

mod by_share;
mod claim;
mod clusters;
mod day;
mod edit;
mod equals;
mod fuzz;
mod histories;
mod index;
mod laws;
mod ledger;
mod order;
mod preempt;
#[path = "../../quota-tree/src/tests/text.rs"]
mod text;
mod thrash;
mod two_resources;

use std::sync::Arc;

use fleet_quota_tree::{MAX_JOBS, NodeId, NodeSpec, QUOTA_LABELS, QuotaTree};
use fleet_resources::Resources;

use crate::*;
use clusters::Clusters;
use text::{tree, tree_spec};

fn cpu(cores: i64) -> Resources {
    Resources::from_pairs([("cpu", cores * 1000)])
}

fn leaf(tree: &QuotaTree, path: &str) -> NodeId {
    tree.find(&format!("root/{path}")).unwrap()
}

fn run(ledger: &mut Ledger, id: &str, path: &str, cores: i64) {
    let leaf = leaf(ledger.tree(), path);
    ledger.admit(AdmittedJob {
        id: JobId::new(id),
        leaf,
        request: cpu(cores),
        preemptible: true,
        priority: 0,
        enqueued_at_ms: 0,
        admitted_at_ms: 0,
        preemptions: 0,
    });
}

fn waiting(tree: &QuotaTree, id: &str, path: &str, cores: i64, priority: i64, age: i64) -> WaitingJob {
    WaitingJob {
        id: JobId::new(id),
        name: id.into(),
        run_time_ms: None,
        preemptions: 0,
        leaf: leaf(tree, path),
        request: cpu(cores),
        preemptible: true,
        priority,
        enqueued_at_ms: age,
        not_before_ms: 0,
        // Clusters look at cpu and at the name.
        shape: cores as u64 + if id.starts_with("huge") { 1 << 32 } else { 0 },
    }
}

fn admitted(tree: &QuotaTree, id: &str, path: &str, cores: i64, priority: i64, at_ms: i64) -> AdmittedJob {
    AdmittedJob {
        id: id.into(),
        leaf: leaf(tree, path),
        request: cpu(cores),
        preemptible: true,
        priority,
        enqueued_at_ms: at_ms,
        admitted_at_ms: at_ms,
        preemptions: 0,
    }
}

/// A planner and its clusters, driven by short texts.
struct Fleet {
    planner: Planner,
    clusters: Clusters,
    now_ms: i64,
}

impl Fleet {
    fn new(tree_text: &str, clusters: &str) -> Self {
        Self { planner: Planner::new(tree(tree_text)), clusters: Clusters::new(clusters), now_ms: 0 }
    }

    /// A job that runs: quota in `path`, places in `cluster`.
    fn run(&mut self, id: &str, path: &str, cores: i64, priority: i64, cluster: &str) {
        let age = self.planner.ledger().jobs().count() as i64;
        self.planner.admit(admitted(self.planner.tree(), id, path, cores, priority, age));
        self.clusters.hold(id, cluster, cores);
    }

    fn submit(&mut self, id: &str, path: &str, cores: i64, priority: i64) {
        let job = waiting(self.planner.tree(), id, path, cores, priority, self.now_ms);
        self.planner.enqueue(job);
    }

    /// A job ends and leaves its quota and places.
    fn end(&mut self, id: &str) {
        let id = id.into();
        assert!(self.planner.release(&id).is_some(), "{id} holds nothing");
        if let Some(cluster) = self.clusters.end(&id) {
            self.planner.places_freed(&cluster);
        }
    }

    /// Plans and says what was decided, one line each: `j1 starts on east`,
    /// `j1 takes a (Reclaim) for east`, `j1 claims east`, `j1 waits: Reason`.
    fn plan(&mut self) -> Vec<String> {
        let plan = self.planner.plan(self.now_ms, PlanLimits::default(), &mut self.clusters);
        assert!(!plan.more);
        plan.decisions.iter().map(said).collect()
    }

    /// Plans until the planner has no more to do.
    fn plan_more(&mut self, now_ms: i64) -> Vec<String> {
        self.now_ms = now_ms;
        let mut lines = Vec::new();
        for _ in 0..100 {
            let plan = self.planner.plan(now_ms, PlanLimits::default(), &mut self.clusters);
            lines.extend(plan.decisions.iter().map(said));
            if !plan.more {
                return lines;
            }
        }
        panic!("the planner does not come to rest");
    }

    fn plan_at(&mut self, now_ms: i64) -> Vec<String> {
        self.now_ms = now_ms;
        self.plan()
    }
}

fn said(decision: &Decision) -> String {
    let job = &decision.job;
    match &decision.outcome {
        Outcome::Admit { cluster } => format!("{job} starts on {cluster}"),
        Outcome::Take(take) => {
            let victims: Vec<String> =
                take.victims.iter().map(|v| format!("{} ({})", v.job, v.rule.as_str())).collect();
            let awaited: Vec<String> = take.awaited.iter().map(|id| format!(" and awaits {id}")).collect();
            format!("{job} preempts {}{} for {}", victims.join(", "), awaited.concat(), take.cluster)
        }
        Outcome::Claim(claim) => match claim.start_ms {
            Some(start_ms) => format!("{job} claims {} from {start_ms}", claim.cluster),
            None => format!("{job} claims {}", claim.cluster),
        },
        Outcome::GiveUp(claim) => format!("{job} gives up its claim on {}", claim.cluster),
        Outcome::Wait(reason) => format!("{job} waits: {}", reason_text(reason)),
    }
}

fn reason_text(reason: &WaitReason) -> String {
    match reason {
        WaitReason::Quota(verdict) => verdict.reason().to_owned(),
        WaitReason::NoPlace => "NoPlace".to_owned(),
        WaitReason::BehindHead(head) => format!("BehindHead {head}"),
        WaitReason::Claimed { holder } => format!("Claimed by {holder}"),
        WaitReason::WaitingForVictims { cluster, victims } => {
            let ids: Vec<&str> = victims.iter().map(JobId::as_str).collect();
            format!("WaitingForVictims {} in {cluster}", ids.join(", "))
        }
        WaitReason::Protected { victim, until_ms } => format!("Protected {victim} until {until_ms}"),
        WaitReason::Backoff { until_ms } => format!("Backoff until {until_ms}"),
    }
}
