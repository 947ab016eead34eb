//! A work queue: each key is handled by one task at a time, a key added meanwhile is handled once more, and
//! keys are handled in the order in which they were added.
//!
//! Bounded by construction: a key is in the queue at most once, and at most `concurrency` tasks run.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fmt::Debug,
    future::Future,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

/// First back-off after a failure; doubles with each further failure of the same key.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// Longest back-off.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// Longest wait; a longer one, from a user's spec, is looked at in between.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Result of a task for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until the key is added again.
    Wait,
    /// Reconcile again after this time, if nothing adds the key before.
    After(Duration),
    /// It failed: retry after a back-off that grows with each failure in a row.
    Retry,
}

pub struct Queue<K> {
    inner: Mutex<Inner<K>>,
    added: Notify,
}

struct Inner<K> {
    ready: VecDeque<K>,
    queued: HashSet<K>,
    running: HashSet<K>,
    timers: BTreeMap<Instant, Vec<K>>,
    due: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        let inner = Inner {
            ready: VecDeque::new(),
            queued: HashSet::new(),
            running: HashSet::new(),
            timers: BTreeMap::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
        };
        Self { inner: Mutex::new(inner), added: Notify::new() }
    }
}

impl<K: Clone + Eq + Hash + Debug + Send + 'static> Queue<K> {
    /// Requests one more reconcile of the key.
    pub fn add(&self, key: K) {
        let mut inner = self.lock();
        if inner.queued.insert(key.clone()) {
            inner.ready.push_back(key);
            drop(inner);
            self.added.notify_one();
        }
    }

    /// Number of keys that are handled or wait.
    pub fn load(&self) -> usize {
        let inner = self.lock();
        inner.running.len() + inner.ready.len()
    }

    /// Handles keys until `shutdown`; then waits for running tasks.
    pub async fn run<W, F>(self: Arc<Self>, concurrency: usize, shutdown: CancellationToken, work: W)
    where
        W: Fn(K) -> F,
        F: Future<Output = Next> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        let mut keys = HashMap::new();
        loop {
            while tasks.len() < concurrency
                && let Some(key) = self.take()
            {
                let task = tasks.spawn(work(key.clone()));
                keys.insert(task.id(), key);
            }
            let wake = self.lock().timers.keys().next().copied();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = tasks.join_next_with_id() => {
                    // A panic is already logged; the key is retried like a failure.
                    let (id, next) = match ended {
                        Ok((id, next)) => (id, next),
                        Err(error) => (error.id(), Next::Retry),
                    };
                    if let Some(key) = keys.remove(&id) {
                        self.finish(key, next);
                    }
                }
                () = self.added.notified() => {}
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {
                    self.fire(Instant::now());
                }
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// The next key without a task. A key with a running task stays queued until that ends.
    fn take(&self) -> Option<K> {
        let mut inner = self.lock();
        let at = {
            let Inner { ready, running, .. } = &*inner;
            ready.iter().position(|key| !running.contains(key))?
        };
        let key = inner.ready.remove(at)?;
        inner.queued.remove(&key);
        inner.running.insert(key.clone());
        Some(key)
    }

    fn finish(&self, key: K, next: Next) {
        let mut inner = self.lock();
        inner.running.remove(&key);
        let wait = match next {
            Next::Wait => {
                inner.failures.remove(&key);
                inner.cancel(&key);
                return;
            }
            Next::After(wait) => {
                inner.failures.remove(&key);
                wait
            }
            Next::Retry => {
                let failures = inner.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                FIRST_RETRY.saturating_mul(1 << (*failures - 1).min(16)).min(LAST_RETRY)
            }
        };
        inner.cancel(&key);
        let at = Instant::now() + wait.min(LONGEST_WAIT);
        inner.due.insert(key.clone(), at);
        inner.timers.entry(at).or_default().push(key);
    }

    fn fire(&self, now: Instant) {
        let mut inner = self.lock();
        while let Some(entry) = inner.timers.first_entry()
            && *entry.key() <= now
        {
            for key in entry.remove() {
                inner.due.remove(&key);
                if inner.queued.insert(key.clone()) {
                    inner.ready.push_back(key);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        // No code that can panic runs under the lock, so the state is consistent even then.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash> Inner<K> {
    fn cancel(&mut self, key: &K) {
        if let Some(at) = self.due.remove(key)
            && let Some(keys) = self.timers.get_mut(&at)
        {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                self.timers.remove(&at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_task_per_key_and_one_more_look() {
        let queue = Arc::new(Queue::default());
        let shutdown = CancellationToken::new();
        let (running, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        queue.add("a");
        queue.add("a");
        let work = {
            let (queue, running, runs, shutdown) =
                (queue.clone(), running.clone(), runs.clone(), shutdown.clone());
            move |key| {
                let (queue, running, runs, shutdown) =
                    (queue.clone(), running.clone(), runs.clone(), shutdown.clone());
                async move {
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two tasks on one key");
                    if runs.fetch_add(1, Ordering::SeqCst) == 0 {
                        queue.add(key);
                    } else {
                        shutdown.cancel();
                    }
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Next::Wait
                }
            }
        };
        queue.run(4, shutdown, work).await;
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_waits_for_ever_ends_no_queue() {
        let (queue, shutdown) = (Arc::new(Queue::default()), CancellationToken::new());
        queue.add(1);
        let (runs, stop) = (Arc::new(AtomicUsize::new(0)), shutdown.clone());
        let work = move |_| {
            if runs.fetch_add(1, Ordering::SeqCst) > 0 {
                stop.cancel();
            }
            std::future::ready(Next::After(Duration::MAX))
        };
        queue.run(1, shutdown, work).await;
    }

    #[tokio::test(start_paused = true)]
    async fn failures_wait_longer_each_time() {
        let queue = Arc::new(Queue::default());
        let shutdown = CancellationToken::new();
        queue.add(1);
        let times = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();
        let work = {
            let (times, shutdown) = (times.clone(), shutdown.clone());
            move |_| {
                let (times, shutdown) = (times.clone(), shutdown.clone());
                async move {
                    let mut times = times.lock().unwrap();
                    times.push(start.elapsed().as_millis());
                    if times.len() == 4 {
                        shutdown.cancel();
                    }
                    Next::Retry
                }
            }
        };
        queue.run(1, shutdown, work).await;
        let times = times.lock().unwrap().clone();
        let waits: Vec<u128> = times.windows(2).map(|pair| (pair[1] - pair[0]) / 10 * 10).collect();
        assert_eq!(waits, [50, 100, 200]);
    }
}
