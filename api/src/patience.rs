//! Clients that do not wait for ever for an answer to begin.

use std::time::Duration;

use kube::Client;
use tower::{service_fn, timeout::Timeout};

/// Longest wait for the head of an answer. What follows it, the events of a watch, may take as long as it likes.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A client whose requests fail when no answer has begun in time. A watch whose request or answer was lost on the
/// way would show nothing, and nothing would tell that from quiet.
pub fn patient(client: Client) -> Client {
    let namespace = client.default_namespace().to_string();
    let send = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(Timeout::new(send, ANSWER_WITHIN), namespace)
}
