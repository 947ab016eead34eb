//! The book of reservations: requests, answers, and what is written.
//!
//! Pure: time and the number of the next capacity report are arguments. Level-triggered: an entry has the
//! desired state and what is known to be written, and [`Book::next_write`] is the difference. So a failed or
//! outdated write is simply computed again.

mod repair;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use fleet_api::mutation::{self, Mutation};
use fleet_api::{
    Reservation, ReservationSpec, ReservationStatus,
    reservation::{ComponentRefusal, ReservationPhase},
};
use fleet_placement::Refusal;
use fleet_scheduler::PodSpec;
use jiff::{SignedDuration, Timestamp};

use super::{
    entry::{
        Answered, CopyState, HoldWrite, HoldWritten, ReservationEntry, ReservationState, expired, refused,
    },
    write::places_annotation,
};
use fleet_agent_ground::Permits;
use fleet_member_state::{Hold, MemberState};

#[derive(Debug, Default)]
pub(crate) struct Book {
    entries: BTreeMap<String, ReservationEntry>,
    by_binding: BTreeMap<String, BTreeSet<String>>,
    /// Requested and not planned yet, in the order of arrival.
    asked: VecDeque<String>,
    /// Entries whose writes must be computed.
    due: BTreeSet<String>,
    deadlines: BTreeSet<(Timestamp, String)>,
    /// Recovered after a restart and named again by the hub: their time to live counts anew.
    heard: BTreeSet<String>,
    /// The newest term of a leader of the hub.
    newest_term: i64,
    /// Namespaces for which places may be held.
    permits: Permits,
    /// Holds of present jobs that have lost their places.
    placeless: BTreeSet<String>,
    /// Changes of cells that could not be held yet, by reservation: what the hub asks for now.
    unmet: BTreeMap<String, Arc<ReservationSpec>>,
}

impl Book {
    pub fn new(permits: Permits) -> Self {
        Self { permits, ..Self::default() }
    }

    /// Applies a leader's term that was seen elsewhere; returns the newest one.
    pub fn see_term(&mut self, term: i64) -> i64 {
        self.newest_term = self.newest_term.max(term);
        self.newest_term
    }

    /// The hub counts its leaders' terms anew.
    pub fn forget_terms(&mut self) {
        self.newest_term = 0;
    }

    /// Recovers a copy found in the member at the start: its places are held again. Whether its Work has
    /// arrived is not recorded, so it does not expire before the hub names it.
    pub fn recover(&mut self, copy: &Reservation, state: &mut MemberState) {
        let name = copy.metadata.name.clone().unwrap_or_default();
        self.see_term(copy.spec.term.unwrap_or_default());
        let written = copy.status.clone().filter(|status| status.phase == Some(ReservationPhase::Reserved));
        let verdict = match written.or_else(|| places_annotation(copy)) {
            Some(status) => {
                keep(&name, &copy.spec, &status, state);
                ReservationState::Held(status)
            }
            None => ReservationState::Released,
        };
        let entry = ReservationEntry {
            spec: Arc::new(copy.spec.clone()),
            hub_uid: None,
            verdict,
            copy: CopyState::Stands,
            deadline: None,
            arrived: false,
            answered: Answered::default(),
            busy: false,
            seen: false,
        };
        self.insert(&name, entry);
    }

