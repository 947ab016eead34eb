//! The controller's run log: events of the fleet, one JSON object per line, for the portal's page Time.
//!
//! Facts go through a bounded channel to a thread that writes a line for each change, so the loop never waits
//! for the disk. The log has two files: when the newer one is full, it replaces the older one. Each file
//! begins with the whole known state. A restart appends the whole state to the same file; earlier lines stay.

mod file;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    thread,
    time::{Duration, Instant},
};

use fleet_views::{
    BindingFacts, ClusterFacts, Id, TreeFacts, UnitFacts, VirtualClusterFacts,
    log::{Clock, Event, Line, Recorder},
};

use file::Parts;

/// Default size of both files together.
pub const SIZE: u64 = 64 << 20;
/// Smallest size: the state of a small fleet must leave space for events.
pub const LEAST_SIZE: u64 = 1 << 20;
/// Batches that wait for the disk. Beyond that facts are merged in the loop, and only the newest are written.
const QUEUED: usize = 8;
/// Least time between two lines about a member's use, and the pause for each byte of it: reports come every
/// few seconds and must not crowd out other events.
const USE_EVERY_MS: i64 = 10_000;
const MS_PER_BYTE: i64 = 10;
/// Least time between two lines about a virtual cluster: its use changes with each of its jobs.
const VIRTUAL_CLUSTER_EVERY_MS: i64 = 1_000;
const TICK: Duration = Duration::from_secs(1);

/// One new fact.
#[derive(Debug)]
pub(crate) enum Fact {
    /// Earlier facts are void.
    Begin,
    Job(Id, Option<Box<(BindingFacts, Option<UnitFacts>)>>),
    Cluster(String, Option<ClusterFacts>),
    VirtualCluster(String, Option<VirtualClusterFacts>),
    Tree(TreeFacts),
}

pub(crate) struct Batch {
    pub at_ms: i64,
    pub facts: Vec<Fact>,
}

/// Handle of a run log; clones write to the same log, and the last one closes it.
#[derive(Clone, Debug)]
pub struct RunLog {
    into: SyncSender<Batch>,
}

