//! `fleet explain`: why one job waits: the reason and since when, its position in the queue, its quota's
//! path, each cluster, and its earlier runs.
//!
//! The reason is the controller's own. What each cluster lacks is computed by `fleet_portal::explain` from
//! the members' last reports.

mod seen;
mod state;
mod unbound;

use fleet_api::{QueueUnit, ResourceBinding, binding::Attempt, names::QUEUE_PLACE_ANNOTATION};
use fleet_cli_ground::{age, answer::Answer, connect::Hub, discovery, listing::Names, output};
use fleet_hub_core::binding::BindingEntry;
use fleet_portal::explain::{ClusterVerdict, verdicts};
use fleet_views::{QuotaFacts, said_now};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    args::ExplainArgs,
    queue::{self, QueueRow},
};
use seen::{Hidden, Seen};
use state::{WAITS, Why, state, waits_since, why};

use fleet_console::{
    progress::Progress,
    table::{Table, labelled},
    terminal,
};

/// Width of the labels.
const LABEL: usize = 11;

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
            return unbound::explain(hub, &kinds, kind, &namespace, &name, args.shown.output.as_ref()).await;
        }
        several => {
            let kinds: Vec<&str> = several.iter().map(|b| b.spec.resource.kind.as_str()).collect();
            anyhow::bail!("job {name:?}: found {}; allowed: one, as KIND/NAME", kinds.join(" and "))
        }
    };
    let Seen { units, trees, clusters, hidden } = Seen::read(hub, &namespace).await?;
    let policy = policy_says(hub, &binding).await?;
    let entry = BindingEntry::read(binding, None);
    let unit = units.iter().find(|unit| {
        unit.namespace().as_deref() == Some(entry.namespace()) && unit.name_any() == entry.unit_name()
    });
    let sees_clusters = !hidden.contains(&Hidden::Clusters);
    let verdicts = if sees_clusters { verdicts(&entry, &clusters) } else { Vec::new() };
    let sees_queue = !hidden.contains(&Hidden::OtherJobs);
    // Without the jobs of others the counts of a queue would be too low.
    let rows = if sees_queue { queue::rows(&trees, &units) } else { Vec::new() };
    let path: Vec<&QueueRow> = match unit.and_then(|unit| unit.spec.queue.as_deref()) {
        Some(leaf) => rows.iter().filter(|row| row.holds(leaf)).collect(),
        None => Vec::new(),
    };
    let root = fleet_hub_core::facts::tree(&trees).root;
    let mut said = Said::of(&entry, unit, &units, root.as_ref(), sees_clusters, Timestamp::now());
    said.position = said.position.filter(|_| sees_queue);
    let found = Explained {
        entry: &entry,
        unit,
        said,
        path,
        verdicts,
        policy,
        invalid: queue::invalid(&trees),
        hidden,
    };
    if let Some(text) = output::data(args.shown.output.as_ref(), &found.data(), ("", ".job"))? {
        return Ok(Answer::text(text));
    }
    Ok(Answer::people(found.print(Timestamp::now(), terminal::width())?))
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
        Err(error) if error.is_forbidden() => return Ok(vec![format!("{shown}, which you may not read")]),
        Err(error) => return Err(error.into()),
    };
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let broken = conditions.filter(|condition| condition["status"] == "False");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let lines =
        broken.map(|condition| format!("{}: {}", text(&condition["reason"]), text(&condition["message"])));
    Ok(std::iter::once(shown).chain(lines).collect())
}

fn waits(unit: &QueueUnit) -> bool {
    let phase = unit.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, None | Some("Enqueued" | "Reserved"))
}

/// The job's position among waiting jobs of its queue: by priority, the time at which it took its place, and name. Between queues there is no such order:
/// they take turns.
fn position(units: &[QueueUnit], own: Option<&QueueUnit>) -> Option<Position> {
    let own = own.filter(|own| waits(own))?;
    let order = |unit: &QueueUnit| {
        let edited = unit.annotations().get(QUEUE_PLACE_ANNOTATION).and_then(|since| since.parse().ok());
        let since = edited.or_else(|| unit.creation_timestamp().map(|time| time.0));
        (std::cmp::Reverse(unit.spec.priority), since, unit.name_any(), unit.namespace())
    };
    let waiting = || units.iter().filter(|unit| waits(unit) && unit.spec.queue == own.spec.queue);
    let before = waiting().filter(|unit| order(unit) < order(own)).count();
    Some(Position { place: before + 1, of: waiting().count() })
}

/// What is said of the job beside its state.
struct Said {
    why: Option<Why>,
    position: Option<Position>,
}

impl Said {
    fn of(
        entry: &BindingEntry,
        unit: Option<&QueueUnit>,
        units: &[QueueUnit],
        root: Option<&QuotaFacts>,
        sees_clusters: bool,
        now: Timestamp,
    ) -> Self {
        let mut why = why(entry, unit);
        if let Some(why) = why.as_mut().filter(|_| !entry.is_bound() && !entry.is_finished()) {
            // What each cluster lacks now is in the table below, if the user may list clusters.
            why.message = said_now(&why.reason, &why.message, root, sees_clusters);
            let claim = unit.and_then(|unit| unit.status.as_ref()?.claim.as_ref()?.start.clone());
            if let Some(start) = claim.and_then(|start| start.parse::<Timestamp>().ok()) {
                let left = fleet_views::age::human(start.as_second().saturating_sub(now.as_second()).max(0));
                why.message.push_str(&format!("; it starts in about {left}"));
            }
        }
        Self { why, position: position(units, unit) }
    }
}

