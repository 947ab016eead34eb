//! Which page an address names.

use fleet_views::{Cursor, JobQuery, Sort, State};

use crate::pairs::{Pairs, decode, encode, link};

/// Rows of a list on one page.
const ROWS: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    Home,
    Queues,
    Queue {
        path: String,
        after: String,
    },
    Jobs(Box<JobQuery>),
    Job(JobName),
    Clusters,
    /// With so many of its nodes before those that are shown.
    Cluster {
        name: String,
        before: usize,
    },
    VirtualClusters,
    Submit(Pairs),
}

/// A job in an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobName {
    pub namespace: String,
    /// `pytorchjobs.kubeflow.org`
    pub resource: String,
    pub name: String,
}

impl JobName {
    pub fn new(namespace: &str, resource: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), resource: resource.to_owned(), name: name.to_owned() }
    }

    pub fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/').map(decode);
        let name = Self { namespace: parts.next()?, resource: parts.next()?, name: parts.next()? };
        // Names go into paths of the API.
        let is_name = |text: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !text.is_empty() && text.chars().all(fits) && text.chars().any(|c| c.is_ascii_alphanumeric())
        };
        let fits = is_name(&name.namespace) && is_name(&name.resource) && is_name(&name.name);
        (fits && parts.next().is_none()).then_some(name)
    }

    /// As [`Self::read`] takes it.
    pub fn text(&self) -> String {
        format!("{}/{}/{}", encode(&self.namespace), encode(&self.resource), encode(&self.name))
    }

    pub fn link(&self) -> String {
        format!("/jobs/{}", self.text())
    }
}

/// Where the log of a pod is shown.
pub fn log_link(job: &JobName, pod: &str) -> String {
    format!("{}/logs/{}", job.link(), encode(pod))
}

/// Nodes of a cluster after so many others.
pub fn cluster_link(name: &str, before: usize) -> String {
    let before = if before == 0 { String::new() } else { before.to_string() };
    link(&format!("/clusters/{}", encode(name)), &[("before", &before)])
}

pub fn queue_link(path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(encode).collect();
    format!("/queues/{}", parts.join("/"))
}

impl Page {
    /// `None`: there is no such page.
    pub fn read(path: &str, query: &str) -> Option<Self> {
        let pairs = Pairs::read(query);
        let trimmed = path.trim_matches('/');
        let (first, rest) = trimmed.split_once('/').unwrap_or((trimmed, ""));
        match (first, rest) {
            ("", "") => Some(Self::Home),
            ("queues", "") => Some(Self::Queues),
            ("queues", path) => {
                Some(Self::Queue { path: decode(path), after: pairs.get("after").to_owned() })
            }
            ("jobs", "") => Some(Self::Jobs(Box::new(query_of(&pairs)))),
            ("jobs", name) => JobName::read(name).map(Self::Job),
            ("clusters", "") => Some(Self::Clusters),
            ("clusters", name) if !name.contains('/') => {
                Some(Self::Cluster { name: decode(name), before: pairs.get("before").parse().unwrap_or(0) })
            }
            ("virtual-clusters", "") => Some(Self::VirtualClusters),
            ("submit", "") => Some(Self::Submit(pairs)),
            _ => None,
        }
    }

    pub fn title(&self) -> String {
        match self {
            Self::Home => "Home".to_owned(),
            Self::Queues => "Queues".to_owned(),
            Self::Queue { path, .. } => format!("Queue {path}"),
            Self::Jobs(_) => "Jobs".to_owned(),
            Self::Job(job) => format!("Job {}", job.name),
            Self::Clusters => "Clusters".to_owned(),
            Self::Cluster { name, .. } => format!("Cluster {name}"),
            Self::VirtualClusters => "Virtual clusters".to_owned(),
            Self::Submit(_) => "Submit a job".to_owned(),
        }
    }

    /// Whether the page changes by itself. One in which somebody writes does not.
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::Submit(_))
    }
}

fn query_of(pairs: &Pairs) -> JobQuery {
    let text = |name: &str| pairs.get(name).to_owned();
    JobQuery {
        text: text("text"),
        state: State::from_text(pairs.get("state")),
        queue: text("queue"),
        cluster: text("cluster"),
        namespace: text("namespace"),
        kind: text("kind"),
        reason: text("reason"),
        priority: pairs.get("priority").parse().ok(),
        user: text("user"),
        virtual_cluster: text("vc"),
        sort: Sort::from_text(pairs.get("sort")).unwrap_or_default(),
        ascending: pairs.get("order") == "asc",
        after: Cursor::read(pairs.get("after")),
        limit: ROWS,
    }
}

/// The address of a query's first page, in this order.
pub fn jobs_link(query: &JobQuery, sort: Sort, ascending: bool, after: &str) -> String {
    let priority = query.priority.map(|priority| priority.to_string()).unwrap_or_default();
    link(
        "/jobs",
        &[
            ("text", &query.text),
            ("state", query.state.map_or("", State::as_str)),
            ("queue", &query.queue),
            ("cluster", &query.cluster),
            ("namespace", &query.namespace),
            ("kind", &query.kind),
            ("reason", &query.reason),
            ("priority", &priority),
            ("user", &query.user),
            ("vc", &query.virtual_cluster),
            ("sort", if sort == Sort::default() { "" } else { sort.as_str() }),
            ("order", if ascending { "asc" } else { "" }),
            ("after", after),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_pages() {
        let read = |text: &str| {
            let (path, query) = text.split_once('?').unwrap_or((text, ""));
            Page::read(path, query)
        };
        assert_eq!(read("/"), Some(Page::Home));
        assert_eq!(read("/queues/"), Some(Page::Queues));
        let odd = "root/a b/c?d";
        assert_eq!(read(&queue_link(odd)), Some(Page::Queue { path: odd.to_owned(), after: String::new() }));
        let cluster = |before| Some(Page::Cluster { name: "a b".to_owned(), before });
        assert_eq!(
            (read(&cluster_link("a b", 0)), read(&cluster_link("a b", 200))),
            (cluster(0), cluster(200))
        );
        let job = JobName::new("team-a", "jobs.batch.volcano.sh", "train.1");
        assert_eq!(read(&job.link()), Some(Page::Job(job)));
        for bad in [
            "/nothing",
            "/jobs/a/b",
            "/jobs/a/b/c/d",
            "/jobs/../b/c",
            "/jobs/a/b%2Fx/c",
            "/jobs/a/b/%3Cx%3E",
            "/clusters/x/y",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        let Some(Page::Jobs(query)) =
            read("/jobs?state=waiting&text=x+y&priority=5&user=alice&vc=vision&order=asc&sort=gpus")
        else {
            panic!("jobs");
        };
        assert_eq!(
            (query.state, query.text.as_str(), query.priority),
            (Some(State::Waiting), "x y", Some(5))
        );
        assert_eq!((query.user.as_str(), query.virtual_cluster.as_str()), ("alice", "vision"));
        let again = jobs_link(&query, query.sort, query.ascending, "");
        assert_eq!(read(&again), Some(Page::Jobs(query)));
    }
}
