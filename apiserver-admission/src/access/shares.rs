//! Limits of each caller, so that nobody can block others.
//!
//! Inputs: the identity that a credential proves (whoever it impersonates), and its requests and connections. Service
//! accounts of one namespace count as one caller. A half-sent body, its bytes, and a request in flight, count against
//! their caller's share first, and against the server's limits only when the share has room. What requests compute is
//! shared by callers in turn (`levels`). A restart loses all counts, and all connections with them.

use super::levels::{Level, Slot};
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use dashmap::DashMap;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::http_io;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// Most bodies from the network in memory at a time; this bounds the memory they take.
const BODIES: usize = 600;
/// Of those, one caller's.
const BODIES_EACH: usize = 150;
/// Most memory of all bodies from the network (KiB).
const BODIES_KIB: usize = 512 << 10;
/// Of that, one caller's: ten of the largest.
const BODIES_KIB_EACH: usize = 32 << 10;
/// Most requests from the network in flight, without watches.
const TURNS: usize = 600;
/// Of those, one caller's.
const TURNS_EACH: usize = 300;
/// Most connections of one caller, so that others still get some of the process's file descriptors.
const CONNECTIONS_EACH: usize = 500;
/// How long a request waits before it gets 429.
const TURN: Duration = Duration::from_secs(10);

/// The limits of a server, and what each caller uses of them.
pub struct Shares {
    bodies: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    /// Leases, administrators and controllers, so that no crowd of users ends them.
    urgent: Arc<Level>,
    common: Arc<Level>,
    callers: DashMap<String, Arc<Share>>,
}

struct Share {
    bodies: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    connections: Arc<Semaphore>,
}

impl Default for Shares {
    fn default() -> Self {
        let semaphore = |n| Arc::new(Semaphore::new(n));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let level = || Arc::new(Level::of_cores(cores));
        Shares {
            bodies: semaphore(BODIES),
            memory: semaphore(BODIES_KIB),
            turns: semaphore(TURNS),
            urgent: level(),
            common: level(),
            callers: DashMap::new(),
        }
    }
}

/// The namespace of OpenPAI's users.
const PAI_USERS: &str = "fleet-pai-users";

/// Whose limits apply to a caller: service accounts of a namespace have them together, because whoever may create
/// one there may create any number. Those of `kube-system` are controllers and those of [`PAI_USERS`] are persons, which only
/// administrators create; each has its own.
fn payer(caller: &str) -> &str {
    let account = caller.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    match account {
        Some((namespace, name)) if !["kube-system", PAI_USERS].contains(&namespace) => {
            &caller[..caller.len() - name.len() - 1]
        }
        _ => caller,
    }
}

impl Shares {
    fn of(&self, caller: &str) -> Arc<Share> {
        let make = || {
            let semaphore = |n| Arc::new(Semaphore::new(n));
            let (bodies, turns) = (semaphore(BODIES_EACH), semaphore(TURNS_EACH));
            let (memory, connections) = (semaphore(BODIES_KIB_EACH), semaphore(CONNECTIONS_EACH));
            Arc::new(Share { bodies, memory, turns, connections })
        };
        self.callers.entry(payer(caller).to_string()).or_insert_with(make).clone()
    }

    /// Requests in flight, and bodies in memory.
    pub fn in_use(&self) -> (usize, usize) {
        (TURNS - self.turns.available_permits(), BODIES - self.bodies.available_permits())
    }

    /// Drops a caller who uses nothing.
    fn forget(&self, caller: &str) {
        self.callers.remove_if(payer(caller), |_, share| Arc::strong_count(share) == 1);
    }

    /// Callers who use something.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.callers.len()
    }
}

/// The limits that apply to one request.
pub struct Gate {
    shares: Arc<Shares>,
    caller: String,
    /// None for requests in process, which have no limits.
    share: Option<Arc<Share>>,
    held: Vec<OwnedSemaphorePermit>,
}

impl Gate {
    /// For a request from the network.
    pub fn network(shares: &Arc<Shares>, caller: &str) -> Gate {
        let share = Some(shares.of(caller));
        Gate { shares: shares.clone(), caller: caller.into(), share, held: Vec::new() }
    }

    /// For a request in process.
    pub fn process(shares: &Arc<Shares>) -> Gate {
        Gate { shares: shares.clone(), caller: String::new(), share: None, held: Vec::new() }
    }