/// The lines before the tables, each with its label.
fn lines(
    entry: &BindingEntry,
    unit: Option<&QueueUnit>,
    said: &Said,
    policy: &[String],
    now: Timestamp,
) -> Vec<(&'static str, String)> {
    let spec = &entry.object.spec;
    let job = format!("{}/{} ({})", entry.namespace(), spec.resource.name, spec.resource.kind);
    let mut state = state(entry, unit);
    if state == WAITS {
        state = format!("{WAITS}, for {}", age::since(waits_since(entry, unit).as_deref(), now));
    }
    let mut lines = vec![("Job", job), ("State", state)];
    if let Some(why) = &said.why {
        let age = why.since.as_deref().map(|since| age::since(Some(since), now));
        let age =
            age.map(|age| if entry.is_finished() { format!(", {age} ago") } else { format!(", for {age}") });
        lines.push(("Reason", format!("{}{}", why.reason, age.unwrap_or_default())));
        lines.push(("", why.message.clone()));
    }
    if let Some(unit) = unit {
        let position = said.position.map(|at| format!(", position {} of {} in this queue", at.place, at.of));
        let queue = unit.spec.queue.as_ref().map(|queue| format!("{queue}{}", position.unwrap_or_default()));
        lines.push(("Queue", queue.unwrap_or_else(|| "none".to_string())));
    }
    let components: Vec<String> =
        spec.components.iter().map(|c| format!("{{{} {}}}", c.name, c.replicas)).collect();
    let total = Some(entry.total.to_string()).filter(|total| !total.is_empty());
    let total = total.unwrap_or_else(|| "nothing".to_string());
    lines.push(("Requests", format!("{total} in [{}]", components.join(" "))));
    lines.push(("Priority", spec.priority.to_string()));
    let labels = std::iter::once("Policy").chain(std::iter::repeat(""));
    lines.extend(labels.zip(policy.iter().cloned()));
    lines
}

/// Everything that is known of why the job waits.
struct Explained<'a> {
    entry: &'a BindingEntry,
    unit: Option<&'a QueueUnit>,
    said: Said,
    /// The quota nodes from the root to its queue.
    path: Vec<&'a QueueRow>,
    verdicts: Vec<ClusterVerdict>,
    policy: Vec<String>,
    /// Trees that are not in force, and which one is; empty if all are valid.
    invalid: String,
    hidden: Vec<Hidden>,
}

impl Explained<'_> {
    /// As `-o json` has it.
    fn data(&self) -> Value {
        let why = self.said.why.as_ref();
        let spec = &self.entry.object.spec;
        json!({
            "job": format!("{}/{}", self.entry.namespace(), spec.resource.name),
            "kind": spec.resource.kind, "state": state(self.entry, self.unit),
            "reason": why.map(|why| &why.reason), "message": why.map(|why| &why.message),
            "since": why.map(|why| &why.since), "priority": spec.priority,
            "unit": self.unit, "binding": self.entry.object.status, "clusters": self.verdicts, "quota": self.path,
            "policy": self.policy, "positionInLeaf": self.said.position,
            "notInForce": Some(&self.invalid).filter(|invalid| !invalid.is_empty()),
            "notShown": self.hidden.iter().map(|hidden| hidden.words()).collect::<Vec<_>>(),
        })
    }

    /// For people, with tables of `width` columns at most.
    fn print(&self, now: Timestamp, width: Option<usize>) -> anyhow::Result<String> {
        let mut text = labelled(&lines(self.entry, self.unit, &self.said, &self.policy, now), LABEL);
        if !self.path.is_empty() {
            let path = queue::table(self.path.iter().copied(), false, Names::Tree)?;
            text.push_str(&format!("\n{}", path.print_within(width, output::Headers::Printed)));
        }
        if !self.verdicts.is_empty() {
            text.push_str(&format!("\n{}", self.clusters().print_within(width)));
        }
        let attempts = self.entry.object.status.as_ref().map_or(&[][..], |status| &status.attempts);
        if !attempts.is_empty() {
            text.push_str(&format!("\n{}", runs(attempts, now).print_within(width)));
        }
        if self.entry.is_suspended() && !self.invalid.is_empty() {
            text.push_str(&format!("\n{}", self.invalid));
        }
        text.push_str(&seen::note(&self.hidden));
        Ok(text)
    }

    fn clusters(&self) -> Table {
        let mut table = Table::new(&["CLUSTER", "FITS", "WHY"]);
        for verdict in &self.verdicts {
            let fits = match (verdict.here, verdict.fits) {
                (true, _) => "here",
                (false, true) => "yes",
                (false, false) => "no",
            };
            table.row([verdict.cluster.clone(), fits.to_string(), verdict.sentence.clone()]);
        }
        table
    }
}

/// The job's earlier runs.
fn runs(attempts: &[Attempt], now: Timestamp) -> Table {
    let headers = ["RUN", "CLUSTER", "ENDED", "REASON", "MESSAGE"];
    let mut table = Table { spare: &["ENDED", "REASON"], ..Table::new(&headers) };
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
    table
}

#[cfg(test)]
mod tests;
