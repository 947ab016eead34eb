//! For simulations: a store in memory that goes back to an older state, as after the restore of a backup, or after a
//! loss of power that took commits along.
//!
//! Revisions go on far above those used before, as at every start of a store on disk, so that no revision of the
//! undone time is used again. Watchers find that theirs is too old. Absent on purpose: the incarnation, which the
//! server sets (see `incarnation`); torn files (see `disk::power`).

use crate::store::{GAP, Life, Store};
use crate::table::{Event, EventKind, Undone};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::time::Instant;

impl Store {
    /// The newest revision that was committed until `at`; None if the logs do not reach back so far.
    pub fn revision_at(&self, at: Instant) -> Option<u64> {
        let tables = self.tables();
        let newest = tables.iter().map(|table| table.revision_at(at)).max()?;
        tables.iter().all(|table| table.floor() <= newest).then_some(newest)
    }

    /// The state of revision `to` again. False, and nothing happens: the store is on disk, or its logs do not reach
    /// back so far.
    pub fn go_back(&self, to: u64) -> bool {
        let mut sequence = self.published.sequence();
        let tables = self.tables();
        if self.disk.is_some() || to > sequence.rv || tables.iter().any(|table| table.floor() > to) {
            return false;
        }
        let (start, at) = (sequence.rv + GAP, Instant::now());
        sequence.rv = start;
        self.lives.write().unwrap_or_else(PoisonError::into_inner).push(Life { resumed: to, start });
        let undone: Vec<_> = tables.iter().map(|table| (table, table.go_back(to, start))).collect();
        self.published.durable.store(start, Ordering::Release);
        self.published.delivered.store(start, Ordering::Release);
        // Those who keep sums over all objects learn what changed; watchers list again.
        if let Some(hook) = self.published.hook.get() {
            for (table, undone) in &undone {
                undone.iter().filter_map(|undone| event(undone, at)).for_each(|event| hook(table, &event));
            }
        }
        for table in &tables {
            table.feed.restart(start);
        }
        self.published.feed.send_replace(start);
        true
    }
}

/// What happened to an object, as one event.
fn event(undone: &Undone, at: Instant) -> Option<Arc<Event>> {
    let (kind, obj, prev) = match (&undone.now, &undone.then) {
        (None, None) => return None,
        (None, Some(then)) => (EventKind::Added, then, None),
        (Some(now), None) => (EventKind::Deleted, now, Some(now.clone())),
        (Some(now), Some(then)) => (EventKind::Modified, then, Some(now.clone())),
    };
    Some(Arc::new(Event::new(kind, obj.clone(), prev, at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::Concern;
    use crate::store::{Place, Range, Write};
    use serde_json::json;
    use std::sync::Mutex;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_store_goes_back_and_whoever_watched_finds_its_revision_too_old() {
        let store = Store::memory(100);
        let table = store.table("/things");
        let create =
            |key: &str| Write::Create { table: table.clone(), key: key.into(), value: json!({"n": 1}) };
        let change = |prev: &Arc<crate::obj::Obj>| Write::Update {
            table: table.clone(),
            prev: prev.clone(),
            value: json!({"n": 2}),
        };
        let mut all = store.commit(vec![create("x/kept"), create("x/changed"), create("x/deleted")]).unwrap();
        let (deleted, changed) = (all.pop().unwrap(), all.pop().unwrap());
        let then = store.durable();
        tokio::time::advance(Duration::from_secs(10)).await;
        let moment = Instant::now();
        tokio::time::advance(Duration::from_secs(10)).await;
        let heard: Arc<Mutex<Vec<(EventKind, String)>>> = Arc::default();
        let hears = heard.clone();
        store.on_event(Box::new(move |_, event| {
            hears.lock().unwrap().push((event.kind, event.obj.key.to_string()));
        }));
        let newer = store.commit(vec![change(&changed)]).unwrap().remove(0);
        store.commit(vec![Write::Delete { table: table.clone(), prev: deleted, value: None }]).unwrap();
        store.commit(vec![create("x/made")]).unwrap();
        let lost = store.durable();
        let mut lane = table.feed.listen(Some(Concern::Namespace("x".into())), || store.durable());
        lane.settle();
        heard.lock().unwrap().clear();

        assert_eq!(store.revision_at(moment), Some(then));
        assert!(!store.go_back(lost + 1), "that has not happened yet");
        assert!(store.go_back(then));
        let told =
            [("changed", EventKind::Modified), ("deleted", EventKind::Added), ("made", EventKind::Deleted)];
        assert_eq!(*heard.lock().unwrap(), told.map(|(key, kind)| (kind, format!("x/{key}"))));
        let page = store.page(&table, Range::default()).await.unwrap().unwrap();
        let keys: Vec<&str> = page.items.iter().map(|obj| &*obj.key).collect();
        assert_eq!(keys, ["x/changed", "x/deleted", "x/kept"]);
        assert_eq!(page.items[0].rv, changed.rv, "as it was then");
        assert!(page.rv > lost);

        assert!(lane.woken().await);
        for cursor in [then, lost] {
            assert!(lane.events(cursor).is_none() && table.events(cursor, page.rv, 10).is_none());
        }
        assert_eq!(store.place(then), Place::Reached(page.rv));
        assert_eq!(store.place(lost), Place::Elsewhere);
        assert_eq!(store.commit(vec![change(&newer)]).unwrap_err(), crate::store::Refused::Changed(0));
        let next = store.commit(vec![change(&changed)]).unwrap().remove(0);
        assert_eq!(store.place(next.rv), Place::Reached(next.rv));
        assert_eq!(table.events(page.rv, next.rv, 10).unwrap().len(), 1);
    }
}
