//! The lab's experiments and the faults around them, over the planner alone.

mod edits;
mod excluded;
mod messages;
mod stranded;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_cells::{
    GroupRequest,
    config::{Document, read_document},
};
use fleet_placement::{GangComponent, NodeShape, PodShape};
use fleet_resources::Resources;

use super::*;
use crate::{Answer, CellGroupAsk, CellJob, Counted, Decision, Held, Job, JobShape, Member, Settings};

const TWO: &str = include_str!("../../../../cells/testdata/two-virtual-clusters.yaml");
const ONE: &str = include_str!("../../../../cells/testdata/one-virtual-cluster.yaml");

fn config(text: &str, cluster: &str) -> ClusterConfig {
    let value = fleet_api::yaml::read(text).expect("YAML");
    let mut config = match read_document(&value).expect("a document") {
        Document::Config(config) => *config,
        Document::Wrapped(text) => {
            ClusterConfig::read(&fleet_api::yaml::read(&text).expect("YAML")).expect("a configuration")
        }
    };
    for tree in &mut config.physical_cluster.physical_cells {
        tree.cluster = cluster.to_string();
    }
    config
}

/// A planner with the lab's member, and what became of each job.
struct Lab {
    planner: Planner,
    now_ms: i64,
    jobs: BTreeMap<String, Job>,
}

impl Lab {
    fn new(text: &str) -> Self {
        let mut lab = Self { planner: Planner::new(Settings::default()), now_ms: 0, jobs: BTreeMap::new() };
        lab.planner.set_cells(Some(config(text, "lab")), 0).expect("the lab's configuration");
        lab.member();
        lab.nodes(&["hostname-carol", "hostname-dan"]);
        lab
    }

    fn member(&mut self) {
        let facts =
            fleet_policies::affinity::ClusterFacts { name: "lab".into(), ready: true, ..Default::default() };
        let shapes: Vec<NodeShape> = Vec::new();
        self.planner
            .set_cluster("lab", Member { facts, reserves: true, shapes, sequence: 1, ..Member::default() });
    }

    fn nodes(&mut self, good: &[&str]) {
        let good = good.iter().map(|node| (*node).to_string()).collect();
        self.planner.set_cell_nodes("lab", Some(CellNodes { good, ..CellNodes::default() }));
    }

    /// A job of so many pods with one GPU each.
    fn submit(&mut self, name: &str, vc: &str, class: i32, pods: i64, whole: bool) {
        self.now_ms += 1;
        let id = JobId::new(&format!("default/{name}"));
        let of = |index: i64| ("train".to_string(), index);
        let groups = match whole {
            true => vec![CellGroupAsk {
                request: GroupRequest::new(id.as_str(), vc, class, pods, 1),
                pods: (0..pods).map(of).collect(),
            }],
            false => (0..pods)
                .map(|index| CellGroupAsk {
                    request: GroupRequest::new(&format!("{id}/train-{index}"), vc, class, 1, 1),
                    pods: vec![of(index)],
                })
                .collect(),
        };
        let pod =
            PodShape { requests: Resources::from_pairs([("nvidia.com/gpu", 1)]), ..PodShape::default() };
        let gang = fleet_placement::Gang { components: vec![GangComponent::whole("train", pods, pod)] };
        let job = Job {
            id: id.clone(),
            shape: Arc::new(JobShape {
                id: 1,
                total: gang.total(),
                gang,
                placement: Default::default(),
                api_version: "batch.volcano.sh/v1alpha1".into(),
                kind: "Job".into(),
            }),
            quota_labels: BTreeMap::new(),
            last_leaf: None,
            queued: false,
            left_queue: false,
            priority: 0,
            preemptible: true,
            preemptions: 0,
            enqueued_at_ms: self.now_ms,
            avoided: BTreeSet::new(),
            blocked: None,
            barred: BTreeMap::new(),
            phase: JobPhase::Waits,
            runtime_ms: None,
            started_at_ms: None,
            checkpoint_at_ms: None,
            cells: Some(Arc::new(CellJob { vc: vc.to_string(), class, whole, groups })),
        };
        self.jobs.insert(name.to_string(), job.clone());
        self.planner.set_job(job, self.now_ms);
    }

