//! Room that is kept: for takers whose victims are ending, and for heads that
//! others have passed for too long.
//!
//! A hold keeps its job's request free on every node of its path, and its gang's
//! places in one cluster. Who is bound by it may go only where the holder could
//! still start.
//!
//! Takings and claims share one book. A taking is a promise: what its victims leave is its taker's until that
//! starts or gives up, and binds everybody. It is made only where it fits beside all claims; none binds the
//! taker from then on.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::{JobId, Ledger};
use crate::places::{ClusterName, Places};
use crate::queues::{Queues, WaitingJob};
use crate::tree::{NodeId, Request};

/// Takings under way in one cluster, at most. Each question about its places is about all of them; the next one
/// in line takes when the first have started.
const TAKINGS_AT_ONCE: usize = 128;

/// Who asks whether room is kept from it.
#[derive(Clone, Debug)]
pub(super) struct Visitor<'v> {
    pub job: &'v JobId,
    pub leaf: NodeId,
    pub request: &'v Request,
    pub preemptible: bool,
    /// When it would have ended, if it went now and declared a run time.
    pub over_ms: Option<i64>,
    /// Its own claim's age, if it has one.
    pub claim_since_ms: Option<i64>,
    /// Where its victims leave room for it, if it takes. What it was promised fitted beside all claims of that
    /// time, and is older than any since: no claim holds it back.
    pub promised: Option<&'v ClusterName>,
}

impl<'v> Visitor<'v> {
    pub fn of(job: &'v WaitingJob, request: &'v Request, now_ms: i64, holds: &'v Holds) -> Self {
        Self {
            job: &job.id,
            leaf: job.leaf,
            request,
            preemptible: job.preemptible,
            over_ms: job.run_time_ms.map(|run| now_ms.saturating_add(run)),
            claim_since_ms: holds.claims.get(&job.leaf).filter(|c| c.job == job.id).map(|c| c.since_ms),
            promised: holds.takings.get(&job.id).map(|taking| &taking.cluster),
        }
    }
}

/// A taker's victims are ending.
#[derive(Clone, Debug)]
pub(super) struct Taking {
    /// The taker, as it stands in its queue.
    pub job: WaitingJob,
    pub request: Request,
    pub cluster: ClusterName,
    /// All it counts on, and those that have not ended yet.
    pub victims: Vec<JobId>,
    pub left: BTreeSet<JobId>,
    /// The state of all jobs in which it last tried to start.
    pub tried_at: Option<u64>,
    /// What is kept on its path, by bound: the request less what the victims that are still there cover.
    kept: Vec<(usize, i64)>,
}

#[derive(Clone, Debug)]
pub(super) struct Claiming {
    pub job: JobId,
    pub leaf: NodeId,
    pub request: Request,
    pub preemptible: bool,
    pub cluster: ClusterName,
    pub since_ms: i64,
    pub start_ms: Option<i64>,
    /// It is given up then.
    pub until_ms: i64,
    /// Its start is reckoned anew then.
    pub reckon_ms: i64,
    /// Jobs whose places it waits for.
    pub waits_for: Vec<JobId>,
    /// What it keeps idle since `counted_ms`, and what it kept idle before, times milliseconds.
    pub idle: Vec<(usize, i64)>,
    pub idled: Vec<(usize, i128)>,
    pub counted_ms: i64,
    /// The state of all jobs in which it last tried to start.
    pub tried_at: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    /// By taker.
    takings: BTreeMap<JobId, Taking>,
    /// Takers by the victims they still wait for.
    takers: BTreeMap<JobId, BTreeSet<JobId>>,
    /// How many take in each cluster.
    taking_in: BTreeMap<ClusterName, usize>,
    /// By bound, what all takings keep, and who does.
    kept: BTreeMap<usize, (i64, BTreeSet<JobId>)>,
    /// One a leaf.
    pub claims: BTreeMap<NodeId, Claiming>,
}

impl Holds {
    pub fn taking(&self, taker: &JobId) -> Option<&Taking> {
        self.takings.get(taker)
    }

