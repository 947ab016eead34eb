//! A link to an API server that a test can cut: nothing passes while it is cut, and what is under way ends.

use bytes::Bytes;
use futures::StreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use kube::{Client, client::Body};
use tokio::sync::watch;

/// Shared by the test and the client that goes through it.
#[derive(Clone, Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { open: watch::Sender::new(true) }
    }
}

impl Gate {
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    pub fn heal(&self) {
        self.open.send_replace(true);
    }

    /// The same server through this gate.
    pub fn client(&self, behind: Client) -> Client {
        let open = self.open.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (behind, open) = (behind.clone(), open.clone());
            async move { pass(behind, open, request).await }
        });
        Client::new(service, "default")
    }
}

async fn pass(
    behind: Client,
    open: watch::Sender<bool>,
    request: http::Request<Body>,
) -> Result<http::Response<impl http_body::Body<Data = Bytes, Error = kube::Error> + use<>>, tower::BoxError>
{
    let mut closed = open.subscribe();
    if !*closed.borrow() {
        return Err("the link is cut".into());
    }
    let response = tokio::select! {
        biased;
        _ = closed.wait_for(|open| !open) => return Err("the link was cut".into()),
        response = behind.send(request) => response?,
    };
    let cut = async move {
        // The gate outlives the fleet, so that an error cannot happen.
        let _ = closed.wait_for(|open| !open).await;
    };
    let (parts, body) = response.into_parts();
    let data = body.into_data_stream().map(|data| data.map(Frame::data)).take_until(Box::pin(cut));
    Ok(http::Response::from_parts(parts, StreamBody::new(data)))
}