    /// A reservation of the hub was created or has changed.
    pub fn apply(&mut self, reservation: &Reservation, state: &mut MemberState) {
        let name = reservation.metadata.name.clone().unwrap_or_default();
        if reservation.metadata.deletion_timestamp.is_some() {
            return self.remove(&name, state);
        }
        self.see_term(reservation.spec.term.unwrap_or_default());
        let uid = reservation.metadata.uid.clone().unwrap_or_default();
        let phase = reservation.status.as_ref().and_then(|status| status.phase);
        let Some(entry) = self.entries.get_mut(&name) else {
            let verdict = match phase {
                None => ReservationState::Asked,
                // Nodes for cells are kept as long as the hub asks for them, whatever the earlier state.
                Some(_) if !reservation.spec.cell_nodes.is_empty() => ReservationState::Asked,
                Some(ReservationPhase::Reserved) => {
                    ReservationState::Closed(expired("the member holds no places for it any more"))
                }
                Some(ReservationPhase::Refused | ReservationPhase::Expired) => return,
            };
            let entry = ReservationEntry {
                spec: Arc::new(reservation.spec.clone()),
                hub_uid: Some(uid),
                verdict,
                copy: CopyState::None,
                deadline: None,
                arrived: false,
                answered: Answered::of(reservation),
                busy: false,
                seen: false,
            };
            return self.insert(&name, entry);
        };
        if entry.hub_uid.as_ref() == Some(&uid) {
            entry.answered.see(reservation);
            self.due.insert(name.clone());
            if matches!(entry.verdict, ReservationState::Held(_)) {
                self.change_cells(&name, Arc::new(reservation.spec.clone()), state);
            }
            return;
        }
        // Seen for the first time since the start, or created again under the same name.
        if entry.hub_uid.is_none() && matches!(entry.verdict, ReservationState::Held(_)) {
            // A hold whose Work has arrived does not expire.
            if entry.spec.cell_nodes.is_empty() && !entry.arrived {
                self.heard.insert(name.clone());
            }
            self.change_cells(&name, Arc::new(reservation.spec.clone()), state);
        }
        let Some(entry) = self.entries.get_mut(&name) else { return };
        let anew = entry.hub_uid.is_some() || entry.verdict == ReservationState::Released;
        entry.hub_uid = Some(uid);
        entry.answered = Answered::of(reservation);
        if anew && !matches!(entry.verdict, ReservationState::Held(_)) && phase.is_none() {
            entry.verdict = ReservationState::Asked;
            entry.spec = Arc::new(reservation.spec.clone());
            self.ask(&name);
        }
        self.due.insert(name);
    }

    /// Nodes for cells come first: nothing that arrives with their reservation is placed on them.
    fn ask(&mut self, name: &str) {
        match self.entries.get(name).is_some_and(|entry| !entry.spec.cell_nodes.is_empty()) {
            true => self.asked.push_front(name.to_owned()),
            false => self.asked.push_back(name.to_owned()),
        }
    }

