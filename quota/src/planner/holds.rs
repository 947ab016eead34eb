//! Reserved capacity: for preemptors whose victims are ending, and for jobs with a claim.
//!
//! Both reserve the job's request on every node of its path, and its gang's places in one cluster. Another job may
//! start only if the holder could still start.
//!
//! A preemption is a promise: what its victims free is reserved for the preemptor until it starts or gives up,
//! against all other jobs. A preemption takes nothing of what claims keep free, and from then on no claim holds it
//! back. Only a reclaim inside min may take from a borrower's claim, if there is no other way.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::Ledger;
use crate::names::{ClusterName, JobId};
use crate::places::Places;
use crate::queues::{Queues, WaitingJob};
use fleet_quota_tree::{NodeId, QuotaTree, Request};

/// Most preemptions under way in one cluster, because each question about its places is about all of them. The next
/// in line follow when the first have started.
const PREEMPTIONS_AT_ONCE: usize = 128;

/// A job that asks whether capacity is reserved against it.
#[derive(Clone, Debug)]
pub(super) struct Visitor<'v> {
    pub job: &'v JobId,
    pub leaf: NodeId,
    pub request: &'v Request,
    pub preemptible: bool,
    /// When it would end if it started now; only with a declared run time.
    pub over_ms: Option<i64>,
    /// The age of its own claim, if it has one.
    pub claim_since_ms: Option<i64>,
    /// The cluster in which its victims free capacity, if it is a preemptor. Its preemption fitted beside all
    /// claims of that time, and is older than later ones: no claim holds it back.
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
            promised: holds.preemptions.get(&job.id).map(|preemption| &preemption.cluster),
        }
    }
}

/// A preemption whose victims are ending.
#[derive(Clone, Debug)]
pub(super) struct Preemption {
    /// The preemptor, as it waits in its queue.
    pub job: WaitingJob,
    pub request: Request,
    pub cluster: ClusterName,
    /// All victims it counts on, of which the first `awaited` are not evicted for it, and those that have not ended yet.
    pub victims: Vec<JobId>,
    pub awaited: usize,
    pub left: BTreeSet<JobId>,
    /// The version of the planner's state in which it last tried to start.
    pub tried_at: Option<u64>,
    /// What is reserved on its path, by limit: the request less what the remaining victims cover. Known once it begins.
    pub kept: Vec<(usize, i64)>,
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
    /// Its start is computed again then.
    pub recompute_ms: i64,
    /// Jobs for whose places it waits.
    pub waits_for: Vec<JobId>,
    /// What it has kept idle since `counted_ms`, and before, times milliseconds.
    pub idle: Vec<(usize, i64)>,
    pub idled: Vec<(usize, i128)>,
    pub counted_ms: i64,
    /// The version of the planner's state in which it last tried to start.
    pub tried_at: Option<u64>,
}

/// The claims beside which a preemptor must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claims {
    All,
    /// Those of jobs inside their min.
    InsideMin,
}

