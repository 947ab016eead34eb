//! The core task: the one owner of what is known of the member. It takes changes, plans reservations,
//! places gangs, and starts the writes that follow.
//!
//! Planning is sequential and in memory; writes run beside it, bounded in number, and report back.
//! Nothing is polled: each round handles what has arrived since the last, then waits for the next change
//! or deadline.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use fleet_api::{Reservation, names};
use kube::{Api, api::ListParams};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};

use crate::{
    capacity::{self, Report},
    changes::{CoreChange, NODES, PODS, READ_FIRST},
    context::Context,
    core_budgets, core_commands,
    core_extender::Extender,
    core_groups::{self, Statuses},
    core_numa, core_resource_quotas,
    core_shared::{self, Shared},
    notices::Notices,
    reservations::{book::Book, write::HoldWritten},
    scheduler::{
        self, Binding, Decision, Rank, Refused,
        fresh::Look,
        write::{self, Bound, Told},
    },
    state::{GangKey, MemberState, PodKey, Release},
};
use fleet_agent_ground::{Backoff, Event, HoldRequest, PlaceQuestion, call};

/// Changes handled in one round at most.
const ROUND: usize = 512;
/// Gangs whose bindings are under way at once.
const GANGS_AT_ONCE: usize = 64;
/// Reservations whose writes are under way at once.
const HOLDS_AT_ONCE: usize = 64;
/// Gangs whose pods are being told something, or evicted, at once.
const TELLS_AT_ONCE: usize = 4;
/// A gang is told a new sentence at most this often.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause before a PodGroup that could not be made is asked for again.
const DESCRIBE_PAUSE: Duration = Duration::from_secs(10);

/// A write that has ended.
#[derive(Debug)]
enum Ended {
    Bound(Vec<(Binding, Bound)>),
    Told(Vec<PodKey>),
    /// Those that could not be.
    Evicted(Vec<PodKey>),
    /// Those that the extender keeps.
    Kept(Vec<PodKey>, Vec<PodKey>),
    Status(core_groups::Written),
    Command(core_commands::Done),
    /// A PodGroup that could not be made.
    Undescribed(Option<GangKey>),
    /// Of this reservation: pods whose gates could not be taken off.
    Released(String, Vec<PodKey>),
}

/// A write to the gang's pods that is not urgent.
pub(crate) enum Lazy {
    Tell(Vec<Told>, String),
    Evict(Vec<(PodKey, String)>),
    /// Those of them that the extender lets go.
    Ask(scheduler::extender::Leave, Vec<(PodKey, String)>),
    Status(core_groups::StatusWrite),
    Command(core_commands::CommandWrite),
    Describe(core_groups::Description),
    /// Pods of this reservation whose gates are to be taken off.
    Release(String, Vec<Release>),
}

pub(crate) struct Core {
    pub(crate) context: Arc<Context>,
    pub(crate) state: MemberState,
    pub(crate) book: Book,
    pub(crate) notices: Notices,
    changes: mpsc::Receiver<CoreChange>,
    requests: mpsc::Receiver<HoldRequest>,
    questions: mpsc::Receiver<PlaceQuestion>,
    reports: watch::Sender<Option<Report>>,
    /// Kinds that have not been listed yet: nothing is decided before all have been. A decision on a part of what stands
    /// would let groups in whose pods were seen before their PodGroups, and count room that others have been promised.
    unlisted: BTreeSet<&'static str>,
    /// Gangs to look at.
    dirty: BTreeSet<GangKey>,
    /// Gangs that did not fit.
    waiting: BTreeSet<GangKey>,
    /// Gangs to look at again at a time.
    rechecks: BTreeSet<(Instant, GangKey)>,
    /// Bindings that wait for their turn.
    pub(crate) to_bind: VecDeque<Vec<Binding>>,
    pub(crate) lazy: VecDeque<Lazy>,
    binds: JoinSet<Ended>,
    tells: JoinSet<Ended>,
    holds: JoinSet<HoldWritten>,
    statuses: Statuses,
    extender: Extender,
    pub(crate) shared: Shared,
    /// A cycle ended at its bounds.
    cycle_again: bool,
    /// Number of the last report.
    pub(crate) sequence: i64,
    /// Highest report number that an answer has named.
    pub(crate) promised: i64,
    report_due: Option<Instant>,
    reported_at: Option<Instant>,
    /// How often the hub's terms have begun anew.
    term_beginnings: u64,
}

