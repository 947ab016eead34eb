//! How many requests read much of the hub at once, of a user and of all: lists of jobs, and looks at jobs with many
//! tasks, which may ask for what is on all cells. A few wait for their turn; the others are told to come again, so that no
//! user's requests fill the memory of all.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::{caller::Caller, error::RestError};
use crate::jobs::{self, Run};

/// Tasks of a job above which a look at it waits for its turn.
const MANY_TASKS: i64 = 2_000;
/// Requests of all users that read at once. Each takes up to some hundred megabytes.
const AT_ONCE: usize = 4;
/// Those of one user.
const OF_USER: usize = 2;
/// Requests of one user that wait.
const WAITING: usize = 8;
/// How long a request waits for its user's turn, and then for its own among those of all.
const PATIENCE: Duration = Duration::from_secs(10);
/// OpenPAI's code.
const CODE: &str = "TooManyRequestsError";

/// The turns of requests that read much.
#[derive(Clone)]
pub struct Looks {
    lists: Arc<Gate>,
    jobs: Arc<Gate>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { lists: Arc::new(Gate::new("lists of jobs")), jobs: Arc::new(Gate::new("looks at large jobs")) }
    }
}

impl Looks {
    /// The turn of a list of jobs.
    ///
    /// # Errors
    /// The hub does not know the caller, or too many lists are being read.
    pub async fn list(&self, caller: &Caller) -> Result<Turn, RestError> {
        self.lists.turn(&user(caller).await?).await
    }

    /// The turn of a look at a job; none is needed if it is small.
    ///
    /// # Errors
    /// The hub does not know the caller, or too many large jobs are being looked at.
    pub async fn job(&self, caller: &Caller, runs: &[Run]) -> Result<Option<Turn>, RestError> {
        let tasks = |run: &Run| run.rules().map_or(0, |rules| rules.tasks());
        if runs.iter().map(tasks).max().unwrap_or(0) <= MANY_TASKS {
            return Ok(None);
        }
        Ok(Some(self.jobs.turn(&user(caller).await?).await?))
    }
}

/// Whose turn it is. All whom the hub does not tell by name share one.
async fn user(caller: &Caller) -> Result<String, RestError> {
    match jobs::identity(&caller.server).await {
        Err(error) if error.status() == 401 => Err(error.into()),
        known => Ok(known.unwrap_or_default()),
    }
}

/// A request's right to read, until it is dropped.
#[must_use]
pub struct Turn {
    _place: OwnedSemaphorePermit,
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

struct Gate {
    what: &'static str,
    all: Arc<Semaphore>,
    users: Mutex<BTreeMap<String, User>>,
}

/// The requests of one user.
#[derive(Clone)]
struct User {
    /// Those that read, and those that wait.
    places: Arc<Semaphore>,
    turns: Arc<Semaphore>,
}

impl Gate {
    fn new(what: &'static str) -> Self {
        Self { what, all: Arc::new(Semaphore::new(AT_ONCE)), users: Mutex::default() }
    }

    async fn turn(&self, name: &str) -> Result<Turn, RestError> {
        let user = self.user(name);
        let full = || {
            let what = self.what;
            let told = format!(
                "{what}: found {OF_USER} of {name} at once; allowed: {OF_USER} of a user, and {WAITING} that wait \
                 at most {} s",
                PATIENCE.as_secs()
            );
            RestError::new(429, CODE, told)
        };
        let busy = || {
            let told = format!("{}: found {AT_ONCE} at once; allowed: {AT_ONCE} of all users", self.what);
            RestError::new(503, CODE, told)
        };
        let place = user.places.try_acquire_owned().map_err(|_| full())?;
        let of_user = timeout(PATIENCE, user.turns.acquire_owned()).await;
        let of_user = of_user.map_err(|_| full())?.map_err(|_| full())?;
        let of_all = timeout(PATIENCE, self.all.clone().acquire_owned()).await;
        let of_all = of_all.map_err(|_| busy())?.map_err(|_| busy())?;
        Ok(Turn { _place: place, _of_user: of_user, _of_all: of_all })
    }

    /// The turns of a user. Users without a request are forgotten.
    fn user(&self, name: &str) -> User {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|_, user| Arc::strong_count(&user.places) > 1);
        let new = || User {
            places: Arc::new(Semaphore::new(OF_USER + WAITING)),
            turns: Arc::new(Semaphore::new(OF_USER)),
        };
        users.entry(name.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(gate: &Gate, user: &str) -> (u16, String) {
        match gate.turn(user).await {
            Ok(_) => panic!("{user} got a turn"),
            Err(error) => (error.status, error.message),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_few_turns_at_once_and_no_user_has_all() {
        let gate = Gate::new("lists");
        let mut alice =
            vec![gate.turn("alice").await.expect("free"), gate.turn("alice").await.expect("free")];
        let told = "lists: found 2 of alice at once; allowed: 2 of a user, and 8 that wait at most 10 s";
        assert_eq!(refused(&gate, "alice").await, (429, told.to_owned()));
        let bob = [gate.turn("bob").await.expect("free"), gate.turn("bob").await.expect("free")];
        let told = "lists: found 4 at once; allowed: 4 of all users";
        assert_eq!(refused(&gate, "carol").await, (503, told.to_owned()));
        // Those that wait get their turn when another one ends.
        let (waits, ()) = tokio::join!(gate.turn("alice"), async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            drop(alice.pop());
        });
        assert!(waits.is_ok());
        drop((waits, alice, bob));
        drop(gate.turn("dave").await.expect("free"));
        let known: Vec<String> = gate.users.lock().expect("no panic").keys().cloned().collect();
        assert_eq!(known, ["dave"], "the others have no requests");
    }

    #[tokio::test(start_paused = true)]
    async fn few_requests_of_a_user_wait() {
        let gate = Arc::new(Gate::new("lists"));
        let held = [gate.turn("alice").await.expect("free"), gate.turn("alice").await.expect("free")];
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                let gate = gate.clone();
                tokio::spawn(async move { gate.turn("alice").await.is_ok() })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = tokio::time::Instant::now();
        assert_eq!(refused(&gate, "alice").await.0, 429);
        assert_eq!(began.elapsed(), Duration::ZERO, "it is told at once");
        drop(held);
        for request in waiting {
            assert!(request.await.expect("no panic"), "its turn came");
        }
    }
}
