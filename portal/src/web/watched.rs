//! Pages that somebody looks at, by what decides what they show, and who waits for more of them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use fleet_views::Sight;
use tokio::sync::{Notify, watch};

use super::drawings::{Drawing, Numbers};

/// What decides what a page shows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub page: String,
    pub sight: Arc<Sight>,
    /// Of a page that shows what is the user's own first: his name, as labels have it.
    pub user: Option<String>,
    /// Of a page for which the hub is asked with the user's own credential.
    pub credential: Option<Vec<u8>>,
}

/// What the task of a page has to say.
#[derive(Clone)]
pub enum Shown {
    /// Nothing has been drawn yet.
    Nothing,
    Drawing(Arc<Drawing>),
    /// The hub does not know the credential any more.
    Over,
}

/// A page that somebody looks at.
pub struct Watched {
    shown: watch::Receiver<Shown>,
    demand: Arc<Demand>,
}

/// Viewers that have taken in what there is and wait for more: for others nothing is drawn.
#[derive(Default)]
pub struct Demand {
    waiting: AtomicUsize,
    comes: Notify,
}

/// One viewer that waits.
pub struct Waits(Arc<Demand>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Demand {
    pub async fn is_there(&self) {
        // A permit of `comes` is kept, so none who comes meanwhile is missed.
        while self.waiting.load(Ordering::Relaxed) == 0 {
            self.comes.notified().await;
        }
    }
}

impl Watched {
    /// What is shown, and what comes.
    pub fn shown(&self) -> watch::Receiver<Shown> {
        self.shown.clone()
    }

    /// The page is drawn as long as somebody holds one of these.
    pub fn wait(&self) -> Waits {
        self.demand.waiting.fetch_add(1, Ordering::Relaxed);
        self.demand.comes.notify_one();
        Waits(self.demand.clone())
    }
}

/// The pages that somebody looks at.
#[derive(Default)]
pub struct Drawn {
    pages: Mutex<BTreeMap<Key, Weak<Watched>>>,
    pub numbers: Numbers,
}

impl Drawn {
    /// The page of this key; where nobody looks at it, a new one, for which the caller has to draw.
    pub fn page(&self, key: Key) -> (Arc<Watched>, Option<Sender>) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = pages.get(&key).and_then(Weak::upgrade) {
            return (watched, None);
        }
        pages.retain(|_, watched| watched.strong_count() > 0);
        let (shown, receiver) = watch::channel(Shown::Nothing);
        let watched = Arc::new(Watched { shown: receiver, demand: Arc::default() });
        pages.insert(key, Arc::downgrade(&watched));
        let demand = watched.demand.clone();
        (watched, Some(Sender { shown, demand }))
    }
}

/// The other end of a page that somebody looks at.
pub struct Sender {
    pub shown: watch::Sender<Shown>,
    pub demand: Arc<Demand>,
}
