//! What users see of a fleet: turns facts about jobs, queues and clusters into rows, bars and sentences.
//!
//! [`Known`] takes in facts one by one and maintains the indexes that pages need: the first page, a page of a queue, and
//! the list of jobs by age cost by their rows. A list of jobs that is ordered or filtered by something else looks at
//! each job in sight. Every view is a pure function of what is known, of what the viewer may see ([`Sight`]) and of the
//! time. Not here: reading API objects, and rendering.

pub mod age;
pub mod amounts;
mod bars;
mod clusters;
mod facts;
mod heat;
mod home;
mod indexes;
mod job;
mod jobs;
mod known;
pub mod log;
mod natural;
mod nodes;
mod outlook;
mod paths;
mod preemption_message;
mod preemptions;
mod queue_amounts;
mod queues;
pub mod run;
mod said;
mod sight;
#[cfg(test)]
mod tests;
mod timeline;
mod virtual_clusters;

pub use bars::{Bar, bar};
pub use clusters::{ClusterRow, MovingRow, clusters, ready_nodes, used_of_total};
pub use facts::{
    AttemptFacts, BindingFacts, ClaimFacts, ClusterFacts, End, Id, LeaseFacts, NodeGroup, PlaceFacts,
    QuotaFacts, RunFacts, Said, TaintFacts, TreeFacts, UnitFacts, VirtualClusterFacts,
};
pub use heat::{Heat, HeatCell, Who, heat, nodes_by_free};
pub use home::{Home, Strange, home};
pub use job::{Job, State};
pub use jobs::{Cursor, JobPage, JobQuery, JobRow, Sort, job_row, jobs};
pub use known::{Known, Place};
pub use natural::natural_order;
pub use nodes::{ClusterPage, NodeJob, NodePage, NodeRow, cluster_page, cluster_pages};
pub use outlook::outlook;
pub use paths::{ROOT, path_of};
pub use preemptions::{PreemptionRow, preempted_for, preemptions};
pub use queue_amounts::{QueueAmounts, QueueTexts};
pub use queues::{ClaimRow, QueuePage, QueueRow, Queues, WaitingRow, is_place, queue, queues};
pub use said::said_now;
pub use sight::{Namespaces, Sight};
pub use timeline::{Span, SpanKind, Timeline, timeline};
pub use virtual_clusters::{VirtualClusterRow, virtual_cluster, virtual_clusters};
