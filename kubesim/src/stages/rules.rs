//! Which stage an object is in, and for how long: pure rules, after the stages of KWOK.
//!
//! Inputs: a reading of one object, the set of stages, a seed. The same seed and uid give the same delays and
//! the same chaos. Not here: clocks, the store, and stages as objects.

use std::time::Duration;

use fleet_simulator::run_plan::RunTime;

/// Suffix of the labels and annotations that configure a stage: `pod-ready.stage.kwok.x-k8s.io/delay`.
const DOMAIN: &str = "stage.kwok.x-k8s.io";
/// Weight of a stage requested by chaos, so that it nearly always wins.
const CHAOS_WEIGHT: u64 = 10_000;
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);

/// The available stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageSet {
    /// A pod is ready at once and a job's pod ends at once.
    Fast,
    /// Every step takes one to five seconds.
    General,
}

/// A step of a pod's or a node's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    PodCreate,
    PodReady,
    PodComplete,
    PodRunningFailed,
    PodDelete,
    NodeInitialize,
    NodeNotReady,
}

impl Stage {
    /// Name in labels and annotations.
    pub fn name(self) -> &'static str {
        match self {
            Self::PodCreate => "pod-create",
            Self::PodReady => "pod-ready",
            Self::PodComplete => "pod-complete",
            Self::PodRunningFailed => "pod-container-running-failed",
            Self::PodDelete => "pod-delete",
            Self::NodeInitialize => "node-initialize",
            Self::NodeNotReady => "node-not-ready",
        }
    }

    /// Key of the annotation `<stage>.stage.kwok.x-k8s.io/<field>`.
    pub fn key(self, field: &str) -> String {
        format!("{}.{DOMAIN}/{field}", self.name())
    }

    /// Key of the label that requests chaos.
    pub fn label(self) -> String {
        format!("{}.{DOMAIN}", self.name())
    }
}

/// What the rules read of an object. Annotations and labels are read by key, so that nothing is copied.
pub trait Reading {
    fn text(&self, path: &[&str]) -> String;
    fn has(&self, path: &[&str]) -> bool;
    /// The kind of the controller that made it.
    fn owner_kind(&self) -> String;
}

/// The next step of an object, and its delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    pub stage: Stage,
    pub after: Duration,
}

/// The next step of a pod; None while it waits for another component.
pub fn next_for_pod(pod: &impl Reading, set: StageSet, seed: u64) -> Option<Next> {
    if pod.has(&["metadata", "deletionTimestamp"]) {
        let held = pod.has(&["metadata", "finalizers"]);
        return (!held).then(|| timed(pod, Stage::PodDelete, set, seed));
    }
    if !pod.has(&["spec", "nodeName"]) {
        return None;
    }
    let candidates: &[Stage] = match (pod.text(&["status", "phase"]).as_str(), set) {
        ("Succeeded" | "Failed", _) => &[],
        ("Running", _) if pod.owner_kind() == "Job" => &[Stage::PodRunningFailed, Stage::PodComplete],
        ("Running", _) => &[Stage::PodRunningFailed],
        (_, StageSet::General) if !pod.has(&["status", "podIP"]) => &[Stage::PodCreate],
        _ => &[Stage::PodReady],
    };
    chosen(pod, candidates, set, seed)
}

/// The next step of a node.
pub fn next_for_node(node: &impl Reading, ready: bool, set: StageSet, seed: u64) -> Option<Next> {
    let broken = node.text(&["metadata", "labels", &Stage::NodeNotReady.label()]) == "true";
    match (broken, ready) {
        (true, true) => Some(timed(node, Stage::NodeNotReady, set, seed)),
        (false, false) => Some(timed(node, Stage::NodeInitialize, set, seed)),
        _ => None,
    }
}

/// Chooses one of the matching stages at random, by weight.
fn chosen(of: &impl Reading, candidates: &[Stage], set: StageSet, seed: u64) -> Option<Next> {
    let weighed: Vec<(Stage, u64)> = candidates.iter().map(|stage| (*stage, weight(of, *stage))).collect();
    let total: u64 = weighed.iter().map(|(_, weight)| weight).sum();
    if total == 0 {
        return None;
    }
    let mut draw = chance(of, seed, "stage") % total;
    for (stage, weight) in weighed {
        if draw < weight {
            return Some(timed(of, stage, set, seed));
        }
        draw -= weight;
    }
    None
}

fn weight(of: &impl Reading, stage: Stage) -> u64 {
    let standard = match stage {
        Stage::PodRunningFailed => {
            let asked = of.text(&["metadata", "labels", &stage.label()]) == "true";
            if asked { CHAOS_WEIGHT } else { return 0 }
        }
        _ => 1,
    };
    of.text(&["metadata", "annotations", &stage.key("weight")]).parse().unwrap_or(standard)
}