    /// One plan: `job -> node ...` for a start, `job ~ node ...` for other cells, `taker x victim` for an eviction, `job leaves cluster`. What
    /// starts runs at once, as its reservation says.
    fn plan(&mut self) -> Vec<String> {
        self.now_ms += 1;
        let mut told = Vec::new();
        for decision in self.planner.plan(self.now_ms).decisions {
            match decision {
                Decision::Ask { job, .. } => {
                    told.push(format!("{} -> {}", short(&job), self.places(&job)));
                    self.runs(&job, BTreeMap::new());
                }
                Decision::Regroup { job, .. } => {
                    told.push(format!("{} ~ {}", short(&job), self.places(&job)));
                    let ended = match &self.jobs[short(&job)].phase {
                        JobPhase::Holds(held) => held.ended.clone(),
                        JobPhase::Waits => BTreeMap::new(),
                    };
                    self.runs(&job, ended);
                }
                Decision::Evict { job, taker, .. } => {
                    told.push(format!("{} x {}", short(&taker), short(&job)))
                }
                Decision::EndPods { job, taker, .. } => {
                    told.push(format!("pods of {} end for {}", short(&job), short(&taker)));
                }
                Decision::Move { job, cluster, .. } => told.push(format!("{} leaves {cluster}", short(&job))),
                Decision::Bind { .. } => told.push("bind".into()),
            }
        }
        told
    }

    fn places(&self, id: &JobId) -> String {
        let groups = self.planner.cell_groups(id);
        let places = groups.iter().flat_map(|group| &group.places).map(|place| {
            let node = place.node.trim_start_matches("hostname-");
            format!("{}{}:{:?}", node, place.index, place.leaf_cells)
        });
        places.collect::<Vec<_>>().join(" ")
    }

    fn runs(&mut self, id: &JobId, ended: BTreeMap<String, BTreeSet<i64>>) {
        let Some(job) = self.jobs.get_mut(short(id)) else { return };
        let mut cells = self.planner.cell_groups(id);
        if let (true, JobPhase::Holds(held)) = (cells.is_empty(), &job.phase) {
            cells.clone_from(&held.cells);
            cells.iter_mut().flat_map(|group| &mut group.places).for_each(|place| place.node.clear());
        }
        job.started_at_ms = Some(self.now_ms);
        job.phase = JobPhase::Holds(Held { cells, ended, ..Held::here("lab", Counted::ByReports) });
        self.planner.set_job(job.clone(), self.now_ms);
    }

    fn ended(&mut self, name: &str, indices: &[i64]) {
        let id = JobId::new(&format!("default/{name}"));
        self.runs(&id, BTreeMap::from([("train".to_string(), indices.iter().copied().collect())]));
    }

    /// The member reports that the pods of preempted groups are gone.
    fn vacates(&mut self, name: &str) {
        let job = self.jobs.get_mut(name).expect("known");
        let JobPhase::Holds(held) = &mut job.phase else { panic!("it runs") };
        let groups =
            held.cells.iter().filter_map(|group| Some((group.name.clone(), group.preempted.as_ref()?.at_ms)));
        held.vacated = groups.collect();
        assert!(!held.vacated.is_empty(), "{held:?}");
        self.planner.set_job(job.clone(), self.now_ms);
    }

    /// Groups of the job whose pods must leave, and for whom.
    fn leaving(&self, name: &str) -> Vec<String> {
        let groups = self.planner.cell_groups(&JobId::new(&format!("default/{name}")));
        let told = groups.iter().filter_map(|group| Some((group, group.preempted.as_ref()?)));
        told.map(|(group, by)| format!("{} for {}", group.name, by.by)).collect()
    }

    /// The job is over.
    fn ends(&mut self, name: &str) {
        self.jobs.remove(name);
        self.planner.remove_job(&JobId::new(&format!("default/{name}")), self.now_ms);
    }

