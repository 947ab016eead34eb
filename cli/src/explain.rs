//! `fleet explain`: why one job waits, in full: reason and since when, its place in line, its quota's path, each
//! cluster, and the runs it had.
//!
//! The reason is the controller's own. What each cluster lacks is worked out here, by the same rules and from
//! the members' last reports.

use fleet_api::{Cluster, ElasticQuotaTree, QueueUnit, ResourceBinding, convert};
use fleet_controller::{binding::BindingEntry, cluster, planner::unfit_text};
use fleet_placement::{NodeShape, fits_shapes_empty, fits_sum, free_sum, place_on_shapes};
use fleet_policies::affinity;
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::json;

use crate::{
    age,
    answer::Answer,
    args::ExplainArgs,
    connect::Hub,
    output,
    progress::Progress,
    queue::{self, QueueRow},
    table::Table,
};

/// Where a waiting job stands in line, 1 for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Position {
    place: usize,
    of: usize,
}

/// What one cluster would say to the job now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct ClusterVerdict {
    cluster: String,
    fits: bool,
    sentence: String,
}

pub async fn run(hub: &Hub, args: &ExplainArgs) -> anyhow::Result<Answer> {
    let _progress = Progress::start("asking the hub");
    let namespace = args.scope.namespace.clone().unwrap_or_else(|| hub.namespace.clone());
    let (kind, name) = match args.job.split_once('/') {
        Some((kind, name)) => (Some(kind.to_lowercase()), name),
        None => (None, args.job.as_str()),
    };
    let bindings: Vec<ResourceBinding> =
        queue::list(hub, format!("/apis/fleet.dev/v1alpha1/namespaces/{namespace}/resourcebindings")).await?;
    let of_job = |binding: &&ResourceBinding| {
        let resource = &binding.spec.resource;
        let own = resource.kind.to_lowercase();
        resource.name == name && kind.as_ref().is_none_or(|kind| *kind == own || *kind == format!("{own}s"))
    };
    let found: Vec<&ResourceBinding> = bindings.iter().filter(of_job).collect();
    let binding = match found.as_slice() {
        [binding] => (*binding).clone(),
        [] => anyhow::bail!(
            "job {name:?} in namespace {namespace}: found no ResourceBinding of it; it does not exist, or no \
             PropagationPolicy selects it (`fleet get pytorchjob,job,mpijob,tfjob -n {namespace}` lists jobs)"
        ),
        several => {
            let kinds: Vec<&str> = several.iter().map(|b| b.spec.resource.kind.as_str()).collect();
            anyhow::bail!("job {name:?}: found {}; allowed is one: KIND/NAME", kinds.join(" and "))
        }
    };
    let (units, trees, clusters) = tokio::try_join!(
        queue::list::<QueueUnit>(hub, queue::UNITS.to_string()),
        queue::list::<ElasticQuotaTree>(hub, queue::trees()),
        queue::list::<Cluster>(hub, "/apis/fleet.dev/v1alpha1/clusters".to_string()),
    )?;
    let entry = BindingEntry::read(binding, None);
    let unit = units.iter().find(|unit| {
        unit.namespace().as_deref() == Some(entry.namespace()) && unit.name_any() == entry.unit_name()
    });
    let verdicts: Vec<ClusterVerdict> = clusters.iter().map(|cluster| judge(&entry, cluster)).collect();
    let rows = queue::rows(&trees, &units);
    let path: Vec<&QueueRow> = match unit.and_then(|unit| unit.spec.queue.as_deref()) {
        Some(leaf) => rows.iter().filter(|row| row.holds(leaf)).collect(),
        None => Vec::new(),
    };
    if args.output.is_some() {
        let (leaf, fleet) = positions(&units, unit);
        let value = json!({
            "job": format!("{}/{}", entry.namespace(), entry.object.spec.resource.name),
            "unit": unit, "binding": entry.object.status, "clusters": verdicts, "quota": path,
            "positionInLeaf": leaf, "positionInFleet": fleet,
        });
        if let Some(text) = output::data(args.output, &value)? {
            return Ok(Answer::text(text));
        }
    }
    Ok(Answer::text(print(&entry, unit, &units, &path, &verdicts, Timestamp::now())))
}

