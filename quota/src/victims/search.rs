//! One search for victims: what it knows, what it lacks, and what was released so far.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use fleet_resources::Resources;

use super::lineup::{Lineups, Standing, Times};
use crate::ledger::{AdmittedJob, Ledger};
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::plan::{TakeRule, Victim};
use crate::planner::Started;
use crate::queues::WaitingJob;
use crate::refusal::Rule;
use crate::share::Share;
use fleet_quota_tree::{JOBS, NodeId, QuotaTree, Request};

/// The victims found for a preemptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VictimSet {
    pub cluster: ClusterName,
    pub victims: Vec<Victim>,
    /// Jobs that are ending already, which it also needs.
    pub awaited: Vec<JobId>,
}

impl VictimSet {
    /// How many jobs the preemptor waits for.
    pub fn changed(&self) -> usize {
        self.victims.len() + self.awaited.len()
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Searched {
    pub found: Option<VictimSet>,
    /// The job that was skipped because it is protected, and until when; the first to be possible.
    pub protected: Option<(i64, JobId)>,
    /// When to search again even if nothing changes.
    pub again_ms: Option<i64>,
    /// It could preempt by share, but for the work lost.
    pub is_behind: bool,
}

/// One cluster in which to start.
#[derive(Clone, Debug)]
pub(crate) struct Goal<'g> {
    pub cluster: ClusterName,
    /// Preemptors that already count on places there, and their victims.
    pub preemptors: Vec<&'g WaitingJob>,
    pub gone: Vec<JobId>,
    /// Holders of claims there, and the jobs whose ends these wait for.
    pub holders: Vec<&'g WaitingJob>,
    pub waited: Vec<JobId>,
}

impl Goal<'_> {
    /// A cluster where nothing is reserved.
    pub fn of(cluster: &ClusterName) -> Self {
        let (preemptors, holders) = (Vec::new(), Vec::new());
        Self { cluster: cluster.clone(), preemptors, gone: Vec::new(), holders, waited: Vec::new() }
    }
}

/// What a search knows besides ledger and places.
#[derive(Clone, Copy)]
pub(crate) struct Known<'k> {
    /// Ending jobs on which nobody counts yet: they come first.
    pub ending: &'k BTreeSet<JobId>,
    /// Jobs that the present plan has started: [`Places`] may not know where.
    pub started: &'k BTreeMap<JobId, Started>,
    /// Start times of jobs that started recently.
    pub fresh: &'k BTreeMap<JobId, i64>,
    /// The present plan has starts that can be taken back.
    pub any_open: bool,
    /// So many jobs were preempted by share lately that those that would lose much work are spared for a while.
    pub saves_work: bool,
    /// Since when the preemptor could have preempted by share, but for the work lost.
    pub behind_since_ms: Option<i64>,
    /// When a job below the node was last preempted by share.
    pub given: &'k BTreeMap<NodeId, i64>,
    pub now_ms: i64,
    /// By limit, what claims keep from the preemptor of the capacity that is free before it has victims.
    pub kept: &'k BTreeMap<usize, i64>,
}

impl<'k> Known<'k> {
    pub fn times(&self) -> Times<'k> {
        Times { started: self.started, fresh: self.fresh }
    }
}

/// Candidates that were skipped because they are protected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Protected {
    /// The one whose protection ends first.
    first: RefCell<Option<(i64, JobId)>>,
    /// When to search again for other causes: a job that started at this very moment becomes a candidate, a queue
    /// that gave may take again.
    again: Cell<Option<i64>>,
    /// Some were skipped for the work that they would lose to a smaller share.
    for_work: Cell<bool>,
}

impl Protected {
    pub fn first(&self) -> Option<(i64, JobId)> {
        self.first.borrow().clone()
    }

    /// When to repeat a search without a result.
    pub fn again_ms(&self) -> Option<i64> {
        self.first().map(|(until_ms, _)| until_ms).into_iter().chain(self.again.get()).min()
    }

    pub fn again(&self, at_ms: i64) {
        self.again.set(Some(self.again.get().map_or(at_ms, |known| known.min(at_ms))));
    }

    pub fn for_work(&self) -> bool {
        self.for_work.get()
    }

    /// Whether a note of this kind would change nothing.
    pub fn knows(&self, until_ms: i64, for_work: bool) -> bool {
        let first = self.first.borrow();
        first.as_ref().is_some_and(|(known, _)| *known <= until_ms) && (!for_work || self.for_work.get())
    }

    pub fn note_work(&self, until_ms: i64, job: &JobId) {
        self.for_work.set(true);
        self.note(until_ms, job);
    }

    pub fn note(&self, until_ms: i64, job: &JobId) {
        let mut first = self.first.borrow_mut();
        if first.as_ref().is_none_or(|(known, _)| until_ms < *known) {
            *first = Some((until_ms, job.clone()));
        }
    }
}

/// A released job and the rule; no rule for jobs that are ending already.
pub(super) type Released = (AdmittedJob, Option<TakeRule>);

