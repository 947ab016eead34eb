//! The queues of a member, in the columns of the quota tree, so that `fleet queue` means the same everywhere.
//!
//! Used: resources of the queue's pods; min: what the queue may reclaim up to (`deserved`, or else
//! `guarantee`); max: its `capability`. Waiting and running are the scheduler's own counts of PodGroups,
//! without queues below.

use std::collections::BTreeMap;

use fleet_resources::quantity;
use fleet_views::{QueueAmounts, QuotaFacts};
use serde_json::Value;

use super::{QueueRow, Written, texts};

/// The list in a member; a hub does not serve it.
pub const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";
const ROOT: &str = "root";

/// A row for each queue, below the queue that it names as its parent, in order of names.
pub fn rows(queues: &[Value]) -> Vec<QueueRow> {
    let mut rows = Vec::new();
    let is_top = |queue: &&Value| {
        let parent = parent(queue);
        name(queue) == ROOT || parent.is_empty() || !queues.iter().any(|other| name(other) == parent)
    };
    let mut tops: Vec<&Value> = queues.iter().filter(is_top).collect();
    tops.sort_by_key(|queue| name(queue));
    for top in tops {
        add(&mut rows, queues, top, "", 0);
    }
    rows
}

fn add(rows: &mut Vec<QueueRow>, queues: &[Value], queue: &Value, above: &str, depth: usize) {
    // A cycle of parents would loop forever; the agent's webhook refuses it.
    if depth > queues.len() {
        return;
    }
    let (spec, status) = (&queue["spec"], &queue["status"]);
    let own = name(queue);
    let path = if above.is_empty() { own.to_string() } else { format!("{above}/{own}") };
    let deserved = amounts(&spec["deserved"]);
    let written = Written {
        used: amounts(&status["allocated"]),
        min: if deserved.is_empty() { amounts(&spec["guarantee"]["resource"]) } else { deserved },
        max: amounts(&spec["capability"]),
        ..Written::default()
    };
    let count =
        |field: &str| status[field].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let jobs = (count("pending") + count("inqueue"), count("running"));
    let facts = QuotaFacts {
        name: own.to_string(),
        used: parsed(&written.used),
        min: parsed(&written.min),
        max: parsed(&written.max),
        ..QuotaFacts::default()
    };
    rows.push(QueueRow::new(QueueAmounts::of(&facts, path.clone(), depth, jobs), Vec::new(), written));
    let mut below: Vec<&Value> = queues
        .iter()
        .filter(|other| name(other) != ROOT && name(other) != own && parent(other) == own)
        .collect();
    below.sort_by_key(|queue| name(queue));
    for child in below {
        add(rows, queues, child, &path, depth + 1);
    }
}

fn name(queue: &Value) -> &str {
    queue["metadata"]["name"].as_str().unwrap_or_default()
}

/// A queue without a parent is below the root.
fn parent(queue: &Value) -> &str {
    queue["spec"]["parent"].as_str().filter(|parent| !parent.is_empty()).unwrap_or(ROOT)
}

fn amounts(value: &Value) -> BTreeMap<String, String> {
    let map: BTreeMap<String, Value> = serde_json::from_value(value.clone()).unwrap_or_default();
    // Pods are counted, but not limited here.
    let mut texts = texts(&map);
    texts.remove("pods");
    texts
}

/// In base units; the member's server accepts nothing but quantities.
fn parsed(texts: &BTreeMap<String, String>) -> BTreeMap<String, i64> {
    let amount = |(name, text): (&String, &String)| Some((name.clone(), quantity::parse(name, text).ok()?));
    texts.iter().filter_map(amount).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::queue::table;
    use fleet_cli_ground::listing::Names;

    #[test]
    fn a_members_queues_have_the_columns_of_the_tree() {
        let queues = [
            json!({"metadata": {"name": "vision"}, "spec": {"parent": "research", "deserved": {"nvidia.com/gpu": "8"},
                "capability": {"nvidia.com/gpu": "16"}},
                "status": {"allocated": {"nvidia.com/gpu": "12", "pods": "3"}, "running": 2, "pending": 1, "inqueue": 1}}),
            json!({"metadata": {"name": "default"}, "spec": {"guarantee": {"resource": {"cpu": "4"}}},
                "status": {"allocated": {"cpu": "2"}}}),
            json!({"metadata": {"name": "root"}, "spec": {}, "status": {"allocated": {"cpu": "2", "nvidia.com/gpu": "12"}}}),
            json!({"metadata": {"name": "research"}, "spec": {"parent": "root"}}),
            json!({"metadata": {"name": "lost"}, "spec": {"parent": "gone"}}),
        ];
        let list = table(rows(&queues).iter(), false, Names::Tree).expect("a table");
        insta::assert_snapshot!(list.print(), @r"
        QUEUE        USED           MIN     MAX         BORROWED   WAITING   RUNNING
        lost         -              -       unlimited   -          0         0
        root         gpu=12 cpu=2   -       unlimited   -          0         0
          default    cpu=2          cpu=4   unlimited   -          0         0
          research   -              -       unlimited   -          0         0
            vision   gpu=12         gpu=8   gpu=16      gpu=4      2         2
        ");
        let circle = [json!({"metadata": {"name": "a"}, "spec": {"parent": "a"}})];
        assert!(rows(&circle).len() <= 1);
    }
}