fn timed(of: &impl Reading, stage: Stage, set: StageSet, seed: u64) -> Next {
    let (delay, jitter) = match (set, stage) {
        (StageSet::General, Stage::PodDelete) => (Duration::ZERO, SHORTEST),
        (StageSet::General, Stage::PodCreate | Stage::PodReady | Stage::PodComplete) => (SHORTEST, LONGEST),
        _ => (Duration::ZERO, Duration::ZERO),
    };
    let read = |field: &str| match of.text(&["metadata", "annotations", &stage.key(field)]).parse() {
        Ok(RunTime::For(time)) => Some(time),
        _ => None,
    };
    let (own_delay, own_jitter) = (read("delay"), read("jitter-delay"));
    // A delay from the object's own annotation has no jitter of the set.
    let jitter = own_jitter.or(if own_delay.is_some() { None } else { Some(jitter) });
    let delay = own_delay.unwrap_or(delay);
    let after = match jitter {
        None => delay,
        Some(jitter) if jitter <= delay => jitter,
        Some(jitter) => {
            let span = u64::try_from((jitter - delay).as_millis()).unwrap_or(u64::MAX).max(1);
            delay + Duration::from_millis(chance(of, seed, stage.name()) % span)
        }
    };
    Next { stage, after }
}

/// A pseudo-random number from the seed, the object and its purpose.
fn chance(of: &impl Reading, seed: u64, what: &str) -> u64 {
    let uid = of.text(&["metadata", "uid"]);
    let bytes = seed.to_le_bytes().into_iter().chain(uid.bytes()).chain(what.bytes());
    // FNV-1a and a final mix: good enough for delays.
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    impl Reading for Value {
        fn text(&self, path: &[&str]) -> String {
            let found = path.iter().try_fold(self, |value, key| value.get(*key));
            found.and_then(Value::as_str).unwrap_or_default().to_string()
        }

        fn has(&self, path: &[&str]) -> bool {
            path.iter().try_fold(self, |value, key| value.get(*key)).is_some()
        }

        fn owner_kind(&self) -> String {
            self["metadata"]["ownerReferences"][0]["kind"].as_str().unwrap_or_default().to_string()
        }
    }

    fn pod(phase: &str, owner: &str, more: Value) -> Value {
        let mut pod = json!({
            "metadata": {"uid": "u1", "ownerReferences": [{"kind": owner}]},
            "spec": {"nodeName": "n"}, "status": {"phase": phase}});
        for (key, value) in more.as_object().into_iter().flatten() {
            pod["metadata"][key] = value.clone();
        }
        pod
    }

    fn check(pod: &Value, set: StageSet, expect: Option<Stage>) {
        assert_eq!(next_for_pod(pod, set, 1).map(|next| next.stage), expect, "{pod}");
    }

    #[test]
    fn pods_go_from_stage_to_stage() {
        check(&pod("Pending", "Job", json!({})), StageSet::Fast, Some(Stage::PodReady));
        check(&pod("Pending", "Job", json!({})), StageSet::General, Some(Stage::PodCreate));
        check(&pod("Running", "Job", json!({})), StageSet::Fast, Some(Stage::PodComplete));
        check(&pod("Running", "ReplicaSet", json!({})), StageSet::Fast, None);
        check(&pod("Succeeded", "Job", json!({})), StageSet::Fast, None);
        let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        check(&pod("Running", "Job", deleting), StageSet::Fast, Some(Stage::PodDelete));
        let held = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]});
        check(&pod("Running", "Job", held), StageSet::Fast, None);
        let mut unbound = pod("Pending", "Job", json!({}));
        unbound["spec"] = json!({});
        check(&unbound, StageSet::Fast, None);
        let chaos = json!({"labels": {"pod-container-running-failed.stage.kwok.x-k8s.io": "true"}});
        check(&pod("Running", "ReplicaSet", chaos), StageSet::Fast, Some(Stage::PodRunningFailed));
    }

    #[test]
    fn delays_come_from_the_set_or_from_the_object_and_repeat() {
        let after = |annotations: Value, seed| {
            let pod = pod("Running", "Job", json!({"annotations": annotations}));
            next_for_pod(&pod, StageSet::General, seed).expect("a stage").after
        };
        let standard = after(json!({}), 7);
        assert!((SHORTEST..LONGEST).contains(&standard), "{standard:?}");
        assert_eq!(after(json!({}), 7), standard, "the same seed gives the same delay");
        let own = json!({"pod-complete.stage.kwok.x-k8s.io/delay": "90s"});
        assert_eq!(after(own, 7), Duration::from_secs(90));
        let short = json!({"pod-complete.stage.kwok.x-k8s.io/delay": "90s",
            "pod-complete.stage.kwok.x-k8s.io/jitter-delay": "30s"});
        assert_eq!(after(short, 7), Duration::from_secs(30), "a jitter below the delay is the delay");
        let spread = json!({"pod-complete.stage.kwok.x-k8s.io/delay": "1s",
            "pod-complete.stage.kwok.x-k8s.io/jitter-delay": "2s"});
        let times: std::collections::BTreeSet<Duration> =
            (0..20).map(|seed| after(spread.clone(), seed)).collect();
        assert!(times.len() > 10 && times.iter().all(|time| (SHORTEST..2 * SHORTEST).contains(time)));
    }
}
