//! The list of jobs: filters, order, and pages by cursor.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    amounts,
    facts::Id,
    job::{Job, State},
    known::Known,
    sight::{Namespaces, Sight},
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

    fn key(self, job: &Job) -> Key<'_> {
        match self {
            Self::Created => Key::Number(job.binding.created_s),
            Self::Name => Key::Text(Cow::Borrowed(job.name())),
            Self::Priority => Key::Number(i64::from(job.binding.priority)),
            Self::Gpus => Key::Number(job.gpus()),
            Self::Since => Key::Number(job.since_s()),
            Self::Runs => Key::Number(job.binding.attempts.len() as i64),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'j> {
    Number(i64),
    Text(Cow<'j, str>),
}

/// The last row of a page: the next page begins after it, even if jobs have been added or deleted meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    key: Key<'static>,
    id: Id,
}

impl Cursor {
    /// Names hold no `/`.
    pub fn read(text: &str) -> Option<Self> {
        let (rest, name) = text.rsplit_once('/')?;
        let (key, namespace) = rest.rsplit_once('/')?;
        let key = match key.split_at_checked(1)? {
            ("n", number) => Key::Number(number.parse().ok()?),
            ("t", text) => Key::Text(Cow::Owned(text.to_owned())),
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
    fn takes(&self, known: &Known, job: &Job, text: &str) -> bool {
        let queue = job.queue();
        let in_queue = || {
            queue
                .strip_prefix(self.queue.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        // Names have no capitals.
        let says =
            || job.name().contains(text) || job.namespace().contains(text) || has(&job.binding.kind, text);
        self.state.is_none_or(|state| job.state() == state)
            && (self.queue.is_empty() || in_queue())
            && (self.cluster.is_empty() || job.is_in(&self.cluster))
            && (self.namespace.is_empty() || job.namespace() == self.namespace)
            && (self.kind.is_empty() || job.binding.kind == self.kind)
            && (self.reason.is_empty() || job.said().0 == self.reason)
            && self.priority.is_none_or(|priority| job.binding.priority == priority)
            && (self.user.is_empty() || job.binding.user == self.user)
            && (self.virtual_cluster.is_empty() || known.virtual_cluster_of(job) == self.virtual_cluster)
            && (text.is_empty() || says())
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
    /// The one that it names or has cells of, or else that of its queue.
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

pub fn job_row(known: &Known, sight: &Sight, job: &Job) -> JobRow {
    let (reason, message) = known.said(sight, job);
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
        virtual_cluster: known.virtual_cluster_of(job).to_owned(),
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

/// Whether a part of `whole` is this text, which is in lower case.
fn has(whole: &str, text: &str) -> bool {
    whole.as_bytes().windows(text.len().max(1)).any(|part| part.eq_ignore_ascii_case(text.as_bytes()))
}

/// With more jobs than this in sight, a list by age is read from the index of ages.
const FEW: usize = 5_000;

/// One page of the jobs that match a query. A list by age that only states or namespaces filter costs by its rows, whatever
/// the number of jobs; others look at each job that the index of the narrowest filter has.
pub fn jobs(known: &Known, sight: &Sight, query: &JobQuery) -> JobPage {
    let text = query.text.trim().to_lowercase();
    let namespaces = known.counts().keys().filter(|name| sight.jobs.has(name)).cloned().collect();
    let total = counted(known, sight, query, &text);
    let (found, total) = match total.filter(|total| *total > FEW && query.sort == Sort::Created) {
        Some(total) => (by_age(known, sight, query), total),
        None => looked_through(known, sight, query, &text),
    };
    let is_more = found.len() > query.limit;
    let shown = &found[..found.len().min(query.limit)];
    let next = shown.last().filter(|_| is_more);
    let next = next.map(|job| {
        let key = match query.sort.key(job) {
            Key::Number(number) => Key::Number(number),
            Key::Text(text) => Key::Text(Cow::Owned(text.into_owned())),
        };
        Cursor { key, id: job.id.clone() }.text()
    });
    let rows = shown.iter().map(|job| job_row(known, sight, job)).collect();
    JobPage { rows, total, next, namespaces }
}

/// How many jobs match, if counts say it: nothing but states and namespaces is asked for.
fn counted(known: &Known, sight: &Sight, query: &JobQuery, text: &str) -> Option<usize> {
    let JobQuery { queue, cluster, kind, reason, priority, user, virtual_cluster, .. } = query;
    let others = [queue, cluster, kind, reason, user, virtual_cluster];
    let is_plain = text.is_empty() && priority.is_none() && others.into_iter().all(String::is_empty);
    let of = |(namespace, _): &(&String, _)| {
        sight.jobs.has(namespace) && (query.namespace.is_empty() || query.namespace == **namespace)
    };
    let states = known.counts().iter().filter(of).flat_map(|(_, counts)| counts);
    let counts = states.filter(|(state, _)| query.state.is_none_or(|wanted| wanted == **state));
    is_plain.then(|| counts.map(|(_, count)| count).sum())
}

/// The rows of a page and one more, from the index of ages.
fn by_age<'k>(known: &'k Known, sight: &'k Sight, query: &JobQuery) -> Vec<&'k Job> {
    let after = query.after.as_ref().and_then(|after| match after.key {
        Key::Number(created_s) => Some((created_s, after.id.clone())),
        Key::Text(_) => None,
    });
    let jobs = known.by_age(sight, query.ascending, after);
    jobs.filter(|job| query.takes(known, job, "")).take(query.limit + 1).collect()
}

/// The rows of a page and one more, and how many there are, from all jobs that may match.
fn looked_through<'k>(
    known: &'k Known,
    sight: &'k Sight,
    query: &JobQuery,
    text: &str,
) -> (Vec<&'k Job>, usize) {
    let mut total = 0;
    let mut found: Vec<(Key<'k>, &Job)> = Vec::new();
    let is_after = |key: &Key<'_>, job: &Job| match &query.after {
        None => true,
        Some(after) if query.ascending => (key, &job.id) > (&after.key, &after.id),
        Some(after) => (key, &job.id) < (&after.key, &after.id),
    };
    for job in candidates(known, sight, query).filter(|job| query.takes(known, job, text)) {
        total += 1;
        let key = query.sort.key(job);
        if is_after(&key, job) {
            found.push((key, job));
        }
    }
    let order = |a: &(Key<'_>, &Job), b: &(Key<'_>, &Job)| {
        let order = (&a.0, &a.1.id).cmp(&(&b.0, &b.1.id));
        if query.ascending { order } else { order.reverse() }
    };
    if found.len() > query.limit + 1 {
        // Only the rows of this page must be sorted.
        found.select_nth_unstable_by(query.limit + 1, order);
        found.truncate(query.limit + 1);
    }
    found.sort_unstable_by(order);
    (found.into_iter().map(|(_, job)| job).collect(), total)
}

/// Jobs in sight among which are all that match: those of a namespace, of a user, or that wait, where one is asked for.
fn candidates<'k>(
    known: &'k Known,
    sight: &'k Sight,
    query: &JobQuery,
) -> Box<dyn Iterator<Item = &'k Job> + 'k> {
    if !query.namespace.is_empty() {
        let is_seen = sight.jobs.has(&query.namespace);
        let own: Vec<&Job> = known.jobs_of(&query.namespace).filter(|_| is_seen).collect();
        return Box::new(own.into_iter());
    }
    if !query.user.is_empty() {
        let own: Vec<&Job> = known.of_user(sight, &query.user).collect();
        return Box::new(own.into_iter());
    }
    match &sight.jobs {
        Namespaces::Only(names) => Box::new(names.iter().flat_map(|name| known.jobs_of(name))),
        Namespaces::All if query.state == Some(State::Waiting) => Box::new(known.longest_waiting(sight)),
        Namespaces::All => Box::new(known.jobs().values()),
    }
}