    /// Its run was taken back.
    fn leaves(&mut self, name: &str) {
        let job = self.jobs.get_mut(name).expect("known");
        job.phase = JobPhase::Waits;
        job.started_at_ms = None;
        self.planner.set_job(job.clone(), self.now_ms);
    }

    fn why(&self, name: &str) -> String {
        let waiting = self.planner.waiting(&JobId::new(&format!("default/{name}")));
        waiting.map(|waiting| format!("{}: {}", waiting.reason, waiting.message)).unwrap_or_default()
    }
}

fn short(id: &JobId) -> &str {
    id.as_str().trim_start_matches("default/")
}

#[test]
fn guaranteed_jobs_never_borrow_and_run_in_the_order_they_came() {
    let mut lab = Lab::new(TWO);
    for user in ["a", "b", "c", "d"] {
        lab.submit(user, "vc1", 100, 1, true);
    }
    assert_eq!(lab.plan(), ["a -> dan0:[0]"]);
    let why = "InsufficientCells: insufficient capacity in VC vc1: 1 cells of type GPU-D asked for, 0 free";
    assert_eq!([lab.why("b"), lab.why("c"), lab.why("d")], [why, why, why]);
    for (ends, starts) in [("a", "b"), ("b", "c"), ("c", "d")] {
        lab.ends(ends);
        assert_eq!(lab.plan(), [format!("{starts} -> dan0:[0]")]);
    }
}

#[test]
fn a_higher_class_preempts_and_the_victim_goes_back_to_its_place() {
    let mut lab = Lab::new(TWO);
    lab.submit("job-1", "vc1", 10, 1, true);
    assert_eq!(lab.plan(), ["job-1 -> dan0:[0]"]);
    lab.submit("later", "vc1", 10, 1, true);
    lab.submit("job-2", "vc1", 100, 1, true);
    assert_eq!(lab.plan(), ["job-2 x job-1"]);
    assert_eq!(lab.why("job-2"), "WaitingForVictims: waits for 1 job to leave its cells: default/job-1");
    // Until it is told that the run ends the decision comes again.
    assert_eq!(lab.plan(), ["job-2 x job-1"]);
    lab.leaves("job-1");
    assert_eq!(lab.plan(), ["job-2 -> dan0:[0]"]);
    assert!(lab.why("job-1").contains("insufficient capacity in VC vc1"), "{}", lab.why("job-1"));
    lab.ends("job-2");
    assert_eq!(lab.plan(), ["job-1 -> dan0:[0]"], "it came before the other one of its class");
}

#[test]
fn opportunistic_jobs_use_what_is_idle_and_make_room() {
    let mut lab = Lab::new(TWO);
    lab.submit("job-3", "vc1", 100, 1, true);
    assert_eq!(lab.plan(), ["job-3 -> dan0:[0]"]);
    lab.submit("job-4", "vc1", -1, 1, true);
    assert_eq!(lab.plan(), ["job-4 -> carol0:[0]"]);
    lab.submit("own", "default", 10, 1, true);
    assert_eq!(lab.plan(), ["own x job-4"]);
    lab.leaves("job-4");
    assert_eq!(lab.plan(), ["own -> carol0:[0]"]);
    assert!(
        lab.why("job-4").contains("insufficient capacity in the physical cluster"),
        "{}",
        lab.why("job-4")
    );
    lab.ends("job-3");
    assert_eq!(lab.plan(), ["job-4 -> dan0:[0]"]);
}

#[test]
fn a_gang_waits_whole_and_single_pods_start_as_they_can() {
    let mut lab = Lab::new(ONE);
    lab.submit("job-5", "default", 100, 1, true);
    assert_eq!(lab.plan(), ["job-5 -> carol0:[0]"]);
    lab.submit("job-6", "default", 100, 2, true);
    assert!(lab.plan().is_empty());
    assert!(lab.why("job-6").contains("2 cells of type GPU asked for, 1 free"), "{}", lab.why("job-6"));
    // No head-of-line blocking: what fits beside the gang that waits may start.
    lab.submit("job-7", "default", 100, 2, false);
    assert_eq!(lab.plan(), ["job-7 -> dan0:[0]"]);
    lab.ends("job-5");
    assert_eq!(lab.plan(), ["job-7 ~ dan0:[0] carol1:[0]"]);
    lab.ends("job-7");
    assert_eq!(lab.plan(), ["job-6 -> carol0:[0] dan1:[0]"]);
}

