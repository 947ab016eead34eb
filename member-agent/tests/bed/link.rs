//! A connection that can be cut: requests fail, and what streams already ends.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{Router, body::Body};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use kube::Client;
use tokio::sync::watch;
use tower::Service;

/// Clients of one server that are cut off and joined again together.
#[derive(Clone)]
pub struct Link {
    router: Router,
    cut: Arc<watch::Sender<bool>>,
}

impl Link {
    pub fn new(router: Router) -> Self {
        Self { router, cut: Arc::new(watch::channel(false).0) }
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub fn join(&self) {
        self.cut.send_replace(false);
    }
}

impl Service<http::Request<kube::client::Body>> for Link {
    type Response = http::Response<Body>;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<kube::client::Body>) -> Self::Future {
        let (mut router, mut cut) = (self.router.clone(), self.cut.subscribe());
        async move {
            let gone = || io::Error::new(io::ErrorKind::ConnectionReset, "the connection is cut");
            if *cut.borrow() {
                return Err(gone());
            }
            let answered = tokio::select! {
                biased;
                _ = cut.wait_for(|cut| *cut) => return Err(gone()),
                answered = router.call(request) => answered,
            };
            let (parts, body) = match answered {
                Ok(response) => response.into_parts(),
                Err(never) => match never {},
            };
            let ended = async move { drop(cut.wait_for(|cut| *cut).await) };
            let body = body.into_data_stream().take_until(ended.boxed());
            Ok(http::Response::from_parts(parts, Body::from_stream(body)))
        }
        .boxed()
    }
}
