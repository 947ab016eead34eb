//! The core task, which owns the cached state of the member. It applies changes, plans reservations, places
//! gangs, and starts the resulting writes.
//!
//! Planning is sequential and in memory; writes run concurrently, bounded in number, and report back. Nothing
//! is polled: each round handles what has arrived since the last, then waits for the next change or deadline.

mod ended;
mod messages;
mod planning;
mod questions;
mod rounds;
mod shared;
mod sharing;
mod writes;

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use fleet_agent_ground::{HoldRequest, PlaceQuestion};
use fleet_member_state::{GangKey, MemberState, PodKey, Release};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    changes::{CoreChange, NODES, PODS, READ_FIRST},
    commands,
    context::Context,
    groups::{self, Statuses},
    notices::Notices,
    report::Report,
    reservations::{book::Book, entry::HoldWritten},
    scheduler::{
        binding::Binding,
        extender::Leave,
        write::{Bound, WaitingPod},
    },
};
use questions::Extender;
use shared::Shared;

/// The result of a write.
#[derive(Debug)]
enum Ended {
    Bound(Vec<(Binding, Bound)>),
    Reported(Vec<PodKey>),
    /// Pods that could not be evicted.
    Evicted(Vec<PodKey>),
    /// Pods that the extender refuses to evict.
    Kept(Vec<PodKey>, Vec<PodKey>),
    Status(groups::Written),
    Command(commands::Done),
    /// A PodGroup could not be created.
    Undescribed(Option<GangKey>),
    /// Pods of this reservation whose gates could not be removed.
    Released(String, Vec<PodKey>),
}

/// A write to a gang's pods that is not urgent.
pub(crate) enum Lazy {
    Tell(Vec<WaitingPod>, String),
    Evict(Vec<(PodKey, String)>),
    /// Evicts those of them that the extender allows.
    Ask(Leave, Vec<(PodKey, String)>),
    Status(groups::StatusWrite),
    Command(commands::CommandWrite),
    Describe(groups::Description),
    /// Pods of this reservation whose gates are to be removed.
    Release(String, Vec<Release>),
}

pub(crate) struct Core {
    pub(crate) context: Arc<Context>,
    pub(crate) state: MemberState,
    pub(crate) book: Book,
    pub(crate) notices: Notices,
    changes: mpsc::Receiver<CoreChange>,
    requests: mpsc::Receiver<HoldRequest>,
    questions: mpsc::Receiver<PlaceQuestion>,
    reports: watch::Sender<Option<Report>>,
    /// Kinds that have not been listed yet; no decision is made before all have been. A decision on partial
    /// state could admit groups whose pods were seen before their PodGroups, and count capacity that is
    /// reserved for others.
    unlisted: BTreeSet<&'static str>,
    /// Gangs to reconcile.
    dirty: BTreeSet<GangKey>,
    /// Gangs that did not fit.
    waiting: BTreeSet<GangKey>,
    /// Gangs to reconcile again at a time.
    rechecks: BTreeSet<(Instant, GangKey)>,
    /// Bindings that wait to be sent.
    pub(crate) to_bind: VecDeque<Vec<Binding>>,
    pub(crate) lazy: VecDeque<Lazy>,
    binds: JoinSet<Ended>,
    tells: JoinSet<Ended>,
    holds: JoinSet<HoldWritten>,
    statuses: Statuses,
    extender: Extender,
    pub(crate) shared: Shared,
    /// The last cycle reached its limits.
    cycle_again: bool,
    /// Sequence number of the last report.
    pub(crate) sequence: i64,
    /// Highest report number promised in an answer.
    pub(crate) promised: i64,
    report_due: Option<Instant>,
    reported_at: Option<Instant>,
    /// How often the counting of the hub's terms was restarted.
    term_beginnings: u64,
}

/// The core's ends of its channels.
pub(crate) struct Channels {
    pub changes: mpsc::Receiver<CoreChange>,
    pub requests: mpsc::Receiver<HoldRequest>,
    pub questions: mpsc::Receiver<PlaceQuestion>,
    pub reports: watch::Sender<Option<Report>>,
    pub notices: Notices,
}

impl Core {
    pub fn new(context: Arc<Context>, channels: Channels) -> Self {
        let statuses = Statuses::new(&context.settings.scheduler_names);
        let mut unlisted: BTreeSet<&'static str> = [NODES, PODS].into();
        if !context.settings.scheduler_names.is_empty() {
            unlisted.extend(READ_FIRST);
        }
        let mut state = MemberState::new(context.settings.scheduler_names.clone());
        state.permit_cell_nodes(context.settings.permits.cell_nodes.clone());
        Self {
            state,
            sequence: context.clock.now().as_millisecond(),
            book: Book::new(context.settings.permits.clone()),
            context,
            notices: channels.notices,
            changes: channels.changes,
            requests: channels.requests,
            questions: channels.questions,
            reports: channels.reports,
            unlisted,
            dirty: BTreeSet::new(),
            waiting: BTreeSet::new(),
            rechecks: BTreeSet::new(),
            to_bind: VecDeque::new(),
            lazy: VecDeque::new(),
            binds: JoinSet::new(),
            tells: JoinSet::new(),
            holds: JoinSet::new(),
            statuses,
            extender: Extender::default(),
            shared: Shared::default(),
            cycle_again: false,
            promised: 0,
            report_due: None,
            reported_at: None,
            term_beginnings: 0,
        }
    }
}

#[cfg(test)]
mod tests;
