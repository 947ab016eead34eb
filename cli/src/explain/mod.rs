//! `fleet explain`: why one job waits: the reason and since when, its position in the queue, its quota's
//! path, each cluster, and its earlier runs.
//!
//! The reason is the controller's own. What each cluster lacks is computed by `fleet_portal::explain` from
//! the members' last reports.

mod unbound;

use fleet_api::{Cluster, ElasticQuotaTree, QueueUnit, ResourceBinding};
use fleet_hub_core::binding::BindingEntry;
use fleet_portal::explain::{ClusterVerdict, verdicts};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::json;

use crate::{
    age,
    answer::Answer,
    args::ExplainArgs,
    connect::Hub,
    discovery, output,
    progress::Progress,
    queue::{self, QueueRow},
    table::Table,
};

/// Position of a waiting job in its queue, 1 for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Position {
    place: usize,
    of: usize,
}

pub async fn run(hub: &Hub, args: &ExplainArgs) -> anyhow::Result<Answer> {
    let _progress = Progress::start("asking the hub");
    let namespace = args.scope.namespace.clone().unwrap_or_else(|| hub.namespace.clone());
    let (word, name) = wanted(&args.job);
    let kinds = discovery::kinds(&hub.server).await?;
    let kind = match &word {
        None => None,
        Some(word) => match discovery::resolve(&kinds, word).first() {
            Some(kind) => Some(*kind),
            None => anyhow::bail!("job {name:?}: found the kind {word:?}, which the hub does not serve"),
        },
    };
    let bindings: Vec<ResourceBinding> =
        queue::list(hub, format!("/apis/fleet.dev/v1alpha1/namespaces/{namespace}/resourcebindings")).await?;
    let of_job = |binding: &&ResourceBinding| {
        let resource = &binding.spec.resource;
        let group = resource.api_version.split_once('/').map_or("", |(group, _)| group);
        resource.name == name && kind.is_none_or(|kind| kind.kind == resource.kind && kind.group == group)
    };
    let found: Vec<&ResourceBinding> = bindings.iter().filter(of_job).collect();
    let binding = match found.as_slice() {
        [binding] => (*binding).clone(),
        [] => {
            return unbound::explain(hub, &kinds, kind, &namespace, &name, args.output.as_ref()).await;
        }
        several => {
            let kinds: Vec<&str> = several.iter().map(|b| b.spec.resource.kind.as_str()).collect();
            anyhow::bail!("job {name:?}: found {}; allowed: one, as KIND/NAME", kinds.join(" and "))
        }
    };
    let (units, trees, clusters) = tokio::try_join!(
        queue::list::<QueueUnit>(hub, queue::UNITS.to_string()),
        queue::list::<ElasticQuotaTree>(hub, queue::trees()),
        queue::list::<Cluster>(hub, "/apis/fleet.dev/v1alpha1/clusters".to_string()),
    )?;
    let policy = policy_says(hub, &binding).await?;
    let entry = BindingEntry::read(binding, None);
    let unit = units.iter().find(|unit| {
        unit.namespace().as_deref() == Some(entry.namespace()) && unit.name_any() == entry.unit_name()
    });
    let verdicts = verdicts(&entry, &clusters);
    let rows = queue::rows(&trees, &units);
    let path: Vec<&QueueRow> = match unit.and_then(|unit| unit.spec.queue.as_deref()) {
        Some(leaf) => rows.iter().filter(|row| row.holds(leaf)).collect(),
        None => Vec::new(),
    };
    let (leaf, fleet) = positions(&units, unit);
    let value = json!({
        "job": format!("{}/{}", entry.namespace(), entry.object.spec.resource.name),
        "unit": unit, "binding": entry.object.status, "clusters": verdicts, "quota": path,
        "policy": policy, "positionInLeaf": leaf, "positionInFleet": fleet,
    });
    if let Some(text) = output::data(args.output.as_ref(), &value, ("", ".job"))? {
        return Ok(Answer::text(text));
    }
    let mut text = print(&entry, unit, &units, &path, &verdicts, &policy, Timestamp::now());
    let invalid = queue::invalid(&trees);
    if entry.is_suspended() && !invalid.is_empty() {
        text.push_str(&format!("\n{invalid}"));
    }
    Ok(Answer::people(text))
}