    pub fn taking_mut(&mut self, taker: &JobId) -> Option<&mut Taking> {
        self.takings.get_mut(taker)
    }

    pub fn taker_ids(&self) -> Vec<JobId> {
        self.takings.keys().cloned().collect()
    }

    /// All takings by taker.
    pub fn takings(&self) -> impl Iterator<Item = &Taking> {
        self.takings.values()
    }

    /// The job counts on room in the cluster that `victims` leave, of whom `left` have not ended yet.
    pub fn begin_taking(
        &mut self,
        ledger: &Ledger,
        taker: &WaitingJob,
        cluster: ClusterName,
        victims: Vec<JobId>,
        left: BTreeSet<JobId>,
    ) {
        for victim in &left {
            self.takers.entry(victim.clone()).or_default().insert(taker.id.clone());
        }
        let request = ledger.tree().request(&taker.request);
        let (job, kept) = (taker.clone(), Vec::new());
        *self.taking_in.entry(cluster.clone()).or_default() += 1;
        let taking = Taking { job, request, cluster, victims, left, tried_at: None, kept };
        self.takings.insert(taker.id.clone(), taking);
        self.weigh(ledger, &taker.id);
    }

    /// What is known of a waiting job has changed.
    pub fn know(&mut self, job: &WaitingJob) {
        if let Some(taking) = self.takings.get_mut(&job.id) {
            taking.job = job.clone();
        }
    }

    /// Returns whether the job was taking.
    pub fn end_taking(&mut self, taker: &JobId) -> bool {
        self.unweigh(taker);
        let Some(taking) = self.takings.remove(taker) else { return false };
        if let Some(count) = self.taking_in.get_mut(&taking.cluster) {
            *count -= 1;
        }
        for victim in &taking.left {
            if let Some(takers) = self.takers.get_mut(victim) {
                takers.remove(taker);
                if takers.is_empty() {
                    self.takers.remove(victim);
                }
            }
        }
        true
    }

    /// A job has left the ledger: those who waited for its end wait for it no more.
    pub fn victim_ended(&mut self, ledger: &Ledger, victim: &JobId) {
        for taker in self.takers.remove(victim).into_iter().flatten() {
            if let Some(taking) = self.takings.get_mut(&taker) {
                taking.left.remove(victim);
            }
            self.weigh(ledger, &taker);
        }
    }

    /// The taker does not count on the victim any more; it is to be weighed anew.
    pub fn spare(&mut self, taker: &JobId, victim: &JobId) {
        if let Some(taking) = self.takings.get_mut(taker) {
            taking.left.remove(victim);
            taking.victims.retain(|other| other != victim);
        }
        if let Some(takers) = self.takers.get_mut(victim) {
            takers.remove(taker);
            if takers.is_empty() {
                self.takers.remove(victim);
            }
        }
    }

    /// Counts anew what a taking keeps.
    pub fn weigh(&mut self, ledger: &Ledger, taker: &JobId) {
        self.unweigh(taker);
        let Some(taking) = self.takings.get_mut(taker) else { return };
        taking.kept = taking.weight(ledger);
        for (bound, amount) in &taking.kept {
            let (sum, keepers) = self.kept.entry(*bound).or_default();
            *sum = sum.saturating_add(*amount);
            keepers.insert(taker.clone());
        }
    }

    fn unweigh(&mut self, taker: &JobId) {
        let Some(taking) = self.takings.get_mut(taker) else { return };
        for (bound, amount) in std::mem::take(&mut taking.kept) {
            let Some((sum, keepers)) = self.kept.get_mut(&bound) else { continue };
            *sum -= amount;
            keepers.remove(taker);
            if keepers.is_empty() {
                self.kept.remove(&bound);
            }
        }
    }

    /// What takings other than the visitor's own keep under a bound.
    fn kept_from(&self, visitor: &Visitor, own: Option<&Taking>, bound: usize) -> i64 {
        let Some((sum, keepers)) = self.kept.get(&bound) else { return 0 };
        let own = own.filter(|_| keepers.contains(visitor.job));
        let own = own.and_then(|own| own.kept.iter().find(|(known, _)| *known == bound));
        sum - own.map_or(0, |(_, amount)| *amount)
    }

