//! The log of a run for those who look at it later: every event, and besides which clusters and which quota there were.
//!
//! What the records do not say stands in the scenario: clusters, nodes and trees change when the file says so.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
};

use fleet_api::{Cluster, ElasticQuotaTree};
use fleet_hub_core::facts;
use fleet_policies::{WorkloadKind, workload};
use fleet_resources::{constraints::Taint, quantity};
use fleet_views::{
    ClusterFacts, NodeGroup, Said,
    amounts::GPU,
    log::{Event, Line},
};
use serde_json::{Value, json};

use super::{
    record::{Record, What},
    sink::Log,
    summary::Summary,
};
use crate::scenario::{Action, ClusterSpec, Manifest, Scenario};

const NOT_READY: &str = "node.kubernetes.io/not-ready:NoSchedule";

/// Of each component GPUs of one pod, and the requests of all pods.
type Parts = (BTreeMap<String, i64>, BTreeMap<String, String>);

/// JSON lines with everything that pages are made from.
#[derive(Debug)]
pub struct WholeLog<W> {
    out: W,
    /// Lines that the scenario tells, by time.
    told: VecDeque<(i64, String)>,
    /// By `namespace/name`.
    jobs: BTreeMap<String, Parts>,
}

impl<W: io::Write> WholeLog<W> {
    pub fn new(out: W, scenario: &Scenario) -> Self {
        let applied = scenario.events.iter().filter_map(|event| match &event.action {
            Action::Apply(manifest) => Some(manifest),
            _ => None,
        });
        // A job is submitted with what it asks for before any edit.
        let jobs = scenario.objects.iter().chain(applied).rev().filter_map(requests).collect();
        Self { out, told: log_lines(scenario).into(), jobs }
    }

    /// What the scenario tells up to then.
    fn tell_until(&mut self, at_ms: i64) -> io::Result<()> {
        while let Some((_, line)) = self.told.pop_front_if(|(at, _)| *at <= at_ms) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }
}

impl<W: io::Write> Log for WholeLog<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.tell_until(record.at_ms)?;
        let text = record.json()?;
        let known = self.jobs.get(&*record.job).filter(|_| matches!(record.what, What::Submitted { .. }));
        match known {
            None => writeln!(self.out, "{text}"),
            Some((pod_gpus, requests)) => {
                let mut line: Value = serde_json::from_str(&text)?;
                line["pod_gpus"] = json!(pod_gpus);
                line["requests"] = json!(requests);
                writeln!(self.out, "{line}")
            }
        }
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        // What the file has in store for later than the end did not happen.
        writeln!(self.out, "{}", json!({"summary": summary}))?;
        self.out.flush()
    }
}

fn requests(manifest: &Manifest) -> Option<(String, Parts)> {
    let kind = WorkloadKind::of(&manifest.api_version, &manifest.kind);
    let components = workload::components(kind, &manifest.value).ok().filter(|all| !all.is_empty())?;
    let pod_gpus = components.iter().map(|one| (one.name.clone(), one.requests.get(GPU))).collect();
    let all = workload::total(&components).to_quantities();
    Some((format!("{}/{}", manifest.namespace, manifest.name), (pod_gpus, all)))
}

/// A cluster as the scenario has made it so far.
struct State<'s> {
    spec: &'s ClusterSpec,
    unready: BTreeSet<String>,
    is_cut_off: bool,
    /// As an object of the file says it.
    marks: ClusterFacts,
}

