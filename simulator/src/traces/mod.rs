//! Traces of real clusters: a table of jobs becomes gangs, a quota tree and queue policies.
//!
//! Inputs: csv text, plain or gzip, and the clusters on which it is replayed. Missing columns have defaults; each
//! is reported once. Deliberately absent: the replay itself (`fast`), and any trace; data stays outside the
//! repository.

mod columns;
mod shapes;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    str::FromStr,
    sync::Arc,
};

use fleet_quota::QueuePolicy;
use fleet_quota_tree::{NodeSpec, QuotaTree};

use crate::{
    fast::JobSpec,
    scenario::{ClusterSpec, ScenarioError},
};
use columns::Columns;
pub(crate) use columns::Row;
use shapes::Shapes;

/// Rows of one trace.
const MAX_ROWS: usize = 10_000_000;
/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Attribute that keeps jobs of one leaf from preempting each other.
const WITHIN: (&str, &str) = ("fleet.dev/preempt-within", "Never");

/// How the queue is ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First in, first out: one queue whose head blocks.
    Fifo,
    /// One queue by priority, then age; what does not fit is passed.
    #[default]
    Priority,
    /// The shortest job first: one queue whose head blocks.
    Sjf,
    /// A queue for each virtual cluster (else user), the smallest dominant share first.
    Fair,
}

impl Order {
    pub const ALL: [(&'static str, Self); 4] =
        [("fifo", Self::Fifo), ("priority", Self::Priority), ("sjf", Self::Sjf), ("fair", Self::Fair)];
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, order)| *order).ok_or_else(|| "allowed: fifo, priority, sjf, fair".to_string())
    }
}

/// How a trace is replayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayOptions {
    pub order: Order,
    /// Each job runs on the cluster the trace recorded.
    pub pin_clusters: bool,
}

