//! What people are shown of a fleet: from facts about jobs, queues and clusters to rows, bars and sentences.
//!
//! [`Known`] takes facts in one by one and keeps the orders that pages need, so that the first rows of a list cost the
//! same in a fleet of ten jobs and of a hundred thousand. Every view is a function of what is known, of what the
//! viewer may see ([`Sight`]) and of the time. Deliberately absent: reading API objects, and how a view is drawn.

pub mod age;
pub mod amounts;
mod bars;
mod clusters;
mod facts;
mod heat;
mod home;
mod job;
mod jobs;
mod known;
mod queues;
pub mod run;
mod sight;
#[cfg(test)]
mod tests;
mod timeline;

pub use bars::{Bar, bar};
pub use clusters::{ClusterRow, clusters};
pub use facts::{
    AttemptFacts, BindingFacts, ClusterFacts, End, Id, LeaseFacts, NodeGroup, QuotaFacts, RunFacts, Said,
    TaintFacts, TreeFacts, UnitFacts,
};
pub use heat::{Heat, HeatCell, heat, nodes_by_free};
pub use home::{Home, Strange, home};
pub use job::{Job, State};
pub use jobs::{Cursor, JobPage, JobQuery, JobRow, Sort, job_row, jobs};
pub use known::{Known, Place};
pub use queues::{QueuePage, QueueRow, Queues, WaitingRow, queue, queues};
pub use sight::{Namespaces, Sight};
pub use timeline::{Span, SpanKind, Timeline, timeline};