impl RunLog {
    /// Opens the log in `path`, of at most `size` bytes in its two files.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(path: &Path, size: u64) -> io::Result<Self> {
        let mut writer = Writer::open(path, size)?;
        let (into, from) = mpsc::sync_channel(QUEUED);
        thread::Builder::new().name("run-log".to_owned()).spawn(move || writer.run(&from))?;
        Ok(Self { into })
    }

    /// Sends facts, if the log can accept them now.
    pub(crate) fn tell(&self, batch: Batch) -> Result<(), Busy> {
        match self.into.try_send(batch) {
            Err(TrySendError::Full(_)) => Err(Busy),
            // If the thread has ended, facts are dropped.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }
}

/// The disk is slow: the caller keeps the facts.
#[derive(Debug)]
pub(crate) struct Busy;

/// By name what is written once it is due, and when that is.
#[derive(Debug)]
struct Later<T> {
    due_ms: BTreeMap<String, i64>,
    pending: BTreeMap<String, T>,
}

impl<T> Default for Later<T> {
    fn default() -> Self {
        Self { due_ms: BTreeMap::new(), pending: BTreeMap::new() }
    }
}

impl<T> Later<T> {
    fn is_due(&self, name: &str, at_ms: i64) -> bool {
        self.due_ms.get(name).is_none_or(|due_ms| *due_ms <= at_ms)
    }
}

struct Writer {
    parts: Parts,
    path: PathBuf,
    recorder: Recorder,
    last_ms: i64,
    members: Later<ClusterFacts>,
    virtual_clusters: Later<VirtualClusterFacts>,
    /// A write failed: the log continues with the whole state.
    is_broken: bool,
}

impl Writer {
    fn open(path: &Path, size: u64) -> io::Result<Self> {
        Ok(Self {
            parts: Parts::open(path, size)?,
            path: path.to_owned(),
            recorder: Recorder::default(),
            last_ms: 0,
            members: Later::default(),
            virtual_clusters: Later::default(),
            is_broken: false,
        })
    }

    fn run(&mut self, from: &Receiver<Batch>) {
        let mut heard = Instant::now();
        loop {
            match from.recv_timeout(TICK) {
                Ok(batch) => {
                    heard = Instant::now();
                    self.take(batch);
                }
                Err(RecvTimeoutError::Timeout) => {
                    let quiet_ms = i64::try_from(heard.elapsed().as_millis()).unwrap_or(0);
                    heard = Instant::now();
                    self.take(Batch { at_ms: self.last_ms + quiet_ms, facts: Vec::new() });
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Applies facts and writes what has changed.
    fn take(&mut self, batch: Batch) {
        // A clock that is set back does not rotate the log.
        let at_ms = batch.at_ms.max(self.last_ms);
        self.last_ms = at_ms;
        let mut lines = Vec::new();
        if (self.parts.is_full() || self.is_broken) && !batch.facts.is_empty() {
            self.turn(at_ms);
        }
        for fact in batch.facts {
            match fact {
                Fact::Begin => {
                    self.recorder.reset();
                    (self.members, self.virtual_clusters) = (Later::default(), Later::default());
                    let event = Event::Recording { clock: Clock::Unix, left_out: 0 };
                    lines.push(Line { at_ms, id: None, event }.text(None));
                }
                Fact::Job(id, facts) => {
                    lines.extend(self.recorder.job(at_ms, &id, facts.map(|facts| *facts)))
                }
                Fact::Tree(tree) => lines.extend(self.recorder.tree(at_ms, &tree)),
                Fact::Cluster(name, None) => {
                    self.members.pending.remove(&name);
                    lines.extend(self.recorder.cluster(at_ms, &name, None));
                }
                Fact::Cluster(name, Some(facts)) => {
                    self.members.pending.insert(name, facts);
                }
                Fact::VirtualCluster(name, None) => {
                    self.virtual_clusters.pending.remove(&name);
                    lines.extend(self.recorder.virtual_cluster(at_ms, &name, None));
                }
                Fact::VirtualCluster(name, Some(facts)) => {
                    self.virtual_clusters.pending.insert(name, facts);
                }
            }
        }
        self.members(at_ms, &mut lines);
        self.virtual_clusters(at_ms, &mut lines);
        self.write(&lines);
    }

    /// Changed members: changes other than use are written at once, use when it is due.
    fn members(&mut self, at_ms: i64, lines: &mut Vec<String>) {
        let standing = |facts: &ClusterFacts| ClusterFacts {
            allocated: BTreeMap::new(),
            groups: Vec::new(),
            ..facts.clone()
        };
        let pending = std::mem::take(&mut self.members.pending);
        for (name, facts) in pending {
            let told = self.recorder.told_cluster(&name);
            let is_news = told.is_none_or(|told| standing(told) != standing(&facts));
            if !is_news && !self.members.is_due(&name, at_ms) {
                self.members.pending.insert(name, facts);
                continue;
            }
            if let Some(line) = self.recorder.cluster(at_ms, &name, Some(facts)) {
                let rest_ms = USE_EVERY_MS.max(line.len() as i64 * MS_PER_BYTE);
                self.members.due_ms.insert(name, at_ms + rest_ms);
                lines.push(line);
            }
        }
    }

    /// Virtual clusters that have changed and are due.
    fn virtual_clusters(&mut self, at_ms: i64, lines: &mut Vec<String>) {
        for (name, facts) in std::mem::take(&mut self.virtual_clusters.pending) {
            if !self.virtual_clusters.is_due(&name, at_ms) {
                self.virtual_clusters.pending.insert(name, facts);
                continue;
            }
            if let Some(line) = self.recorder.virtual_cluster(at_ms, &name, Some(facts)) {
                self.virtual_clusters.due_ms.insert(name, at_ms + VIRTUAL_CLUSTER_EVERY_MS);
                lines.push(line);
            }
        }
    }

    /// Rotates the files; the new one begins with the whole known state.
    fn turn(&mut self, at_ms: i64) {
        let baseline = self.recorder.baseline(at_ms, self.parts.most() / 2);
        self.is_broken = false;
        let outcome = self.parts.turn();
        self.note(outcome);
        if !self.is_broken {
            self.write(&baseline);
        }
    }

    fn write(&mut self, lines: &[String]) {
        if lines.is_empty() || self.is_broken {
            return;
        }
        let outcome = self.parts.append(lines);
        self.note(outcome);
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            tracing::warn!(file = %self.path.display(), %error, "cannot write the run log; retrying");
            self.is_broken = true;
        }
    }
}