/// The core's ends of its channels.
pub(crate) struct Channels {
    pub changes: mpsc::Receiver<CoreChange>,
    pub requests: mpsc::Receiver<HoldRequest>,
    pub questions: mpsc::Receiver<PlaceQuestion>,
    pub reports: watch::Sender<Option<Report>>,
    pub notices: Notices,
}

impl Core {
    pub fn new(context: Arc<Context>, channels: Channels) -> Self {
        let statuses = Statuses::new(&context.options.scheduler_names);
        let mut unlisted: BTreeSet<&'static str> = [NODES, PODS].into();
        if !context.options.scheduler_names.is_empty() {
            unlisted.extend(READ_FIRST);
        }
        Self {
            state: MemberState::new(context.options.scheduler_names.clone()),
            sequence: context.clock.now().as_millisecond(),
            book: Book::new(context.options.permits.clone()),
            context,
            notices: channels.notices,
            changes: channels.changes,
            requests: channels.requests,
            questions: channels.questions,
            reports: channels.reports,
            unlisted,
            dirty: BTreeSet::new(),
            waiting: BTreeSet::new(),
            rechecks: BTreeSet::new(),
            to_bind: VecDeque::new(),
            lazy: VecDeque::new(),
            binds: JoinSet::new(),
            tells: JoinSet::new(),
            holds: JoinSet::new(),
            statuses,
            extender: Extender::default(),
            shared: Shared::default(),
            cycle_again: false,
            promised: 0,
            report_due: None,
            reported_at: None,
            term_beginnings: 0,
        }
    }

    /// Runs until the agent stops. Writes under way are dropped then: the next agent starts from
    /// listings.
    pub async fn run(mut self) -> anyhow::Result<()> {
        let context = self.context.clone();
        context.shutdown.run_until_cancelled(self.work()).await;
        Ok(())
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
                    Ok(written) => self.book.written(written),
                    Err(error) => tracing::error!(%error, "a write of a reservation ended abnormally"),
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
            // Whatever else has arrived belongs to the same round.
            while let Some(ended) = self.binds.try_join_next() {
                self.ended(ended);
            }
            while let Some(Ok(written)) = self.holds.try_join_next() {
                self.book.written(written);
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
            // Reservations and Works bring terms of leaders; the newest counts for both.
            self.context.terms.note(self.book.see_term(self.context.terms.newest()));
            self.decide();
            self.start_writes();
        }
    }

    /// Nothing is placed by other rules than the file's. What is wrong with the file is told by who watches it.
    async fn read_policy(&mut self) {
        let Some(file) = &self.context.options.scheduler_conf else { return };
        let text = tokio::fs::read_to_string(file).await.unwrap_or_default();
        if let Ok(conf) = scheduler::conf::read(&text) {
            self.apply(CoreChange::Config(Box::new(conf.config)));
        }
    }

    /// Holds again what the copies in the member say.
    async fn recover(&mut self) {
        let copies: Api<Reservation> = Api::namespaced(self.context.member.clone(), names::MEMBER_NAMESPACE);
        let mut backoff = Backoff::new(&format!("{}/recover", self.context.options.cluster));
        loop {
            match call(copies.list(&ListParams::default())).await {
                Ok(mut list) => {
                    list.items.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
                    for copy in &list.items {
                        self.book.recover(copy, &mut self.state);
                    }
                    return;
                }
                // A member without the definition has never held anything.
                Err(error) if error.is_not_found() => return,
                Err(error) => tracing::warn!(%error, "cannot list the reservations held in the member"),
            }
            backoff.wait().await;
        }
    }

