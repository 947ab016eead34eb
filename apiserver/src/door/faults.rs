//! Faults between a client and a server: a tower layer for simulations and tests.
//!
//! Inputs: one [`Link`] for each pair of client process and server, and a [`Script`] that decides the fate of each
//! request. Requests travel in their own tasks, like bytes that have left a machine: a client that gives up or dies
//! does not call back what it has sent. Deliberately absent: any choice (the script's), and real sockets.

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use fleet_ordered as ordered;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;
use tower::{Layer, Service, ServiceExt};

/// The fate of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Time until it reaches the server. Two requests with different delays overtake each other.
    pub delay: Duration,
    /// The request never arrives; the client sees its connection break.
    pub request_lost: bool,
    /// The server refuses it with this status, without effect.
    pub refused: Option<u16>,
    /// It arrives a second time, this much later; the first answer counts.
    pub again_after: Option<Duration>,
    /// Time the answer takes.
    pub answer_delay: Duration,
    /// It took effect, and the client sees its connection break instead of the answer.
    pub answer_lost: bool,
    /// The client dies when the server has handled it: no answer ever comes back.
    pub last_words: bool,
}

/// The fate of one frame of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFate {
    /// It arrives.
    Arrives,
    /// It arrives later, and so do all after it.
    Late(Duration),
    /// Half of it arrives, then the connection breaks.
    Torn,
    /// The connection breaks before it.
    Broken,
}

/// Decides about requests and frames, in the order in which they are sent.
pub trait Script: Send + Sync {
    /// The fate of a request.
    fn request(&self, method: &Method, path: &str) -> Fate;
    /// The fate of the next frame of a watch.
    fn frame(&self) -> FrameFate;
    /// The client has sent its last request: it is dead from now on.
    fn died(&self) {}
}

/// State of the link between one client and one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Requests do not arrive until this ends.
    pub requests_cut: bool,
    /// Answers do not arrive until this ends.
    pub answers_cut: bool,
    /// The server is gone: connections are refused at once.
    pub refused: bool,
    /// The client is dead: nothing is sent or received any more.
    pub dead: bool,
    /// How often all connections broke: whatever was under way then gets no answer, nor does it arrive any more.
    pub breaks: u64,
}

/// The link between one client and one server. Clones share it.
#[derive(Clone, Debug)]
pub struct Link(Arc<ordered::Sender<LinkState>>);

impl Default for Link {
    fn default() -> Self {
        Link(Arc::new(ordered::Sender::new(LinkState::default())))
    }
}

impl Link {
    /// Changes the state; waiting requests follow the new one.
    pub fn set(&self, change: impl FnOnce(&mut LinkState)) {
        self.0.send_modify(change);
    }

    /// The state now.
    pub fn state(&self) -> LinkState {
        *self.0.borrow()
    }

    async fn until(&self, go: impl Fn(&LinkState) -> bool) {
        let mut state = self.0.subscribe();
        // The sender lives as long as this link.
        let _ = state.wait_for(go).await;
    }

    async fn requests_pass(&self) {
        self.until(|s| !s.requests_cut).await;
    }

    async fn answers_pass(&self) {
        self.until(|s| !s.answers_cut && !s.dead).await;
    }
}

/// The layer: wraps a server's router for one client.
#[derive(Clone)]
pub struct FaultLayer {
    link: Link,
    script: Arc<dyn Script>,
}

impl FaultLayer {
    /// Faults of one link.
    pub fn new(link: Link, script: Arc<dyn Script>) -> Self {
        FaultLayer { link, script }
    }
}

impl Layer<Router> for FaultLayer {
    type Service = Faulty;

    fn layer(&self, router: Router) -> Faulty {
        Faulty { router, link: self.link.clone(), script: self.script.clone() }
    }
}

/// A router behind a faulty link.
#[derive(Clone)]
pub struct Faulty {
    router: Router,
    link: Link,
    script: Arc<dyn Script>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// Nothing listens.
    #[error("connection refused")]
    Refused,
    /// The connection broke.
    #[error("connection reset by peer")]
    Reset,
}