/// A trace, ready to be replayed.
#[derive(Debug)]
pub struct Trace {
    pub file: String,
    /// By time of submission, ties in file order.
    pub(crate) jobs: Vec<TraceJob>,
    pub(crate) tree: Arc<QuotaTree>,
    pub(crate) policies: Vec<(String, QueuePolicy)>,
    /// What was assumed, one sentence each.
    pub notices: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct TraceJob {
    pub submit_ms: i64,
    pub namespace: String,
    pub name: String,
    pub spec: Arc<JobSpec>,
}

impl Trace {
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Reads a table of jobs.
    ///
    /// # Errors
    /// The first row that cannot be read, with line and column.
    pub fn read(
        file: &str,
        bytes: &[u8],
        clusters: &[ClusterSpec],
        options: ReplayOptions,
    ) -> Result<Self, ScenarioError> {
        let Table { columns, rows, mut notices } = Table::read(file, bytes, clusters, options.pin_clusters)?;
        if !options.pin_clusters && columns.has("cluster") {
            notices.push("the recorded cluster is ignored; --pin-clusters keeps it".to_string());
        }
        let mut shapes = Shapes::new(clusters);
        let by_vc = columns.has("vc");
        let leaf_of = |row: &Row| match options.order {
            Order::Fair if by_vc => namespace(&row.vc),
            Order::Fair => namespace(&row.user),
            _ => namespace(&row.vc),
        };
        let namespaces: BTreeSet<String> = rows.iter().map(leaf_of).collect();
        let (tree, policies) = queues(clusters, &namespaces, options.order)
            .map_err(|found| wrong(file, 1, "vc", found, "names that a quota tree can hold"))?;
        let mut names: BTreeMap<(String, String), usize> = BTreeMap::new();
        let jobs = rows
            .into_iter()
            .map(|row| {
                let namespace = leaf_of(&row);
                let seen = names.entry((namespace.clone(), row.name.clone())).or_default();
                *seen += 1;
                let name = if *seen == 1 { row.name.clone() } else { format!("{}-{seen}", row.name) };
                let priority = match options.order {
                    Order::Fifo | Order::Fair => 0,
                    Order::Priority => row.priority,
                    Order::Sjf => -row.duration_ms,
                };
                let spec = Arc::new(shapes.spec(&row, priority));
                TraceJob { submit_ms: row.submit_ms, namespace, name, spec }
            })
            .collect();
        Ok(Self { file: file.to_string(), jobs, tree: Arc::new(tree), policies, notices })
    }
}

/// The rows of a trace, by time of submission, ties in file order.
pub(crate) struct Table {
    pub(crate) columns: Columns,
    pub(crate) rows: Vec<Row>,
    /// What was assumed, one sentence each.
    pub(crate) notices: Vec<String>,
}

impl Table {
    /// Reads csv text, plain or gzip. With `pin`, the recorded cluster must be one of `clusters`.
    pub(crate) fn read(
        file: &str,
        bytes: &[u8],
        clusters: &[ClusterSpec],
        pin: bool,
    ) -> Result<Self, ScenarioError> {
        let mut unpacked = Vec::new();
        let text = if bytes.starts_with(&GZIP) {
            flate2::read::MultiGzDecoder::new(bytes)
                .read_to_end(&mut unpacked)
                .map_err(|error| wrong(file, 1, "the file", error.to_string(), "a whole gzip file"))?;
            unpacked.as_slice()
        } else {
            bytes
        };
        let mut table = csv::ReaderBuilder::new().flexible(true).from_reader(text);
        let headers = table
            .headers()
            .map_err(|error| wrong(file, 1, "the header", error.to_string(), "names of columns"))?
            .clone();
        let columns = Columns::new(file, &headers)?;
        let notices = columns.notices();
        let mut rows = Vec::new();
        for (number, record) in table.records().enumerate() {
            let record = record.map_err(|error| {
                let line = error.position().map_or(1, csv::Position::line);
                wrong(file, line, "the row", error.to_string(), "comma-separated values in UTF-8")
            })?;
            if number >= MAX_ROWS {
                let found = format!("more than {MAX_ROWS} rows");
                return Err(wrong(file, 1, "the file", found, "at most that"));
            }
            rows.push(columns.row(number, &record, clusters, pin)?);
        }
        rows.sort_by_key(|row| row.submit_ms);
        Ok(Self { columns, rows, notices })
    }
}

fn wrong(file: &str, line: u64, field: &str, found: String, allowed: &str) -> ScenarioError {
    ScenarioError {
        file: file.to_string(),
        line,
        field: field.to_string(),
        found,
        allowed: allowed.to_string(),
    }
}

/// A name that Kubernetes takes for a namespace.
fn namespace(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = text.chars().map(plain).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "default".to_string() } else { name.to_string() }
}

/// The capacity of all clusters is the root's max, so that shares have a whole.
fn queues(
    clusters: &[ClusterSpec],
    namespaces: &BTreeSet<String>,
    order: Order,
) -> Result<(QuotaTree, Vec<(String, QueuePolicy)>), String> {
    let attributes = BTreeMap::from([(WITHIN.0.to_string(), WITHIN.1.to_string())]);
    let leaf = |name: &str, namespaces: Vec<String>| NodeSpec {
        name: name.to_string(),
        namespaces,
        attributes: attributes.clone(),
        ..NodeSpec::default()
    };
    let children = match order {
        Order::Fair => namespaces.iter().map(|name| leaf(name, vec![name.clone()])).collect(),
        _ => vec![leaf("all", namespaces.iter().cloned().collect())],
    };
    let max = match order {
        Order::Fair => shapes::capacity(clusters)
            .to_quantities()
            .into_iter()
            .filter(|(name, _)| name != "pods")
            .collect(),
        _ => BTreeMap::new(),
    };
    let root = NodeSpec { name: "root".to_string(), children, max, ..NodeSpec::default() };
    let (tree, _) = QuotaTree::build(&root).map_err(|error| error.to_string())?;
    let policy = match order {
        Order::Fifo | Order::Sjf => QueuePolicy::Block,
        Order::Priority | Order::Fair => QueuePolicy::Priority,
    };
    let policies = tree.leaves().map(|leaf| (tree.node(leaf).path.clone(), policy)).collect();
    Ok((tree, policies))
}
