//! A value that many follow, as `tokio::sync::watch`, with one thing more: whoever waits is woken in an order that only
//! depends on who came when. Tokio's own draws it from a random number, so that no simulated run would repeat.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// Waiters are spread over so many lists, so that many of them do not meet at one lock.
const LISTS: usize = 8;

#[derive(Debug)]
struct Shared<T> {
    value: RwLock<T>,
    version: AtomicU64,
    closed: AtomicBool,
    lists: [Notify; LISTS],
    next: AtomicUsize,
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, T> {
        self.value.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        for list in &self.lists {
            list.notify_waiters();
        }
    }
}

/// Who changes the value.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// Who follows it.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
    list: usize,
}

/// The sender is gone: the value will not change any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl<T> Sender<T> {
    /// A value that nobody follows yet.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            lists: Default::default(),
            next: AtomicUsize::new(0),
        }))
    }

    /// A follower for whom the value of this moment is known already.
    pub fn subscribe(&self) -> Receiver<T> {
        let list = self.0.next.fetch_add(1, Ordering::Relaxed) % LISTS;
        Receiver { shared: self.0.clone(), seen: self.0.version.load(Ordering::SeqCst), list }
    }

    /// The value now. Not to be held over a wait.
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.read()
    }

    /// Changes the value and wakes who follows.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        {
            let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
            change(&mut value);
            self.0.version.fetch_add(1, Ordering::SeqCst);
        }
        self.0.wake();
    }

    /// Replaces the value and wakes who follows.
    pub fn send_replace(&self, value: T) {
        self.send_modify(|old| *old = value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::SeqCst);
        self.0.wake();
    }
}

impl<T> Receiver<T> {
    /// The value now, which counts as known from here on. Not to be held over a wait.
    pub fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.shared.read();
        self.seen = self.shared.version.load(Ordering::SeqCst);
        value
    }

    /// The value of this moment counts as known.
    pub fn settle(&mut self) {
        self.seen = self.shared.version.load(Ordering::SeqCst);
    }

    /// Waits for a value that is not known yet. Nothing is lost when the wait is given up.
    ///
    /// # Errors
    /// The sender is gone.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            let mut woken = std::pin::pin!(self.shared.lists[self.list].notified());
            // From here on no change can slip by.
            woken.as_mut().enable();
            let version = self.shared.version.load(Ordering::SeqCst);
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.shared.closed.load(Ordering::SeqCst) {
                return Err(Closed);
            }
            woken.await;
        }
    }

    /// Waits until the value is as asked for.
    ///
    /// # Errors
    /// The sender is gone.
    pub async fn wait_for(&mut self, wanted: impl Fn(&T) -> bool) -> Result<(), Closed> {
        loop {
            if wanted(&*self.borrow_and_update()) {
                return Ok(());
            }
            self.changed().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_change_is_seen_once_and_the_end_too() {
        let sender = Sender::new(1);
        let mut receiver = sender.subscribe();
        sender.send_replace(2);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(*receiver.borrow_and_update(), 2);
        sender.send_modify(|value| *value += 1);
        assert_eq!(receiver.wait_for(|value| *value == 3).await, Ok(()));
        let waits = tokio::spawn(async move { receiver.changed().await });
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(waits.await.expect("no panic"), Err(Closed));
    }

    #[tokio::test]
    async fn who_waits_is_woken_in_the_same_order_each_time() {
        let mut orders = Vec::new();
        for _ in 0..5 {
            let (sender, order) = (Sender::new(0), Arc::new(Mutex::new(Vec::new())));
            let wait = |name: usize| {
                let (mut receiver, order) = (sender.subscribe(), order.clone());
                tokio::spawn(async move {
                    receiver.changed().await.expect("the sender lives");
                    order.lock().expect("no panic").push(name);
                })
            };
            let tasks: Vec<_> = (0..30).map(wait).collect();
            tokio::task::yield_now().await;
            sender.send_replace(1);
            for task in tasks {
                task.await.expect("no panic");
            }
            let order = order.lock().expect("no panic").clone();
            orders.push(order);
        }
        assert!(orders.windows(2).all(|pair| pair[0] == pair[1]), "{orders:?}");
    }
}