/// Kind and name, from `NAME`, `KIND/NAME` or `KIND NAME`.
fn wanted(words: &[String]) -> (Option<String>, String) {
    match words {
        [kind, name] => (Some(kind.clone()), name.clone()),
        [word] => match word.split_once('/') {
            Some((kind, name)) => (Some(kind.to_string()), name.to_string()),
            None => (None, word.clone()),
        },
        _ => (None, String::new()),
    }
}

/// The policy that governs the job, and its mistakes from its own conditions, one per line.
async fn policy_says(hub: &Hub, binding: &ResourceBinding) -> anyhow::Result<Vec<String>> {
    let policy = &binding.spec.policy;
    if policy.name.is_empty() {
        return Ok(vec![
            "none: the policy was deleted or no longer selects the job; the job keeps running unchanged"
                .to_string(),
        ]);
    }
    let base = "/apis/policy.one.alibabacloud.com/v1alpha1";
    let (shown, path) = match policy.namespace.as_str() {
        "" => (
            format!("{} {}", policy.kind, policy.name),
            format!("{base}/clusterpropagationpolicies/{}", policy.name),
        ),
        namespace => (
            format!("{} {namespace}/{}", policy.kind, policy.name),
            format!("{base}/namespaces/{namespace}/propagationpolicies/{}", policy.name),
        ),
    };
    let object = match hub.server.object(&path).await {
        Ok(object) if object["metadata"]["uid"] == policy.uid.as_str() || policy.uid.is_empty() => object,
        Ok(_) => return Ok(vec![format!("{shown}, which was deleted")]),
        Err(error) if error.is_not_found() => return Ok(vec![format!("{shown}, which was deleted")]),
        Err(error) => return Err(error.into()),
    };
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let broken = conditions.filter(|condition| condition["status"] == "False");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
    let lines =
        broken.map(|condition| format!("{}: {}", text(&condition["reason"]), text(&condition["message"])));
    Ok(std::iter::once(shown).chain(lines).collect())
}

fn waits(unit: &QueueUnit) -> bool {
    let phase = unit.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, None | Some("Enqueued" | "Reserved"))
}

/// The job's position among waiting jobs, in its leaf and in the whole fleet: by priority, age and name.
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

/// The position of a waiting job, printed after the name of its queue; otherwise empty.
fn position_text(units: &[QueueUnit], unit: &QueueUnit) -> String {
    match positions(units, Some(unit)) {
        (Some(leaf), Some(all)) => format!(
            ", position {} of {} in this queue, {} of {} in all queues",
            leaf.place, leaf.of, all.place, all.of
        ),
        _ => String::new(),
    }
}

