//! One reservation in the book: what was asked, what was answered, and what is written of it where.

use std::sync::Arc;

use fleet_api::{
    ReservationSpec, ReservationStatus,
    reservation::{ComponentRefusal, ReservationPhase},
};
use jiff::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Asked,
    /// Places are held, under this status.
    Held(ReservationStatus),
    /// Refused or Expired.
    Closed(ReservationStatus),
    /// The places were given back because nobody needs them any more.
    Released,
}

/// What is known of the copy in the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyState {
    None,
    /// A write of it may have taken effect, now or later.
    Maybe,
    Stands,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub spec: Arc<ReservationSpec>,
    /// The hub's object, once seen and while it stands.
    pub hub_uid: Option<String>,
    pub verdict: Verdict,
    pub copy: CopyState,
    /// When the places are given back, unless the Work arrives before.
    pub deadline: Option<Timestamp>,
    /// The Work has.
    pub arrived: bool,
    /// Status of the hub's object as far as known.
    pub answered: Option<ReservationStatus>,
    /// A write is under way.
    pub busy: bool,
    /// The member told of a copy meanwhile; it may have come after the write took effect.
    pub seen: bool,
}

/// One round of writes for one reservation.
#[derive(Clone, Debug)]
pub(crate) struct HoldWrite {
    pub name: String,
    pub spec: Arc<ReservationSpec>,
    pub copy: CopyWrite,
    /// The hub's object by uid, and its status to be.
    pub answer: Option<(String, ReservationStatus)>,
    pub old_answer: Option<ReservationStatus>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CopyWrite {
    Keep,
    Create(Box<ReservationStatus>),
    Delete,
}

/// What of a [`HoldWrite`] is known to be written.
#[derive(Debug)]
pub(crate) struct HoldWritten {
    pub name: String,
    /// What is known of the copy from now on, if that is new.
    pub copy: Option<CopyState>,
    pub answered: Option<(String, ReservationStatus)>,
}

impl Entry {
    /// What is wanted and not written.
    pub fn difference(&self, name: &str) -> Option<HoldWrite> {
        let (copy, answer) = match &self.verdict {
            Verdict::Asked => return None,
            Verdict::Held(status) => (
                match self.copy {
                    CopyState::None | CopyState::Maybe => CopyWrite::Create(Box::new(status.clone())),
                    CopyState::Stands => CopyWrite::Keep,
                },
                Some(status),
            ),
            Verdict::Closed(status) => (self.without_copy(), Some(status)),
            Verdict::Released => (self.without_copy(), None),
        };
        let answer = answer.filter(|status| self.answered.as_ref() != Some(status));
        let answer = self.hub_uid.clone().zip(answer.cloned());
        if copy == CopyWrite::Keep && answer.is_none() {
            return None;
        }
        Some(HoldWrite {
            name: name.to_owned(),
            spec: self.spec.clone(),
            copy,
            answer,
            old_answer: self.answered.clone(),
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