/// Whether the cluster may and can hold the whole job, by its last report.
fn judge(entry: &BindingEntry, object: &Cluster) -> ClusterVerdict {
    let name = object.name_any();
    let say = |fits: bool, sentence: String| ClusterVerdict { cluster: name.clone(), fits, sentence };
    let facts = cluster::facts(object);
    if let Some(unfit) = affinity::unfit(&entry.placement, &facts) {
        return say(false, unfit_text(Some(unfit)));
    }
    let Some(status) = &object.status else { return say(false, "has not reported yet".to_string()) };
    let resource = &entry.object.spec.resource;
    let kind = format!("{}/{}", resource.api_version, resource.kind);
    if !status.api_enablements.is_empty() && !status.api_enablements.contains(&kind) {
        return say(false, unfit_text(None));
    }
    let shapes: Vec<NodeShape> = status.node_shapes.iter().map(convert::placement_shape).collect();
    if status.reservation == Some(false) {
        return match fits_sum(&free_sum(&shapes), &entry.gang) {
            Ok(()) => say(true, "the sum of what is free covers the job".to_string()),
            Err(short) => {
                let short: Vec<String> = short.iter().map(ToString::to_string).collect();
                say(false, format!("the sum of what is free is short of {}", short.join(", ")))
            }
        };
    }
    match place_on_shapes(&shapes, &entry.gang) {
        Ok(_) => say(true, "holds the whole job now".to_string()),
        Err(refusal) if fits_shapes_empty(&shapes, &entry.gang) => say(false, refusal.sentence()),
        Err(refusal) => {
            say(false, format!("{}; it could not hold the job if nothing else ran there", refusal.sentence()))
        }
    }
}

fn waits(unit: &QueueUnit) -> bool {
    let phase = unit.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, None | Some("Enqueued" | "Reserved"))
}

/// The job's place among those that wait, in its leaf and in the whole fleet: by priority, age and name.
fn positions(units: &[QueueUnit], own: Option<&QueueUnit>) -> (Option<Position>, Option<Position>) {
    let Some(own) = own.filter(|own| waits(own)) else { return (None, None) };
    let order = |unit: &QueueUnit| {
        let created = unit.creation_timestamp().map(|time| time.0);
        (std::cmp::Reverse(unit.spec.priority), created, unit.name_any(), unit.namespace())
    };
    let place = |among: &dyn Fn(&QueueUnit) -> bool| {
        let waiting = || units.iter().filter(|unit| waits(unit) && among(unit));
        let before = waiting().filter(|unit| order(unit) < order(own)).count();
        Some(Position { place: before + 1, of: waiting().count() })
    };
    (place(&|unit| unit.spec.queue == own.spec.queue), place(&|_| true))
}

