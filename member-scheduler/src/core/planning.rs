//! Decisions of one round: holds, gangs with reserved places, a cycle of the scheduler, the capacity report.

use std::collections::BTreeMap;

use fleet_member_state::PodKey;
use tokio::time::Instant;

use super::{Core, Lazy};
use crate::{
    groups,
    report::{self, Report},
    scheduler::{
        binding::Binding,
        extender,
        placing::{self, Decision, Rank},
    },
};

impl Core {
    /// Plans with the current state.
    pub(super) fn decide(&mut self) {
        if !self.unlisted.is_empty() {
            return;
        }
        let now = self.context.clock.now();
        self.book.expire(now, &mut self.state);
        self.statuses.hyper_nodes.resolve(&mut self.state);
        self.book.look_at_cells(&mut self.state);
        self.preempt_cells();
        self.see_others(Instant::now());
        if self.book.plan_asked(&mut self.state, now, self.sequence + 1) {
            self.promised = self.sequence + 1;
        }
        self.schedule();
        self.report();
    }

    /// Deletes pods whose cells the hub has given to another job.
    fn preempt_cells(&mut self) {
        let leaving = self.state.leaving_pods();
        for (pod, _) in &leaving {
            tracing::info!(pod = %pod.name, namespace = %pod.namespace, "a pod leaves its cells to another job");
            self.state.set_evicting(pod, true);
        }
        if !leaving.is_empty() {
            self.lazy.push_front(Lazy::Evict(leaving));
        }
    }

    pub(super) fn schedule(&mut self) {
        let effects = self.state.take_effects();
        self.dirty.extend(effects.dirty);
        if effects.capacity {
            self.note_capacity();
        }
        let mut gates = effects.gates;
        if effects.freed {
            self.dirty.append(&mut self.waiting);
            // A node may admit its pods again, or pods in its places may be gone.
            gates.extend(self.shared.told.keys().cloned());
        }
        let now = Instant::now();
        self.open_gates(&gates, now);
        while self.rechecks.first().is_some_and(|(at, _)| *at <= now) {
            self.dirty.extend(self.rechecks.pop_first().map(|(_, key)| key));
        }
        let dirty = std::mem::take(&mut self.dirty);
        // Gangs with places reserved by the hub come first: the places are theirs.
        let mut ranks: Vec<Rank> = dirty
            .iter()
            .filter(|key| placing::is_reserved(&self.state, key))
            .filter_map(|key| placing::rank(&self.state, key))
            .collect();
        ranks.sort_unstable();
        for (_, _, key) in ranks {
            match placing::decide(&mut self.state, &key) {
                Decision::Nothing => {}
                Decision::Incomplete { exist, size } => {
                    self.incomplete(
                        &key,
                        &format!("waiting for the gang: {exist} of {size} pods exist"),
                        now,
                    );
                }
                Decision::Bind(bindings) => {
                    if let Some(gang) = self.state.gang_mut(&key) {
                        gang.half_bound_since = None;
                        gang.incomplete_since = None;
                    }
                    self.to_bind.push_back(bindings);
                }
                Decision::Refused(refused) => self.refused(&key, refused, now),
            }
        }
        self.cycle(now);
        for key in &dirty {
            if let Some((object, pods)) = self.state.undescribed(key) {
                let wanted = groups::Description { gang: key.clone(), object, pods };
                self.lazy.push_back(Lazy::Describe(wanted));
            }
            if !placing::is_reserved(&self.state, key) {
                self.look_at(key, now);
            }
        }
        // Drops changes that the decisions made themselves: no other gang can wait for them.
        let effects = self.state.take_effects();
        self.dirty.extend(effects.dirty);
        if effects.capacity {
            self.note_capacity();
        }
        if effects.freed {
            self.dirty.append(&mut self.waiting);
            if !self.dirty.is_empty() {
                self.rechecks.extend(std::mem::take(&mut self.dirty).into_iter().map(|key| (now, key)));
            }
        }
    }