#[test]
fn pods_that_start_one_by_one_follow_those_that_end() {
    let mut lab = Lab::new(ONE);
    lab.submit("four", "default", 100, 4, false);
    assert_eq!(lab.plan(), ["four -> carol0:[0] dan1:[0]"]);
    assert!(lab.plan().is_empty());
    lab.ended("four", &[1]);
    assert_eq!(lab.plan(), ["four ~ carol0:[0] dan2:[0]"]);
    lab.ended("four", &[0, 1]);
    assert_eq!(lab.plan(), ["four ~ dan2:[0] carol3:[0]"]);
    lab.ended("four", &[0, 1, 2]);
    assert_eq!(lab.plan(), ["four ~ carol3:[0]"], "cells of pods that have ended are anybody's");
    // A pod that is made again wants its cells again.
    lab.ended("four", &[1, 2]);
    assert_eq!(lab.plan(), ["four ~ dan0:[0] carol3:[0]"]);
}

#[test]
fn a_running_job_says_why_some_of_its_pods_wait() {
    let mut lab = Lab::new(ONE);
    let id = JobId::new("default/three");
    let partly = |lab: &Lab| lab.planner.partly_waiting(&id).map(|waiting| waiting.message.clone());
    lab.submit("three", "default", 100, 3, false);
    assert_eq!(lab.plan(), ["three -> carol0:[0] dan1:[0]"]);
    assert!(lab.plan().is_empty());
    let two = "insufficient capacity in VC default: 1 cells of type GPU asked for, 0 free";
    assert_eq!(partly(&lab).as_deref(), Some(two));
    // Its virtual cluster is gone: what runs goes on, and the rest can never run.
    let mut other = config(TWO, "lab");
    other.virtual_clusters.remove("default");
    lab.planner.set_cells(Some(other), lab.now_ms).expect("valid");
    lab.ended("three", &[0, 1]);
    lab.plan();
    let never = "virtualCluster: found default; allowed: vc1";
    assert_eq!(partly(&lab).as_deref(), Some(never));
    lab.planner.set_cells(Some(config(ONE, "lab")), lab.now_ms).expect("valid");
    assert_eq!(lab.plan(), ["three ~ carol2:[0]"]);
    lab.plan();
    assert_eq!(partly(&lab), None);
}

#[test]
fn what_can_never_run_says_so_at_once() {
    let mut lab = Lab::new(ONE);
    lab.submit("four", "default", 100, 4, true);
    lab.submit("nowhere", "nobody", 100, 1, true);
    assert!(lab.plan().is_empty());
    assert!(
        lab.why("four").starts_with("InvalidCells: group default/four can never run: it asks for 4"),
        "{}",
        lab.why("four")
    );
    assert_eq!(lab.why("nowhere"), "InvalidCells: virtualCluster: found nobody; allowed: default");
    // Opportunistic jobs are not held to what their virtual cluster was promised, but to what there is.
    lab.submit("oppo", "default", -1, 3, false);
    assert_eq!(lab.plan(), ["oppo -> carol0:[0] dan1:[0]"]);
    // Another configuration is another chance.
    lab.planner.set_cells(Some(config(TWO, "lab")), lab.now_ms).expect("valid");
    lab.ends("oppo");
    lab.submit("other", "vc1", 100, 1, true);
    assert_eq!(lab.plan(), ["other -> dan0:[0]"]);
}

