//! The quota tree with its used, lent and borrowed amounts, and the waiting jobs of a leaf, page by page.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use fleet_policies::reason::Reason;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    amounts,
    bars::{Bar, bar},
    facts::QuotaFacts,
    job::Job,
    known::{Known, Place},
    paths::{ROOT, holds, path_of},
    preemptions::{PreemptionRow, preemptions},
    queue_amounts::QueueAmounts,
    sight::Sight,
};

/// On the page of one queue.
const MOST_PREEMPTIONS: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// Full path, `root/child-2`.
    pub path: String,
    pub name: String,
    pub depth: usize,
    pub is_leaf: bool,
    pub namespaces: Vec<String>,
    pub bars: Vec<Bar>,
    pub unqueued: String,
    pub waiting: usize,
    pub running: usize,
    /// Who borrows from whom here, as a sentence; empty if nobody does.
    pub lending: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queues {
    pub rows: Vec<QueueRow>,
    /// The errors of trees that are not in force.
    pub problems: Vec<String>,
    /// Why nothing is shown; empty if something is.
    pub absent: String,
    /// Why only some queues are shown; empty if all are.
    pub left_out: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingRow {
    pub position: usize,
    pub priority: i32,
    pub since_s: i64,
    /// Namespace, name and resource; absent for a job that the viewer may not see.
    pub job: Option<(String, String, String)>,
    pub reason: String,
    pub message: String,
    pub requests: String,
}

/// Capacity that is reserved for a waiting job: nobody else gets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRow {
    /// The leaf in which it waits.
    pub queue: String,
    /// Namespace, name and resource; absent for a job that the viewer may not see.
    pub job: Option<(String, String, String)>,
    /// What is reserved, and in which cluster.
    pub requests: String,
    pub cluster: String,
    pub since_s: i64,
    /// When it is expected to start.
    pub start_s: Option<i64>,
    /// The claim is given up then at the latest.
    pub until_s: Option<i64>,
}

/// A page of the waiting jobs of a leaf, or of all leaves below a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuePage {
    pub row: QueueRow,
    /// From the root to the parent: name and path.
    pub above: Vec<(String, String)>,
    pub below: Vec<QueueRow>,
    pub claims: Vec<ClaimRow>,
    pub waiting: Vec<WaitingRow>,
    /// Where the next page begins.
    pub next: Option<String>,
    /// Why the jobs of this page wait: reason, its meaning, how many jobs.
    pub reasons: Vec<(String, String, usize)>,
    /// The last preemptions of jobs that are here.
    pub preemptions: Vec<PreemptionRow>,
}

/// Every node of the tree, parents first. A viewer who may not list quota trees sees the leaves that list one of his
/// namespaces, and the nodes above them.
pub fn queues(known: &Known, sight: &Sight) -> Queues {
    let tree = known.tree();
    let mut shown = Queues::default();
    if sight.queues {
        shown.problems.clone_from(&tree.problems);
    }
    match &tree.root {
        Some(root) => {
            let mut governed = BTreeSet::new();
            govern(root, &mut governed);
            let mut rows = Rows { known, sight, governed, rows: Vec::new() };
            rows.add(root, "", 0, &BTreeMap::new());
            shown.rows = rows.rows;
            if !sight.queues {
                let right = "The hub does not let you list ElasticQuotaTrees in namespace kube-system";
                match shown.rows.is_empty() {
                    true => {
                        shown.absent = format!("{right}, and no queue lists a namespace that you may see.")
                    }
                    false => {
                        shown.left_out =
                            format!("{right}: only queues of namespaces that you may see are shown.");
                    }
                }
            }
        }
        None if !sight.queues => {
            shown.absent =
                "The hub does not let you list ElasticQuotaTrees in namespace kube-system, so queues are \
                            not shown."
                    .to_owned();
        }
        None => {
            shown.absent = match tree.problems.is_empty() {
                true => {
                    "There is no quota tree: jobs whose policy uses a queue wait until an ElasticQuotaTree is applied in \
                     namespace kube-system."
                }
                false => "No quota tree is in force: jobs whose policy uses a queue wait until one is corrected.",
            }
            .to_owned();
        }
    }
    shown
}