    /// Reads a body once the caller's share has room for it; it counts until the request ends.
    pub async fn body(&mut self, body: Body) -> ApiResult<Bytes> {
        if let Some(share) = &self.share {
            let (own, all) = (share.bodies.clone(), self.shares.bodies.clone());
            let turn = in_turn(async { [own.acquire_owned().await.ok(), all.acquire_owned().await.ok()] });
            self.held.extend(turn.await?.into_iter().flatten());
            // Without a length it may be the largest.
            let most = body.size_hint().upper().unwrap_or(u64::MAX).min(http_io::MAX_BODY as u64);
            let kib = u32::try_from(most.div_ceil(1024)).unwrap_or(u32::MAX);
            let (own, all) = (share.memory.clone(), self.shares.memory.clone());
            let room = in_turn(async {
                [own.acquire_many_owned(kib).await.ok(), all.acquire_many_owned(kib).await.ok()]
            });
            self.held.extend(room.await?.into_iter().flatten());
        }
        http_io::read_body(body).await
    }

    /// Waits until the request may run; it counts until it ends.
    pub async fn turn(&mut self) -> ApiResult<()> {
        if let Some(share) = &self.share {
            let (own, all) = (share.turns.clone(), self.shares.turns.clone());
            let turn = in_turn(async { [own.acquire_owned().await.ok(), all.acquire_owned().await.ok()] });
            self.held.extend(turn.await?.into_iter().flatten());
        }
        Ok(())
    }
}

/// Who waits for whom when requests compute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    Urgent,
    Common,
}

impl Gate {
    /// Runs the work of a request; what it computes is shared by callers in turn.
    ///
    /// # Errors
    /// 429 if its turn does not come; nothing has been done then. Otherwise those of the work.
    pub async fn run<T>(&self, urgency: Urgency, work: impl Future<Output = ApiResult<T>>) -> ApiResult<T> {
        if self.share.is_none() {
            return work.await;
        }
        let level = match urgency {
            Urgency::Urgent => &self.shares.urgent,
            Urgency::Common => &self.shares.common,
        };
        let caller: Arc<str> = payer(&self.caller).into();
        let slot: Slot = in_turn(level.slot(&caller)).await?;
        level.run(&caller, slot, work).await
    }
}

async fn in_turn<T>(wait: impl Future<Output = T>) -> ApiResult<T> {
    tokio::time::timeout(TURN, wait).await.map_err(|_| ApiError::busy())
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.held.clear();
        if self.share.take().is_some() {
            self.shares.forget(&self.caller);
        }
    }
}

/// One connection; it counts for its first caller. It is an extension of its requests.
#[derive(Clone)]
pub struct Guest(Arc<Seat>);

struct Seat {
    shares: Arc<Shares>,
    /// Set with the first request.
    of: Mutex<Option<(String, Arc<Share>, OwnedSemaphorePermit)>>,
    seated: CancellationToken,
    refused: CancellationToken,
}

impl Guest {
    /// A connection without a request yet.
    pub fn new(shares: &Arc<Shares>) -> Guest {
        let (seated, refused) = (CancellationToken::new(), CancellationToken::new());
        Guest(Arc::new(Seat { shares: shares.clone(), of: Mutex::new(None), seated, refused }))
    }

    /// Counts the connection for this caller, unless it counts for another already.
    ///
    /// # Errors
    /// The caller has too many; the connection is to be closed after the answer.
    pub fn belongs_to(&self, caller: &str) -> ApiResult<()> {
        let mut of = self.0.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.is_some() {
            return Ok(());
        }
        let share = self.0.shares.of(caller);
        let Ok(seat) = share.connections.clone().try_acquire_owned() else {
            self.0.refused.cancel();
            return Err(ApiError::busy());
        };
        *of = Some((caller.to_string(), share, seat));
        self.0.seated.cancel();
        Ok(())
    }

    /// Waits until the first caller is known.
    pub async fn seated(&self) {
        self.0.seated.cancelled().await;
    }

