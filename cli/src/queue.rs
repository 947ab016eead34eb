//! `fleet queue`: the queues of a cluster with their use, and their waiting and running jobs.
//!
//! On a hub they are the quota tree: use comes from the tree's status; waiting and running jobs are counted
//! from the QueueUnits. In a member they are Volcano's queues (`member`). The amounts of a row are those of
//! `fleet_views`, as on the portal's pages. Deliberately absent: rules of admission.

mod member;

use std::collections::BTreeMap;

use fleet_api::{
    ElasticQuotaTree, QueueUnit,
    names::QUOTA_NAMESPACE,
    quota_tree::{self, QuotaNode, QuotaNodeStatus},
};
use fleet_cli_ground::{
    answer::Answer,
    connect::Hub,
    listing::{self, List, Names},
    server::Selectors,
};
use fleet_hub_core::facts;
use fleet_resources::quantity;
use fleet_views::{QueueAmounts, QueueTexts};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::args::QueueArgs;
use fleet_console::progress::Progress;

pub const UNITS: &str = "/apis/scheduling.x-k8s.io/v1alpha1/queueunits";

/// One queue, as `-o json` prints it: amounts as they were written.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// Full path, `root/child-2`.
    queue: String,
    /// What its line of the table says.
    #[serde(skip)]
    amounts: QueueAmounts,
    namespaces: Vec<String>,
    #[serde(flatten)]
    written: Written,
    /// Use above min.
    borrowed: BTreeMap<String, String>,
    waiting: usize,
    running: usize,
}

/// Amounts of a queue as its object has them.
#[derive(Debug, Default, Serialize)]
struct Written {
    /// Use of admitted jobs; never above max.
    used: BTreeMap<String, String>,
    /// Use of running jobs whose policy has no queue: not limited by max, but it reduces what queued jobs may
    /// use.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unqueued: BTreeMap<String, String>,
    min: BTreeMap<String, String>,
    max: BTreeMap<String, String>,
}

impl QueueRow {
    fn new(amounts: QueueAmounts, namespaces: Vec<String>, written: Written) -> Self {
        let borrowed = amounts.borrowed.iter();
        Self {
            queue: amounts.path.clone(),
            namespaces,
            written,
            borrowed: borrowed.map(|(name, over)| (name.clone(), quantity::format(name, *over))).collect(),
            waiting: amounts.waiting,
            running: amounts.running,
            amounts,
        }
    }

    /// Whether this is the leaf at `path` or a node above it.
    pub fn holds(&self, path: &str) -> bool {
        self.amounts.holds(path)
    }
}

/// Path of the list of quota trees.
pub fn trees() -> String {
    format!("/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/{QUOTA_NAMESPACE}/elasticquotatrees")
}

/// The nodes of the tree in force, parents first; none without one.
pub fn rows(trees: &[ElasticQuotaTree], units: &[QueueUnit]) -> Vec<QueueRow> {
    let (Some(view), Some(root)) = (quota_tree::in_force(trees), facts::tree(trees).root) else {
        return Vec::new();
    };
    let mut written = Vec::new();
    write(&mut written, view.root, view.object.status.as_ref().and_then(|status| status.root.as_ref()));
    let rows = QueueAmounts::of_tree(&root, &jobs(units)).into_iter().zip(written);
    rows.map(|(amounts, (namespaces, written))| QueueRow::new(amounts, namespaces, written)).collect()
}

/// By leaf, how many jobs wait and how many run.
fn jobs(units: &[QueueUnit]) -> BTreeMap<String, (usize, usize)> {
    let mut jobs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for unit in units {
        let (waiting, running) = jobs.entry(unit.spec.queue.clone().unwrap_or_default()).or_default();
        match unit.status.as_ref().and_then(|status| status.phase.as_deref()) {
            None | Some("Enqueued" | "Reserved") => *waiting += 1,
            Some("Dequeued" | "Running") => *running += 1,
            Some(_) => {}
        }
    }
    jobs
}

/// Namespaces and amounts of a node and of those below it, parents first.
fn write(all: &mut Vec<(Vec<String>, Written)>, node: &QuotaNode, status: Option<&QuotaNodeStatus>) {
    let written = Written {
        used: status.map(|status| status.used.clone()).unwrap_or_default(),
        unqueued: status.map(|status| status.unqueued.clone()).unwrap_or_default(),
        min: texts(&node.min),
        max: texts(&node.max),
    };
    all.push((node.namespaces.clone(), written));
    for child in &node.children {
        let status = status.and_then(|status| status.children.iter().find(|found| found.name == child.name));
        write(all, child, status);
    }
}

