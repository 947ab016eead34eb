//! Reservations: places for all components of a binding, held on real nodes.
//!
//! `book` decides, as a pure state machine; `write` puts the copy in the member and the answer on the hub.

pub(crate) mod book;
pub(crate) mod write;

use tokio::sync::mpsc;

/// Requests that may wait for the core before a sender does.
const HANDLE_CAPACITY: usize = 1024;

/// The way of other parts of the agent to the holds.
#[derive(Clone, Debug)]
pub struct Reservations {
    requests: mpsc::Sender<HoldRequest>,
}

/// What other parts ask of the holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HoldRequest {
    Consume { binding_uid: String, epoch: i64 },
    Release { binding_uid: String, epoch: i64 },
}

impl Reservations {
    pub(crate) fn new() -> (Self, mpsc::Receiver<HoldRequest>) {
        let (requests, receiver) = mpsc::channel(HANDLE_CAPACITY);
        (Self { requests }, receiver)
    }

    /// The Work of this binding and epoch has arrived: its hold no longer expires. Idempotent; does
    /// nothing when there is no such hold.
    pub async fn consume(&self, binding_uid: &str, epoch: i64) {
        self.send(HoldRequest::Consume { binding_uid: binding_uid.to_owned(), epoch }).await;
    }

    /// The run of this binding and epoch is over and its pods are gone: holds of this epoch and older
    /// ones give their places back. A hold of a newer epoch stays.
    pub async fn release(&self, binding_uid: &str, epoch: i64) {
        self.send(HoldRequest::Release { binding_uid: binding_uid.to_owned(), epoch }).await;
    }

    async fn send(&self, request: HoldRequest) {
        // A closed channel means that the agent is stopping; the next one rebuilds from listings.
        let _ = self.requests.send(request).await;
    }
}