#[test]
fn after_a_restart_everything_has_the_cells_it_had() {
    let mut lab = Lab::new(TWO);
    lab.submit("job-3", "vc1", 100, 1, true);
    lab.submit("job-4", "vc1", -1, 1, true);
    assert_eq!(lab.plan(), ["job-3 -> dan0:[0]", "job-4 -> carol0:[0]"]);
    let mut after = Lab::new(TWO);
    (after.now_ms, after.jobs) = (lab.now_ms, lab.jobs.clone());
    for job in lab.jobs.values() {
        after.planner.set_job(job.clone(), after.now_ms);
    }
    after.submit("later", "vc1", 100, 1, true);
    assert!(after.plan().is_empty());
    assert!(after.why("later").contains("0 free"), "{}", after.why("later"));
    let of = |lab: &Lab, name: &str| lab.planner.cell_groups(&JobId::new(&format!("default/{name}")));
    for name in ["job-3", "job-4"] {
        assert_eq!(of(&after, name), of(&lab, name));
    }
    assert!(after.planner.cells().expect("on").audit().is_empty());
}

#[test]
fn what_remains_of_a_deleted_job_keeps_its_cells_and_has_no_promise() {
    // With and without somebody who has reserved the cells already.
    for high in [false, true] {
        let mut lab = Lab::new(TWO);
        lab.submit("low", "vc1", 10, 1, true);
        assert_eq!(lab.plan(), ["low -> dan0:[0]"]);
        if high {
            lab.submit("high", "vc1", 100, 1, true);
            assert_eq!(lab.plan(), ["high x low"]);
        }
        let mut remains = lab.jobs["low"].clone();
        remains.id = JobId::new("default/low#w-1");
        remains.cells = None;
        let JobPhase::Holds(held) = &mut remains.phase else { panic!("it runs") };
        held.ending = true;
        for group in &mut held.cells {
            group.name.push_str("#w-1");
            group.request["affinityGroup"]["name"] = group.name.clone().into();
            group.lazily_preempted = Some(Default::default());
        }
        lab.planner.set_job(remains.clone(), lab.now_ms);
        lab.ends("low");
        lab.submit("high", "vc1", 100, 1, true);
        lab.submit("oppo", "vc1", -1, 1, true);
        assert_eq!(lab.plan(), ["oppo -> carol0:[0]"], "other cells are anybody's");
        let waits = "WaitingForVictims: waits for 1 job to leave its cells: default/low";
        assert_eq!(lab.why("high"), waits);
        assert_eq!(lab.planner.cells().expect("on").audit(), [""; 0]);
        lab.planner.remove_job(&remains.id, lab.now_ms);
        assert_eq!(lab.plan(), ["high -> dan0:[0]"]);
    }
}

#[test]
fn a_configuration_without_the_cells_of_a_running_job_takes_none_from_it() {
    let mut lab = Lab::new(TWO);
    lab.submit("own", "vc1", 100, 1, true);
    assert_eq!(lab.plan(), ["own -> dan0:[0]"]);
    let whole = config(TWO, "lab");
    let mut less = whole.clone();
    less.physical_cluster.physical_cells.retain(|tree| !format!("{tree:?}").contains("hostname-dan"));
    less.virtual_clusters.remove("vc1");
    assert!(less.physical_cluster.physical_cells.len() < whole.physical_cluster.physical_cells.len());
    lab.planner.set_cells(Some(less), lab.now_ms).expect("valid");
    lab.plan();
    assert_eq!(lab.places(&JobId::new("default/own")), "dan0:[0]", "its pod is still there");
    lab.planner.set_cells(Some(whole), lab.now_ms).expect("valid");
    lab.submit("next", "vc1", 100, 1, true);
    let told = lab.plan();
    assert!(told.iter().all(|line| !line.starts_with("next ->")), "given once: {told:?}");
    assert_eq!(lab.places(&JobId::new("default/own")), "dan0:[0]");
    assert_eq!(lab.planner.cells().expect("on").audit(), [""; 0]);
}