fn log_lines(scenario: &Scenario) -> Vec<(i64, String)> {
    let mut lines = Vec::new();
    let of_none = |at_ms, event| (at_ms, Line { at_ms, id: None, event }.text(None));
    let mut clusters: BTreeMap<&str, State<'_>> = BTreeMap::new();
    for spec in &scenario.clusters {
        let state =
            State { spec, unready: BTreeSet::new(), is_cut_off: false, marks: ClusterFacts::default() };
        lines.push(of_none(0, state.event()));
        clusters.insert(&spec.name, state);
    }
    let tree = |manifest: &Manifest| {
        let object: ElasticQuotaTree = serde_json::from_value(manifest.value.clone()).ok()?;
        let tree = facts::tree(&[object]);
        Some(Event::Tree { root: tree.root.map(Box::new), problems: tree.problems })
    };
    let of_object =
        |manifest: &Manifest, clusters: &mut BTreeMap<&str, State<'_>>| match manifest.kind.as_str() {
            "ElasticQuotaTree" => tree(manifest),
            "Cluster" => {
                let object: Cluster = serde_json::from_value(manifest.value.clone()).ok()?;
                let state = clusters.get_mut(manifest.name.as_str())?;
                state.marks = facts::cluster(&object);
                Some(state.event())
            }
            _ => None,
        };
    for manifest in &scenario.objects {
        lines.extend(of_object(manifest, &mut clusters).map(|event| of_none(0, event)));
    }
    for event in &scenario.events {
        let at_ms = i64::try_from(event.at.as_millis()).unwrap_or(i64::MAX);
        let told = match &event.action {
            Action::Apply(manifest) => of_object(manifest, &mut clusters),
            Action::Node { cluster, name, ready } => clusters.get_mut(cluster.as_str()).map(|state| {
                match ready {
                    true => state.unready.remove(name),
                    false => state.unready.insert(name.clone()),
                };
                state.event()
            }),
            Action::Partition { cluster } | Action::Heal { cluster } => {
                clusters.get_mut(cluster.as_str()).map(|state| {
                    state.is_cut_off = matches!(event.action, Action::Partition { .. });
                    state.event()
                })
            }
            _ => None,
        };
        lines.extend(told.map(|event| of_none(at_ms, event)));
    }
    lines
}

impl State<'_> {
    fn event(&self) -> Event {
        Event::Cluster { cluster: self.spec.name.clone(), facts: Some(Box::new(self.facts())) }
    }

    fn facts(&self) -> ClusterFacts {
        let mut facts = ClusterFacts {
            region: self.spec.region.clone().unwrap_or_default(),
            provider: self.spec.provider.clone().unwrap_or_default(),
            ready: Some(!self.is_cut_off),
            cordoned: self.marks.cordoned,
            draining: self.marks.draining,
            gone: self.marks.gone,
            taints: self.marks.taints.clone(),
            ..ClusterFacts::default()
        };
        if self.is_cut_off {
            facts.ready_said = Said {
                reason: "Partition".to_owned(),
                message: "The scenario cuts it off from the hub.".to_owned(),
                since_s: 0,
            };
        }
        for pool in &self.spec.node_pools {
            let amount = |name: &str, text: &String| quantity::parse(name, text).unwrap_or(0);
            let count = i64::try_from(pool.count).unwrap_or(i64::MAX);
            for (name, text) in &pool.allocatable {
                *facts.allocatable.entry(name.clone()).or_default() +=
                    amount(name, text).saturating_mul(count);
            }
            let gpus = pool.allocatable.get(GPU).map_or(0, |text| amount(GPU, text));
            let taints: Vec<String> = pool.taints.iter().map(text_of).collect();
            let names = (0..pool.count).map(|index| pool.node_name(index));
            let (unready, ready): (Vec<String>, Vec<String>) =
                names.partition(|name| self.unready.contains(name));
            let group = |names: Vec<String>, taints: Vec<String>| NodeGroup {
                count: i64::try_from(names.len()).unwrap_or(i64::MAX),
                gpus,
                gpus_free: gpus,
                names,
                taints,
                ..NodeGroup::default()
            };
            facts.nodes += count;
            facts.nodes_ready += i64::try_from(ready.len()).unwrap_or(i64::MAX);
            facts.groups.push(group(ready, taints.clone()));
            if !unready.is_empty() {
                let taints = taints.into_iter().chain([NOT_READY.to_owned()]).collect();
                facts.groups.push(group(unready, taints));
            }
        }
        facts
    }
}

/// As kubectl writes it.
fn text_of(taint: &Taint) -> String {
    let effect = serde_json::to_value(taint.effect).unwrap_or_default();
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{}", taint.key, effect.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests;