impl<B> Service<Request<B>> for Faulty
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response<Body>;
    type Error = Broken;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Broken>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let this = self.clone();
        if this.link.state().dead {
            return Box::pin(std::future::pending());
        }
        let fate = this.script.request(request.method(), request.uri().path());
        if fate.last_words {
            // Whatever else this client does at the same moment is no longer sent.
            this.link.set(|state| state.dead = true);
            this.script.died();
        }
        let (answer, heard) = oneshot::channel();
        tokio::spawn(async move {
            // If the client gave up or died, nobody listens; its request goes on all the same.
            let _ = answer.send(this.travel(request.map(Body::new), fate).await);
        });
        Box::pin(async move { heard.await.unwrap_or(Err(Broken::Reset)) })
    }
}

impl Faulty {
    async fn travel(mut self, request: Request<Body>, fate: Fate) -> Result<Response<Body>, Broken> {
        let LinkState { refused, breaks, .. } = self.link.state();
        if refused {
            return Err(Broken::Refused);
        }
        tokio::time::sleep(fate.delay).await;
        self.link.requests_pass().await;
        if self.link.state().refused {
            return Err(Broken::Refused);
        }
        if self.link.state().breaks != breaks {
            return Err(Broken::Reset);
        }
        if fate.request_lost {
            return Err(Broken::Reset);
        }
        let answer = match fate.refused {
            Some(code) => refusal(code),
            None => self.deliver(request, fate.again_after).await,
        };
        tokio::time::sleep(fate.answer_delay).await;
        self.link.answers_pass().await;
        if fate.answer_lost || self.link.state().breaks != breaks {
            return Err(Broken::Reset);
        }
        Ok(answer.map(|body| self.stream(body)))
    }

    async fn deliver(&mut self, request: Request<Body>, again_after: Option<Duration>) -> Response<Body> {
        let Some(pause) = again_after else { return self.ask(request).await };
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
        let first = Request::from_parts(parts.clone(), Body::from(bytes.clone()));
        let second = Request::from_parts(parts, Body::from(bytes));
        let (mut copy, breaks) = (self.clone(), self.link.state().breaks);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            copy.link.requests_pass().await;
            if copy.link.state().breaks != breaks {
                return;
            }
            // Its answer goes to a connection that nobody reads.
            drop(copy.ask(second).await);
        });
        self.ask(first).await
    }

    async fn ask(&mut self, request: Request<Body>) -> Response<Body> {
        match ServiceExt::<Request<Body>>::ready(&mut self.router).await {
            Ok(router) => match router.call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            },
            Err(never) => match never {},
        }
    }

    /// Frames of an answer, each with its own fate. A complete answer is one frame, which always arrives: its fate
    /// was decided with the request.
    fn stream(&self, body: Body) -> Body {
        use http_body::Body as _;
        if body.size_hint().exact().is_some() {
            return body;
        }
        let (link, script) = (self.link.clone(), self.script.clone());
        let breaks = link.state().breaks;
        let frames = futures::stream::unfold((body.into_data_stream(), false), move |(mut frames, over)| {
            let (link, script) = (link.clone(), script.clone());
            async move {
                if over {
                    return None;
                }
                let frame = tokio::select! {
                    biased;
                    () = link.until(|state| state.refused || state.breaks != breaks) => return Some((Err(Broken::Reset), (frames, true))),
                    frame = frames.next() => frame,
                };
                let bytes = match frame? {
                    Ok(bytes) => bytes,
                    Err(_) => return Some((Err(Broken::Reset), (frames, true))),
                };
                link.answers_pass().await;
                if link.state().breaks != breaks {
                    return Some((Err(Broken::Reset), (frames, true)));
                }
                match script.frame() {
                    FrameFate::Arrives => Some((Ok(bytes), (frames, false))),
                    FrameFate::Late(pause) => {
                        tokio::time::sleep(pause).await;
                        link.answers_pass().await;
                        Some((Ok(bytes), (frames, false)))
                    }
                    FrameFate::Torn => {
                        // The half goes out; the error follows at the next poll.
                        let half = bytes.slice(..bytes.len() / 2);
                        let broken =
                            futures::stream::iter([Err::<Bytes, _>(axum::Error::new(Broken::Reset))]);
                        Some((Ok(half), (Body::from_stream(broken).into_data_stream(), false)))
                    }
                    FrameFate::Broken => Some((Err(Broken::Reset), (frames, true))),
                }
            }
        });
        Body::from_stream(frames)
    }
}