fn print(
    entry: &BindingEntry,
    unit: Option<&QueueUnit>,
    units: &[QueueUnit],
    path: &[&QueueRow],
    verdicts: &[ClusterVerdict],
    policy: &[String],
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
        (None, Some(_)) if !entry.is_gang() => {
            let each = spec.clusters.iter().map(|target| match entry.gang.components.is_empty() {
                true => target.name.clone(),
                false => format!("{} ({})", target.name, target.replicas),
            });
            format!("in {}", each.collect::<Vec<_>>().join(", "))
        }
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
        lines.push(("Queue", format!("{queue}{}", position_text(units, unit))));
    }
    let components: Vec<String> =
        spec.components.iter().map(|c| format!("{{{} {}}}", c.name, c.replicas)).collect();
    lines.push(("Requests", format!("{} in [{}]", entry.total, components.join(" "))));
    lines.push(("Priority", spec.priority.to_string()));
    for (index, line) in policy.iter().enumerate() {
        lines.push((if index == 0 { "Policy" } else { "" }, line.clone()));
    }
    let mut text = String::new();
    for (label, value) in lines {
        let label = if label.is_empty() { String::new() } else { format!("{label}:") };
        text.push_str(&format!("{label:<11}{value}\n"));
    }
    if !path.is_empty() {
        text.push('\n');
        text.push_str(&queue::table(path.iter().copied(), false));
    }
    if !verdicts.is_empty() {
        text.push('\n');
        let mut table = Table::new(&["CLUSTER", "FITS", "WHY"]);
        for verdict in verdicts {
            let fits = match (verdict.here, verdict.fits) {
                (true, _) => "here",
                (false, true) => "yes",
                (false, false) => "no",
            };
            table.row([verdict.cluster.clone(), fits.to_string(), verdict.sentence.clone()]);
        }
        text.push_str(&table.print());
    }
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
    use fleet_portal::explain::judge;
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
                    "message": "preempted by team/a in east (Reclaim); 30 s of work since its last checkpoint are lost",
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
        let text = print(
            &entry,
            Some(&units[0]),
            &units,
            &[],
            &verdicts,
            &["PropagationPolicy team/p".to_string()],
            now,
        );
        insta::assert_snapshot!(text, @r"
        Job:       team/train (PyTorchJob)
        State:     waits, for 60s
        Reason:    NoClusterFits, for 30s
                   0 of 1 clusters hold it
        Queue:     root/team, position 2 of 2 in this queue, 3 of 3 in all queues
        Requests:  nvidia.com/gpu 8 in [{worker 2}]
        Priority:  0
        Policy:    PropagationPolicy team/p

        CLUSTER   FITS   WHY
        east      no     1 of 2 worker fit: 3 of 4 nodes lack 2 nvidia.com/gpu
        west      no     0 of 2 worker fit: 9 of 9 nodes lack 2 nvidia.com/gpu; it could not hold the job even if empty

        RUN   CLUSTER   ENDED     REASON      MESSAGE
        1     east      40s ago   Preempted   preempted by team/a in east (Reclaim); 30 s of work since its last checkpoint are lost
        ");
    }

    fn bound(kind: &str, placement: Value, clusters: Value) -> BindingEntry {
        let version = if kind == "Deployment" { "apps/v1" } else { "kubeflow.org/v1" };
        BindingEntry::read(
            read(json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding",
                "metadata": {"name": "x", "namespace": "team", "creationTimestamp": "2026-01-01T10:00:00Z"},
                "spec": {"resource": {"apiVersion": version, "kind": kind, "namespace": "team", "name": "x"},
                    "policy": {"kind": "PropagationPolicy", "name": "p"}, "epoch": 2, "clusters": clusters,
                    "placement": placement,
                    "components": [{"name": "worker", "replicas": 2, "request": {"nvidia.com/gpu": "4"}}]}})),
            None,
        )
    }

    /// State line and table of a job that is somewhere.
    fn shown(entry: &BindingEntry, clusters: &[Cluster]) -> String {
        let now = "2026-01-01T10:01:00Z".parse().expect("a time");
        let text = print(entry, None, &[], &[], &verdicts(entry, clusters), &["p".to_string()], now);
        let kept = text.lines().filter(|line| {
            line.starts_with("State")
                || line.contains("  here")
                || line.contains("   no ")
                || line.contains("   yes ")
        });
        kept.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn where_a_job_is_and_what_its_policy_names() {
        let full =
            json!([{"count": 1, "allocatable": {"nvidia.com/gpu": "8"}, "free": {"nvidia.com/gpu": "0"}}]);
        let clusters = [cluster("east", full.clone()), cluster("west", full)];
        // The places that a running job takes are not free; that is no reason against its own cluster.
        insta::assert_snapshot!(shown(&bound("PyTorchJob", json!({}), json!([{"name": "east"}])), &clusters), @r"
        State:     Bound in east (run 2)
        east      here   the job is bound here (run 2)
        west      no     0 of 2 worker fit: 1 of 1 nodes lack 4 nvidia.com/gpu
        ");
        let web = bound(
            "Deployment",
            json!({}),
            json!([{"name": "east", "replicas": 2}, {"name": "west", "replicas": 1}]),
        );
        insta::assert_snapshot!(shown(&web, &clusters), @r"
        State:     in east (2), west (1)
        east      here   2 replicas are here
        west      here   1 replica is here
        ");
        let affinity = json!({"clusterAffinity": {"clusterNames": ["east", "esat"]}});
        let named = shown(&bound("PyTorchJob", affinity, json!([{"name": "east"}])), &clusters);
        assert!(named.contains("esat      no     has not joined the fleet"), "{named}");
    }

    #[test]
    fn words_name_a_job() {
        let check = |words: &[&str], kind: Option<&str>, name: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_string()).collect();
            assert_eq!(wanted(&words), (kind.map(str::to_string), name.to_string()));
        };
        check(&["a"], None, "a");
        check(&["deploy/a"], Some("deploy"), "a");
        check(&["deploy", "a"], Some("deploy"), "a");
    }
}
