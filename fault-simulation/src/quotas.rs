//! Draws the quota tree of a run, and by which rules its jobs preempt each other.
//!
//! It has its own branch of the seed, so fleet, jobs and faults stay the same. Every job fits its leaf if nothing
//! else runs there: its result does not depend on the order of jobs.

use fleet_quota_tree::PREEMPTIBLE_LABEL;
use serde_json::{Value, json};

use super::{plan::EXPECT_LABEL, random::Random};

/// Cores of the whole tree: the widest job has four pods of one core.
const CORES: (u64, u64) = (4, 8);
/// Names and values of the priorities.
const CLASSES: [(&str, i64); 2] = [("urgent", 10), ("idle", -10)];

/// Whose jobs take from whom, beside urgent ones from idle ones of their own leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// Nobody from another leaf; the tree is the plan's own.
    Own,
    /// A leaf inside its min takes back what it has lent.
    Reclaim,
    /// The smaller share takes from the larger one.
    FairShare,
    Both,
}

pub(super) struct Quotas {
    seed: u64,
    random: Random,
    rights: Rights,
    cores: u64,
    /// Cores that the leaves are sure of.
    mins: [u64; 2],
    /// The mins change places in the middle of the run.
    edited: bool,
    priorities: bool,
}

impl Quotas {
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::branch(seed, "quotas");
        let rights = match random.below(100) {
            0..30 => Rights::Own,
            30..65 => Rights::Reclaim,
            65..80 => Rights::FairShare,
            _ => Rights::Both,
        };
        let cores = random.between(CORES.0, CORES.1);
        let first = random.between(0, cores);
        let edited = random.per_mille(200);
        let priorities = random.per_mille(600);
        Self { seed, random, rights, cores, mins: [first, cores - first], edited, priorities }
    }

    fn has_mins(&self) -> bool {
        matches!(self.rights, Rights::Reclaim | Rights::Both)
    }

    /// The classes of the jobs, and the tree; `own` is the plan's own tree.
    pub fn objects(&self, own: Value) -> Vec<Value> {
        let class = |(name, value)| {
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value})
        };
        let mut objects: Vec<Value> = CLASSES.into_iter().map(class).collect();
        objects.push(match self.rights {
            Rights::Own => own,
            _ => self.tree(),
        });
        objects
    }

    /// The tree with its mins changed, where the run has such an edit.
    pub fn edit(&mut self) -> Option<Value> {
        if !self.edited || !self.has_mins() {
            return None;
        }
        self.mins.swap(0, 1);
        Some(self.tree())
    }

    fn tree(&self) -> Value {
        let (cores, mins) = (self.cores, self.mins);
        // What is drawn here is the same each time: an edit changes the mins and nothing else.
        let mut random = Random::branch(self.seed, "attributes");
        let mut leaf = |name: &str, min: u64| {
            let min = if self.has_mins() { min } else { 0 };
            let mut leaf = json!({"name": name, "namespaces": [format!("team-{name}")], "min": {"cpu": min},
                "max": {"cpu": cores}});
            if random.per_mille(200) {
                leaf["attributes"]["fleet.dev/preempt-within"] = "LowerOrNewerEqualPriority".into();
            }
            if random.per_mille(300) {
                leaf["attributes"]["fleet.dev/max-bypass"] = "30s".into();
            }
            leaf
        };
        let leaves = json!([leaf("a", mins[0]), leaf("b", mins[1])]);
        let mut root =
            json!({"name": "root", "max": {"cpu": cores}, "min": {"cpu": cores}, "children": leaves});
        if matches!(self.rights, Rights::FairShare | Rights::Both) {
            root["attributes"] = json!({"fleet.dev/share-preemption": "FairShare"});
        }
        if self.rights == Rights::Both {
            // A level between, which lends its own min to any job below it.
            root["children"] = json!([{"name": "org", "min": {"cpu": cores}, "max": {"cpu": cores},
                "attributes": {"fleet.dev/guarantee": "Subtree"}, "children": leaves}]);
        }
        json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
            "metadata": {"name": "tree", "namespace": "kube-system"}, "spec": {"root": root}})
    }

    /// Gives a job its priority, and says of some that they may not be preempted.
    pub fn rank(&mut self, job: &mut Value) {
        let random = &mut self.random;
        let class = match random.below(100) {
            0..25 => Some(CLASSES[0].0),
            25..50 => Some(CLASSES[1].0),
            _ => None,
        };
        if let Some(class) = class.filter(|_| self.priorities) {
            for template in templates(job) {
                template["spec"]["priorityClassName"] = class.into();
            }
        }
        if random.per_mille(120) && self.has_mins() {
            job["metadata"]["labels"][PREEMPTIBLE_LABEL] = "false".into();
            // It stays inside its leaf's min, and may wait for ever where that is too small for it.
            let leaf = usize::from(job["metadata"]["namespace"] == "team-b");
            if (self.edited || pods(job) > self.mins[leaf])
                && job["metadata"]["labels"][EXPECT_LABEL] != "Waits"
            {
                job["metadata"]["labels"][EXPECT_LABEL] = "Any".into();
            }
        }
    }
}

/// The pod templates of a job.
fn templates(job: &mut Value) -> Vec<&mut Value> {
    let spec = &mut job["spec"];
    if !spec["template"].is_null() {
        return vec![&mut spec["template"]];
    }
    let roles = spec["pytorchReplicaSpecs"].as_object_mut();
    roles.into_iter().flat_map(|roles| roles.values_mut()).map(|role| &mut role["template"]).collect()
}

/// How many pods a job has, each of one core.
fn pods(job: &Value) -> u64 {
    let spec = &job["spec"];
    let roles = spec["pytorchReplicaSpecs"].as_object().into_iter().flat_map(|roles| roles.values());
    let of_roles: u64 = roles.filter_map(|role| role["replicas"].as_u64()).sum();
    of_roles + spec["parallelism"].as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fleet_quota_tree::{NodeSpec, QuotaTree};

    use super::*;

    #[test]
    fn every_tree_is_usable_and_every_right_is_drawn() {
        let mut rights = BTreeSet::new();
        for seed in 0..200 {
            let mut quotas = Quotas::draw(seed);
            rights.insert(format!("{:?}", quotas.rights));
            let before = quotas.tree();
            for tree in [Some(before.clone()), quotas.edit()].into_iter().flatten() {
                let root: NodeSpec = serde_json::from_value(tree["spec"]["root"].clone()).expect("a node");
                let (_, warnings) = QuotaTree::build(&root).expect("usable");
                // A leaf may be sure of nothing.
                let harmless =
                    warnings.iter().all(|warning| warning.field == "min" && warning.found == "nothing");
                assert!(harmless, "seed {seed}: {warnings:?}\n{tree}");
            }
        }
        assert_eq!(rights.len(), 4, "{rights:?}");
    }

    #[test]
    fn ranks_reach_every_pod_template() {
        let mut quotas = Quotas { priorities: true, ..Quotas::draw(1) };
        let role = json!({"replicas": 2, "template": {"spec": {}}});
        let mut named = BTreeSet::new();
        for _ in 0..100 {
            let mut job = json!({"metadata": {"namespace": "team-a", "labels": {}},
                "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}}});
            assert_eq!(pods(&job), 4);
            quotas.rank(&mut job);
            let roles = &job["spec"]["pytorchReplicaSpecs"];
            let class = |role: &str| roles[role]["template"]["spec"]["priorityClassName"].clone();
            assert_eq!(class("Master"), class("Worker"));
            named.insert(class("Master").to_string());
        }
        assert_eq!(named.len(), 3, "{named:?}");
    }
}