/// One node and, page by page, its waiting jobs. `after` is the `next` of an earlier page. `None`: there is
/// no such queue, or the viewer may not see it.
pub fn queue(
    known: &Known,
    sight: &Sight,
    path: &str,
    after: Option<&str>,
    limit: usize,
) -> Option<QueuePage> {
    let all = queues(known, sight).rows;
    let row = all.iter().find(|row| row.path == path)?.clone();
    let is_below = |row: &&QueueRow| holds(path, &row.path) && row.path != path;
    let below: Vec<QueueRow> = all.iter().filter(is_below).cloned().collect();
    let above = all.iter().filter(|row| holds(&row.path, path) && row.path != path);
    let above = above.map(|row| (row.name.clone(), row.path.clone())).collect();
    let leaves: BTreeSet<&str> =
        all.iter().filter(|row| row.is_leaf && holds(path, &row.path)).map(|row| row.path.as_str()).collect();
    // A leaf that has gone from the tree may still have jobs.
    let is_seen = |leaf: &str| holds(path, leaf) && (sight.queues || leaves.contains(leaf));
    let (waiting, next) = line(known, sight, is_seen, after.and_then(read_place), limit);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for row in waiting.iter().filter(|row| row.job.is_some()) {
        *reasons.entry(row.reason.clone()).or_default() += 1;
    }
    let mut reasons: Vec<(String, String, usize)> = reasons
        .into_iter()
        .map(|(reason, count)| {
            let meaning = Reason::from_text(&reason).map_or("", Reason::describe);
            (reason, meaning.to_owned(), count)
        })
        .collect();
    reasons.sort_by_key(|(reason, _, count)| (Reverse(*count), reason.clone()));
    let claims = claims(known, sight, is_seen);
    let preemptions = preemptions(known, sight, Some(path), MOST_PREEMPTIONS);
    Some(QueuePage { row, above, below, claims, waiting, next, reasons, preemptions })
}

fn claims(known: &Known, sight: &Sight, is_seen: impl Fn(&str) -> bool) -> Vec<ClaimRow> {
    let of = known.claims().filter(|(leaf, _)| is_seen(leaf));
    of.filter_map(|(leaf, job)| {
        let claim = job.unit.as_ref()?.claim.as_ref()?;
        let is_seen = sight.jobs.has(job.namespace());
        let name = || (job.namespace().to_owned(), job.name().to_owned(), job.binding.resource.clone());
        Some(ClaimRow {
            queue: leaf.clone(),
            job: is_seen.then(name),
            requests: if is_seen { amounts::line_of(&job.binding.requests) } else { String::new() },
            cluster: if sight.clusters || is_seen { claim.cluster.clone() } else { String::new() },
            since_s: claim.since_s,
            start_s: claim.start_s,
            until_s: claim.until_s,
        })
    })
    .collect()
}

type Cursor = (usize, String, Place);

/// Leaf by leaf, each in its own order.
fn line(
    known: &Known,
    sight: &Sight,
    is_seen: impl Fn(&str) -> bool,
    after: Option<Cursor>,
    limit: usize,
) -> (Vec<WaitingRow>, Option<String>) {
    let mut rows = Vec::new();
    let mut last: Option<(usize, &String, &Place)> = None;
    for (leaf, line) in known.lines().iter().filter(|(leaf, _)| is_seen(leaf)) {
        let (mut position, from) = match &after {
            Some((_, of, _)) if leaf < of => continue,
            Some((position, of, place)) if leaf == of => (*position, Bound::Excluded(place)),
            _ => (0, Bound::Unbounded),
        };
        for place in line.waiting.range((from, Bound::Unbounded)) {
            if rows.len() == limit {
                return (rows, last.map(write_place));
            }
            position += 1;
            let Some(job) = known.job(&place.id()) else { continue };
            rows.push(row(known, job, place, position, sight));
            last = Some((position, leaf, place));
        }
    }
    (rows, None)
}

fn row(known: &Known, job: &Job, place: &Place, position: usize, sight: &Sight) -> WaitingRow {
    let common = WaitingRow {
        position,
        priority: place.priority.0,
        since_s: job.since_s(),
        job: None,
        reason: String::new(),
        message: "a job of a namespace that you may not list".to_owned(),
        requests: String::new(),
    };
    if !sight.jobs.has(job.namespace()) {
        return common;
    }
    let (reason, message) = known.said(sight, job);
    WaitingRow {
        job: Some((job.namespace().to_owned(), job.name().to_owned(), job.binding.resource.clone())),
        reason,
        message,
        requests: amounts::line_of(&job.binding.requests),
        ..common
    }
}

