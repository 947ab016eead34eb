//! Reports why gangs wait; gangs that stay half bound release their places.

use std::time::Duration;

use fleet_member_state::{GangKey, PodKey};
use tokio::time::Instant;

use super::{Core, Lazy};
use crate::scheduler::{
    placing::{self, Refused},
    write::WaitingPod,
};

/// Least time between two messages to a gang.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

impl Core {
    /// Reports why a gang waits.
    pub(super) fn look_at(&mut self, key: &GangKey, now: Instant) {
        let Some(group) = self.state.gang(key).and_then(|gang| gang.group) else { return };
        let Some(known) = self.state.cluster.try_group(group) else { return };
        let waits = !known.pending.is_empty() || !known.pending_best_effort.is_empty();
        let unreadable = self.unreadable(key);
        if !waits && unreadable.is_none() {
            return;
        }
        if let Some(message) = unreadable {
            return self.refused(key, Refused { message, half_bound: Vec::new() }, now);
        }
        match (known.validity(), known.why.clone()) {
            (Err((_, sentence)), _) => {
                let unknown = known.min() >= (fleet_member_state::UNKNOWN_SIZE as i64);
                let missing = || format!("its PodGroup {} does not exist", known.input.name);
                let sentence = if unknown { missing() } else { sentence };
                self.incomplete(key, &sentence, now);
            }
            (Ok(()), Some(why)) => {
                let half_bound = placing::half_bound_pods(&self.state, key);
                self.refused(key, Refused { message: why.to_string(), half_bound }, now);
            }
            (Ok(()), None) => {}
        }
    }

    pub(super) fn unreadable(&self, key: &GangKey) -> Option<String> {
        let gang = self.state.gang(key)?;
        let first = gang.unreadable.first()?;
        Some(format!("pod {}: {}", first.name, self.state.pod(first)?.unreadable.as_ref()?))
    }

    /// Reports an incomplete gang after a while; most become complete at once.
    pub(super) fn incomplete(&mut self, key: &GangKey, message: &str, now: Instant) {
        let grace = self.context.settings.gang_grace;
        let Some(gang) = self.state.gang_mut(key) else { return };
        let since = *gang.incomplete_since.get_or_insert(now);
        if now >= since + grace {
            self.tell(key, message, now);
        } else if since == now {
            self.rechecks.insert((since + grace, key.clone()));
        }
    }

    pub(super) fn refused(&mut self, key: &GangKey, refused: Refused, now: Instant) {
        let grace = self.context.settings.gang_grace;
        if placing::is_reserved(&self.state, key) {
            self.waiting.insert(key.clone());
        }
        let uid = |pod: &PodKey| self.state.pod(pod).map(|entry| (pod.clone(), entry.uid.clone()));
        let half_bound: Vec<(PodKey, String)> = refused.half_bound.iter().filter_map(uid).collect();
        let Some(gang) = self.state.gang_mut(key) else { return };
        gang.incomplete_since = None;
        if half_bound.is_empty() {
            gang.half_bound_since = None;
        } else {
            let since = *gang.half_bound_since.get_or_insert(now);
            if now >= since + grace {
                gang.half_bound_since = None;
                self.lazy.push_back(Lazy::Evict(half_bound));
            } else {
                self.rechecks.insert((since + grace, key.clone()));
            }
        }
        self.tell(key, &refused.message, now);
    }

    /// Reports the message on the gang's waiting pods, unless they have it already.
    pub(super) fn tell(&mut self, key: &GangKey, message: &str, now: Instant) {
        let Some(gang) = self.state.gang(key) else { return };
        let told: Vec<WaitingPod> = gang
            .pods
            .iter()
            .filter_map(|pod| self.state.pod(pod).map(|entry| (pod, entry)))
            .filter(|(_, entry)| entry.is_pending() && entry.told.as_deref() != Some(message))
            .map(|(pod, entry)| WaitingPod {
                pod: pod.clone(),
                uid: entry.uid.clone(),
                scheduler_name: entry.scheduler_name.clone(),
            })
            .collect();
        if told.is_empty() {
            return;
        }
        let again = gang.told_at.map(|at| at + TELL_INTERVAL);
        if let Some(again) = again.filter(|again| *again > now) {
            self.rechecks.insert((again, key.clone()));
            return;
        }
        for WaitingPod { pod, .. } in &told {
            self.state.set_told(pod, Some(message));
        }
        if let Some(gang) = self.state.gang_mut(key) {
            gang.told_at = Some(now);
        }
        self.lazy.push_back(Lazy::Tell(told, message.to_owned()));
    }
}
