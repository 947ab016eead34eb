//! Handling of nodes that other schedulers also use: pods that take reserved places, gangs behind gates,
//! capacity that others have taken, and the reports about it.

use fleet_member_state::{GangKey, Gated, PodKey};
use tokio::time::{Duration, Instant};

use super::{
    Core, Lazy,
    shared::{SOURCE, bound_within},
};
use crate::notices::Notice;

/// Longest pause between two searches for replacement places.
const REPLAN_PAUSE: Duration = Duration::from_secs(5);
impl Core {
    /// Before gangs are placed: handles new jobs, and capacity that others have taken.
    pub(crate) fn see_others(&mut self, now: Instant) {
        for (uid, job) in self.context.owned.news() {
            self.state.set_job(&uid, job);
        }
        let taken = self.state.take_crowd();
        for (gang, why) in taken.gangs {
            self.give_way(&gang, &why);
        }
        let time = self.context.clock.now();
        if !taken.places.is_empty()
            && self.book.repair(&taken.places, &mut self.state, time, self.sequence + 1)
        {
            self.promised = self.sequence + 1;
        }
        if !self.book.has_placeless() {
            self.shared.replan_at = None;
        } else if self.shared.replan_at.is_none_or(|at| at <= now) {
            if self.shared.replan_at.is_some() && self.book.replan(&mut self.state, time, self.sequence + 1) {
                self.promised = self.sequence + 1;
            }
            self.shared.replan_at =
                self.book.has_placeless().then(|| now + REPLAN_PAUSE.min(self.context.settings.gang_grace));
        }
    }

    /// The gang was bound on nodes where another scheduler was faster: pods that have not started are
    /// deleted, all of them if none has.
    fn give_way(&mut self, key: &GangKey, why: &str) {
        let Some(gang) = self.state.gang(key) else { return };
        let pods: Vec<(PodKey, String, bool)> = gang
            .pods
            .iter()
            .filter_map(|pod| Some((pod, self.state.pod(pod)?)))
            .filter(|(_, entry)| !entry.deleting && !entry.finished && entry.counted_on().is_some())
            .map(|(pod, entry)| (pod.clone(), entry.uid.clone(), entry.started.is_some()))
            .collect();
        tracing::warn!(gang = ?key, %why, "a gang releases its places");
        for (pod, uid, _) in &pods {
            self.notices.send(Notice::failed_scheduling(pod, uid, SOURCE, why));
        }
        // Bindings that were not sent yet are dropped.
        let mut unsent = Vec::new();
        self.to_bind.retain(|bindings| {
            let is_its = bindings.iter().any(|binding| pods.iter().any(|(pod, ..)| *pod == binding.pod));
            if is_its {
                unsent.extend(bindings.iter().map(|binding| (binding.pod.clone(), binding.uid.clone())));
            }
            !is_its
        });
        for (pod, uid) in &unsent {
            self.state.forget(pod, uid);
        }
        let leaving: Vec<(PodKey, String)> = pods
            .into_iter()
            .filter(|(pod, uid, started)| {
                !started && !unsent.iter().any(|(known, of)| known == pod && of == uid)
            })
            .map(|(pod, uid, _)| (pod, uid))
            .collect();
        if !leaving.is_empty() {
            for (pod, _) in &leaving {
                self.state.set_evicting(pod, true);
            }
            self.lazy.push_front(Lazy::Evict(leaving));
        }
    }

    /// Removes the gates of complete gangs, and deletes gangs that did not start as a whole.
    pub(crate) fn open_gates(&mut self, gates: &std::collections::BTreeSet<String>, now: Instant) {
        for name in gates {
            match self.state.gated(name) {
                Gated::Nothing => drop(self.shared.told.remove(name)),
                Gated::Waits(why) => self.tell_gated(name, &why),
                Gated::Go(releases) => {
                    self.shared.told.remove(name);
                    for release in &releases {
                        self.state.set_let_go(&release.pod, true);
                    }
                    self.shared.let_go.insert(name.clone(), now);
                    self.lazy.push_back(Lazy::Release(name.clone(), releases));
                }
            }
        }
        let grace = bound_within(self.context.settings.gang_grace);
        let due: Vec<String> = self
            .shared
            .let_go
            .iter()
            .filter(|(_, at)| **at + grace <= now)
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            self.shared.let_go.remove(&name);
            let (with, without) = self.state.let_go(&name);
            if without.is_empty() {
                continue;
            }
            let why = format!(
                "the cluster's scheduler has bound {} of {} pods within {} s; the gang releases its places",
                with.len(),
                with.len() + without.len(),
                grace.as_secs_f32()
            );
            tracing::warn!(reservation = %name, "{why}");
            let uid = |pod: PodKey| self.state.pod(&pod).map(|entry| entry.uid.clone()).map(|uid| (pod, uid));
            let leaving: Vec<(PodKey, String)> = with.into_iter().chain(without).filter_map(uid).collect();
            for (pod, uid) in &leaving {
                self.notices.send(Notice::failed_scheduling(pod, uid, SOURCE, &why));
            }
            self.lazy.push_front(Lazy::Evict(leaving));
        }
    }

    fn tell_gated(&mut self, name: &str, why: &str) {
        if self.shared.told.get(name).is_some_and(|told| told == why) {
            return;
        }
        self.shared.told.insert(name.to_owned(), why.to_owned());
        for pod in self.state.behind_gate(name) {
            if let Some(entry) = self.state.pod(&pod) {
                self.notices.send(Notice::failed_scheduling(&pod, &entry.uid, SOURCE, why));
            }
        }
    }

    /// Gates that could not be removed are tried again.
    pub(crate) fn not_released(&mut self, name: String, failed: &[PodKey]) {
        for pod in failed {
            self.state.set_let_go(pod, false);
        }
        if !failed.is_empty() {
            self.state.look_at_gates(name);
        }
    }
}
