//! What is known of the lease, and how the agent stands with the hub: whether fenced jobs may run.
//!
//! Deliberately absent: renewing the lease, and what a standing follows from (the agent's).

use std::sync::Arc;

use fleet_api::ordered;
use tokio::time::Instant;

/// What is known of the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseState {
    /// Until when this process's last renewal that succeeded holds.
    pub deadline: Option<Instant>,
    /// Until when a former process's did, as far as its record says; `None`: there is no record.
    pub inherited: Option<Instant>,
    /// Whether that record has been looked for.
    pub is_record_read: bool,
    /// The hub has declared the cluster lost and has not taken that back.
    pub is_declared_lost: bool,
}

impl LeaseState {
    /// Until when the hub must believe this cluster alive.
    pub fn end(&self) -> Option<Instant> {
        self.deadline.or(self.inherited)
    }

    pub fn is_held_at(&self, now: Instant) -> bool {
        !self.is_declared_lost && self.end().is_some_and(|end| now < end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is not known yet how long the hub believes this cluster alive. Nothing fenced starts or is stopped.
    Starting,
    /// The hub must believe this cluster alive.
    Good,
    /// The hub may count this cluster as lost: nothing fenced runs or starts.
    CutOff,
    /// The lease holds again; the current epochs are being learned. The number tells this return from others.
    Returning(u64),
}

/// What the parts of an agent see of its lease and standing.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    state: Arc<ordered::Sender<LeaseState>>,
    standing: Arc<ordered::Sender<Standing>>,
    /// The last return whose epochs have been learned.
    learned: Arc<ordered::Sender<u64>>,
}

impl Default for LeaseClock {
    fn default() -> Self {
        Self {
            state: Arc::new(ordered::Sender::new(LeaseState::default())),
            standing: Arc::new(ordered::Sender::new(Standing::Starting)),
            learned: Arc::new(ordered::Sender::new(0)),
        }
    }
}

impl LeaseClock {
    pub fn sender(&self) -> Arc<ordered::Sender<LeaseState>> {
        self.state.clone()
    }

    pub fn state(&self) -> ordered::Receiver<LeaseState> {
        self.state.subscribe()
    }

    /// Until when this process's last renewal holds; `None`: never renewed yet.
    pub fn deadline(&self) -> Option<Instant> {
        self.state.borrow().deadline
    }

    pub fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    /// Follows the standing.
    pub fn watch(&self) -> ordered::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Whether pods of fenced jobs may be made at this moment. Asks the clock, too: the deadline may have passed
    /// before anybody was told.
    pub fn may_run(&self) -> bool {
        self.standing() == Standing::Good && self.state.borrow().is_held_at(Instant::now())
    }

    /// The epochs of this return have been learned.
    pub fn learned(&self, number: u64) {
        self.learned.send_replace(number);
    }

    /// Waits until this process has renewed the lease.
    pub async fn renewed(&self) {
        // The sender lives in `self`.
        let _ = self.state.subscribe().wait_for(|state| state.deadline.is_some()).await;
    }

    /// Tells everybody of a new standing.
    pub fn set_standing(&self, standing: Standing) {
        self.standing.send_replace(standing);
    }

    /// Follows the number of the last return whose epochs have been learned.
    pub fn watch_learned(&self) -> ordered::Receiver<u64> {
        self.learned.subscribe()
    }

    /// In good standing for ever, for tests of single parts.
    pub fn held() -> Self {
        let clock = Self::default();
        let deadline = Instant::now() + std::time::Duration::from_secs(3600);
        clock.state.send_replace(LeaseState {
            deadline: Some(deadline),
            is_record_read: true,
            ..LeaseState::default()
        });
        clock.standing.send_replace(Standing::Good);
        clock
    }
}