    /// One cycle of the scheduler over all pods that it places.
    pub(super) fn cycle(&mut self, now: Instant) {
        let limits = fleet_scheduler::Limits::default();
        let session = self.extender.begin_cycle(&self.state, now);
        let began = Instant::now();
        let outcome = self.state.cluster.cycle(self.context.clock.now().as_second(), &limits);
        self.context.counts.cycled(began.elapsed(), outcome.evicted.len());
        self.cycle_again = outcome.more;
        // Whoever was told of it may be gone.
        let _ = session.map(|session| session.send(()));
        self.extender.take_questions(&mut self.state);
        for (_, pods) in outcome.bound {
            let mut bindings = Vec::with_capacity(pods.len());
            for (id, node) in pods {
                let name = self.state.cluster.nodes.get(node).name.to_string();
                let Some(key) = self.state.key_of(id) else { continue };
                self.state.assume(&key, &name);
                let Some(pod) = self.state.pod(&key) else { continue };
                let check = extender::check(&self.state, &key, pod, node);
                bindings.push(Binding { check, ..placing::binding(&self.state, &key, pod, name) });
            }
            if let Some(first) = bindings.first()
                && let Some(gang) = self.state.pod(&first.pod).map(|pod| pod.gang.clone())
                && let Some(gang) = self.state.gang_mut(&gang)
            {
                gang.half_bound_since = None;
                gang.incomplete_since = None;
            }
            self.to_bind.push_back(bindings);
        }
        let mut leaving = Vec::new();
        let mut asked: BTreeMap<(fleet_scheduler::GroupId, fleet_scheduler::Action), Vec<(PodKey, String)>> =
            BTreeMap::new();
        for eviction in outcome.evicted {
            let Some(key) = self.state.key_of(eviction.pod) else { continue };
            if let Some(taker) = eviction.taker
                && let Some(uid) = self.state.pod(&key).map(|pod| pod.uid.clone())
                && extender::may_leave(&self.state, taker, eviction.action, &[]).is_some()
            {
                self.state.set_evicting(&key, true);
                asked.entry((taker, eviction.action)).or_default().push((key, uid));
                continue;
            }
            self.state.set_evicting(&key, true);
            if let Some(pod) = self.state.pod(&key) {
                tracing::info!(pod = %key.name, namespace = %key.namespace, action = ?eviction.action, "a pod is preempted");
                leaving.push((key, pod.uid.clone()));
            }
        }
        if !leaving.is_empty() {
            self.lazy.push_front(Lazy::Evict(leaving));
        }
        for ((taker, action), victims) in asked {
            let keys: Vec<PodKey> = victims.iter().map(|(key, _)| key.clone()).collect();
            self.lazy.push_front(match extender::may_leave(&self.state, taker, action, &keys) {
                Some(leave) => Lazy::Ask(leave, victims),
                None => Lazy::Evict(victims),
            });
        }
        for group in self.state.cluster.take_changed_groups() {
            self.statuses.group_changed(group, &mut self.state, &self.context.admissions);
            if let Some(key) = self.state.gang_of_group(group).cloned()
                && !placing::is_reserved(&self.state, &key)
            {
                self.look_at(&key, now);
            }
        }
        self.statuses.queues_changed(&mut self.state, now);
    }

    pub(super) fn note_capacity(&mut self) {
        let earliest = self.reported_at.map(|at| at + self.context.settings.report_interval);
        self.report_due.get_or_insert(earliest.unwrap_or_else(Instant::now));
    }

    pub(super) fn report(&mut self) {
        let now = Instant::now();
        // A member without nodes is reported as well.
        let first = self.reported_at.is_none();
        if !first && self.report_due.is_none_or(|due| due > now) {
            return;
        }
        self.report_due = None;
        self.reported_at = Some(now);
        self.sequence = self.context.clock.now().as_millisecond().max(self.sequence + 1);
        let status = report::report(&mut self.state);
        self.reports.send_replace(Some(Report { sequence: self.sequence, promised: self.promised, status }));
    }
}