fn print(
    entry: &BindingEntry,
    unit: Option<&QueueUnit>,
    units: &[QueueUnit],
    path: &[&QueueRow],
    verdicts: &[ClusterVerdict],
    now: Timestamp,
) -> String {
    let spec = &entry.object.spec;
    let mut lines: Vec<(&str, String)> = Vec::new();
    lines.push(("Job", format!("{}/{} ({})", entry.namespace(), spec.resource.name, spec.resource.kind)));
    let status = entry.object.status.as_ref();
    let unit_status = unit.and_then(|unit| unit.status.as_ref());
    let phase = unit_status.and_then(|status| status.phase.as_deref());
    let result = status.and_then(|status| status.result.as_ref());
    let state = match (result, spec.clusters.first()) {
        (Some(result), _) => format!("{} in {}", result.outcome, result.cluster),
        (None, Some(target)) => {
            format!("{} in {} (run {})", phase.unwrap_or("Bound"), target.name, spec.epoch)
        }
        (None, None) => {
            let since = unit.map_or(&entry.object.metadata, |unit| &unit.metadata);
            let since = since.creation_timestamp.as_ref().map(|time| time.0.to_string());
            format!("waits, for {}", age::since(since.as_deref(), now))
        }
    };
    lines.push(("State", state));
    let scheduled = status.and_then(|status| status.conditions.iter().find(|c| c.type_ == "Scheduled"));
    if let Some(condition) = scheduled.filter(|_| spec.clusters.is_empty() && result.is_none()) {
        let reason = unit_status.and_then(|status| status.reason.clone()).unwrap_or(condition.reason.clone());
        let message =
            unit_status.and_then(|status| status.message.clone()).unwrap_or(condition.message.clone());
        let since = unit_status.and_then(|status| status.last_update_time.clone());
        let since = since.unwrap_or_else(|| condition.last_transition_time.0.to_string());
        lines.push(("Reason", format!("{reason}, for {}", age::since(Some(&since), now))));
        lines.push(("", message));
    }
    if let Some(unit) = unit {
        let queue = unit.spec.queue.clone().unwrap_or_else(|| "none".to_string());
        let (leaf, fleet) = positions(units, Some(unit));
        let place = match (leaf, fleet) {
            (Some(leaf), Some(fleet)) => {
                format!(", {} of {} there, {} of {} in the fleet", leaf.place, leaf.of, fleet.place, fleet.of)
            }
            _ => String::new(),
        };
        lines.push(("Queue", format!("{queue}{place}")));
    }
    let components: Vec<String> =
        spec.components.iter().map(|c| format!("{{{} {}}}", c.name, c.replicas)).collect();
    lines.push(("Asks for", format!("{} in [{}]", entry.total, components.join(" "))));
    lines.push(("Priority", spec.priority.to_string()));
    let mut text = String::new();
    for (label, value) in lines {
        let label = if label.is_empty() { String::new() } else { format!("{label}:") };
        text.push_str(&format!("{label:<11}{value}\n"));
    }
    if !path.is_empty() {
        text.push('\n');
        text.push_str(&queue::table(path.iter().copied(), false));
    }
    text.push('\n');
    let mut table = Table::new(&["CLUSTER", "FITS", "WHY"]);
    for verdict in verdicts {
        let fits = if verdict.fits { "yes" } else { "no" };
        table.row([verdict.cluster.clone(), fits.to_string(), verdict.sentence.clone()]);
    }
    text.push_str(&table.print());
    let attempts = status.map_or(&[][..], |status| &status.attempts);
    if !attempts.is_empty() {
        text.push('\n');
        let mut table = Table::new(&["RUN", "CLUSTER", "ENDED", "REASON", "MESSAGE"]);
        for attempt in attempts {
            let ended = format!("{} ago", age::since(Some(&attempt.ended_at), now));
            table.row([
                attempt.epoch.to_string(),
                attempt.cluster.clone(),
                ended,
                attempt.reason.clone(),
                attempt.message.clone(),
            ]);
        }
        text.push_str(&table.print());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object")
    }

    fn unit(name: &str, queue: &str, priority: i32, created: &str) -> QueueUnit {
        read(json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "QueueUnit",
            "metadata": {"name": format!("{name}-pytorchjob-rb-qu"), "namespace": "team",
                "creationTimestamp": created},
            "spec": {"queue": queue, "priority": priority, "consumerRef": {"apiVersion": "fleet.dev/v1alpha1",
                "kind": "ResourceBinding", "namespace": "team", "name": format!("{name}-pytorchjob")}},
            "status": {"phase": "Enqueued", "reason": "NoClusterFits", "message": "0 of 1 clusters hold it",
                "lastUpdateTime": "2026-01-01T10:00:30Z"}}))
    }

    fn cluster(name: &str, shapes: Value) -> Cluster {
        read(
            json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": {},
            "status": {"reportSequence": 1, "nodeShapes": shapes,
                "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady", "message": "",
                    "lastTransitionTime": "2026-01-01T10:00:00Z"}]}}),
        )
    }

    #[test]
    fn a_waiting_job_is_explained_in_full() {
        let entry = BindingEntry::read(
            read(json!({
            "apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
            "metadata": {"name": "train-pytorchjob", "namespace": "team", "creationTimestamp": "2026-01-01T10:00:00Z"},
            "spec": {"resource": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "namespace": "team",
                    "name": "train"},
                "policy": {"kind": "PropagationPolicy", "name": "p"}, "suspension": {"scheduling": true},
                "components": [{"name": "worker", "replicas": 2, "request": {"nvidia.com/gpu": "4"}}]},
            "status": {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoClusterFits",
                    "message": "0 of 1 clusters hold it", "lastTransitionTime": "2026-01-01T10:00:10Z"}],
                "attempts": [{"cluster": "east", "epoch": 1, "reason": "Preempted",
                    "message": "makes room for team/a in east (Reclaim); 30 s of work since its last checkpoint are lost",
                    "endedAt": "2026-01-01T10:00:20Z"}]}})),
            None,
        );
        let units = [
            unit("train", "root/team", 0, "2026-01-01T10:00:00Z"),
            unit("other", "root/team", 5, "2026-01-01T10:00:05Z"),
            unit("else", "root/b", 9, "2026-01-01T10:00:00Z"),
        ];
        let node = |gpus: &str, free: &str, count: i64| json!({"count": count, "allocatable": {"nvidia.com/gpu": gpus}, "free": {"nvidia.com/gpu": free}});
        let clusters = [
            cluster("east", json!([node("8", "2", 3), node("8", "4", 1)])),
            cluster("west", json!([node("2", "2", 9)])),
        ];
        let verdicts: Vec<ClusterVerdict> = clusters.iter().map(|c| judge(&entry, c)).collect();
        let now = "2026-01-01T10:01:00Z".parse().expect("a time");
        let text = print(&entry, Some(&units[0]), &units, &[], &verdicts, now);
        insta::assert_snapshot!(text, @r"
        Job:       team/train (PyTorchJob)
        State:     waits, for 60s
        Reason:    NoClusterFits, for 30s
                   0 of 1 clusters hold it
        Queue:     root/team, 2 of 2 there, 3 of 3 in the fleet
        Asks for:  nvidia.com/gpu 8 in [{worker 2}]
        Priority:  0

        CLUSTER   FITS   WHY
        east      no     1 of 2 worker fit: 3 of 4 nodes lack 2 nvidia.com/gpu
        west      no     0 of 2 worker fit: 9 of 9 nodes lack 2 nvidia.com/gpu; it could not hold the job if nothing else ran there

        RUN   CLUSTER   ENDED     REASON      MESSAGE
        1     east      40s ago   Preempted   makes room for team/a in east (Reclaim); 30 s of work since its last checkpoint are lost
        ");
    }
}