pub(super) struct Search<'s> {
    pub tree: Arc<QuotaTree>,
    pub ledger: &'s mut Ledger,
    pub places: &'s mut dyn Places,
    pub preemptor: &'s WaitingJob,
    pub request: Request,
    pub known: Known<'s>,
    pub lineups: &'s Lineups,
    /// Where the min of the preemptor's side reaches: see [`Search::compute_rights`].
    pub guaranteed: Vec<NodeId>,
    /// For each node of the path, the share after the preemptor.
    pub shares: Vec<(NodeId, Share)>,
    /// Jobs that led to a swap or to no room, and those equal to them: not tried again.
    pub spared: Vec<(NodeId, i64, Resources)>,
    pub protected: Protected,
}

/// What keeps the preemptor from starting.
#[derive(Clone, Debug, Default)]
pub(super) struct Lack {
    /// The lowest node of its path without enough quota.
    pub quota_at: Option<NodeId>,
    pub places: bool,
    /// Resources of its request that are short there.
    pub short: Vec<usize>,
    /// It may not be preempted, and similar jobs use up the min: no victim helps.
    pub hopeless: bool,
}

impl Lack {
    pub fn is_nothing(&self) -> bool {
        self.quota_at.is_none() && !self.places
    }
}

impl<'s> Search<'s> {
    pub fn new(
        ledger: &'s mut Ledger,
        places: &'s mut dyn Places,
        preemptor: &'s WaitingJob,
        known: Known<'s>,
        lineups: &'s Lineups,
    ) -> Self {
        Self {
            tree: Arc::clone(ledger.tree()),
            request: ledger.tree().request(&preemptor.request),
            ledger,
            places,
            preemptor,
            known,
            lineups,
            guaranteed: Vec::new(),
            shares: Vec::new(),
            spared: Vec::new(),
            protected: Protected::default(),
        }
    }

    /// What the search says if it finds nothing.
    pub fn without_result(&self) -> Searched {
        Searched {
            found: None,
            protected: self.protected.first(),
            again_ms: self.protected.again_ms(),
            is_behind: self.protected.for_work(),
        }
    }

    /// The lowest node of its path without enough quota.
    pub fn lack_of_quota(&self) -> Option<Lack> {
        let leaf = self.preemptor.leaf;
        let kept = |bound: usize| self.known.kept.get(&bound).copied().unwrap_or(0);
        let short = self.ledger.first_short(leaf, &self.request, self.preemptor.preemptible, kept)?;
        Some(Lack {
            quota_at: Some(short.node),
            short: self.ledger.short_at(short.node, &self.request, short.r),
            hopeless: short.rule == Rule::Min,
            places: false,
        })
    }

    /// Asks the cluster only once the tree has capacity, because that is more expensive.
    pub fn lack<'j>(&mut self, goal: &Goal, gone: impl Iterator<Item = &'j AdmittedJob>) -> Lack {
        if let Some(lack) = self.lack_of_quota() {
            return lack;
        }
        let gone: Vec<JobId> = gone.map(|job| job.id.clone()).chain(goal.gone.iter().cloned()).collect();
        if self.fits_in(goal, &gone) {
            return Lack::default();
        }
        let mut jobs = goal.preemptors.clone();
        jobs.push(self.preemptor);
        let named = self.places.short_in(&jobs, &goal.cluster, &gone);
        let named = named.iter().filter_map(|name| self.tree.resource_index(name.as_str()));
        let mut short: Vec<usize> = named.filter(|r| self.request.amount(*r) > 0).collect();
        if short.is_empty() {
            short = self.asked();
        }
        Lack { places: true, short, ..Lack::default() }
    }

    /// What a claim waits for is not there yet: the preemptor must fit without that, and later beside the holder.
    pub fn fits_in(&mut self, goal: &Goal, gone: &[JobId]) -> bool {
        let mut jobs = goal.preemptors.clone();
        jobs.push(self.preemptor);
        if !self.places.will_fit_without(&jobs, &goal.cluster, gone) {
            return false;
        }
        if goal.holders.is_empty() {
            return true;
        }
        jobs.pop();
        jobs.extend(goal.holders.iter().copied().chain([self.preemptor]));
        let gone: Vec<JobId> = gone.iter().chain(&goal.waited).cloned().collect();
        self.places.will_fit_without(&jobs, &goal.cluster, &gone)
    }

    /// Resources that the preemptor requests.
    pub fn asked(&self) -> Vec<usize> {
        self.request.amounts.iter().map(|(r, _)| *r).filter(|r| *r != JOBS).collect()
    }

    pub fn cluster_of(&self, job: &JobId) -> Option<ClusterName> {
        let started = self.known.started.get(job).map(|started| started.cluster.clone());
        started.or_else(|| self.places.cluster_of(job))
    }

    /// The jobs of a leaf, best victims first; some may be out of the ledger now.
    pub fn lineup(&self, leaf: NodeId) -> Rc<[Standing]> {
        self.lineups.of(self.ledger, &*self.places, self.known.times(), leaf)
    }
}