    pub fn is_empty(&self) -> bool {
        self.takings.is_empty() && self.claims.is_empty()
    }

    /// Whether one more may take in the cluster.
    pub fn may_take_in(&self, cluster: &ClusterName) -> bool {
        self.taking_in.get(cluster).is_none_or(|count| *count < TAKINGS_AT_ONCE)
    }

    /// Whether room is kept for the job.
    pub fn of(&self, job: &JobId) -> bool {
        self.takings.contains_key(job) || self.claims.values().any(|claim| claim.job == *job)
    }

    /// Victims that a taker counts on already.
    pub fn counts_on(&self, job: &JobId) -> bool {
        self.takers.contains_key(job)
    }

    /// Whether the visitor fits its path beside what is kept from it.
    ///
    /// # Errors
    /// The holder of the room it would need.
    pub fn leave_room(&self, ledger: &Ledger, visitor: &Visitor) -> Result<(), JobId> {
        if self.is_empty() {
            return Ok(());
        }
        let own = self.takings.get(visitor.job);
        let short = |extra: &dyn Fn(usize) -> i64| {
            let short = ledger.first_short(visitor.leaf, visitor.request, visitor.preemptible, extra)?;
            Some(ledger.bound(&short))
        };
        if let Some(bound) = short(&|bound| self.kept_from(visitor, own, bound)) {
            let keepers = self.kept.get(&bound).into_iter().flat_map(|(_, keepers)| keepers);
            let holder = keepers.chain(self.takings.keys()).find(|keeper| *keeper != visitor.job);
            return holder.map_or(Ok(()), |holder| Err(holder.clone()));
        }
        let mut kept: BTreeMap<usize, i64> = BTreeMap::new();
        let mut holder = None;
        for claim in self.claims_on(ledger, visitor).filter(|_| visitor.promised.is_none()) {
            holder = holder.or(Some(&claim.job));
            claim.keep(ledger, visitor, &mut kept);
        }
        let Some(holder) = holder else { return Ok(()) };
        let extra = |bound: usize| {
            let claimed = kept.get(&bound).copied().unwrap_or(0);
            claimed.saturating_add(self.kept_from(visitor, own, bound))
        };
        short(&extra).map_or(Ok(()), |_| Err(holder.clone()))
    }

