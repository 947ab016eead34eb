//! Requests of other crates to the scheduler about held places.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::lean::LeanPod;

/// Capacity of the request channel.
const HANDLE_CAPACITY: usize = 1024;
/// Timeout for the place of a pod; without an answer the scheduler places the pod later.
const PLACE_WITHIN: Duration = Duration::from_millis(100);

/// Handle of other parts of the agent for the holds.
#[derive(Clone, Debug)]
pub struct Reservations {
    requests: mpsc::Sender<HoldRequest>,
    places: mpsc::Sender<PlaceQuestion>,
}

/// Asks which node is held for a pod that is about to be created.
#[derive(Debug)]
pub struct PlaceQuestion {
    pub pod: Box<LeanPod>,
    pub answer: oneshot::Sender<Option<String>>,
}

/// Requests about holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldRequest {
    Consume { binding_uid: String, epoch: i64 },
    Release { binding_uid: String, epoch: i64 },
}

impl Reservations {
    /// Returns the handle and the receivers for the core.
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

    /// The Work of this binding and epoch has arrived: its hold no longer expires. Idempotent; does nothing
    /// if there is no such hold.
    pub async fn consume(&self, binding_uid: &str, epoch: i64) {
        self.send(HoldRequest::Consume { binding_uid: binding_uid.to_owned(), epoch }).await;
    }

    /// The run of this binding and epoch is over and its pods are gone: holds of this epoch and older ones
    /// are released. A hold of a newer epoch stays.
    pub async fn release(&self, binding_uid: &str, epoch: i64) {
        self.send(HoldRequest::Release { binding_uid: binding_uid.to_owned(), epoch }).await;
    }

    async fn send(&self, request: HoldRequest) {
        // A closed channel means that the agent is stopping; the next one starts from lists.
        let _ = self.requests.send(request).await;
    }
}
