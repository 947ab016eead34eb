//! Order and durability of commits: what the store and its committer share.
//!
//! Absent on purpose: what a commit checks (see `store`), and how it is written (see `disk`).

use crate::nesting::TooDeep;
use crate::table::{Event, Table};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// Spans of refused revisions that are kept for callers that still wait for one of them.
const REFUSALS: usize = 1024;

/// Why a commit was refused; the number is the position of the write in the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The key is taken.
    Exists(usize),
    /// The object changed or is gone.
    Changed(usize),
    /// The condition of the commit no longer holds.
    Barred,
    /// An object is nested too deeply.
    TooDeep(TooDeep),
    /// The disk refused it. Reads go on; writes do once the disk accepts them again.
    NotStored(String),
    /// The store is closed or its disk is gone for good.
    Closed(String),
}

/// Called with each published event, in commit order, from the publishing thread.
pub type Hook = Box<dyn Fn(&Arc<Table>, &Arc<Event>) + Send + Sync>;

/// One commit on its way to the disk.
pub struct Batch {
    /// The events of the commit.
    pub events: Vec<(Arc<Table>, Arc<Event>)>,
    /// The last revision of the commit.
    pub rv: u64,
    /// It frees space, so it may use the reserve.
    pub frees: bool,
}

/// Where the next commit goes.
pub struct Sequence {
    /// The last revision given out.
    pub rv: u64,
    /// No more commits.
    pub closed: bool,
}

/// What the disk refused.
struct Refusals {
    /// Revisions after the first number up to the second were refused.
    spans: Vec<(u64, u64)>,
    why: String,
}

/// Order and durability of commits, shared with the committer thread.
pub struct Published {
    /// Held by each commit.
    sequence: Mutex<Sequence>,
    /// The last durable revision.
    pub durable: AtomicU64,
    /// Every event up to here was given to the feeds.
    pub delivered: AtomicU64,
    /// Tells of durable revisions.
    pub feed: watch::Sender<u64>,
    /// See [`Hook`].
    pub hook: OnceLock<Hook>,
    /// Why the disk is gone for good.
    pub failure: OnceLock<String>,
    /// The disk has refused something once.
    refused: AtomicBool,
    /// What it refused.
    refusals: Mutex<Refusals>,
}

impl Published {
    /// Nothing yet, after revision `start`.
    pub fn new(start: u64) -> Published {
        Published {
            sequence: Mutex::new(Sequence { rv: start, closed: false }),
            durable: AtomicU64::new(start),
            delivered: AtomicU64::new(start),
            feed: watch::Sender::new(start),
            hook: OnceLock::new(),
            failure: OnceLock::new(),
            refused: AtomicBool::new(false),
            refusals: Mutex::new(Refusals { spans: Vec::new(), why: String::new() }),
        }
    }

    /// The right to commit.
    pub fn sequence(&self) -> MutexGuard<'_, Sequence> {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives durable events to the feeds and the hook.
    pub fn publish(&self, events: &[(Arc<Table>, Arc<Event>)], rv: u64) {
        self.durable.store(rv, Ordering::Release);
        for (table, event) in events {
            table.feed.publish(event);
            if let Some(hook) = self.hook.get() {
                hook(table, event);
            }
        }
        self.delivered.store(rv, Ordering::Release);
        self.feed.send_replace(rv);
    }

    /// Called by the committer once a batch is on disk.
    pub fn durable(&self, batch: &[Batch]) {
        for b in batch {
            self.publish(&b.events, b.rv);
        }
    }

    /// Called by the committer if the disk refused a batch: everything that is not durable is undone, newest first.
    /// `queued` yields the batches behind it; no commit happens meanwhile.
    pub fn refuse(
        &self,
        mut batches: Vec<Batch>,
        queued: impl FnOnce() -> Vec<Batch>,
        why: String,
    ) -> Vec<Batch> {
        let sequence = self.sequence();
        batches.extend(queued());
        for (table, event) in batches.iter().rev().flat_map(|b| b.events.iter().rev()) {
            table.undo(event);
        }
        let from = self.durable.load(Ordering::Acquire);
        {
            let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            match refusals.spans.last_mut() {
                Some(last) if last.0 == from => last.1 = sequence.rv,
                _ => refusals.spans.push((from, sequence.rv)),
            }
            if refusals.spans.len() > REFUSALS {
                refusals.spans.remove(0);
            }
            refusals.why = why;
        }
        self.refused.store(true, Ordering::Release);
        drop(sequence);
        self.feed.send_modify(|_| {});
        batches
    }

    /// Called by the committer if the disk is gone for good.
    pub fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.feed.send_modify(|_| {});
    }

    /// Whether a revision is durable, or why not; None while that is not known.
    pub fn outcome(&self, rv: u64) -> Option<Result<(), Refused>> {
        let durable = self.durable.load(Ordering::Acquire);
        if self.refused.load(Ordering::Acquire) {
            let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
            if refusals.spans.iter().any(|(from, to)| *from < rv && rv <= *to) {
                return Some(Err(Refused::NotStored(refusals.why.clone())));
            }
        }
        (durable >= rv).then_some(Ok(()))
    }
}