fn write_place((position, leaf, place): (usize, &String, &Place)) -> String {
    format!("{position} {} {} {} {} {leaf}", place.priority.0, place.since_ms, place.namespace, place.name)
}

/// Whether a text is the `next` of a page.
pub fn is_place(text: &str) -> bool {
    read_place(text).is_some()
}

/// Paths of queues may contain anything but a line end; the other parts contain no space.
fn read_place(text: &str) -> Option<Cursor> {
    let mut parts = text.splitn(6, ' ');
    let position = parts.next()?.parse().ok()?;
    let priority = Reverse(parts.next()?.parse().ok()?);
    let since_ms = parts.next()?.parse().ok()?;
    let (namespace, name) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    Some((position, parts.next()?.to_owned(), Place { priority, since_ms, name, namespace }))
}

/// Resources that some node of the tree guarantees or bounds: of others nothing is borrowed.
fn govern<'f>(node: &'f QuotaFacts, governed: &mut BTreeSet<&'f String>) {
    let bounded = node.max.iter().filter(|(name, max)| !amounts::is_unlimited(name, **max));
    let guaranteed = node.min.iter().filter(|(_, min)| **min > 0);
    governed.extend(bounded.chain(guaranteed).map(|(name, _)| name));
    node.children.iter().for_each(|child| govern(child, governed));
}

/// The rows of a tree, as they are made.
struct Rows<'f> {
    known: &'f Known,
    sight: &'f Sight,
    governed: BTreeSet<&'f String>,
    rows: Vec<QueueRow>,
}

impl Rows<'_> {
    /// Whether the viewer may see a node: all of them, or those above a leaf of his namespaces.
    fn shows(&self, node: &QuotaFacts) -> bool {
        let lists_his = || node.namespaces.iter().any(|namespace| self.sight.jobs.has(namespace));
        self.sight.queues
            || node.children.is_empty() && lists_his()
            || node.children.iter().any(|child| self.shows(child))
    }

    fn add(&mut self, node: &QuotaFacts, parent: &str, depth: usize, lent: &BTreeMap<String, i64>) {
        if !self.shows(node) {
            return;
        }
        let seen = |namespace: &&String| self.sight.queues || self.sight.jobs.has(namespace);
        let namespaces = node.namespaces.iter().filter(seen).cloned().collect();
        let path = path_of(&node.name, parent);
        let (mut waiting, mut running) = (0, 0);
        for (_, line) in self.known.lines().iter().filter(|(leaf, _)| holds(&path, leaf)) {
            waiting += line.waiting.len();
            running += line.admitted;
        }
        let loans = loans(node);
        let amounts = QueueAmounts::of(node, path.clone(), depth, (waiting, running));
        self.rows.push(QueueRow {
            is_leaf: node.children.is_empty(),
            namespaces,
            bars: bars(&amounts, lent, &self.governed),
            unqueued: Some(amounts.texts().unqueued).filter(|text| text != "-").unwrap_or_default(),
            lending: lending(node, &loans, |child| self.shows(child)),
            path: amounts.path,
            name: amounts.name,
            depth: amounts.depth,
            waiting: amounts.waiting,
            running: amounts.running,
        });
        for (index, child) in node.children.iter().enumerate() {
            let lent =
                loans.iter().filter_map(|(resource, lent)| Some((resource.clone(), *lent.get(index)?)));
            self.add(child, &path, depth + 1, &lent.collect());
        }
    }
}

