//! The list of jobs: filters, order, and pages by cursor.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    amounts,
    facts::Id,
    job::{Job, State},
    known::Known,
    sight::Sight,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Sort {
    #[default]
    Created,
    Name,
    Priority,
    Gpus,
    Since,
    Runs,
}

impl Sort {
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Name, Self::Priority, Self::Gpus, Self::Since, Self::Runs];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Name => "name",
            Self::Priority => "priority",
            Self::Gpus => "gpus",
            Self::Since => "since",
            Self::Runs => "runs",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.as_str() == text)
    }

    fn key(self, job: &Job) -> Key {
        match self {
            Self::Created => Key::Number(job.binding.created_s),
            Self::Name => Key::Text(job.name().to_owned()),
            Self::Priority => Key::Number(i64::from(job.binding.priority)),
            Self::Gpus => Key::Number(job.gpus()),
            Self::Since => Key::Number(job.since_s()),
            Self::Runs => Key::Number(job.binding.attempts.len() as i64),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Number(i64),
    Text(String),
}

/// The last row of a page: the next page begins after it, even if jobs have been added or deleted meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    key: Key,
    id: Id,
}

impl Cursor {
    /// Names hold no `/`.
    pub fn read(text: &str) -> Option<Self> {
        let (rest, name) = text.rsplit_once('/')?;
        let (key, namespace) = rest.rsplit_once('/')?;
        let key = match key.split_at_checked(1)? {
            ("n", number) => Key::Number(number.parse().ok()?),
            ("t", text) => Key::Text(text.to_owned()),
            _ => return None,
        };
        Some(Self { key, id: (namespace.to_owned(), name.to_owned()) })
    }

    pub fn text(&self) -> String {
        let (namespace, name) = &self.id;
        match &self.key {
            Key::Number(number) => format!("n{number}/{namespace}/{name}"),
            Key::Text(text) => format!("t{text}/{namespace}/{name}"),
        }
    }
}

/// An empty field does not filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// Part of namespace, name or kind.
    pub text: String,
    pub state: Option<State>,
    /// A leaf, or a node above it.
    pub queue: String,
    pub cluster: String,
    pub namespace: String,
    pub kind: String,
    pub reason: String,
    pub priority: Option<i32>,
    pub user: String,
    pub virtual_cluster: String,
    pub sort: Sort,
    pub ascending: bool,
    pub after: Option<Cursor>,
    pub limit: usize,
}

impl JobQuery {
    /// `of_leaves`: virtual clusters of queues, by the paths of their leaves.
    fn takes(&self, job: &Job, text: &str, of_leaves: &BTreeMap<String, String>) -> bool {
        let queue = job.queue();
        let in_queue = || {
            queue
                .strip_prefix(self.queue.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let says = || {
            let has = |part: &str| part.to_lowercase().contains(text);
            has(job.name()) || has(job.namespace()) || has(&job.binding.kind)
        };
        self.state.is_none_or(|state| job.state() == state)
            && (self.queue.is_empty() || in_queue())
            && (self.cluster.is_empty() || job.is_in(&self.cluster))
            && (self.namespace.is_empty() || job.namespace() == self.namespace)
            && (self.kind.is_empty() || job.binding.kind == self.kind)
            && (self.reason.is_empty() || job.said().0 == self.reason)
            && self.priority.is_none_or(|priority| job.binding.priority == priority)
            && (self.user.is_empty() || job.binding.user == self.user)
            && (self.virtual_cluster.is_empty() || virtual_cluster(job, of_leaves) == self.virtual_cluster)
            && (text.is_empty() || says())
    }
}

/// Its own, or that of its queue; empty if it has none.
fn virtual_cluster<'f>(job: &'f Job, of_leaves: &'f BTreeMap<String, String>) -> &'f str {
    match job.binding.virtual_cluster.as_str() {
        "" => of_leaves.get(job.queue()).map_or("", String::as_str),
        own => own,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobRow {
    pub namespace: String,
    pub name: String,
    pub kind: String,
    pub resource: String,
    pub state: State,
    pub queue: String,
    /// The first of them.
    pub cluster: String,
    /// Where it is, or where it ended; only objects that are no gangs are in several.
    pub clusters: Vec<String>,
    /// Who submitted it, as its label says.
    pub user: String,
    /// The one that it names or has cells of; that of its queue is not repeated here.
    pub virtual_cluster: String,
    pub priority: i32,
    pub pods: i64,
    pub gpus: i64,
    pub requests: String,
    /// Runs that have ended.
    pub runs: usize,
    pub reason: String,
    pub message: String,
    pub created_s: i64,
    pub since_s: i64,
    /// From when it was first seen to its end.
    pub ended_s: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JobPage {
    pub rows: Vec<JobRow>,
    /// All jobs that match the filters.
    pub total: usize,
    pub next: Option<String>,
    /// Values to filter by, of jobs that the viewer may see.
    pub namespaces: Vec<String>,
}

pub fn job_row(known: &Known, job: &Job) -> JobRow {
    let (reason, message) = known.said(job);
    let binding = &job.binding;
    JobRow {
        namespace: job.namespace().to_owned(),
        name: job.name().to_owned(),
        kind: binding.kind.clone(),
        resource: binding.resource.clone(),
        state: job.state(),
        queue: job.queue().to_owned(),
        cluster: job.cluster().to_owned(),
        clusters: job.clusters().map(str::to_owned).collect(),
        user: binding.user.clone(),
        virtual_cluster: binding.virtual_cluster.clone(),
        priority: binding.priority,
        pods: binding.pods,
        gpus: job.gpus(),
        requests: amounts::line_of(&binding.requests),
        runs: binding.attempts.len(),
        reason,
        message,
        created_s: binding.created_s,
        since_s: job.since_s(),
        ended_s: binding.end.as_ref().map(|end| end.at_s),
    }
}

/// One page of the jobs that match a query.
pub fn jobs(known: &Known, sight: &Sight, query: &JobQuery) -> JobPage {
    let text = query.text.trim().to_lowercase();
    let of_leaves = match query.virtual_cluster.is_empty() {
        true => BTreeMap::new(),
        false => known.virtual_clusters_of_leaves(),
    };
    let mut total = 0;
    let mut found: Vec<(Key, &Job)> = Vec::new();
    let is_after = |key: &Key, job: &Job| match &query.after {
        None => true,
        Some(after) if query.ascending => (key, &job.id) > (&after.key, &after.id),
        Some(after) => (key, &job.id) < (&after.key, &after.id),
    };
    for job in known.jobs().values().filter(|job| sight.jobs.has(job.namespace())) {
        if !query.takes(job, &text, &of_leaves) {
            continue;
        }
        total += 1;
        let key = query.sort.key(job);
        if is_after(&key, job) {
            found.push((key, job));
        }
    }
    let order = |a: &(Key, &Job), b: &(Key, &Job)| {
        let order = (&a.0, &a.1.id).cmp(&(&b.0, &b.1.id));
        if query.ascending { order } else { order.reverse() }
    };
    let is_more = found.len() > query.limit;
    if is_more {
        // Only the rows of this page must be sorted.
        found.select_nth_unstable_by(query.limit, order);
        found.truncate(query.limit);
    }
    found.sort_unstable_by(order);
    let next = found.last().filter(|_| is_more);
    let next = next.map(|(key, job)| Cursor { key: key.clone(), id: job.id.clone() }.text());
    let rows = found.iter().map(|(_, job)| job_row(known, job)).collect();
    let namespaces = known.counts().keys().filter(|name| sight.jobs.has(name)).cloned().collect();
    JobPage { rows, total, next, namespaces }
}
