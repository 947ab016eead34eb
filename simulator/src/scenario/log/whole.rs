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
        let jobs = scenario.objects.iter().chain(applied).filter_map(requests).collect();
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

type Requests = (String, (BTreeMap<String, i64>, BTreeMap<String, String>));

fn requests(manifest: &Manifest) -> Option<Requests> {
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
mod tests {
    use std::path::Path;

    use fleet_views::{Sight, State as JobState, log::Recording};

    use super::*;
    use crate::fast;

    fn recorded(file: &Path) -> (Recording, Summary) {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).expect("an example");
        let scenario = Scenario::read(&name, &text).unwrap_or_else(|error| panic!("{error}"));
        let mut out = Vec::new();
        let summary = fast::run(&scenario, &mut WholeLog::new(&mut out, &scenario)).expect("a run");
        let mut recording = Recording::default();
        for line in String::from_utf8(out).expect("text").lines() {
            recording.push(line).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        (recording, summary)
    }

    fn examples() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios")
    }

    #[test]
    fn a_reader_sees_clusters_quota_and_who_uses_them() {
        let (mut recording, _) = recorded(&examples().join("reclaim.yaml"));
        let number = recording.number_at(10_000);
        let (known, told) = recording.after(number);
        assert!(told.all);
        let east = &known.clusters()["east"];
        assert_eq!((east.nodes, east.allocatable[GPU], east.allocated[GPU]), (4, 32, 32));
        assert!(east.groups.iter().all(|group| group.gpus_free == 0), "{:?}", east.groups);
        let rows = fleet_views::queues(&known, &Sight::all()).rows;
        let research = rows.iter().find(|row| row.path == "root/research").expect("a queue");
        assert_eq!(research.bars[0].text, "32 of 32 gpu used, 8 guaranteed, 24 borrowed");
        let number = recording.number_at(25_000);
        let (known, _) = recording.after(number);
        let rows = fleet_views::queues(&known, &Sight::all()).rows;
        let product = rows.iter().find(|row| row.path == "root/product").expect("a queue");
        assert_eq!(product.bars[0].text, "16 of 32 gpu used, 24 guaranteed, 8 lent");
    }

    #[test]
    fn a_node_that_fails_and_a_cluster_that_is_cut_off_are_told() {
        let (mut recording, _) = recorded(&examples().join("node-loss.yaml"));
        let end = recording.end_ms();
        let lost = (0..=end / 1000).any(|second| {
            let number = recording.number_at(second * 1000);
            let (known, _) = recording.after(number);
            known.clusters().values().any(|cluster| cluster.nodes_ready < cluster.nodes)
        });
        assert!(lost, "at some instant a node is not ready");
        let (mut recording, _) = recorded(&examples().join("partition-long.yaml"));
        let cut = (0..=recording.end_ms() / 1000).any(|second| {
            let number = recording.number_at(second * 1000);
            recording.after(number).0.clusters().values().any(|cluster| cluster.ready == Some(false))
        });
        assert!(cut, "at some instant a cluster is cut off");
    }

    #[test]
    fn the_end_of_each_example_is_that_of_its_summary() {
        let mut seen = 0;
        for entry in std::fs::read_dir(examples()).expect("examples") {
            let path = entry.expect("an example").path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let (mut recording, summary) = recorded(&path);
            let (known, _) = recording.after(usize::MAX);
            let count = |wanted: &[JobState]| {
                known.jobs().values().filter(|job| wanted.contains(&job.state())).count()
            };
            let name = path.display();
            assert_eq!(known.jobs().len() + summary.deleted, summary.jobs, "{name}");
            assert_eq!(count(&[JobState::Succeeded]), summary.succeeded, "{name}");
            assert_eq!(count(&[JobState::Failed]), summary.failed + summary.rejected, "{name}");
            seen += 1;
        }
        assert!(seen > 10, "{seen}");
    }
}
