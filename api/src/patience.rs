//! A client with a timeout for the start of each answer.

use std::time::Duration;

use kube::Client;
use tower::{service_fn, timeout::Timeout};

/// Timeout for the head of an answer. The body, such as the events of a watch, has none.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// A client whose requests fail if no answer begins in time. If a watch's request or answer was lost on the
/// network, it would otherwise look like a watch without events.
pub fn patient(client: Client) -> Client {
    let namespace = client.default_namespace().to_string();
    let send = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(Timeout::new(send, ANSWER_WITHIN), namespace)
}