/// The Status with which a server refuses.
fn refusal(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("injected fault {code}"), "reason": reason, "code": code});
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    fleet_apiserver_schema::http_io::value_response(status, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The given fates in order; then everything arrives.
    struct Given(Mutex<Vec<Fate>>);

    impl Script for Given {
        fn request(&self, _: &Method, _: &str) -> Fate {
            let mut left = self.0.lock().unwrap();
            if left.is_empty() { Fate::default() } else { left.remove(0) }
        }
        fn frame(&self) -> FrameFate {
            FrameFate::Torn
        }
    }

    async fn setup(fates: Vec<Fate>) -> (Faulty, Link) {
        let server = crate::ApiServer::open(crate::Config::default()).await.unwrap();
        let link = Link::default();
        let layer = FaultLayer::new(link.clone(), Arc::new(Given(Mutex::new(fates))));
        (layer.layer(server.router()), link)
    }

    fn create(name: &str) -> Request<Body> {
        let body = json!({"metadata": {"name": name}}).to_string();
        let request = Request::post("/api/v1/namespaces/default/configmaps");
        request.header("content-type", "application/json").body(Body::from(body)).unwrap()
    }

    async fn code(service: &mut Faulty, request: Request<Body>) -> Option<u16> {
        service.call(request).await.ok().map(|answer| answer.status().as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_request_has_no_effect_and_a_lost_answer_has() {
        let lost = Fate { request_lost: true, ..Fate::default() };
        let unheard = Fate { answer_lost: true, ..Fate::default() };
        let (mut service, _) = setup(vec![lost, Fate::default(), unheard, Fate::default()]).await;
        assert_eq!(code(&mut service, create("a")).await, None);
        assert_eq!(code(&mut service, create("a")).await, Some(201));
        assert_eq!(code(&mut service, create("b")).await, None);
        assert_eq!(code(&mut service, create("b")).await, Some(409));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_arrives_though_the_client_gave_up() {
        let late = Fate { delay: Duration::from_secs(30), ..Fate::default() };
        let (mut service, _) = setup(vec![late]).await;
        let gave_up = tokio::time::timeout(Duration::from_secs(1), service.call(create("a"))).await;
        assert!(gave_up.is_err());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(code(&mut service, create("a")).await, Some(409));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_holds_back_until_it_heals() {
        let (mut service, link) = setup(Vec::new()).await;
        link.set(|state| state.answers_cut = true);
        let healing = link.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            healing.set(|state| state.answers_cut = false);
        });
        let before = tokio::time::Instant::now();
        assert_eq!(code(&mut service, create("a")).await, Some(201));
        assert_eq!(before.elapsed().as_secs(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn when_connections_break_what_was_under_way_is_not_answered_nor_does_it_arrive() {
        let late = Fate { delay: Duration::from_secs(30), ..Fate::default() };
        let slow = Fate { answer_delay: Duration::from_secs(30), ..Fate::default() };
        let (mut service, link) = setup(vec![late, slow]).await;
        let breaking = link.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(5)).await;
            breaking.set(|state| state.breaks += 1);
        });
        let mut other = service.clone();
        let (first, second) = tokio::join!(code(&mut service, create("a")), code(&mut other, create("b")));
        assert_eq!((first, second), (None, None));
        assert_eq!(code(&mut service, create("a")).await, Some(201), "it never arrived");
        assert_eq!(code(&mut service, create("b")).await, Some(409), "it did");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_line_can_be_torn() {
        let (mut service, _) = setup(Vec::new()).await;
        assert_eq!(code(&mut service, create("a")).await, Some(201));
        let watch = Request::get("/api/v1/namespaces/default/configmaps?watch=1");
        let answer = service.call(watch.body(Body::empty()).unwrap()).await.unwrap();
        let mut frames = answer.into_body().into_data_stream();
        let half = frames.next().await.unwrap().unwrap();
        assert!(!half.is_empty() && !half.ends_with(b"\n"));
        assert!(frames.next().await.unwrap().is_err());
    }
}