#[test]
fn bad_nodes_take_nothing_and_doubted_ones_are_asked_again_later() {
    let mut lab = Lab::new(ONE);
    lab.nodes(&["hostname-dan"]);
    lab.submit("a", "default", 100, 1, true);
    lab.submit("b", "default", 100, 1, true);
    assert_eq!(lab.plan(), ["a -> dan0:[0]"]);
    assert!(
        lab.why("b").starts_with("BadCells: only possible in VC default with bad node lab/hostname-carol"),
        "{}",
        lab.why("b")
    );
    lab.nodes(&["hostname-carol", "hostname-dan"]);
    assert_eq!(lab.plan(), ["b -> carol0:[0]"]);
    lab.ends("a");
    lab.ends("b");
    lab.submit("c", "default", 100, 1, true);
    assert_eq!(lab.plan(), ["c -> carol0:[0]"]);
    // The member has something else there.
    lab.leaves("c");
    let id = JobId::new("default/c");
    lab.planner.answer(&id, "lab", Answer::Refused { message: "full".into() }, lab.now_ms);
    lab.planner.doubt_cell_nodes("lab", &["hostname-carol".into()], lab.now_ms);
    lab.now_ms += 1_000;
    assert_eq!(lab.plan(), ["c -> dan0:[0]"]);
    lab.now_ms += 1_000;
    lab.submit("d", "default", 100, 1, true);
    assert_eq!(lab.plan(), ["d -> carol0:[0]"]);
}

#[test]
fn reconfiguration_kills_nobody() {
    let mut lab = Lab::new(ONE);
    lab.submit("pair", "default", 100, 2, true);
    assert_eq!(lab.plan(), ["pair -> carol0:[0] dan1:[0]"]);
    lab.planner.set_cells(Some(config(TWO, "lab")), lab.now_ms).expect("valid");
    // It goes on where it is, as an opportunistic job; its reservation says so.
    assert_eq!(lab.plan(), ["pair ~ carol0:[0] dan1:[0]"]);
    let groups = lab.planner.cell_groups(&JobId::new("default/pair"));
    assert!(groups[0].lazily_preempted.is_some(), "{groups:?}");
    lab.submit("owner", "vc1", 10, 1, true);
    assert_eq!(lab.plan(), ["owner x pair"], "whose cells they are now may have them");
}

#[test]
fn a_wide_gang_that_was_passed_too_long_gets_a_claim() {
    let mut lab = Lab::new(ONE);
    lab.submit("first", "default", 100, 1, true);
    assert_eq!(lab.plan(), ["first -> carol0:[0]"]);
    lab.submit("wide", "default", 100, 2, true);
    lab.submit("small", "default", 100, 1, true);
    assert_eq!(lab.plan(), ["small -> dan0:[0]"]);
    lab.now_ms += 6 * 60_000;
    assert!(lab.plan().is_empty());
    lab.ends("small");
    lab.submit("next", "default", 100, 1, true);
    assert!(lab.plan().is_empty(), "dan is kept for the gang");
    assert!(lab.why("next").starts_with("Claimed: "), "{}", lab.why("next"));
    lab.ends("first");
    assert_eq!(lab.plan(), ["wide -> carol0:[0] dan1:[0]"]);
}

#[test]
fn a_job_whose_pods_start_one_by_one_loses_only_those_whose_cells_are_needed() {
    let mut lab = Lab::new(ONE);
    lab.submit("low", "default", 10, 3, false);
    assert_eq!(lab.plan(), ["low -> carol0:[0] dan1:[0]"]);
    lab.submit("high", "default", 100, 1, true);
    // No eviction of the job: its reservation says which pod has to go.
    let told = lab.plan();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("low ~ carol0:[0] dan1:[0]"), "{told:?}");
    let leaving = lab.leaving("low");
    assert_eq!(leaving.len(), 1, "{leaving:?}");
    assert!(leaving[0].ends_with("for default/high"), "{leaving:?}");
    let (gone, stays) = match leaving[0].contains("train-0") {
        true => ("carol", "low ~ dan1:[0]"),
        false => ("dan", "low ~ carol0:[0]"),
    };
    assert_eq!(lab.why("high"), "WaitingForVictims: waits for 1 job to leave its cells: default/low");
    assert!(lab.plan().is_empty(), "it was said once");
    // Another controller finds it in the reservation.
    let mut after = Lab::new(ONE);
    (after.now_ms, after.jobs) = (lab.now_ms, lab.jobs.clone());
    for job in lab.jobs.values() {
        after.planner.set_job(job.clone(), after.now_ms);
    }
    assert!(after.plan().is_empty());
    assert_eq!(after.leaving("low"), leaving);
    for lab in [&mut lab, &mut after] {
        lab.vacates("low");
        let mut told = lab.plan();
        told.sort();
        assert_eq!(told, [format!("high -> {gone}0:[0]"), stays.to_string()]);
        assert!(lab.leaving("low").is_empty());
        assert_eq!(lab.planner.cells().expect("on").audit(), [""; 0]);
        // The pod that went is made again and gets the next free cell, before the one that never had any.
        lab.ends("high");
        let told = lab.plan();
        let pod = if gone == "carol" { "carol0" } else { "dan1" };
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains(pod), "{told:?}");
    }
}

