//! State of the lease, and the agent's standing with the hub: whether fenced jobs may run.
//!
//! Deliberately absent: renewing the lease, and computing the standing (the agent does both).

use std::sync::Arc;

use fleet_api::ordered;
use tokio::time::Instant;

/// State of the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseState {
    /// Until when this process's last successful renewal is valid.
    pub deadline: Option<Instant>,
    /// Until when the previous process's renewal was valid, from its record; `None`: there is no record.
    pub inherited: Option<Instant>,
    /// Whether that record has been read.
    pub is_record_read: bool,
    /// The hub has declared the cluster lost and has not withdrawn that.
    pub is_declared_lost: bool,
}

impl LeaseState {
    /// Until when the hub counts this cluster as alive.
    pub fn end(&self) -> Option<Instant> {
        self.deadline.or(self.inherited)
    }

    pub fn is_held_at(&self, now: Instant) -> bool {
        !self.is_declared_lost && self.end().is_some_and(|end| now < end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is unknown until when the hub counts this cluster as alive. No fenced job is started or stopped.
    Starting,
    /// The hub counts this cluster as alive.
    Good,
    /// The hub may count this cluster as lost: no fenced job runs or starts.
    CutOff,
    /// The lease is valid again; the current epochs are being learned. The number identifies this return.
    Returning(u64),
}

/// Read access of the agent's parts to lease and standing.
#[derive(Clone, Debug)]
pub struct LeaseClock {
    state: Arc<ordered::Sender<LeaseState>>,
    standing: Arc<ordered::Sender<Standing>>,
    /// The last return whose epochs are known.
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

    /// Until when this process's last renewal is valid; `None`: never renewed yet.
    pub fn deadline(&self) -> Option<Instant> {
        self.state.borrow().deadline
    }

    /// Until when the hub counts this cluster as alive, as far as is known.
    pub fn end(&self) -> Option<Instant> {
        self.state.borrow().end()
    }

    pub fn standing(&self) -> Standing {
        *self.standing.borrow()
    }

    /// Watches the standing.
    pub fn watch(&self) -> ordered::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Whether pods of fenced jobs may be created at this moment. Also checks the clock, because the deadline
    /// may have passed before the standing was updated.
    pub fn may_run(&self) -> bool {
        self.standing() == Standing::Good && self.state.borrow().is_held_at(Instant::now())
    }

    /// Records that the epochs of this return are known.
    pub fn learned(&self, number: u64) {
        self.learned.send_replace(number);
    }

    /// Waits until this process has renewed the lease.
    pub async fn renewed(&self) {
        // `self` owns the sender.
        let _ = self.state.subscribe().wait_for(|state| state.deadline.is_some()).await;
    }

    /// Publishes a new standing.
    pub fn set_standing(&self, standing: Standing) {
        self.standing.send_replace(standing);
    }

    /// Watches the number of the last return whose epochs are known.
    pub fn watch_learned(&self) -> ordered::Receiver<u64> {
        self.learned.subscribe()
    }

    /// Always in good standing, for tests of single parts.
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