    /// Waits until the connection must be closed.
    pub async fn refused(&self) {
        self.0.refused.cancelled().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let of = self.of.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((caller, share, seat)) = of {
            drop((share, seat));
            self.shares.forget(&caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalled() -> Body {
        Body::from_stream(futures::stream::pending::<Result<Bytes, std::convert::Infallible>>())
    }

    #[test]
    fn each_openpai_user_has_limits_of_his_own() {
        let user = |name: &str| format!("system:serviceaccount:{PAI_USERS}:{name}");
        assert_ne!(payer(&user("alice")), payer(&user("bob")));
    }

    #[tokio::test(start_paused = true)]
    async fn half_sent_bodies_hold_their_senders_share_alone_and_not_for_long() {
        let shares = Arc::new(Shares::default());
        let mut slow = Vec::new();
        for _ in 0..700 {
            let mut gate = Gate::network(&shares, "mallory");
            slow.push(tokio::spawn(async move { gate.body(stalled()).await.map(drop) }));
        }
        tokio::task::yield_now().await;
        let asked = tokio::time::Instant::now();
        let mut other = Gate::network(&shares, "ann");
        assert_eq!(other.body(Body::from("{}")).await.unwrap(), "{}");
        other.turn().await.unwrap();
        assert_eq!(asked.elapsed(), Duration::ZERO, "others do not wait");
        for task in slow {
            let code = task.await.unwrap().unwrap_err().code();
            assert!(matches!(code, 429 | 504), "{code}");
        }
        assert!(asked.elapsed() <= 2 * TURN + http_io::BODY_PAUSE, "{:?}", asked.elapsed());
        drop(other);
        assert_eq!(shares.len(), 0, "who holds nothing is forgotten");
    }

    /// A tenant may create service accounts, each with a token.
    #[tokio::test(start_paused = true)]
    async fn accounts_of_one_namespace_share_their_limits() {
        let shares = Arc::new(Shares::default());
        let mut slow = Vec::new();
        for n in 0..700 {
            let mut gate = Gate::network(&shares, &format!("system:serviceaccount:team-a:x{}", n % 7));
            slow.push(tokio::spawn(async move { gate.body(stalled()).await.map(drop) }));
        }
        tokio::task::yield_now().await;
        let asked = tokio::time::Instant::now();
        let mut other = Gate::network(&shares, "system:serviceaccount:team-b:x0");
        assert_eq!(other.body(Body::from("{}")).await.unwrap(), "{}");
        assert_eq!(asked.elapsed(), Duration::ZERO, "others do not wait");
        assert_eq!(
            payer("system:serviceaccount:kube-system:job-controller"),
            "system:serviceaccount:kube-system:job-controller"
        );
        slow.iter().for_each(tokio::task::JoinHandle::abort);
    }

    /// Others wait for no body of a caller, and for one of its steps at most.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn a_caller_who_computes_leaves_a_core_to_others() {
        let level = || Arc::new(Level::of_cores(3));
        let shares = Arc::new(Shares { urgent: level(), common: level(), ..Shares::default() });
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let blocked = Arc::new(Mutex::new(blocked));
        let computing = (0..100).map(|_| {
            let (shares, blocked) = (shares.clone(), blocked.clone());
            tokio::spawn(async move {
                let mut gate = Gate::network(&shares, "mallory");
                gate.turn().await?;
                // A step that takes as long as the test.
                gate.run(Urgency::Common, async {
                    let _ = blocked.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    Ok(())
                })
                .await
            })
        });
        let computing: Vec<_> = computing.collect();
        for urgency in [Urgency::Common, Urgency::Urgent] {
            let shares = shares.clone();
            let other = tokio::spawn(async move {
                let gate = Gate::network(&shares, "ann");
                gate.run(urgency, async { Ok(7) }).await
            });
            assert_eq!(other.await.unwrap().unwrap(), 7);
        }
        drop(release);
        for task in computing {
            task.await.unwrap().unwrap();
        }
        assert_eq!(shares.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_of_a_caller_wait_for_each_other() {
        let shares = Arc::new(Shares::default());
        let mut held = Vec::new();
        let large = || Body::from(vec![b' '; http_io::MAX_BODY]);
        for _ in 0..BODIES_KIB_EACH / (http_io::MAX_BODY >> 10) {
            let mut gate = Gate::network(&shares, "mallory");
            gate.body(large()).await.unwrap();
            held.push(gate);
        }
        let mut further = Gate::network(&shares, "mallory");
        assert_eq!(further.body(large()).await.unwrap_err().code(), 429);
        Gate::network(&shares, "mallory").body(Body::from("{}")).await.unwrap();
        Gate::network(&shares, "ann").body(large()).await.unwrap();
        held.pop();
        Gate::network(&shares, "mallory").body(large()).await.unwrap();
    }

    #[tokio::test]
    async fn a_caller_has_a_bounded_number_of_connections() {
        let shares = Arc::new(Shares::default());
        let mut guests: Vec<Guest> = Vec::new();
        for _ in 0..CONNECTIONS_EACH {
            let guest = Guest::new(&shares);
            guest.belongs_to("mallory").unwrap();
            guest.belongs_to("mallory").unwrap();
            guests.push(guest);
        }
        let further = Guest::new(&shares);
        assert_eq!(further.belongs_to("mallory").unwrap_err().code(), 429);
        further.refused().await;
        let other = Guest::new(&shares);
        other.belongs_to("ann").unwrap();
        other.seated().await;
        guests.clear();
        Guest::new(&shares).belongs_to("mallory").unwrap();
        drop(other);
        assert_eq!(shares.len(), 0);
    }
}