    fn apply(&mut self, change: CoreChange) {
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
            CoreChange::Reservation(told) if !self.context.options.reservation => drop(told),
            CoreChange::Reservation(Event::Apply(reservation)) => self.book.apply(&reservation, state),
            CoreChange::Reservation(Event::Gone((_, name))) => self.book.remove(&name, state),
            CoreChange::Copy(Event::Apply(copy)) => self.book.see_copy(&copy),
            CoreChange::Reservation(Event::Listed) => self.book.listed(state),
            CoreChange::Copy(_) => {}
            CoreChange::PodGroup(change) => self.statuses.pod_group(change, state, &self.context.admissions),
            CoreChange::Queue(change) => self.statuses.queue(change, state),
            CoreChange::Command(change) => self.statuses.commands.change(change),
            CoreChange::HyperNode(change) => self.statuses.hyper_nodes.change(change, state),
            CoreChange::Numatopology(told) => core_numa::take(told, state),
            CoreChange::ResourceQuota(told) => core_resource_quotas::take(told, state),
            CoreChange::Budget(told) => core_budgets::take(told, state),
            CoreChange::Loads(readings) => {
                let now = self.context.clock.now().as_second();
                scheduler::loads::take(&readings, &mut state.cluster, now);
            }
            CoreChange::PriorityClass(change) => core_groups::priority_class(change, state),
            CoreChange::Config(config) => match fleet_scheduler::Policy::compile(&config) {
                Ok(policy) => state.cluster.set_policy(policy),
                Err(error) => tracing::error!(%error, "the scheduler's configuration is not used"),
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
        let node = self.unlisted.is_empty().then(|| scheduler::node_for_one(&self.state, &pod)).flatten();
        // Who asked may have given up.
        let _ = answer.send(node);
    }

    fn ended(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        match ended {
            Ok(Ended::Bound(bindings)) => {
                let gang_of = |state: &MemberState, (binding, _): &(Binding, Bound)| {
                    state.pod(&binding.pod).map(|pod| pod.gang.clone())
                };
                let gang = bindings.first().and_then(|first| gang_of(&self.state, first));
                let refused = bindings.iter().any(|(_, bound)| *bound == Bound::No);
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
            Ok(Ended::Told(untold)) => {
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
            Err(error) => tracing::error!(%error, "a write of the scheduler ended abnormally"),
        }
    }

    /// The scheduler's number of the pod, if it is still the same pod.
    fn number_of(&self, binding: &Binding) -> Option<fleet_scheduler::PodId> {
        self.state.pod(&binding.pod).filter(|pod| pod.uid == binding.uid)?.id
    }

    /// A gang is bound whole or not at all: when bindings of it are refused again and again, those of its pods that got
    /// theirs give their places back.
    fn bindings_ended(&mut self, key: &GangKey, refused: bool) {
        let (grace, now) = (self.context.options.gang_grace, Instant::now());
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
            scheduler::half_bound_pods(&self.state, key).into_iter().filter_map(uid).collect();
        if !half_bound.is_empty() {
            tracing::info!(gang = ?key, pods = half_bound.len(), "a gang that cannot be bound whole gives its places back");
            self.lazy.push_back(Lazy::Evict(half_bound));
        }
    }

    /// Plans with what is known now.
    fn decide(&mut self) {
        if !self.unlisted.is_empty() {
            return;
        }
        let now = self.context.clock.now();
        self.book.expire(now, &mut self.state);
        self.statuses.hyper_nodes.resolve(&mut self.state);
        self.book.look_at_cells(&mut self.state);
        self.see_others(Instant::now());
        if self.book.plan_asked(&mut self.state, now, self.sequence + 1) {
            self.promised = self.sequence + 1;
        }
        self.schedule();
        self.report();
    }

    fn schedule(&mut self) {
        let effects = self.state.take_effects();
        self.dirty.extend(effects.dirty);
        if effects.capacity {
            self.note_capacity();
        }
        if effects.freed {
            self.dirty.append(&mut self.waiting);
        }
        let now = Instant::now();
        self.open_gates(&effects.gates, now);
        while self.rechecks.first().is_some_and(|(at, _)| *at <= now) {
            self.dirty.extend(self.rechecks.pop_first().map(|(_, key)| key));
        }
        let dirty = std::mem::take(&mut self.dirty);
        // Gangs with places that the hub has reserved come first: the places are theirs.
        let mut ranks: Vec<Rank> = dirty
            .iter()
            .filter(|key| scheduler::is_reserved(&self.state, key))
            .filter_map(|key| scheduler::rank(&self.state, key))
            .collect();
        ranks.sort_unstable();
        for (_, _, key) in ranks {
            match scheduler::decide(&mut self.state, &key) {
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
                let wanted = core_groups::Description { gang: key.clone(), object, pods };
                self.lazy.push_back(Lazy::Describe(wanted));
            }
            if !scheduler::is_reserved(&self.state, key) {
                self.look_at(key, now);
            }
        }
        // What deciding itself changed: use of nodes, and nothing that another gang could wait for.
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

    /// One cycle of the scheduler over everything that is placed by it.
    fn cycle(&mut self, now: Instant) {
        let limits = fleet_scheduler::Limits::default();
        let outcome = self.state.cluster.cycle(self.context.clock.now().as_second(), &limits);
        self.cycle_again = outcome.more;
        self.extender.take_questions(&mut self.state);
        for (_, pods) in outcome.bound {
            let mut bindings = Vec::with_capacity(pods.len());
            for (id, node) in pods {
                let name = self.state.cluster.nodes.get(node).name.to_string();
                let Some(key) = self.state.key_of(id) else { continue };
                self.state.assume(&key, &name);
                let Some(pod) = self.state.pod(&key) else { continue };
                let check = scheduler::extender::check(&self.state, &key, pod, node);
                bindings.push(Binding { check, ..scheduler::binding(&self.state, &key, pod, name) });
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
                && scheduler::extender::may_leave(&self.state, taker, eviction.action, &[]).is_some()
            {
                self.state.set_evicting(&key, true);
                asked.entry((taker, eviction.action)).or_default().push((key, uid));
                continue;
            }
            self.state.set_evicting(&key, true);
            if let Some(pod) = self.state.pod(&key) {
                tracing::info!(pod = %key.name, namespace = %key.namespace, action = ?eviction.action, "a pod leaves for another");
                leaving.push((key, pod.uid.clone()));
            }
        }
        if !leaving.is_empty() {
            self.lazy.push_front(Lazy::Evict(leaving));
        }
        for ((taker, action), victims) in asked {
            let keys: Vec<PodKey> = victims.iter().map(|(key, _)| key.clone()).collect();
            self.lazy.push_front(match scheduler::extender::may_leave(&self.state, taker, action, &keys) {
                Some(leave) => Lazy::Ask(leave, victims),
                None => Lazy::Evict(victims),
            });
        }
        for group in self.state.cluster.take_changed_groups() {
            self.statuses.group_changed(group, &mut self.state, &self.context.admissions);
            if let Some(key) = self.state.gang_of_group(group).cloned()
                && !scheduler::is_reserved(&self.state, &key)
            {
                self.look_at(&key, now);
            }
        }
        self.statuses.queues_changed(&mut self.state, now);
    }

    /// Tells a gang that waits why it does.
    fn look_at(&mut self, key: &GangKey, now: Instant) {
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
                let unknown = known.min() >= (crate::state::UNKNOWN_SIZE as i64);
                let missing = || format!("its PodGroup {} does not exist", known.input.name);
                let sentence = if unknown { missing() } else { sentence };
                self.incomplete(key, &sentence, now);
            }
            (Ok(()), Some(why)) => {
                let half_bound = scheduler::half_bound_pods(&self.state, key);
                self.refused(key, Refused { message: why.to_string(), half_bound }, now);
            }
            (Ok(()), None) => {}
        }
    }

    fn unreadable(&self, key: &GangKey) -> Option<String> {
        let gang = self.state.gang(key)?;
        let first = gang.unreadable.first()?;
        Some(format!("pod {}: {}", first.name, self.state.pod(first)?.unreadable.as_ref()?))
    }

    /// A gang that stays incomplete is told so after a while; most are complete at once.
    fn incomplete(&mut self, key: &GangKey, message: &str, now: Instant) {
        let grace = self.context.options.gang_grace;
        let Some(gang) = self.state.gang_mut(key) else { return };
        let since = *gang.incomplete_since.get_or_insert(now);
        if now >= since + grace {
            self.tell(key, message, now);
        } else if since == now {
            self.rechecks.insert((since + grace, key.clone()));
        }
    }

    fn refused(&mut self, key: &GangKey, refused: Refused, now: Instant) {
        let grace = self.context.options.gang_grace;
        if scheduler::is_reserved(&self.state, key) {
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

    /// Tells pods of the gang that wait why they do, unless they know.
    fn tell(&mut self, key: &GangKey, message: &str, now: Instant) {
        let Some(gang) = self.state.gang(key) else { return };
        let told: Vec<Told> = gang
            .pods
            .iter()
            .filter_map(|pod| self.state.pod(pod).map(|entry| (pod, entry)))
            .filter(|(_, entry)| entry.is_pending() && entry.told.as_deref() != Some(message))
            .map(|(pod, entry)| Told {
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
        for Told { pod, .. } in &told {
            self.state.set_told(pod, Some(message));
        }
        if let Some(gang) = self.state.gang_mut(key) {
            gang.told_at = Some(now);
        }
        self.lazy.push_back(Lazy::Tell(told, message.to_owned()));
    }

    fn note_capacity(&mut self) {
        let earliest = self.reported_at.map(|at| at + self.context.options.report_interval);
        self.report_due.get_or_insert(earliest.unwrap_or_else(Instant::now));
    }

    fn report(&mut self) {
        let now = Instant::now();
        // A member without nodes is reported as well.
        let first = self.reported_at.is_none();
        if !first && self.report_due.is_none_or(|due| due > now) {
            return;
        }
        self.report_due = None;
        self.reported_at = Some(now);
        self.sequence = self.context.clock.now().as_millisecond().max(self.sequence + 1);
        let status = capacity::report(&self.state);
        self.reports.send_replace(Some(Report { sequence: self.sequence, promised: self.promised, status }));
    }

    fn start_writes(&mut self) {
        while self.binds.len() < GANGS_AT_ONCE
            && let Some(bindings) = self.to_bind.pop_front()
        {
            let (context, notices) = (self.context.clone(), self.notices.clone());
            let look = self.state.is_shared.then(|| Look::of(&self.state, &bindings));
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
                        Ended::Told(write::tell(context, notices, pods, message).await)
                    }
                    Lazy::Evict(pods) => Ended::Evicted(write::evict(context, pods).await),
                    Lazy::Ask(leave, pods) => {
                        let allowed = scheduler::extender::allowed(&leave).await;
                        let (go, stay): (Vec<_>, Vec<_>) =
                            pods.into_iter().partition(|(_, uid)| allowed.contains(uid));
                        // With one of its victims kept a taker has no place: it looks for others.
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
                        Ended::Released(name, core_shared::release(context, notices, pods).await)
                    }
                    Lazy::Describe(wanted) => Ended::Undescribed(wanted.perform(context).await),
                }
            });
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        if !self.unlisted.is_empty() {
            return None;
        }
        let lapse = self.book.next_deadline().map(|deadline| self.context.clock.instant_of(deadline));
        let recheck = self.rechecks.first().map(|(at, _)| *at);
        let again = self.cycle_again.then(Instant::now);
        let word = self.state.cluster.next_word_ends().and_then(|at| jiff::Timestamp::from_second(at).ok());
        let word = word.map(|at| self.context.clock.instant_of(at));
        let shared = self.shared.next_look(self.context.options.gang_grace);
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

#[cfg(test)]
mod tests;
