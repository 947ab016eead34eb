//! What runs keeps its cells.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Judge, Placed, text};
use crate::{Violation, facts::job_of, violation::broken};

/// Node and leaf cells of each pod that a binding names.
type Places = BTreeMap<String, (String, BTreeSet<i64>)>;

fn places(binding: &Value) -> Places {
    let groups = binding["spec"]["cells"]["groups"].as_array().into_iter().flatten();
    let pods = groups.flat_map(|group| group["pods"].as_array().into_iter().flatten());
    let place = |pod: &Value| {
        let leaves: BTreeSet<i64> =
            pod["leafCells"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        (text(&pod["name"]).to_string(), (text(&pod["node"]).to_string(), leaves))
    };
    pods.map(place).filter(|(name, (_, leaves))| !name.is_empty() && !leaves.is_empty()).collect()
}

impl Judge {
    /// Under one configuration a run gets no other cells for a pod that is there. One that is preempted leaves first.
    pub(super) fn moved(&self, uid: &str, was: &Value, now: &Value) -> Option<Violation> {
        let is_one_run = was["spec"]["epoch"] == now["spec"]["epoch"];
        if !is_one_run || self.cells.changes > 1 || !now["status"]["result"].is_null() {
            return None;
        }
        let (before, after) = (places(was), places(now));
        if before.is_empty() || before == after {
            return None;
        }
        let is_of_run = |placed: &&Placed| {
            let run = self.run_of(&placed.run);
            run.is_some_and(|run| run.binding == uid && now["spec"]["epoch"] == run.epoch)
        };
        self.cells.pods.values().filter(is_of_run).find_map(|placed| {
            let is_here =
                |place: &(String, BTreeSet<i64>)| place.0 == placed.node.1 && place.1 == placed.leaves;
            let (name, _) = before.iter().find(|(_, place)| is_here(place))?;
            let (node, leaves) = after.get(name).filter(|place| !is_here(place))?;
            let what = format!(
                "{} runs on leaf cells {:?} of {}, and its binding of {} names {leaves:?} of {node} instead",
                placed.name,
                placed.leaves,
                placed.node.1,
                job_of(now)
            );
            Some(broken(10, what))
        })
    }
}
