//! Why pods of a job wait while others of it run: a job whose pods start one by one has no reason of its own.
//!
//! The controller's question is asked again, of the cells as they stand on the hub. Pods that are in its queue before
//! this one are not known here.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::names::VIRTUAL_CLUSTER_LABEL;
use fleet_cells::{Ask, Cells, Decision, GroupRequest, WaitCause};
use fleet_policies::{reason::Reason, workload::WorkloadKind};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Picture;

/// A pod that waits for cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingPod {
    /// Component and index in it, such as `train-1`.
    pub pod: String,
    pub reason: String,
    /// With the level that blocks.
    pub message: String,
}

/// Pods of a running job that have no cells yet. `held` are those that have some; none wait if it starts whole.
pub fn waiting_pods(
    picture: &Picture,
    kind: WorkloadKind,
    job: &Value,
    held: &BTreeSet<String>,
    now: Timestamp,
) -> Vec<WaitingPod> {
    let Ok(request) = fleet_cell_requests::read(kind, job) else { return Vec::new() };
    let vc = request.vc.as_deref().or_else(|| job["metadata"]["labels"][VIRTUAL_CLUSTER_LABEL].as_str());
    let (Some(vc), false, false) = (vc, request.whole, held.is_empty()) else { return Vec::new() };
    let Ok(groups) = request.groups("waiting", vc, picture.cells.config()) else { return Vec::new() };
    let mut over = ended(job);
    let mut cells = picture.cells.clone();
    let mut waiting = Vec::new();
    let ask = Ask { now_ms: now.as_millisecond(), ..Ask::default() };
    let mut answers = Answers::default();
    for group in groups {
        let missing: Vec<&(String, i64)> = group
            .pods
            .iter()
            .filter(|(component, index)| !held.contains(&format!("{component}-{index}")))
            .collect();
        // Pods that have ended have no cells any more, and are known by their number alone.
        let is_over = missing.iter().all(|(component, _)| over.get(component).is_some_and(|over| *over > 0));
        if missing.is_empty() || missing.len() < group.pods.len() || is_over {
            for (component, _) in &missing {
                over.entry(component.clone()).and_modify(|over| *over -= 1);
            }
            continue;
        }
        let (reason, message) = answers.of(&group.request, |request| answer(&mut cells, request, &ask));
        waiting.extend(missing.into_iter().map(|(component, index)| WaitingPod {
            pod: format!("{component}-{index}"),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
        }));
    }
    waiting
}

/// Why groups wait. A job of a hundred thousand pods has as many groups, and few different ones: those that differ by
/// their names alone get one answer, since nothing is committed in between.
#[derive(Default)]
struct Answers(BTreeMap<String, (Reason, String)>);

impl Answers {
    fn of(
        &mut self,
        request: &GroupRequest,
        ask: impl FnOnce(&GroupRequest) -> (Reason, String),
    ) -> &(Reason, String) {
        let mut plain = request.clone();
        plain.affinity_group.name.clear();
        let plain = serde_json::to_string(&plain).unwrap_or_default();
        self.0.entry(plain).or_insert_with(|| ask(request))
    }
}

fn answer(cells: &mut Cells, request: &GroupRequest, ask: &Ask<'_>) -> (Reason, String) {
    match cells.schedule(request, ask) {
        Decision::Wait(why) => (code(&why.cause), why.to_string()),
        Decision::Preempt(_) => (Reason::WaitingForVictims, "waits for others to leave its cells".to_owned()),
        Decision::Place(_) => (Reason::Queuing, "its cells are free; it is its turn next".to_owned()),
        Decision::Refuse(why) => (Reason::InvalidCells, why.to_string()),
    }
}

/// Pods that have ended, by component.
fn ended(job: &Value) -> BTreeMap<String, i64> {
    let counts = job["status"]["taskStatusCount"].as_object().into_iter().flatten();
    let number = |phases: &Value, phase: &str| phases[phase].as_i64().unwrap_or(0).max(0);
    counts
        .map(|(component, count)| {
            let phases = &count["phase"];
            (component.clone(), number(phases, "Succeeded") + number(phases, "Failed"))
        })
        .collect()
}

/// The reason as the controller names it.
fn code(cause: &WaitCause) -> Reason {
    match cause {
        WaitCause::TooFewLeaves { .. } | WaitCause::NoChain { .. } => Reason::InsufficientCells,
        WaitCause::NoCellForPods { .. } | WaitCause::SearchLimit { .. } => Reason::CellsFragmented,
        WaitCause::NoCellForGroup { .. } => Reason::WithinOneCell,
        WaitCause::BadNode { .. } | WaitCause::NotSuggested { .. } => Reason::BadCells,
        WaitCause::Excluded { .. } => Reason::ReservationRefused,
        WaitCause::BeingPreempted { .. } => Reason::WaitingForVictims,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        cells::tests::{now, standing},
        jobs::{Offers, Who, native_objects},
    };

    const INCREMENTAL: &str = include_str!("../../../examples/hived/jobs/job-config-7.yaml");

    #[test]
    fn equal_groups_are_asked_about_once() {
        let mut answers = Answers::default();
        let mut asked = 0;
        for i in 0..1_000 {
            let request = GroupRequest::new(&format!("waiting/{i}"), "vc1", 100, 1, 1 + i % 2);
            let (_, message) = answers.of(&request, |request| {
                asked += 1;
                (Reason::Queuing, request.name().to_owned())
            });
            assert_eq!(*message, format!("waiting/{}", i % 2));
        }
        assert_eq!(asked, 2);
    }

    #[test]
    fn a_pod_that_waits_beside_running_ones_names_the_level_that_blocks() {
        let who = Who { user: "bob", namespace: "default" };
        let text = INCREMENTAL.replace("virtualCluster: default", "virtualCluster: vc1");
        let (_, native) = native_objects(&text, who, &Offers::default(), 0).expect("the lab's file");
        let mut job = native.job;
        let picture = standing(&[("bob-job-config-7", "vc1", 100)])
            .picture(now())
            .expect("readable")
            .expect("in force");
        let asked = |job: &Value, held: &[&str]| {
            let held = held.iter().map(ToString::to_string).collect();
            waiting_pods(&picture, WorkloadKind::VolcanoJob, job, &held, now())
        };
        let waits = asked(&job, &["train-0"]);
        let [pod] = waits.as_slice() else { panic!("{waits:?}") };
        assert_eq!((pod.pod.as_str(), pod.reason.as_str()), ("train-1", "InsufficientCells"));
        assert!(pod.message.contains("insufficient capacity in VC vc1"), "{}", pod.message);
        assert!(pod.message.contains("GPU-D"), "the level: {}", pod.message);
        // A job without any waits as a whole, and one pod has ended.
        assert_eq!(asked(&job, &[]), []);
        assert_eq!(asked(&job, &["train-0", "train-1"]), []);
        job["status"] = json!({"taskStatusCount": {"train": {"phase": {"Succeeded": 1, "Running": 1}}}});
        assert_eq!(asked(&job, &["train-1"]), []);
    }
}
