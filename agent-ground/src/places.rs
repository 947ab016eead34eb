//! The way of other rooms to the places that the scheduler holds for reservations.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::lean::LeanPod;

/// Requests that may wait for the core before a sender does.
const HANDLE_CAPACITY: usize = 1024;
/// Longest wait for a pod's place; without one the scheduler finds it.
const PLACE_WITHIN: Duration = Duration::from_millis(100);

/// The way of other parts of the agent to the holds.
#[derive(Clone, Debug)]
pub struct Reservations {
    requests: mpsc::Sender<HoldRequest>,
    places: mpsc::Sender<PlaceQuestion>,
}

/// Which node is held for a pod that is about to be made.
#[derive(Debug)]
pub struct PlaceQuestion {
    pub pod: Box<LeanPod>,
    pub answer: oneshot::Sender<Option<String>>,
}

/// What other parts ask of the holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldRequest {
    Consume { binding_uid: String, epoch: i64 },
    Release { binding_uid: String, epoch: i64 },
}

impl Reservations {
    /// With the ends that the core reads.
    pub fn new() -> (Self, mpsc::Receiver<HoldRequest>, mpsc::Receiver<PlaceQuestion>) {
        let (requests, holds) = mpsc::channel(HANDLE_CAPACITY);
        let (places, questions) = mpsc::channel(HANDLE_CAPACITY);
        (Self { requests, places }, holds, questions)
    }

    /// The node whose place is held for this pod alone, if the pod may start there now.
    pub async fn node_for(&self, pod: LeanPod) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        self.places.try_send(PlaceQuestion { pod: Box::new(pod), answer }).ok()?;
        tokio::time::timeout(PLACE_WITHIN, answered).await.ok()?.ok()?
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
