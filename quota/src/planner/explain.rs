//! Why a job waits, on demand, and which reasons have changed.

use super::holds::Visitor;
use super::state::Planner;
use crate::names::JobId;
use crate::plan::{Decision, Outcome, QuotaPlan, WaitReason};
use crate::queues::{Class, Line, OrderKey, QueuePolicy, ReasonKind, Stop};
use fleet_quota_tree::NodeId;

/// The position of a waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// In its leaf; 1 is the first.
    pub in_leaf: usize,
    /// Among all waiting jobs, by priority, age and name; 1 is the first.
    pub in_fleet: usize,
}

impl Planner {
    /// Why a waiting job waits, with present numbers. `None` if it only waits for the next plan, or does not wait.
    pub fn reason(&self, id: &JobId) -> Option<WaitReason> {
        let job = self.queues.get(id)?;
        if let Some(preemption) = self.holds.preemption(id) {
            let victims = preemption
                .victims
                .iter()
                .filter(|victim| preemption.left.contains(*victim))
                .cloned()
                .collect();
            return Some(WaitReason::WaitingForVictims { cluster: preemption.cluster.clone(), victims });
        }
        let claims = self.holds.claims.get(&job.leaf).is_some_and(|claim| claim.job == *id);
        let pauses = self.pauses.contains(&(job.not_before_ms, id.clone())) && !self.is_hopeless(job);
        if !claims && pauses {
            return Some(WaitReason::Backoff { until_ms: job.not_before_ms });
        }
        let class = self.queues.class(self.queues.class_of(id)?)?;
        let line = self.queues.line_of(job.leaf)?;
        let quota = || {
            // A reason that can never change comes before one that can.
            let beyond = self.ledger.first_beyond(job.leaf, &class.request, job.preemptible);
            let short = || self.ledger.first_short(job.leaf, &class.request, job.preemptible, |_| 0);
            Some(WaitReason::Quota(self.ledger.verdict(job.leaf, &beyond.or_else(short)?)))
        };
        if claims {
            return quota().or(Some(WaitReason::NoPlace));
        }
        if self.is_hopeless(job) {
            return quota();
        }
        match self.kind(line, class, &job.order_key())? {
            ReasonKind::Behind(head) => Some(WaitReason::BehindHead(head)),
            ReasonKind::Quota { .. } => quota(),
            ReasonKind::Place => Some(WaitReason::NoPlace),
            ReasonKind::Kept(holder) => Some(WaitReason::Claimed { holder }),
            ReasonKind::Protected(..) => {
                let (until_ms, victim) = class.missed.as_ref()?.protected.clone()?;
                Some(WaitReason::Protected { victim, until_ms })
            }
        }
    }

    /// The position of a waiting job. Costs the jobs before it.
    pub fn position(&self, id: &JobId) -> Option<Position> {
        Some(Position { in_leaf: self.queues.position(id)?, in_fleet: self.queues.fleet_position(id)? })
    }

    /// Since when the first job of a leaf has been passed by others.
    pub fn passed_since_ms(&self, leaf: NodeId, id: &JobId) -> Option<i64> {
        self.watches.passed_since_ms(leaf, id)
    }