#[test]
fn a_job_that_would_lose_all_of_its_pods_is_evicted() {
    let mut lab = Lab::new(ONE);
    lab.submit("low", "default", 10, 2, false);
    assert_eq!(lab.plan(), ["low -> carol0:[0] dan1:[0]"]);
    lab.submit("wide", "default", 100, 2, true);
    assert_eq!(lab.plan(), ["wide x low"]);
    assert!(lab.leaving("low").is_empty());
    lab.leaves("low");
    assert_eq!(lab.plan(), ["wide -> carol0:[0] dan1:[0]"]);
    // One after the other: what is left of it goes with its last pod.
    let mut lab = Lab::new(ONE);
    lab.submit("low", "default", 10, 2, false);
    lab.plan();
    lab.submit("first", "default", 100, 1, true);
    lab.plan();
    assert_eq!(lab.leaving("low").len(), 1);
    lab.submit("second", "default", 100, 1, true);
    assert_eq!(lab.plan(), ["second x low"]);
}

#[test]
fn a_queue_is_by_class_and_then_first_come_first_served() {
    let mut lab = Lab::new(TWO);
    lab.submit("runs", "vc1", 1000, 1, true);
    lab.plan();
    for (name, class) in [("test-1", 10), ("oppo-1", -1), ("prod-1", 100), ("test-2", 10), ("prod-2", 100)] {
        lab.submit(name, "vc1", class, 1, true);
    }
    lab.submit("other", "default", 10, 1, true);
    lab.plan();
    let first = |lab: &Lab, vc: &str| -> Vec<String> {
        lab.planner.vc_use()[vc]
            .jobs
            .first
            .iter()
            .map(|(id, class)| format!("{} {class}", short(id)))
            .collect()
    };
    // The opportunistic one runs on what `default` leaves idle until its own job comes.
    let line = ["prod-1 100", "prod-2 100", "test-1 10", "test-2 10"];
    assert_eq!(first(&lab, "vc1")[..4], line);
    for next in ["prod-1", "prod-2", "test-1", "test-2"] {
        let runs = lab.jobs.values().find(|job| {
            matches!(job.phase, JobPhase::Holds(_))
                && job.cells.as_ref().is_some_and(|asks| asks.vc == "vc1" && asks.class >= 0)
        });
        let runs = short(&runs.expect("one runs").id).to_string();
        lab.ends(&runs);
        assert_eq!(lab.plan(), [format!("{next} -> dan0:[0]")]);
    }
}

#[test]
fn use_is_told_by_virtual_cluster() {
    let mut lab = Lab::new(TWO);
    lab.submit("runs", "vc1", 100, 1, true);
    lab.submit("waits", "vc1", 100, 1, true);
    lab.submit("borrows", "vc1", -1, 1, true);
    lab.plan();
    let used = lab.planner.vc_use();
    assert_eq!(used["vc1"].jobs.waiting, BTreeMap::from([(100, 1)]));
    assert_eq!(used["vc1"].jobs.running, BTreeMap::from([(-1, 1), (100, 1)]));
    assert_eq!(used["default"].cells.leaves["GPU-C"].borrowed_out, 1);
}