/// A bar for each resource that the node limits, guarantees or uses. The root borrows from nobody. A resource that the
/// tree does not name has no bar, unless the tree names none.
fn bars(node: &QueueAmounts, lent: &BTreeMap<String, i64>, governed: &BTreeSet<&String>) -> Vec<Bar> {
    let is_root = node.path == ROOT;
    let mut names: Vec<&String> = node.used.keys().chain(node.min.keys()).chain(node.max.keys()).collect();
    names.sort_by_key(|name| (amounts::rank(name), (*name).clone()));
    names.dedup();
    let at = |amounts: &BTreeMap<String, i64>, name: &str| amounts.get(name).copied();
    names
        .into_iter()
        .filter_map(|name| {
            let (used, min) = (at(&node.used, name).unwrap_or(0), at(&node.min, name));
            let max = at(&node.max, name).filter(|max| !amounts::is_unlimited(name, *max));
            // The number of jobs is shown next to the bars.
            let is_unbounded = min.unwrap_or(0) == 0 && max.is_none();
            let is_governed = governed.contains(name);
            let is_left_out = !is_governed && !governed.is_empty();
            if is_left_out || is_unbounded && (used == 0 || name == amounts::JOBS) {
                return None;
            }
            let min =
                if name == amounts::JOBS || is_root || !is_governed { None } else { Some(min.unwrap_or(0)) };
            let mut bar = bar(name, used, min, max, at(lent, name).unwrap_or(0));
            if let Some(kept) = at(&node.min, name).filter(|min| is_root && is_governed && *min > 0) {
                bar.min = amounts::short(name, kept);
                bar.text.push_str(&format!(", {} guaranteed", bar.min));
            }
            Some(bar)
        })
        .collect()
}

/// How much each child lends of each resource. What its siblings use above their min is taken from the
/// parent's own part first, and then from unused guarantees in proportion.
fn loans(node: &QuotaFacts) -> BTreeMap<String, Vec<i64>> {
    let mut names: Vec<&String> = node.children.iter().flat_map(|child| child.used.keys()).collect();
    names.sort();
    names.dedup();
    let mut loans = BTreeMap::new();
    for name in names.into_iter().filter(|name| *name != amounts::JOBS) {
        let at = |amounts: &BTreeMap<String, i64>| amounts.get(name).copied().unwrap_or(0);
        let over = |child: &QuotaFacts| (at(&child.used) - at(&child.min)).max(0);
        let idle = |child: &QuotaFacts| (at(&child.min) - at(&child.used)).max(0);
        let borrowed: i64 = node.children.iter().map(over).sum();
        let guaranteed: i64 = node.children.iter().map(|child| at(&child.min)).sum();
        let own = (at(&node.min) - guaranteed).max(0);
        let all_idle: i64 = node.children.iter().map(idle).sum();
        let lent = (borrowed - own).clamp(0, all_idle);
        if lent > 0 {
            let share = |child: &QuotaFacts| {
                (i128::from(lent) * i128::from(idle(child)) / i128::from(all_idle.max(1))) as i64
            };
            let mut shares: Vec<i64> = node.children.iter().map(share).collect();
            // The rest after rounding goes to the first that have more.
            let mut left = lent - shares.iter().sum::<i64>();
            for (share, child) in shares.iter_mut().zip(&node.children) {
                let more = left.min(idle(child) - *share);
                *share += more;
                left -= more;
            }
            loans.insert(name.clone(), shares);
        }
    }
    loans
}

/// Who borrows from whom. Siblings that the viewer may not see have no names.
fn lending(
    node: &QuotaFacts,
    loans: &BTreeMap<String, Vec<i64>>,
    shows: impl Fn(&QuotaFacts) -> bool,
) -> String {
    let sentences = loans.iter().map(|(name, lent)| {
        let at = |amounts: &BTreeMap<String, i64>| amounts.get(name).copied().unwrap_or(0);
        let over = |child: &QuotaFacts| at(&child.used) - at(&child.min);
        let text = |amounts: Vec<(&QuotaFacts, i64)>| {
            let of = |who: &str, amount: i64| format!("{who} ({})", amounts::short(name, amount));
            let (seen, others): (Vec<_>, Vec<_>) = amounts.into_iter().partition(|(child, _)| shows(child));
            let mut parts: Vec<String> =
                seen.into_iter().map(|(child, amount)| of(&child.name, amount)).collect();
            if !others.is_empty() {
                parts.push(of("other queues", others.iter().map(|(_, amount)| amount).sum()));
            }
            parts.join(", ")
        };
        let borrowers = node.children.iter().map(|child| (child, over(child))).filter(|(_, over)| *over > 0);
        let lenders = node.children.iter().zip(lent.iter().copied()).filter(|(_, lent)| *lent > 0);
        format!(
            "{}: {} borrows from {}",
            amounts::label(name),
            text(borrowers.collect()),
            text(lenders.collect())
        )
    });
    sentences.collect::<Vec<_>>().join("; ")
}