    /// The hub asks for these cells of a running job. What cannot be held now is tried again in each round, until the hub
    /// asks for something else or the run is over.
    fn change_cells(&mut self, name: &str, spec: Arc<ReservationSpec>, state: &mut MemberState) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        self.unmet.remove(name);
        if entry.spec.cells == spec.cells {
            // An earlier change was taken back.
            if cells::settle(entry, name, state) {
                self.due.insert(name.to_owned());
            }
            return;
        }
        if cells::change(entry, name, &spec, state) {
            self.due.insert(name.to_owned());
        }
        if entry.spec.cells != spec.cells {
            self.unmet.insert(name.to_owned(), spec);
        }
    }

    /// A copy was seen in the member. If it is unknown here, its request arrived after the sender had given
    /// up; it is deleted.
    pub fn see_copy(&mut self, copy: &Reservation) {
        let name = copy.metadata.name.clone().unwrap_or_default();
        match self.entries.get_mut(&name) {
            Some(entry) if entry.copy == CopyState::None => {
                entry.copy = CopyState::Maybe;
                self.due.insert(name);
            }
            Some(entry) => entry.seen = entry.busy,
            None => {
                let entry = ReservationEntry {
                    spec: Arc::new(copy.spec.clone()),
                    hub_uid: None,
                    verdict: ReservationState::Released,
                    copy: CopyState::Stands,
                    deadline: None,
                    arrived: false,
                    answered: Answered::default(),
                    busy: false,
                    seen: false,
                };
                self.insert(&name, entry);
            }
        }
    }

    /// The hub's reservation is gone: its places are released.
    pub fn remove(&mut self, name: &str, state: &mut MemberState) {
        if mutation::is_on(Mutation::HoldKept) {
            return;
        }
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.hub_uid = None;
        entry.answered = Answered::default();
        entry.verdict = ReservationState::Released;
        drop_hold(name, &entry.spec, state);
        self.due.insert(name.to_owned());
    }

    /// All reservations of the hub are known: recovered holds without one are released.
    pub fn listed(&mut self, state: &mut MemberState) {
        let unheard = self.entries.iter().filter(|(_, entry)| entry.hub_uid.is_none());
        let unheard: Vec<String> = unheard.map(|(name, _)| name.clone()).collect();
        unheard.iter().for_each(|name| self.remove(name, state));
    }

    /// Plans requested reservations. `next_report` is the number of the first capacity report that includes
    /// what is held now. Returns whether anything was held.
    pub fn plan_asked(&mut self, state: &mut MemberState, now: Timestamp, next_report: i64) -> bool {
        let mut held = false;
        while let Some(name) = self.asked.pop_front() {
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            if entry.verdict != ReservationState::Asked {
                continue;
            }
            let newest = self.newest_term;
            if let Some(term) = entry.spec.term.filter(|term| *term < newest) {
                let message =
                    format!("term {term} is older than {newest}, the newest seen of a leader of the hub");
                entry.verdict = ReservationState::Closed(refused(message, Vec::new()));
                self.due.insert(name);
                continue;
            }
            if !entry.spec.cell_nodes.is_empty() {
                state.set_cell_nodes(&name, &entry.spec.cell_nodes);
                entry.verdict = ReservationState::Held(cells::standing(&entry.spec, state));
                self.due.insert(name);
                continue;
            }
            if let Err(message) = self.permits.namespace(&entry.spec.binding.namespace) {
                entry.verdict = ReservationState::Closed(refused(message, Vec::new()));
                self.due.insert(name);
                continue;
            }
            entry.verdict = match plan(&name, &entry.spec, state, now, next_report) {
                Ok(status) => {
                    state.add_hold(Hold::new(&name, &entry.spec, &status.nodes));
                    held = true;
                    entry.deadline = lapses_at(&entry.spec, now);
                    ReservationState::Held(status)
                }
                Err(status) => ReservationState::Closed(*status),
            };
            self.note_deadline(&name);
            self.due.insert(name);
        }
        held
    }

    /// The Work of this binding and epoch has arrived: its hold no longer expires. This is not written,
    /// because the Work and its effects show it. A hold that lapsed while the Work was on its way is planned again
    /// ([`Book::replan`]): pods behind gates would wait for its places.
    pub fn consume(&mut self, binding_uid: &str, epoch: i64) {
        for name in self.names_of(binding_uid) {
            let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.spec.epoch == epoch) else {
                continue;
            };
            if let Some(status) = entry.lapsed() {
                entry.verdict = ReservationState::Held(status);
                self.placeless.insert(name.clone());
            }
            if !matches!(entry.verdict, ReservationState::Held(_)) {
                continue;
            }
            entry.arrived = true;
            self.heard.remove(&name);
            if let Some(deadline) = entry.deadline.take() {
                self.deadlines.remove(&(deadline, name));
            }
        }
    }

    /// The run of this binding under `epoch` is over.
    pub fn release(&mut self, binding_uid: &str, epoch: i64, state: &mut MemberState) {
        if mutation::is_on(Mutation::HoldKept) {
            return;
        }
        for name in self.names_of(binding_uid) {
            let Some(entry) = self.entries.get_mut(&name).filter(|entry| entry.spec.epoch <= epoch) else {
                continue;
            };
            if matches!(entry.verdict, ReservationState::Held(_)) && entry.spec.cell_nodes.is_empty() {
                entry.verdict = ReservationState::Released;
                state.remove_hold(&name);
                self.due.insert(name);
            }
        }
    }

    /// Updates the answers about cells: changes that can be held now, nodes that have turned good or bad, and pods that
    /// have ended.
    pub fn look_at_cells(&mut self, state: &mut MemberState) {
        for (name, spec) in std::mem::take(&mut self.unmet) {
            let is_held = |entry: &ReservationEntry| matches!(entry.verdict, ReservationState::Held(_));
            if self.entries.get(&name).is_some_and(is_held) {
                self.change_cells(&name, spec, state);
            }
        }
        for name in state.take_cells_changed() {
            if let Some(entry) = self.entries.get_mut(&name)
                && cells::refresh(entry, &name, state)
            {
                self.due.insert(name);
            }
        }
    }

    /// The next time at which a hold expires.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Releases holds that have expired by `now`. A hold whose pods exist is in use and stays.
    pub fn expire(&mut self, now: Timestamp, state: &mut MemberState) {
        for name in std::mem::take(&mut self.heard) {
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.deadline = lapses_at(&entry.spec, now);
                self.note_deadline(&name);
            }
        }
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            let Some((_, name)) = self.deadlines.pop_first() else { return };
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            if !matches!(entry.verdict, ReservationState::Held(_)) {
                continue;
            }
            entry.deadline = None;
            if !state.has_pods_of(&name) {
                let message = format!("the job did not arrive within {} s", entry.spec.ttl_seconds);
                entry.verdict = ReservationState::Closed(expired(&message));
                state.remove_hold(&name);
                self.due.insert(name);
            }
        }
    }

    /// The next write that may start.
    pub fn next_write(&mut self) -> Option<HoldWrite> {
        while let Some(name) = self.due.pop_first() {
            let Some(entry) = self.entries.get_mut(&name).filter(|entry| !entry.busy) else { continue };
            if let Some(write) = entry.difference(&name) {
                entry.busy = true;
                return Some(write);
            }
            if entry.hub_uid.is_none() && entry.verdict == ReservationState::Released {
                self.forget(&name);
            }
        }
        None
    }

    /// A write has ended, successfully or not. Places that no API server stores are given back, unless a job is in
    /// them.
    pub fn written(&mut self, written: HoldWritten, state: &mut MemberState) {
        let Some(entry) = self.entries.get_mut(&written.name) else { return };
        entry.busy = false;
        if let Some(copy) = written.copy {
            entry.copy = copy;
        }
        if std::mem::take(&mut entry.seen) && entry.copy == CopyState::None {
            entry.copy = CopyState::Maybe;
        }
        if let Some((uid, status)) = written.answered
            && entry.hub_uid.as_ref() == Some(&uid)
        {
            entry.answered.wrote(status, written.version.as_deref());
        }
        if let Some(why) = written.refused
            && matches!(entry.verdict, ReservationState::Held(_))
            && !entry.arrived
            && entry.spec.cell_nodes.is_empty()
            && !state.has_pods_of(&written.name)
        {
            entry.verdict = ReservationState::Closed(refused(why, Vec::new()));
            state.remove_hold(&written.name);
        }
        self.due.insert(written.name);
    }

    fn insert(&mut self, name: &str, entry: ReservationEntry) {
        self.by_binding.entry(entry.spec.binding.uid.clone()).or_default().insert(name.to_owned());
        let is_asked = entry.verdict == ReservationState::Asked;
        self.entries.insert(name.to_owned(), entry);
        if is_asked {
            self.ask(name);
        }
        self.note_deadline(name);
        self.due.insert(name.to_owned());
    }

    fn note_deadline(&mut self, name: &str) {
        if let Some(ReservationEntry {
            verdict: ReservationState::Held(_), deadline: Some(deadline), ..
        }) = self.entries.get(name)
        {
            let deadline = *deadline;
            self.deadlines.insert((deadline, name.to_owned()));
        }
    }

    fn forget(&mut self, name: &str) {
        let Some(entry) = self.entries.remove(name) else { return };
        if let Some(names) = self.by_binding.get_mut(&entry.spec.binding.uid) {
            names.remove(name);
            if names.is_empty() {
                self.by_binding.remove(&entry.spec.binding.uid);
            }
        }
    }

    fn names_of(&self, binding_uid: &str) -> Vec<String> {
        self.by_binding.get(binding_uid).into_iter().flatten().cloned().collect()
    }
}

