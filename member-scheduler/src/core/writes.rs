//! Starts the writes of decisions, a bounded number at a time.

use tokio::time::Instant;

use fleet_member_state::PodKey;

use super::{Core, Ended, Lazy, shared};
use crate::scheduler::{extender, fresh::FreshCheck, write};

/// Most gangs with bindings in flight.
const GANGS_AT_ONCE: usize = 64;
/// Most reservations with writes in flight.
const HOLDS_AT_ONCE: usize = 64;
/// Most gangs whose pods are being updated or evicted.
const TELLS_AT_ONCE: usize = 4;

impl Core {
    pub(super) fn start_writes(&mut self) {
        while self.binds.len() < GANGS_AT_ONCE
            && let Some(bindings) = self.to_bind.pop_front()
        {
            let (context, notices) = (self.context.clone(), self.notices.clone());
            let look = self.state.is_shared.then(|| FreshCheck::of(&self.state, &bindings));
            self.binds
                .spawn(async move { Ended::Bound(write::bind(context, notices, bindings, look).await) });
        }
        while self.holds.len() < HOLDS_AT_ONCE
            && let Some(write) = self.book.next_write()
        {
            self.holds.spawn(write.perform(self.context.clone()));
        }
        self.extender.start(&mut self.state, &self.context);
        self.lazy.extend(
            self.statuses.due(&mut self.state, &self.context, Instant::now()).into_iter().map(Lazy::Status),
        );
        let commands = self.statuses.commands_due(&self.state, Instant::now());
        self.lazy.extend(commands.into_iter().map(Lazy::Command));
        while self.tells.len() < TELLS_AT_ONCE
            && let Some(lazy) = self.lazy.pop_front()
        {
            let (context, notices) = (self.context.clone(), self.notices.clone());
            self.tells.spawn(async move {
                match lazy {
                    Lazy::Tell(pods, message) => {
                        Ended::Reported(write::tell(context, notices, pods, message).await)
                    }
                    Lazy::Evict(pods) => Ended::Evicted(write::evict(context, pods).await),
                    Lazy::Ask(leave, pods) => {
                        let allowed = extender::allowed(&leave).await;
                        let (go, stay): (Vec<_>, Vec<_>) =
                            pods.into_iter().partition(|(_, uid)| allowed.contains(uid));
                        // If one victim is kept, the preemptor has no place and searches for other victims.
                        if stay.is_empty() {
                            Ended::Evicted(write::evict(context, go).await)
                        } else {
                            let keys =
                                |pods: Vec<(PodKey, String)>| pods.into_iter().map(|(key, _)| key).collect();
                            Ended::Kept(keys(stay), keys(go))
                        }
                    }
                    Lazy::Command(write) => Ended::Command(write.perform(context, notices).await),
                    Lazy::Status(write) => Ended::Status(write.perform(context).await),
                    Lazy::Release(name, pods) => {
                        Ended::Released(name, shared::release(context, notices, pods).await)
                    }
                    Lazy::Describe(wanted) => Ended::Undescribed(wanted.perform(context).await),
                }
            });
        }
    }
}
