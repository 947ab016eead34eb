//! The jobs of each leaf as possible victims, best first, and the order of siblings by share. Both are read once and
//! serve all searches of a plan.
//!
//! A search releases jobs in the ledger and restores them, and later searches count earlier victims as gone. So a list
//! may name jobs that are out of the ledger now; it misses none that may be a victim.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::ledger::{AdmittedJob, Counted, Ledger, State};
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::planner::{StartEnd, Started};
use crate::queues::WaitingJob;
use crate::share::Share;
use fleet_quota_tree::{NodeId, Request};

/// From this preemption on, a job is protected after each start. The first two preemptions are never delayed.
const PROTECTED_FROM: u32 = 3;
/// How long it runs before that preemption; doubles with each further one.
const FIRST_RUN_MS: i64 = 10_000;
const LONGEST_RUN_MS: i64 = 3_600_000;

/// The order of victims: lower priority first, least work lost, newest, name.
pub(super) type VictimOrder = (i64, i64, Reverse<i64>, JobId);

/// A job that may be preempted, with what a search asks about it.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    counted: Arc<Counted>,
    pub lost_work_ms: i64,
    /// It was started at the present time: whether this can be taken back.
    pub just_started: Option<StartEnd>,
    /// That start was what a claim waited for.
    pub by_claim: bool,
    /// It has to run so long before it is preempted by priority or by share, and how much of that is left.
    pub min_ms: i64,
    pub min_left_ms: i64,
    /// When it started, if that was a moment ago.
    pub fresh_since_ms: Option<i64>,
}

/// How long a job is protected after its start, by its number of preemptions.
pub(crate) fn run_before_next_ms(preemptions: u32) -> i64 {
    let Some(doublings) = (preemptions + 1).checked_sub(PROTECTED_FROM) else { return 0 };
    FIRST_RUN_MS.saturating_mul(1 << doublings.min(20)).min(LONGEST_RUN_MS)
}

/// The times that decide about a job.
#[derive(Clone, Copy)]
pub(crate) struct Times<'t> {
    pub started: &'t BTreeMap<JobId, Started>,
    pub fresh: &'t BTreeMap<JobId, i64>,
}

impl Standing {
    pub fn of(ledger: &Ledger, places: &dyn Places, times: Times, counted: &Arc<Counted>) -> Self {
        let (tree, job) = (ledger.tree(), &counted.job);
        let started = times.started.get(&job.id);
        let just_started = started.map(|started| started.end);
        let min_ms = run_before_next_ms(job.preemptions).max(tree.node(job.leaf).min_runtime_ms);
        let min_left_ms = match just_started {
            None if min_ms > 0 => min_ms.saturating_sub(places.ran_ms(&job.id)),
            Some(StartEnd::Stands) => min_ms,
            _ => 0,
        };
        Self {
            counted: Arc::clone(counted),
            lost_work_ms: places.lost_work_ms(&job.id),
            just_started,
            by_claim: started.is_some_and(Started::by_claim),
            min_ms,
            min_left_ms,
            fresh_since_ms: times.fresh.get(&job.id).copied(),
        }
    }

    pub fn job(&self) -> &AdmittedJob {
        &self.counted.job
    }

    pub fn request(&self) -> &Request {
        &self.counted.request
    }

    pub fn order(&self) -> VictimOrder {
        let job = self.job();
        (job.priority, self.lost_work_ms, Reverse(job.admitted_at_ms), job.id.clone())
    }

    /// Its start can be taken back.
    pub fn is_open(&self) -> bool {
        self.just_started.is_some_and(|end| end != StartEnd::Stands)
    }
}

/// Most orders of siblings kept.
const RANKED_KEPT: usize = 256;

/// Siblings with their shares, largest first.
pub(super) type Ranked = Rc<[(Share, NodeId)]>;

/// What the searches of a plan have read so far. Valid while no time passes and no start is taken back.
#[derive(Debug, Default)]
pub(crate) struct Lineups {
    leaves: RefCell<BTreeMap<NodeId, Rc<[Standing]>>>,
    /// By parent and state of the ledger.
    ranked: RefCell<BTreeMap<(NodeId, State), Ranked>>,
    /// By shape.
    open: RefCell<BTreeMap<u64, Rc<[ClusterName]>>>,
}

impl Lineups {
    /// Only this job may be a victim.
    pub fn of_one(ledger: &Ledger, places: &dyn Places, times: Times, job: &AdmittedJob) -> Self {
        let none: Rc<[Standing]> = Rc::default();
        let mut leaves: BTreeMap<NodeId, Rc<[Standing]>> =
            ledger.tree().leaves().map(|leaf| (leaf, Rc::clone(&none))).collect();
        let counted = Arc::new(Counted { job: job.clone(), request: ledger.tree().request(&job.request) });
        leaves.insert(job.leaf, Rc::new([Standing::of(ledger, places, times, &counted)]));
        Self { leaves: RefCell::new(leaves), ..Self::default() }
    }

    /// The jobs of a leaf that may be preempted.
    pub fn of(&self, ledger: &Ledger, places: &dyn Places, times: Times, leaf: NodeId) -> Rc<[Standing]> {
        let mut leaves = self.leaves.borrow_mut();
        let known = leaves.entry(leaf).or_insert_with(|| {
            let jobs = ledger.preemptible_in(leaf);
            let mut jobs: Vec<Standing> = jobs.map(|job| Standing::of(ledger, places, times, job)).collect();
            jobs.sort_by_cached_key(Standing::order);
            jobs.into()
        });
        Rc::clone(known)
    }

    /// All children of a node by share.
    pub fn ranked(&self, ledger: &Ledger, parent: NodeId) -> Ranked {
        let mut ranked = self.ranked.borrow_mut();
        let key = (parent, ledger.state());
        if let Some(known) = ranked.get(&key) {
            return Rc::clone(known);
        }
        if ranked.len() > RANKED_KEPT {
            ranked.clear();
        }
        let none = Request::default();
        let share = |node: NodeId| (Share::after(ledger, node, &none, 0), node);
        // Few differ from those of the state before.
        let mut all: Vec<(Share, NodeId)> = match ranked.range((parent, State::default())..key).next_back() {
            Some(((_, since), known)) => {
                let again = |(known, node): &(Share, NodeId)| match ledger.has_changed(*node, *since) {
                    true => share(*node),
                    false => (*known, *node),
                };
                known.iter().map(again).collect()
            }
            None => ledger.tree().node(parent).children.iter().copied().map(share).collect(),
        };
        all.sort_by(|a, b| b.cmp(a));
        let all: Ranked = all.into();
        ranked.insert(key, Rc::clone(&all));
        all
    }

    /// The clusters that could hold jobs of this shape.
    pub fn open_to(&self, places: &mut dyn Places, job: &WaitingJob) -> Rc<[ClusterName]> {
        let mut open = self.open.borrow_mut();
        Rc::clone(open.entry(job.shape).or_insert_with(|| places.could_hold(job).into()))
    }
}