fn lapses_at(spec: &ReservationSpec, now: Timestamp) -> Option<Timestamp> {
    Some(now.checked_add(SignedDuration::from_secs(spec.ttl_seconds.max(1))).unwrap_or(Timestamp::MAX))
}

/// The answer: places for all components at once, or why there are none.
fn plan(
    name: &str,
    spec: &ReservationSpec,
    state: &mut MemberState,
    now: Timestamp,
    next_report: i64,
) -> Result<ReservationStatus, Box<ReservationStatus>> {
    let gang = fleet_api::convert::gang(&spec.components)
        .map_err(|error| Box::new(refused(error.to_string(), Vec::new())))?;
    if !spec.cells.is_empty() {
        let mut places = fleet_member_state::cells::places(spec, &gang, name, state)
            .map_err(|why| Box::new(cells::refusal(why)))?;
        cells::aside(spec, &gang, &mut places, state)
            .map_err(|message| Box::new(refused(message, Vec::new())))?;
        return Ok(held(&gang, spec, places, now, next_report));
    }
    let components: Vec<(String, Arc<PodSpec>, i64)> = gang
        .components
        .iter()
        .map(|component| {
            let spec = PodSpec { shape: component.shape.clone(), extras: None };
            (component.name.clone(), Arc::new(spec), component.replicas)
        })
        .collect();
    let topology = spec.network_topology.as_ref().map(|wish| state.topology_of(wish));
    let places = state
        .cluster
        .find_places(&components, topology)
        .map_err(|none| Box::new(refused(none.sentence(), components_of(&none.refusal))))?;
    Ok(held(&gang, spec, places, now, next_report))
}