impl Claims {
    fn include(self, ledger: &Ledger, claim: &Claiming) -> bool {
        self == Self::All || ledger.inside_min(claim.leaf, &claim.request)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Holds {
    /// By preemptor.
    preemptions: BTreeMap<JobId, Preemption>,
    /// Preemptors by the victims for which they still wait.
    preemptors: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Number of preemptions in each cluster.
    preempting_in: BTreeMap<ClusterName, usize>,
    /// By limit: what all preemptions reserve, and the preemptors.
    kept: BTreeMap<usize, (i64, BTreeSet<JobId>)>,
    /// At most one for each leaf.
    pub claims: BTreeMap<NodeId, Claiming>,
}

impl Holds {
    pub fn preemption(&self, preemptor: &JobId) -> Option<&Preemption> {
        self.preemptions.get(preemptor)
    }

    pub fn preemption_mut(&mut self, preemptor: &JobId) -> Option<&mut Preemption> {
        self.preemptions.get_mut(preemptor)
    }

    pub fn preemptor_ids(&self) -> Vec<JobId> {
        self.preemptions.keys().cloned().collect()
    }

    /// All preemptions.
    pub fn preemptions(&self) -> impl Iterator<Item = &Preemption> {
        self.preemptions.values()
    }

    /// Begins a preemption, or goes on with one.
    pub fn begin_preemption(&mut self, ledger: &Ledger, preemption: Preemption) {
        let preemptor = preemption.job.id.clone();
        for victim in &preemption.left {
            self.preemptors.entry(victim.clone()).or_default().insert(preemptor.clone());
        }
        *self.preempting_in.entry(preemption.cluster.clone()).or_default() += 1;
        let preemption = Preemption { tried_at: None, kept: Vec::new(), ..preemption };
        self.preemptions.insert(preemptor.clone(), preemption);
        self.weigh(ledger, &preemptor);
    }

    /// The data of a waiting job has changed.
    pub fn know(&mut self, job: &WaitingJob) {
        if let Some(preemption) = self.preemptions.get_mut(&job.id) {
            preemption.job = job.clone();
        }
    }

    /// Returns whether the job was a preemptor.
    pub fn end_preemption(&mut self, preemptor: &JobId) -> bool {
        self.unweigh(preemptor);
        let Some(preemption) = self.preemptions.remove(preemptor) else { return false };
        if let Some(count) = self.preempting_in.get_mut(&preemption.cluster) {
            *count -= 1;
        }
        preemption.left.iter().for_each(|victim| self.wait_no_more(preemptor, victim));
        true
    }

    /// A job has left the ledger: preemptors no longer wait for it.
    pub fn victim_ended(&mut self, ledger: &Ledger, victim: &JobId) {
        for preemptor in self.preemptors.remove(victim).into_iter().flatten() {
            if let Some(preemption) = self.preemptions.get_mut(&preemptor) {
                preemption.left.remove(victim);
            }
            self.weigh(ledger, &preemptor);
        }
    }

    /// Reprieves a victim: the preemptor no longer counts on it, and must be weighed again.
    pub fn spare(&mut self, preemptor: &JobId, victim: &JobId) {
        if let Some(preemption) = self.preemptions.get_mut(preemptor) {
            preemption.left.remove(victim);
            preemption.victims.retain(|other| other != victim);
        }
        self.wait_no_more(preemptor, victim);
    }

    fn wait_no_more(&mut self, preemptor: &JobId, victim: &JobId) {
        if let Some(preemptors) = self.preemptors.get_mut(victim) {
            preemptors.remove(preemptor);
            if preemptors.is_empty() {
                self.preemptors.remove(victim);
            }
        }
    }

    /// Computes again what a preemption reserves.
    pub fn weigh(&mut self, ledger: &Ledger, preemptor: &JobId) {
        self.unweigh(preemptor);
        let Some(preemption) = self.preemptions.get_mut(preemptor) else { return };
        preemption.kept = preemption.weight(ledger);
        for (bound, amount) in &preemption.kept {
            let (sum, keepers) = self.kept.entry(*bound).or_default();
            *sum = sum.saturating_add(*amount);
            keepers.insert(preemptor.clone());
        }
    }

    fn unweigh(&mut self, preemptor: &JobId) {
        let Some(preemption) = self.preemptions.get_mut(preemptor) else { return };
        for (bound, amount) in std::mem::take(&mut preemption.kept) {
            let Some((sum, keepers)) = self.kept.get_mut(&bound) else { continue };
            *sum -= amount;
            keepers.remove(preemptor);
            if keepers.is_empty() {
                self.kept.remove(&bound);
            }
        }
    }

    /// What the preemptions of others reserve under a limit.
    fn kept_from(&self, visitor: &Visitor, own: Option<&Preemption>, bound: usize) -> i64 {
        let Some((sum, keepers)) = self.kept.get(&bound) else { return 0 };
        let own = own.filter(|_| keepers.contains(visitor.job));
        let own = own.and_then(|own| own.kept.iter().find(|(known, _)| *known == bound));
        sum - own.map_or(0, |(_, amount)| *amount)
    }

    pub fn is_empty(&self) -> bool {
        self.preemptions.is_empty() && self.claims.is_empty()
    }

    /// Whether another preemption may begin in the cluster.
    pub fn may_preempt_in(&self, cluster: &ClusterName) -> bool {
        self.preempting_in.get(cluster).is_none_or(|count| *count < PREEMPTIONS_AT_ONCE)
    }

    /// Whether capacity is reserved for the job.
    pub fn of(&self, job: &JobId) -> bool {
        self.preemptions.contains_key(job) || self.claims.values().any(|claim| claim.job == *job)
    }

    /// Who waits for the job to end, and in which cluster.
    pub fn waits_for(&self, job: &JobId) -> Option<(&JobId, &ClusterName)> {
        let preemptor = self.preemptors.get(job).and_then(BTreeSet::first);
        let preempts = preemptor.and_then(|id| Some((id, &self.preemptions.get(id)?.cluster)));
        let claim = || self.claims.values().find(|claim| claim.waits_for.contains(job));
        preempts.or_else(|| claim().map(|claim| (&claim.job, &claim.cluster)))
    }

    /// Whether a preemptor already counts on the victim.
    pub fn counts_on(&self, job: &JobId) -> bool {
        self.preemptors.contains_key(job)
    }

    /// Whether the visitor fits its path beside what is reserved for others.
    ///
    /// # Errors
    /// The holder of the capacity it would need.
    pub fn leave_room(&self, ledger: &Ledger, visitor: &Visitor) -> Result<(), JobId> {
        if self.is_empty() {
            return Ok(());
        }
        let own = self.preemptions.get(visitor.job);
        let short = |extra: &dyn Fn(usize) -> i64| {
            let short = ledger.first_short(visitor.leaf, visitor.request, visitor.preemptible, extra)?;
            Some(ledger.bound(&short))
        };
        if let Some(bound) = short(&|bound| self.kept_from(visitor, own, bound)) {
            let keepers = self.kept.get(&bound).into_iter().flat_map(|(_, keepers)| keepers);
            let holder = keepers.chain(self.preemptions.keys()).find(|keeper| *keeper != visitor.job);
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

    /// Claims that hold the visitor back. Not its own, nor younger claims than its own, nor claims that start after
    /// it has ended. A borrower's claim does not hold back a job that is inside min: that would take its min back and
    /// evict others for the claim.
    fn claims_on<'h>(
        &'h self,
        ledger: &'h Ledger,
        visitor: &'h Visitor<'_>,
    ) -> impl Iterator<Item = &'h Claiming> {
        self.claims.values().filter(move |claim| {
            let own_is_older = visitor
                .claim_since_ms
                .is_some_and(|since| (since, visitor.leaf) < (claim.since_ms, claim.leaf));
            let over = visitor.over_ms.zip(claim.start_ms).is_some_and(|(over, start)| over <= start);
            claim.job != *visitor.job
                && !own_is_older
                && !over
                && !ledger.goes_before((visitor.leaf, visitor.request), (claim.leaf, &claim.request))
        })
    }

    /// The holder of a claim that holds the visitor back and reserves what becomes free at this node, or anywhere:
    /// `known`, if it still does.
    pub fn claimed_at(
        &self,
        ledger: &Ledger,
        visitor: &Visitor,
        known: &JobId,
        node: Option<NodeId>,
    ) -> Option<JobId> {
        let at = |leaf: NodeId| node.is_none_or(|node| ledger.tree().is_below(leaf, node));
        let claims =
            || self.claims_on(ledger, visitor).filter(|claim| at(claim.leaf)).map(|claim| &claim.job);
        let holder = claims().find(|job| *job == known).or_else(|| claims().next());
        holder.cloned()
    }

    /// Whether the holders' reservations in the cluster still fit after the visitor's places are taken.
    ///
    /// # Errors
    /// The first holder that would not fit.
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
        let (mut holders, mut gone) = self.preemptors_in(cluster, Some(visitor.job));
        if visitor.promised != Some(cluster) {
            let (claiming, waited) = self.claims_in(ledger, queues, visitor, cluster, Claims::All);
            holders.extend(claiming);
            gone.extend(waited);
        }
        match holders.first() {
            Some(holder) if !places.fits_without(&holders, cluster, &gone) => Err(holder.id.clone()),
            _ => Ok(()),
        }
    }

    /// The other preemptors of a cluster, by name, and all victims they count on.
    pub fn preemptors_in(
        &self,
        cluster: &ClusterName,
        but: Option<&JobId>,
    ) -> (Vec<&WaitingJob>, Vec<JobId>) {
        let here = self
            .preemptions
            .iter()
            .filter(|(job, preemption)| preemption.cluster == *cluster && Some(*job) != but);
        here.fold((Vec::new(), Vec::new()), |(mut preemptors, mut gone), (_, preemption)| {
            preemptors.push(&preemption.job);
            gone.extend(preemption.left.iter().cloned());
            (preemptors, gone)
        })
    }

    /// Whether a claim reserves places in the cluster against the visitor.
    pub fn is_claimed(&self, ledger: &Ledger, visitor: &Visitor, cluster: &ClusterName) -> bool {
        self.claims_on(ledger, visitor).any(|claim| claim.cluster == *cluster)
    }

    /// What claims keep from the visitor of the capacity that is free now, by limit. What its victims free is not
    /// theirs.
    pub fn kept_by_claims(&self, ledger: &Ledger, visitor: &Visitor, claims: Claims) -> BTreeMap<usize, i64> {
        let mut kept = BTreeMap::new();
        for claim in self.claims_on(ledger, visitor).filter(|claim| claims.include(ledger, claim)) {
            claim.keep(ledger, visitor, &mut kept);
        }
        for (bound, amount) in &mut kept {
            *amount = (*amount).min(ledger.room_under(*bound)).max(0);
        }
        kept
    }

    /// The holders of claims on the cluster that hold the visitor back, and the jobs for whose places they wait.
    pub fn claims_in<'q>(
        &self,
        ledger: &Ledger,
        queues: &'q Queues,
        visitor: &Visitor,
        cluster: &ClusterName,
        claims: Claims,
    ) -> (Vec<&'q WaitingJob>, Vec<JobId>) {
        let here = self.claims_on(ledger, visitor).filter(|claim| claim.cluster == *cluster);
        let here = here.filter(|claim| claims.include(ledger, claim));
        here.fold((Vec::new(), Vec::new()), |(mut holders, mut gone), claim| {
            holders.extend(queues.get(&claim.job));
            gone.extend(claim.waits_for.iter().cloned());
            (holders, gone)
        })
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

impl Preemption {
    /// What the remaining victims do not cover, by limit of the path. Victims may be preempted, so they cover
    /// nothing of the min limit of a job that may not be.
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
                let covered = self.covered(tree, &left, node, *r);
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

    /// By how much the use of the node falls at least when these jobs end, whatever else ends with them: a child that keeps
    /// back part of its min goes on using that. A child above the preemptor is used by it.
    fn covered(&self, tree: &QuotaTree, left: &[(NodeId, Request)], node: NodeId, r: usize) -> i64 {
        let mut falls: BTreeMap<NodeId, i64> = BTreeMap::new();
        for (leaf, request) in left.iter().filter(|(leaf, _)| tree.is_below(*leaf, node)) {
            let sum = falls.entry(*leaf).or_default();
            *sum = sum.saturating_add(request.amount(r));
        }
        // Children have larger ids than their parents.
        while let Some((at, amount)) = falls.pop_last() {
            let Some(parent) = tree.node(at).parent.filter(|_| at != node) else { return amount };
            let kept = if tree.is_below(self.job.leaf, at) { 0 } else { tree.kept_at(at, r) };
            let sum = falls.entry(parent).or_default();
            *sum = sum.saturating_add((amount - kept).max(0));
        }
        0
    }
}

/// The limits of a cell that count a job's use.
fn bounds_used(ledger: &Ledger, cell: usize, preemptible: bool) -> impl Iterator<Item = usize> {
    std::iter::once(cell).chain((!preemptible).then(|| ledger.firm_bound(cell)))
}

/// Nodes on the paths of both leaves to the root.
fn shared_path(ledger: &Ledger, a: NodeId, b: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    let tree = ledger.tree();
    tree.path_to_root(a).filter(move |node| tree.is_below(b, *node))
}
