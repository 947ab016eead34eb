//! The loop of the core: each round applies what has arrived since the last, decides, and starts writes.

use fleet_agent_ground::{Backoff, Event, HoldRequest, PlaceQuestion, call};
use fleet_api::{Reservation, names};
use fleet_member_state::PodKey;
use kube::{Api, api::ListParams};
use tokio::time::Instant;

use super::Core;
use crate::{
    budgets,
    changes::CoreChange,
    groups, numatopologies, resource_quotas,
    scheduler::{self, placing},
};

/// Most changes applied in one round.
const ROUND: usize = 512;

impl Core {
    /// Runs until the agent stops. Writes in flight are dropped then; the next agent starts from lists.
    pub async fn run(mut self) {
        let context = self.context.clone();
        context.shutdown.run_until_cancelled(self.work()).await;
    }

    async fn work(&mut self) {
        let context = self.context.clone();
        self.read_policy().await;
        self.recover().await;
        let mut round = Vec::with_capacity(ROUND);
        let mut asked = Vec::new();
        loop {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                Some(ended) = self.binds.join_next() => self.ended(ended),
                Some(ended) = self.tells.join_next() => self.ended(ended),
                Some(written) = self.holds.join_next() => match written {
                    Ok(written) => self.book.written(written, &mut self.state),
                    Err(error) => tracing::error!(%error, "a write of a reservation panicked"),
                },
                (asked, answer) = self.extender.next() => self.state.cluster.hear(asked, answer),
                n = self.requests.recv_many(&mut asked, ROUND) => if n == 0 { return },
                Some(question) = self.questions.recv() => {
                    self.answer_place(question);
                    continue;
                }
                n = self.changes.recv_many(&mut round, ROUND) => if n == 0 { return },
                () = context.owned.changed() => {}
                () = sleep_until(wake), if wake.is_some() => {}
            }
            // Everything else that has arrived belongs to the same round.
            while let Some(ended) = self.binds.try_join_next() {
                self.ended(ended);
            }
            while let Some(Ok(written)) = self.holds.try_join_next() {
                self.book.written(written, &mut self.state);
            }
            while round.len() < ROUND
                && let Ok(change) = self.changes.try_recv()
            {
                round.push(change);
            }
            for change in round.drain(..) {
                self.apply(change);
            }
            for request in asked.drain(..) {
                self.handle(request);
            }
            if self.term_beginnings != self.context.terms.beginnings() {
                self.term_beginnings = self.context.terms.beginnings();
                self.book.forget_terms();
            }
            // Reservations and Works carry leaders' terms; the newest one counts for both.
            self.context.terms.note(self.book.see_term(self.context.terms.newest()));
            self.decide();
            self.start_writes();
        }
    }

    /// Reads the configuration before the first placement. The watcher of the file reports mistakes.
    async fn read_policy(&mut self) {
        let Some(file) = &self.context.settings.scheduler_conf else { return };
        let text = tokio::fs::read_to_string(file).await.unwrap_or_default();
        if let Ok(conf) = scheduler::conf::read(&text) {
            self.apply(CoreChange::Config(Box::new(conf.config)));
        }
    }

    /// Recovers the holds of the copies in the member.
    async fn recover(&mut self) {
        let copies: Api<Reservation> =
            Api::namespaced(self.context.member.client.clone(), names::MEMBER_NAMESPACE);
        let mut backoff = Backoff::new(&format!("{}/recover", self.context.member.cluster()));
        loop {
            match call(copies.list(&ListParams::default())).await {
                Ok(mut list) => {
                    list.items.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                    for copy in &list.items {
                        self.book.recover(copy, &mut self.state);
                    }
                    return;
                }
                // A member without the definition has no holds.
                Err(error) if error.is_not_found() => return,
                Err(error) => tracing::warn!(%error, "cannot list the reservations held in the member"),
            }
            backoff.wait().await;
        }
    }

    pub(super) fn apply(&mut self, change: CoreChange) {
        if let Some(kind) = change.lists() {
            self.unlisted.remove(kind);
        }
        let state = &mut self.state;
        match change {
            CoreChange::Node(Event::Apply(node)) => state.apply_node(&node),
            CoreChange::Node(Event::Gone((_, name))) => state.remove_node(&name),
            CoreChange::Pod(Event::Apply(pod)) => state.apply_pod(&pod),
            CoreChange::Pod(Event::Gone((namespace, name))) => state.remove_pod(&PodKey { namespace, name }),
            CoreChange::Node(Event::Listed) | CoreChange::Pod(Event::Listed) => {}
            CoreChange::LastReport(sequence) => {
                self.sequence = self.sequence.max(sequence);
                self.report_due = Some(Instant::now());
            }
            CoreChange::Reservation(told) if !self.context.settings.reservation => drop(told),
            CoreChange::Reservation(Event::Apply(reservation)) => self.book.apply(&reservation, state),
            CoreChange::Reservation(Event::Gone((_, name))) => self.book.remove(&name, state),
            CoreChange::Copy(Event::Apply(copy)) => self.book.see_copy(&copy),
            CoreChange::Reservation(Event::Listed) => self.book.listed(state),
            CoreChange::Copy(_) => {}
            CoreChange::PodGroup(change) => self.statuses.pod_group(change, state, &self.context.admissions),
            CoreChange::Queue(change) => self.statuses.queue(change, state),
            CoreChange::Command(change) => self.statuses.commands.change(change),
            CoreChange::HyperNode(change) => self.statuses.hyper_nodes.change(change, state),
            CoreChange::Numatopology(told) => numatopologies::take(told, state),
            CoreChange::ResourceQuota(told) => resource_quotas::take(told, state),
            CoreChange::Budget(told) => budgets::take(told, state),
            CoreChange::Loads(readings) => {
                let now = self.context.clock.now().as_second();
                scheduler::loads::take(&readings, &mut state.cluster, now);
            }
            CoreChange::PriorityClass(change) => groups::priority_class(change, state),
            CoreChange::Config(config) => match fleet_scheduler::Policy::compile(&config) {
                Ok(policy) => state.cluster.set_policy(policy),
                Err(error) => {
                    tracing::error!(%error, "invalid scheduler configuration; the last valid one stays in force")
                }
            },
        }
    }

    fn handle(&mut self, request: HoldRequest) {
        match request {
            HoldRequest::Consume { binding_uid, epoch } => self.book.consume(&binding_uid, epoch),
            HoldRequest::Release { binding_uid, epoch } => {
                self.book.release(&binding_uid, epoch, &mut self.state);
            }
        }
    }

    fn answer_place(&self, PlaceQuestion { pod, answer }: PlaceQuestion) {
        let node = self.unlisted.is_empty().then(|| placing::node_for_one(&self.state, &pod)).flatten();
        // The requester may have given up.
        let _ = answer.send(node);
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        if !self.unlisted.is_empty() {
            return None;
        }
        let lapse = self.book.next_deadline().map(|deadline| self.context.clock.instant_of(deadline));
        let recheck = self.rechecks.first().map(|(at, _)| *at);
        let again = self.cycle_again.then(Instant::now);
        let word = self.state.cluster.next_look().and_then(|at| jiff::Timestamp::from_second(at).ok());
        let word = word.map(|at| self.context.clock.instant_of(at));
        let shared = self.shared.next_look(self.context.settings.gang_grace);
        [lapse, recheck, self.report_due, again, word, shared, self.statuses.next_look()]
            .into_iter()
            .flatten()
            .min()
    }
}

async fn sleep_until(wake: Option<Instant>) {
    if let Some(wake) = wake {
        tokio::time::sleep_until(wake).await;
    }
}
