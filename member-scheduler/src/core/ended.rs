//! Results of writes, as inputs of the next decision.

use std::time::Duration;

use fleet_member_state::{GangKey, MemberState, PodKey};
use tokio::time::Instant;

use super::{Core, Ended, Lazy};
use crate::scheduler::{binding::Binding, placing, write::Bound};

/// Back-off before a PodGroup that could not be created is tried again.
const DESCRIBE_PAUSE: Duration = Duration::from_secs(10);

impl Core {
    pub(super) fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        match ended {
            Ok(Ended::Bound(bindings)) => {
                let gang_of = |state: &MemberState, (binding, _): &(Binding, Bound)| {
                    state.pod(&binding.pod).map(|pod| pod.gang.clone())
                };
                let gang = bindings.first().and_then(|first| gang_of(&self.state, first));
                let refused = bindings.iter().any(|(_, bound)| *bound == Bound::No);
                let bound = bindings.iter().filter(|(_, bound)| *bound == Bound::Yes).count();
                self.context.counts.bound(bound, bindings.len() - bound);
                for (binding, bound) in bindings {
                    match bound {
                        Bound::Yes => {}
                        Bound::No => self.state.forget(&binding.pod, &binding.uid),
                        Bound::Vetoed(why) => {
                            let id = self.number_of(&binding);
                            self.state.forget(&binding.pod, &binding.uid);
                            if let Some(id) = id {
                                self.state.cluster.veto(id, &binding.node, &why);
                            }
                        }
                        Bound::Unsaid(why) => {
                            let id = self.number_of(&binding);
                            self.state.forget(&binding.pod, &binding.uid);
                            if let Some(id) = id {
                                self.state.cluster.no_answer(id, &why);
                            }
                        }
                        Bound::Gone => {
                            if self.state.pod(&binding.pod).is_some_and(|pod| pod.uid == binding.uid) {
                                self.state.remove_pod(&binding.pod);
                            }
                        }
                    }
                }
                if let Some(gang) = gang {
                    self.bindings_ended(&gang, refused);
                }
            }
            Ok(Ended::Reported(untold)) => {
                for pod in untold {
                    self.state.set_told(&pod, None);
                }
            }
            Ok(Ended::Kept(kept, failed)) => {
                for id in kept.iter().filter_map(|pod| self.state.pod(pod)?.id).collect::<Vec<_>>() {
                    self.state.cluster.keep(id);
                }
                for pod in kept.iter().chain(&failed) {
                    self.state.set_evicting(pod, false);
                }
            }
            Ok(Ended::Evicted(failed)) => {
                for pod in failed {
                    self.state.set_evicting(&pod, false);
                }
            }
            Ok(Ended::Command(done)) => self.statuses.commands.done(done, Instant::now()),
            Ok(Ended::Released(name, failed)) => self.not_released(name, &failed),
            Ok(Ended::Undescribed(None)) => {}
            Ok(Ended::Undescribed(Some(key))) => {
                if let Some(gang) = self.state.gang_mut(&key) {
                    gang.described = false;
                    self.rechecks.insert((Instant::now() + DESCRIBE_PAUSE, key));
                }
            }
            Ok(Ended::Status(written)) => self.statuses.written(written, &mut self.state),
            Err(error) => tracing::error!(%error, "a write of the scheduler panicked"),
        }
    }

    /// The scheduler's id of the pod, if it is still the same pod.
    pub(super) fn number_of(&self, binding: &Binding) -> Option<fleet_scheduler::PodId> {
        self.state.pod(&binding.pod).filter(|pod| pod.uid == binding.uid)?.id
    }

    /// A gang is bound whole or not at all: if its bindings are refused repeatedly, its bound pods release
    /// their places.
    pub(super) fn bindings_ended(&mut self, key: &GangKey, refused: bool) {
        let (grace, now) = (self.context.settings.gang_grace, Instant::now());
        let Some(gang) = self.state.gang_mut(key) else { return };
        if !refused {
            gang.bind_refused_since = None;
            return;
        }
        let since = *gang.bind_refused_since.get_or_insert(now);
        if now < since + grace {
            return;
        }
        gang.bind_refused_since = None;
        let uid = |pod: PodKey| self.state.pod(&pod).map(|entry| (pod.clone(), entry.uid.clone()));
        let half_bound: Vec<(PodKey, String)> =
            placing::half_bound_pods(&self.state, key).into_iter().filter_map(uid).collect();
        if !half_bound.is_empty() {
            tracing::info!(gang = ?key, pods = half_bound.len(), "a gang that cannot be bound as a whole releases its places");
            self.lazy.push_back(Lazy::Evict(half_bound));
        }
    }
}