fn held(
    gang: &fleet_placement::Gang,
    spec: &ReservationSpec,
    places: BTreeMap<String, Vec<String>>,
    now: Timestamp,
    next_report: i64,
) -> ReservationStatus {
    let message = match spec.cells.is_empty() {
        true => format!("{} places held", gang.pods()),
        false => cells::held_message(gang, &places),
    };
    ReservationStatus {
        phase: Some(ReservationPhase::Reserved),
        nodes: places,
        message: Some(message),
        report_sequence: Some(next_report),
        expires_at: lapses_at(spec, now).map(|at| at.to_string()),
        ..ReservationStatus::default()
    }
}

/// Holds the places of a copy in the member.
fn keep(name: &str, spec: &ReservationSpec, status: &ReservationStatus, state: &mut MemberState) {
    match spec.cell_nodes.is_empty() {
        true => state.add_hold(Hold::new(name, spec, &status.nodes)),
        false => state.set_cell_nodes(name, &spec.cell_nodes),
    }
}

fn drop_hold(name: &str, spec: &ReservationSpec, state: &mut MemberState) {
    match spec.cell_nodes.is_empty() {
        true => drop(state.remove_hold(name)),
        false => state.set_cell_nodes(name, &[]),
    }
}

fn components_of(refusal: &Refusal) -> Vec<ComponentRefusal> {
    let component = |c: &fleet_placement::ComponentRefusal| ComponentRefusal {
        component: c.name.clone(),
        wanted: c.wanted,
        fit: c.fit,
        short: c.by_resource().iter().map(fleet_placement::LackOf::amounts).collect(),
        nodes: c.nodes,
    };
    refusal.components.iter().map(component).collect()
}

mod cells;
#[cfg(test)]
mod tests;
