//! One reservation of the book: the request, the answer, and what is written.

use std::sync::Arc;

use fleet_api::{
    Reservation, ReservationSpec, ReservationStatus,
    reservation::{ComponentRefusal, ReservationPhase},
};
use jiff::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReservationState {
    Asked,
    /// Places are held, with this status.
    Held(ReservationStatus),
    /// Refused or Expired.
    Closed(ReservationStatus),
    /// The places were released because they are no longer needed.
    Released,
}

/// State of the copy in the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyState {
    None,
    /// A write of it may have taken effect, or may do so later.
    Maybe,
    Stands,
}

#[derive(Debug)]
pub(crate) struct ReservationEntry {
    pub spec: Arc<ReservationSpec>,
    /// Uid of the hub's object while it exists.
    pub hub_uid: Option<String>,
    pub verdict: ReservationState,
    pub copy: CopyState,
    /// When the places are released, unless the Work arrives before.
    pub deadline: Option<Timestamp>,
    /// The Work has arrived.
    pub arrived: bool,
    pub answered: Answered,
    /// A write is in flight.
    pub busy: bool,
    /// A copy was seen meanwhile; the watch may have reported it after the write took effect.
    pub seen: bool,
}

/// Status of the hub's object as far as known.
#[derive(Debug, Default)]
pub(crate) struct Answered {
    pub status: Option<ReservationStatus>,
    version: u64,
    /// The watch brought another status than the last one written: an earlier write has arrived late, or somebody
    /// else writes. The next write waits a while, so that two writers do not race.
    pub disputed: bool,
}

impl Answered {
    pub fn of(reservation: &Reservation) -> Self {
        let version = version(reservation.metadata.resource_version.as_deref()).unwrap_or_default();
        Self { status: reservation.status.clone(), version, disputed: false }
    }

    /// The watch brings the object, maybe as it was before the last write.
    pub fn see(&mut self, reservation: &Reservation) {
        let version = version(reservation.metadata.resource_version.as_deref());
        let Some(version) = version.filter(|version| *version > self.version) else { return };
        self.disputed |= self.status != reservation.status;
        (self.version, self.status) = (version, reservation.status.clone());
    }

    /// A write has brought the object to this status, unless something newer is known.
    pub fn wrote(&mut self, status: ReservationStatus, resource_version: Option<&str>) {
        let version = version(resource_version).unwrap_or(self.version);
        if version >= self.version {
            *self = Self { status: Some(status), version, disputed: false };
        }
    }
}

/// Versions of one kind of object are numbers that grow.
fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// One round of writes for one reservation.
#[derive(Clone, Debug)]
pub(crate) struct HoldWrite {
    pub name: String,
    pub spec: Arc<ReservationSpec>,
    pub copy: CopyWrite,
    /// Uid and desired status of the hub's object.
    pub answer: Option<(String, ReservationStatus)>,
    pub old_answer: Option<ReservationStatus>,
    pub disputed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CopyWrite {
    Keep,
    Create(Box<ReservationStatus>),
    Delete,
}

/// What a [`HoldWrite`] is known to have written.
#[derive(Debug)]
pub(crate) struct HoldWritten {
    pub name: String,
    /// New state of the copy, if it changed.
    pub copy: Option<CopyState>,
    pub answered: Option<(String, ReservationStatus)>,
    /// Of the hub's object after the answer.
    pub version: Option<String>,
    /// Why an API server will never take what was to be written.
    pub refused: Option<String>,
}

impl ReservationEntry {
    /// If its places have expired: the status of a hold that has none at present. One on cells is not held again: its
    /// cells are the hub's to give.
    pub fn lapsed(&self) -> Option<ReservationStatus> {
        let ReservationState::Closed(status) = &self.verdict else { return None };
        let is_expired = status.phase == Some(ReservationPhase::Expired) && self.spec.cell_nodes.is_empty();
        is_expired.then(|| ReservationStatus { phase: Some(ReservationPhase::Reserved), ..status.clone() })
    }

    /// Desired state that is not written yet.
    pub fn difference(&self, name: &str) -> Option<HoldWrite> {
        let (copy, answer) = match &self.verdict {
            ReservationState::Asked => return None,
            ReservationState::Held(status) => (
                match self.copy {
                    CopyState::None | CopyState::Maybe => CopyWrite::Create(Box::new(status.clone())),
                    CopyState::Stands => CopyWrite::Keep,
                },
                Some(status),
            ),
            ReservationState::Closed(status) => (self.without_copy(), Some(status)),
            ReservationState::Released => (self.without_copy(), None),
        };
        let answer = answer.filter(|status| self.answered.status.as_ref() != Some(status));
        let answer = self.hub_uid.clone().zip(answer.cloned());
        if copy == CopyWrite::Keep && answer.is_none() {
            return None;
        }
        Some(HoldWrite {
            name: name.to_owned(),
            spec: self.spec.clone(),
            copy,
            answer,
            old_answer: self.answered.status.clone(),
            disputed: self.answered.disputed,
        })
    }

    pub fn without_copy(&self) -> CopyWrite {
        if self.copy == CopyState::None { CopyWrite::Keep } else { CopyWrite::Delete }
    }
}

pub(crate) fn expired(message: &str) -> ReservationStatus {
    ReservationStatus {
        phase: Some(ReservationPhase::Expired),
        message: Some(message.to_owned()),
        ..ReservationStatus::default()
    }
}

/// When places that are held from now on lapse.
pub(crate) fn refused(message: String, refusals: Vec<ComponentRefusal>) -> ReservationStatus {
    ReservationStatus {
        phase: Some(ReservationPhase::Refused),
        refusals,
        message: Some(message),
        ..ReservationStatus::default()
    }
}