    /// For how many jobs equal to this one its quota has capacity now, whatever else stops them.
    pub fn room_for(&self, id: &JobId) -> usize {
        let class = self.queues.class_of(id).and_then(|class| self.queues.class(class));
        let Some(class) = class else { return 0 };
        let tree = self.ledger.tree();
        let rooms = tree.path_to_root(class.key.leaf).flat_map(|node| {
            let firm = move |r: usize| match class.key.preemptible {
                true => i64::MAX,
                false => self.ledger.firm_room_at(node, r),
            };
            let amounts = class.request.amounts.iter();
            amounts
                .map(move |(r, asked)| self.ledger.room_at(node, *r).min(firm(*r)).max(0) / (*asked).max(1))
        });
        rooms.min().map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Whether the job may start when its turn comes: it does not back off, and nothing is reserved for it.
    pub fn is_candidate(&self, id: &JobId) -> bool {
        self.queues.get(id).is_some() && !self.queues.is_aside(id) && !self.holds.of(id)
    }

    /// Waiting jobs of the same leaf that are equal to this one for the planner, in order, this one included: what
    /// stops one stops all.
    pub fn equals(&self, id: &JobId) -> impl Iterator<Item = &JobId> {
        self.queues.equals(id)
    }

    fn kind(&self, line: &Line, class: &Class, key: &OrderKey) -> Option<ReasonKind> {
        if let Some(head) = line.blocked_by_aside(key) {
            return Some(ReasonKind::Behind(head.id.clone()));
        }
        // The first that could run has the highest priority of those: if it blocks nobody, none does. With a claim it
        // has been tried before all others, whatever is known of it as a candidate.
        let mut first = line.fronts.iter().filter(|_| line.policy != QueuePolicy::Priority);
        if let Some((first, id)) = first.find(|(_, id)| !self.is_never(**id))
            && first < key
            && line.policy.blocks(first.priority.0)
            && (self.holds.of(&first.id)
                || self.queues.class(*id).is_some_and(|class| self.stop_of(class) != Stop::None))
        {
            return Some(ReasonKind::Behind(first.id.clone()));
        }
        let stop = self.stop_of(class);
        if let Some((until_ms, victim)) = class.missed.as_ref().and_then(|missed| missed.protected.as_ref())
            && class.front() == Some(key)
            && matches!(stop, Stop::Quota { .. } | Stop::Place)
        {
            return Some(ReasonKind::Protected(victim.clone(), *until_ms));
        }
        match stop {
            Stop::None => None,
            Stop::Quota { bound, .. } => Some(ReasonKind::Quota { bound }),
            Stop::Place => Some(ReasonKind::Place),
            Stop::Kept(holder) => Some(ReasonKind::Kept(holder)),
        }
    }

    /// What stops a class. A class that was not considered, because nothing below some node fits, is considered here.
    pub(super) fn stop_of(&self, class: &Class) -> Stop {
        let placeless = self.index.is_placeless(class.key.shape);
        match &class.stop {
            Stop::Place if placeless => return Stop::Place,
            Stop::Kept(holder) => return Stop::Kept(holder.clone()),
            _ => {}
        }
        match self.ledger.first_short(class.key.leaf, &class.request, class.key.preemptible, |_| 0) {
            Some(short) => Stop::Quota { bound: self.ledger.bound(&short), need: short.need },
            None if placeless => Stop::Place,
            None => Stop::None,
        }
    }

    /// Reports the classes whose reason has changed in kind.
    pub(super) fn tell(&mut self, now_ms: i64, plan: &mut QuotaPlan) {
        let mut leaves = std::mem::take(&mut self.touched);
        leaves.append(&mut self.unclaimed);
        for leaf in leaves {
            let Some(line) = self.queues.line_of(leaf) else { continue };
            // It was told of its claim.
            let claims = self.holds.claims.get(&leaf).map(|claim| &claim.job);
            let changed: Vec<(OrderKey, Option<ReasonKind>)> = line
                .fronts
                .iter()
                .filter(|(key, _)| claims != Some(&key.id))
                .filter_map(|(key, id)| {
                    let class = self.queues.class(*id)?;
                    let kind = self.kind(line, class, key);
                    let kind = self.still_claimed(class, key, kind.as_ref(), now_ms).or(kind);
                    let same = self.same_cause(class.told.as_ref(), kind.as_ref(), now_ms);
                    (!same).then(|| (key.clone(), kind))
                })
                .collect();
            for (key, kind) in changed {
                let reason = match &kind {
                    Some(ReasonKind::Kept(holder)) => Some(WaitReason::Claimed { holder: holder.clone() }),
                    Some(_) => self.reason(&key.id),
                    None => None,
                };
                if let Some(class) = self.queues.class_of(&key.id).and_then(|id| self.queues.class_mut(id)) {
                    class.told = kind;
                }
                if let Some(reason) = reason {
                    plan.decisions.push(Decision { job: key.id, leaf, outcome: Outcome::Wait(reason) });
                }
            }
        }
    }

    /// A class that waits for a claim still does when use has grown to the limit again: what becomes free there is
    /// reserved for the claim, until it ends.
    fn still_claimed(
        &self,
        class: &Class,
        key: &OrderKey,
        kind: Option<&ReasonKind>,
        now_ms: i64,
    ) -> Option<ReasonKind> {
        let Some(ReasonKind::Kept(told)) = &class.told else { return None };
        let node = match kind {
            Some(ReasonKind::Quota { bound }) => Some(self.ledger.node_of(*bound)),
            None | Some(ReasonKind::Place) => None,
            _ => return None,
        };
        let job = self.queues.get(&key.id)?;
        let visitor = Visitor::of(job, &class.request, now_ms, &self.holds);
        self.holds.claimed_at(&self.ledger, &visitor, told, node).map(ReasonKind::Kept)
    }

    /// Whether a class still waits for what was reported last. Where use is near a limit, what is left free under it
    /// is now too little, now reserved for a preemptor, and now neither, until the next plan: for a job that needs
    /// more than that, this is one cause. A claim is another one, because it can last.
    fn same_cause(&self, told: Option<&ReasonKind>, kind: Option<&ReasonKind>, now_ms: i64) -> bool {
        let preempts = |holder: &JobId| self.holds.preemption(holder).is_some();
        match (told, kind) {
            (Some(ReasonKind::Quota { .. }), Some(ReasonKind::Kept(holder))) => preempts(holder),
            (Some(ReasonKind::Quota { .. }), None) => true,
            (Some(ReasonKind::Protected(_, until_ms)), Some(ReasonKind::Kept(holder))) => {
                now_ms < *until_ms && preempts(holder)
            }
            (Some(ReasonKind::Protected(_, until_ms)), None | Some(ReasonKind::Quota { .. })) => {
                now_ms < *until_ms
            }
            (told, kind) => told == kind,
        }
    }
}
