//! A connection that can be cut: requests fail, and what streams already ends.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use axum::{Router, body::Body};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use kube::Client;
use tokio::sync::{Notify, watch};
use tower::Service;

/// When the process that makes a write dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the server has seen it.
    Before,
    /// After it was done, before its answer.
    After,
}

/// Stops everything at one write. Renewals of leases and events do not count: their number is not that of a life.
pub struct Fuse {
    at: usize,
    moment: Moment,
    writes: AtomicUsize,
    is_blown: AtomicBool,
    told: Notify,
}

impl Fuse {
    pub fn new(at: usize, moment: Moment) -> Self {
        Self {
            at,
            moment,
            writes: AtomicUsize::new(0),
            is_blown: AtomicBool::new(false),
            told: Notify::new(),
        }
    }

    /// Waits until that write.
    pub async fn blown(&self) {
        while !self.is_blown.load(Ordering::SeqCst) {
            self.told.notified().await;
        }
    }

    fn blow(&self) {
        self.is_blown.store(true, Ordering::SeqCst);
        self.told.notify_one();
    }
}

/// Clients of one server that are cut off and joined again together.
#[derive(Clone)]
pub struct Link {
    router: Router,
    cut: Arc<watch::Sender<bool>>,
    fuse: watch::Receiver<Option<Arc<Fuse>>>,
    /// End of the paths to which the server says no.
    forbidden: Arc<Mutex<Option<String>>>,
    /// End of the path to which the next write has lost a race.
    /// Writes that were sent, as `METHOD path`.
    writes: Arc<Mutex<Vec<String>>>,
    lost_race: Arc<Mutex<Option<String>>>,
}

impl Link {
    pub fn new(router: Router, fuse: watch::Receiver<Option<Arc<Fuse>>>) -> Self {
        Self {
            router,
            cut: Arc::new(watch::channel(false).0),
            fuse,
            forbidden: Arc::default(),
            writes: Arc::default(),
            lost_race: Arc::default(),
        }
    }

    /// The writes that were sent through it so far.
    pub fn writes(&self) -> Vec<String> {
        self.writes.lock().unwrap().clone()
    }

    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Answers requests to paths that end so with 403, until it is told otherwise.
    pub fn forbid(&self, path_end: Option<&str>) {
        *self.forbidden.lock().unwrap() = path_end.map(str::to_owned);
    }

    /// Answers the next write to a path that ends so with 409.
    pub fn lose_race(&self, path_end: &str) {
        *self.lost_race.lock().unwrap() = Some(path_end.to_owned());
    }

    /// Whether that write has come.
    pub fn race_is_lost(&self) -> bool {
        self.lost_race.lock().unwrap().is_none()
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
        let path = request.uri().path();
        if request.method() != http::Method::GET && !*cut.borrow() {
            self.writes.lock().unwrap().push(format!("{} {path}", request.method()));
        }
        let forbidden = self.forbidden.lock().unwrap().as_ref().is_some_and(|end| path.ends_with(end));
        let loses = {
            let mut race = self.lost_race.lock().unwrap();
            let hit = request.method() != http::Method::GET
                && race.as_ref().is_some_and(|end| path.ends_with(end.as_str()));
            hit.then(|| race.take()).is_some()
        };
        let counts =
            request.method() != http::Method::GET && !path.contains("/leases") && !path.contains("/events");
        let fuse = self.fuse.borrow().clone().filter(|_| counts);
        async move {
            let gone = || io::Error::new(io::ErrorKind::ConnectionReset, "the connection is cut");
            if *cut.borrow() {
                return Err(gone());
            }
            let refusal = forbidden.then_some((403, "Forbidden")).or(loses.then_some((409, "Conflict")));
            if let Some((code, reason)) = refusal {
                let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Failure", "message": "the test says no", "reason": reason, "code": code});
                let response =
                    http::Response::builder().status(code).header("content-type", "application/json");
                return response.body(Body::from(status.to_string())).map_err(io::Error::other);
            }
            let blows = match &fuse {
                Some(fuse) => {
                    let write = fuse.writes.fetch_add(1, Ordering::SeqCst) + 1;
                    if write > fuse.at || (write == fuse.at && fuse.moment == Moment::Before) {
                        fuse.blow();
                        return std::future::pending().await;
                    }
                    write == fuse.at
                }
                None => false,
            };
            let answered = tokio::select! {
                biased;
                _ = cut.wait_for(|cut| *cut) => return Err(gone()),
                answered = router.call(request) => answered,
            };
            if let Some(fuse) = fuse.filter(|_| blows) {
                fuse.blow();
                return std::future::pending().await;
            }
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
