//! Plugin rescheduling: moves pods from busy nodes to idle ones, in the action shuffle.
//!
//! Strategy `lowNodeUtilization`: nodes below all of `thresholds` are idle, nodes above one of `targetThresholds` are
//! busy. Pods leave busy nodes, first victims first, while their node is busy and an idle node takes them. Use is
//! the measured load where there is one, with `metricsPeriod` its average over that time, else requests. Source: Volcano's plugin of that name. Deliberately absent:
//! its other strategies; gangs are not cut below their minima.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::rules::Rules;
use crate::amounts::{CPU, MEMORY, PODS};
use crate::ids::{GroupId, NodeId, PodId};
use crate::node::NodeState;
use crate::pod::{Pod, Status};
use crate::settings::{ArgumentError, Hook, Settings, duration_s};
use crate::state::State;
use crate::sub_groups::Spare;
use crate::usage::{BUSY, Load};

const DEFAULT_INTERVAL_S: i64 = 300;
/// Most pods moved at once.
const MOST_MOVED: usize = 64;
const STRATEGY: &str = "lowNodeUtilization";
const RESOURCES: [(&str, usize); 3] = [("cpu", CPU), ("memory", MEMORY), ("pods", PODS)];

/// Percent by resource; what is not named is 100.
type Thresholds = [i64; RESOURCES.len()];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescheduling {
    interval_s: i64,
    /// Measured loads are averaged over it; `None`: the last one counts.
    metrics_period_s: Option<i64>,
    /// `None`: the strategy is not on.
    utilization: Option<Utilization>,
    /// Only pods of these queues; empty: all.
    queues: BTreeSet<String>,
    /// Only pods with these labels.
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Utilization {
    /// Below all of them: idle.
    low: Thresholds,
    /// Above one of them: busy.
    high: Thresholds,
}

impl Rules for Rescheduling {
    const NAME: &'static str = "rescheduling";
    const ARGUMENTS: &'static [&'static str] =
        &["interval", "metricsPeriod", "strategies", "queueSelector", "labelSelector"];
    const HOOKS: &'static [Hook] = &[Hook::Victim];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let duration = |name: &str| match settings.text(name) {
            None => Ok(None),
            Some(text) => duration_s(text)
                .filter(|seconds| *seconds > 0)
                .map(Some)
                .ok_or_else(|| settings.error(name, text, "a duration from 1s, such as 5m")),
        };
        let json = |name: &str, allowed: &'static str| -> Result<Option<Value>, ArgumentError> {
            let Some(text) = settings.text(name).filter(|text| !text.is_empty()) else { return Ok(None) };
            serde_json::from_str(text).map(Some).map_err(|_| settings.error(name, text, allowed))
        };
        let queues = json("queueSelector", "a list of queues")?.unwrap_or_default();
        let labels = json("labelSelector", "a map of labels")?.unwrap_or_default();
        let strategies = json("strategies", "a list of strategies")?;
        Ok(Self {
            interval_s: duration("interval")?.unwrap_or(DEFAULT_INTERVAL_S),
            metrics_period_s: duration("metricsPeriod")?,
            utilization: read_strategies(settings, strategies.as_ref())?,
            queues: queues.as_array().into_iter().flatten().filter_map(text).collect(),
            labels: labels
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.clone(), text(value)?)))
                .collect(),
        })
    }

    fn leavers(&self, state: &State) -> Vec<PodId> {
        match &self.utilization {
            Some(utilization) if self.is_due(state) => self.moved(state, utilization),
            _ => Vec::new(),
        }
    }
}

impl Rescheduling {
    pub(crate) fn metrics_period_s(&self) -> Option<i64> {
        self.metrics_period_s
    }

    pub(crate) fn is_due(&self, state: &State) -> bool {
        self.next(state) <= state.now
    }

    /// When it looks next, in seconds since the epoch.
    pub(crate) fn next(&self, state: &State) -> i64 {
        state.rescheduled_at.map_or(state.now, |at| at.saturating_add(self.interval_s))
    }

    fn moved(&self, state: &State, utilization: &Utilization) -> Vec<PodId> {
        let usable = |node: &NodeState| node.ready && !node.unschedulable && !node.kept;
        let nodes: Vec<(NodeId, Thresholds)> = state
            .nodes
            .iter()
            .filter(|(_, node)| usable(node))
            .map(|(id, node)| (id, used(state, id, node)))
            .collect();
        let mut idle: Vec<(NodeId, Vec<i64>)> = nodes
            .iter()
            .filter(|(_, used)| used.iter().zip(&utilization.low).all(|(used, low)| used < low))
            .map(|(id, _)| (*id, room(state, *id, &utilization.high)))
            .collect();
        let mut left: BTreeMap<GroupId, Spare> = BTreeMap::new();
        let mut found = Vec::new();
        for (id, mut load) in nodes {
            let busy = |load: &Thresholds| load.iter().zip(&utilization.high).any(|(used, high)| used > high);
            let mut pods = state.nodes.get(id).pods.clone();
            // The least important and youngest first.
            pods.sort_by_key(|pod| {
                (state.pod(*pod).priority, std::cmp::Reverse(state.pod(*pod).created), *pod)
            });
            for pod in pods {
                if !busy(&load) || found.len() >= MOST_MOVED {
                    break;
                }
                let known = state.pod(pod);
                if !self.concerns(state, known) {
                    continue;
                }
                let group = state.group(known.group);
                let alone = group.min() <= 1 && group.pods.len() == 1;
                let Some(room) = idle.iter_mut().find(|(node, room)| takes(state, known, *node, room)) else {
                    continue;
                };
                if !alone
                    && !left.entry(known.group).or_insert_with(|| group.spare()).take(group, known.sub_group)
                {
                    continue;
                }
                for (place, amount) in demand(state, known) {
                    room.1[place] -= amount;
                    let whole = state.nodes.cell(id, place).allocatable.max(1);
                    let at = RESOURCES.iter().position(|(_, of)| *of == place);
                    if let Some(at) = at {
                        load[at] -= percent(amount, whole);
                    }
                }
                found.push(pod);
            }
        }
        found
    }