    /// Claims that bind the visitor: not its own, nor younger ones than its own,
    /// nor those that start after it has ended; a borrower's claim does not
    /// hold back who stays inside min in another leaf.
    fn claims_on<'h>(
        &'h self,
        ledger: &'h Ledger,
        visitor: &'h Visitor<'_>,
    ) -> impl Iterator<Item = &'h Claiming> {
        let inside = !self.claims.is_empty() && ledger.inside_min(visitor.leaf, visitor.request);
        self.claims.values().filter(move |claim| {
            let own_is_older = visitor
                .claim_since_ms
                .is_some_and(|since| (since, visitor.leaf) < (claim.since_ms, claim.leaf));
            let over = visitor.over_ms.zip(claim.start_ms).is_some_and(|(over, start)| over <= start);
            claim.job != *visitor.job
                && !own_is_older
                && !over
                && (!inside || claim.leaf == visitor.leaf || ledger.inside_min(claim.leaf, &claim.request))
        })
    }

    /// Whether what is kept from the visitor in the cluster still fits there,
    /// with the visitor's places taken.
    ///
    /// # Errors
    /// The holder that would not.
    pub fn leave_places(
        &self,
        ledger: &Ledger,
        queues: &Queues,
        places: &mut dyn Places,
        visitor: &Visitor,
        cluster: &ClusterName,
    ) -> Result<(), JobId> {
        if self.is_empty() {
            return Ok(());
        }
        let (mut holders, mut gone) = self.takers_in(cluster, Some(visitor.job));
        let promised = visitor.promised == Some(cluster);
        let claims = self.claims_on(ledger, visitor).filter(|claim| !promised && claim.cluster == *cluster);
        for claim in claims {
            holders.extend(queues.get(&claim.job));
            gone.extend(claim.waits_for.iter().cloned());
        }
        match holders.first() {
            Some(holder) if !places.fits_without(&holders, cluster, &gone) => Err(holder.id.clone()),
            _ => Ok(()),
        }
    }

    /// The takers of a cluster but one, by name, and all victims they count on.
    pub fn takers_in(&self, cluster: &ClusterName, but: Option<&JobId>) -> (Vec<&WaitingJob>, Vec<JobId>) {
        let here =
            self.takings.iter().filter(|(job, taking)| taking.cluster == *cluster && Some(*job) != but);
        here.fold((Vec::new(), Vec::new()), |(mut takers, mut gone), (_, taking)| {
            takers.push(&taking.job);
            gone.extend(taking.left.iter().cloned());
            (takers, gone)
        })
    }

    /// Whether a claim keeps places in the cluster from the visitor.
    pub fn is_claimed(&self, ledger: &Ledger, visitor: &Visitor, cluster: &ClusterName) -> bool {
        self.claims_on(ledger, visitor).any(|claim| claim.cluster == *cluster)
    }

    /// Whether the visitor fits its path beside the claims on it; takings are
    /// in the ledger already.
    pub fn claims_leave_room(&self, ledger: &Ledger, visitor: &Visitor) -> bool {
        let mut kept = BTreeMap::new();
        for claim in self.claims_on(ledger, visitor).filter(|_| visitor.promised.is_none()) {
            claim.keep(ledger, visitor, &mut kept);
        }
        let extra = |bound: usize| kept.get(&bound).copied().unwrap_or(0);
        ledger.first_short(visitor.leaf, visitor.request, visitor.preemptible, extra).is_none()
    }
}

impl Claiming {
    fn keep(&self, ledger: &Ledger, visitor: &Visitor, kept: &mut BTreeMap<usize, i64>) {
        let tree = ledger.tree();
        for node in shared_path(ledger, self.leaf, visitor.leaf) {
            for (r, amount) in &self.request.amounts {
                let cell = tree.cell(node, *r);
                for bound in bounds_used(ledger, cell, self.preemptible) {
                    let sum = kept.entry(bound).or_default();
                    *sum = sum.saturating_add(*amount);
                }
            }
        }
    }
}

impl Taking {
    /// What the victims that are still there do not cover, by bound of the path. Victims may be preempted: of
    /// what a job that may not be counts on they cover nothing.
    fn weight(&self, ledger: &Ledger) -> Vec<(usize, i64)> {
        let tree = ledger.tree();
        let left: Vec<(NodeId, Request)> = self
            .left
            .iter()
            .filter_map(|id| ledger.job(id))
            .map(|job| (job.leaf, tree.request(&job.request)))
            .collect();
        let mut kept = Vec::new();
        for node in tree.path_to_root(self.job.leaf) {
            for (r, amount) in &self.request.amounts {
                let below = left.iter().filter(|(leaf, _)| tree.is_below(*leaf, node));
                let covered = below.map(|(_, request)| request.amount(*r)).fold(0, i64::saturating_add);
                let cell = tree.cell(node, *r);
                if *amount > covered {
                    kept.push((cell, amount - covered));
                }
                let firm = bounds_used(ledger, cell, self.job.preemptible).skip(1);
                kept.extend(firm.map(|bound| (bound, *amount)));
            }
        }
        kept
    }
}

/// The bounds at a cell that a job's use counts under.
fn bounds_used(ledger: &Ledger, cell: usize, preemptible: bool) -> impl Iterator<Item = usize> {
    std::iter::once(cell).chain((!preemptible).then(|| ledger.firm_bound(cell)))
}

/// Nodes on both leaves' paths to the root.
fn shared_path(ledger: &Ledger, a: NodeId, b: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    let tree = ledger.tree();
    tree.path_to_root(a).filter(move |node| tree.is_below(b, *node))
}