/// A line for each tree that is not in force, and which tree is; empty if all trees are valid.
pub fn invalid(trees: &[ElasticQuotaTree]) -> String {
    let name = |tree: &ElasticQuotaTree| tree.metadata.name.clone().unwrap_or_default();
    let broken: Vec<String> = trees
        .iter()
        .filter_map(|tree| {
            Some(format!("INVALID: ElasticQuotaTree {}: {}", name(tree), quota_tree::invalid(tree)?))
        })
        .collect();
    if broken.is_empty() {
        return String::new();
    }
    let instead = match quota_tree::in_force(trees) {
        Some(view) => {
            format!("In force: ElasticQuotaTree {}, generation {}", name(view.object), view.generation)
        }
        None => "In force: no tree; jobs whose policy uses a queue wait".to_string(),
    };
    format!("{}\n{instead}\n", broken.join("\n"))
}

pub async fn run(hub: &Hub, args: &QueueArgs) -> anyhow::Result<Answer> {
    listing::run(&args.listing, async || {
        let _progress = Progress::start("asking the hub");
        let names = Names::of(&args.listing);
        let wide = args.listing.is_wide();
        if let Some(queues) = of_member(hub).await? {
            return table(member::rows(&queues).iter(), wide, names);
        }
        let (trees, units) =
            tokio::try_join!(list::<ElasticQuotaTree>(hub, trees()), list::<QueueUnit>(hub, UNITS.to_string()))?;
        let mut queues = table(rows(&trees, &units).iter(), wide, names)?;
        if trees.is_empty() {
            queues.nothing = format!(
                "No quota tree: apply an ElasticQuotaTree in namespace {QUOTA_NAMESPACE}; until then jobs whose \
                 policy uses a queue wait."
            );
        }
        queues.before = invalid(&trees);
        queues.beside = json!({"invalid": queues.before.lines().collect::<Vec<_>>()});
        queues.notes.extend(broken_rules(&trees));
        Ok(queues)
    })
    .await
}

/// A note if the tree in force breaks rules.
fn broken_rules(trees: &[ElasticQuotaTree]) -> Option<String> {
    let tree = quota_tree::in_force(trees).map(|view| view.object)?;
    let kept = tree.status.iter().flat_map(|status| &status.conditions).find(|is| is.type_ == "RulesKept");
    kept.filter(|is| is.status == "False")?;
    Some(format!(
        "note: this tree is in force although it breaks rules; `fleet describe elasticquotatree {} -n \
         {QUOTA_NAMESPACE}` says which",
        tree.metadata.name.clone().unwrap_or_default()
    ))
}

/// The queues of a member; `None` on a hub, and on a cluster that is neither.
async fn of_member(hub: &Hub) -> anyhow::Result<Option<Vec<Value>>> {
    let quiet = Selectors::default();
    if !matches!(hub.server.list(&trees(), &quiet, "application/json").await, Err(error) if error.is_not_found())
    {
        return Ok(None);
    }
    match hub.server.list(member::QUEUES, &quiet, "application/json").await {
        Ok(listed) => Ok(Some(listed["items"].as_array().cloned().unwrap_or_default())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// All objects at a path of the hub.
///
/// # Errors
/// The hub does not serve the path, or an object cannot be parsed.
pub async fn list<T: DeserializeOwned>(hub: &Hub, path: String) -> anyhow::Result<Vec<T>> {
    let listed = match hub.server.list(&path, &Selectors::default(), "application/json").await {
        Ok(listed) => listed,
        Err(error) if error.is_not_found() => {
            anyhow::bail!("{} is not a hub of Fleet; apply `fleet crds --hub` to it", hub.server.url)
        }
        Err(error) => return Err(error.into()),
    };
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?)
}

fn texts(amounts: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    amounts
        .iter()
        .map(|(name, amount)| {
            let text = amount.as_str().map(str::to_string).unwrap_or_else(|| amount.to_string());
            (name.clone(), text)
        })
        .collect()
}

/// The rows as a table; `wide` adds the namespaces of each.
///
/// # Errors
/// A row cannot be serialized.
pub fn table<'r>(rows: impl Iterator<Item = &'r QueueRow>, wide: bool, names: Names) -> anyhow::Result<List> {
    let rows: Vec<&QueueRow> = rows.collect();
    let unqueued = rows.iter().any(|row| !row.amounts.unqueued.is_empty());
    let mut headers = vec!["QUEUE", "USED", "MIN", "MAX", "BORROWED", "WAITING", "RUNNING"];
    if unqueued {
        headers.insert(2, "UNQUEUED");
    }
    if wide {
        headers.push("NAMESPACES");
    }
    // Borrowed is the difference of used and min.
    let spare = &["NAMESPACES", "BORROWED"];
    let mut list = List { spare, ..List::of_items(&headers, ("", ".queue")) };
    for row in rows {
        let QueueTexts { used, unqueued: beside, min, max, borrowed } = row.amounts.texts();
        let name = match names {
            Names::Tree => format!("{}{}", "  ".repeat(row.amounts.depth), row.amounts.name),
            Names::Paths => row.queue.clone(),
        };
        let mut cells =
            vec![name, used, min, max, borrowed, row.waiting.to_string(), row.running.to_string()];
        if unqueued {
            cells.insert(2, beside);
        }
        if wide {
            cells.push(if row.namespaces.is_empty() { "-".into() } else { row.namespaces.join(",") });
        }
        list.row(row, cells)?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests;