    /// The pod may be moved.
    fn concerns(&self, state: &State, pod: &Pod) -> bool {
        let group = state.group(pod.group);
        let queue = &*state.queue(group.queue).input.name;
        pod.status == Status::Running
            && pod.preemptable
            && !pod.critical
            && !group.input.manual
            && (self.queues.is_empty() || self.queues.contains(queue))
            && self.labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
    }
}

/// What a pod uses of each dimension, itself as one pod included.
fn demand(state: &State, pod: &Pod) -> Vec<(usize, i64)> {
    let request = state.class(pod.class).request.iter();
    std::iter::once((PODS, 1)).chain(request.map(|(place, amount)| (usize::from(*place), *amount))).collect()
}

/// An idle node takes the pod, and is not busy then.
fn takes(state: &State, pod: &Pod, node: NodeId, room: &[i64]) -> bool {
    let shape = &state.class(pod.class).spec.shape;
    let known = state.nodes.get(node);
    shape.node_selector.iter().all(|(key, value)| known.labels.get(key) == Some(value))
        && fleet_resources::constraints::any_term_matches(&shape.node_affinity, &known.name, &known.labels)
        && fleet_resources::constraints::tolerates(&shape.tolerations, &known.taints)
        && demand(state, pod)
            .iter()
            .all(|(place, amount)| room.get(*place).is_some_and(|left| left >= amount))
}

/// What a node can take of each dimension: what is free, and no more than leaves it below the thresholds.
fn room(state: &State, node: NodeId, high: &Thresholds) -> Vec<i64> {
    let used = used(state, node, state.nodes.get(node));
    let mut room: Vec<i64> = state.nodes.cells(node).iter().map(|cell| cell.free()).collect();
    for (at, (_, place)) in RESOURCES.iter().enumerate() {
        let cell = state.nodes.cell(node, *place);
        let most = i128::from(cell.allocatable) * i128::from((high[at] - used[at]).max(0)) / 100;
        room[*place] = room[*place].min(i64::try_from(most).unwrap_or(i64::MAX));
    }
    room
}

/// Percent of each resource in use: measured, or requested.
fn used(state: &State, id: NodeId, node: &NodeState) -> Thresholds {
    RESOURCES.map(|(_, place)| {
        let cell = state.nodes.cell(id, place);
        let measured = |of: fn(&Load) -> i64| {
            let last = of(&node.measured?.load);
            let count = i64::try_from(node.recent.len()).unwrap_or(i64::MAX);
            let average = node.recent.iter().map(of).sum::<i64>().checked_div(count);
            Some(average.unwrap_or(last) / (BUSY / 100))
        };
        let load = match place {
            CPU => measured(|load| load.cpu),
            MEMORY => measured(|load| load.memory),
            _ => None,
        };
        load.unwrap_or_else(|| percent(cell.used, cell.allocatable))
    })
}

fn percent(part: i64, whole: i64) -> i64 {
    if whole <= 0 { 0 } else { i64::try_from(i128::from(part) * 100 / i128::from(whole)).unwrap_or(i64::MAX) }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn read_strategies(
    settings: &Settings<'_>,
    strategies: Option<&Value>,
) -> Result<Option<Utilization>, ArgumentError> {
    let mut found = None;
    for strategy in strategies.and_then(Value::as_array).into_iter().flatten() {
        let name = strategy["name"].as_str().unwrap_or_default();
        if name != STRATEGY {
            return Err(settings.error("strategies", name, STRATEGY));
        }
        // As in Volcano: `params`, or `parameters`.
        let params = if strategy["params"].is_null() { &strategy["parameters"] } else { &strategy["params"] };
        found = Some(Utilization {
            low: read_thresholds(settings, &params["thresholds"])?,
            high: read_thresholds(settings, &params["targetThresholds"])?,
        });
    }
    Ok(found)
}

fn read_thresholds(settings: &Settings<'_>, thresholds: &Value) -> Result<Thresholds, ArgumentError> {
    let mut found = [100; RESOURCES.len()];
    for (name, value) in thresholds.as_object().into_iter().flatten() {
        let Some(at) = RESOURCES.iter().position(|(known, _)| known == name) else {
            return Err(settings.error("strategies", name, "cpu, memory, pods"));
        };
        let percent = value.as_i64().or_else(|| value.as_str()?.parse().ok());
        found[at] = percent.filter(|percent| (0..=100).contains(percent)).ok_or_else(|| {
            settings.error("strategies", &value.to_string(), "whole percents from 0 to 100")
        })?;
    }
    Ok(found)
}
