//! Creates that may still arrive. A create without an answer may take effect long after it was given up, and nothing in
//! its object keeps a server from it. If its run had been declared over by then, the job would run beside whatever has
//! its quota. So a run is not over before the last such create can have arrived. Pure but for the clock.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use crate::keys::ObjectId;

#[derive(Debug, Default)]
pub(crate) struct LateCreates {
    /// How long the server may still work on a request that was given up.
    most: Duration,
    of: BTreeMap<ObjectId, Late>,
}

#[derive(Debug)]
struct Late {
    until: Instant,
    unanswered: usize,
    /// A later create was answered: the object does not come from an unanswered one.
    is_made: bool,
}

impl LateCreates {
    pub fn new(most: Duration) -> Self {
        Self { most, of: BTreeMap::new() }
    }

    /// A create was given up without an answer; or another process may have done so.
    pub fn gave_up(&mut self, id: &ObjectId) {
        let now = Instant::now();
        self.of.retain(|_, late| late.until > now);
        let late = self.of.entry(id.clone()).or_insert(Late { until: now, unanswered: 0, is_made: false });
        late.until = now + self.most;
        late.unanswered += 1;
    }

    /// A create was answered.
    pub fn made(&mut self, id: &ObjectId) {
        if let Some(late) = self.of.get_mut(id) {
            late.is_made = true;
        }
    }

    /// The object is there. If one create alone can have made it, that one has arrived.
    pub fn seen(&mut self, id: &ObjectId) {
        if self.of.get(id).is_some_and(|late| late.unanswered == 1 && !late.is_made) {
            self.of.remove(id);
        }
    }

    /// How long a create of the object may still arrive.
    pub fn left(&self, id: &ObjectId) -> Option<Duration> {
        let left = self.of.get(id)?.until.saturating_duration_since(Instant::now());
        Some(left).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::{advance, pause};

    use super::*;

    const MOST: Duration = Duration::from_secs(60);

    fn id() -> ObjectId {
        ObjectId::of_manifest(&json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "namespace": "default"}}))
    }

    #[tokio::test]
    async fn a_create_without_an_answer_may_arrive_for_a_minute() {
        pause();
        let mut late = LateCreates::new(MOST);
        assert_eq!(late.left(&id()), None);
        late.gave_up(&id());
        assert_eq!(late.left(&id()), Some(MOST));
        advance(MOST / 2).await;
        late.gave_up(&id());
        advance(MOST / 2).await;
        assert_eq!(late.left(&id()), Some(MOST / 2));
        advance(MOST / 2).await;
        assert_eq!(late.left(&id()), None);
    }

    #[tokio::test]
    async fn an_object_shows_that_the_only_create_has_arrived() {
        pause();
        let mut late = LateCreates::new(MOST);
        late.gave_up(&id());
        late.seen(&id());
        assert_eq!(late.left(&id()), None);
        // Of two, one is still on its way; and an answered one says nothing of an earlier one.
        late.gave_up(&id());
        late.gave_up(&id());
        late.seen(&id());
        assert_eq!(late.left(&id()), Some(MOST));
        advance(MOST).await;
        late.gave_up(&id());
        late.made(&id());
        late.seen(&id());
        assert_eq!(late.left(&id()), Some(MOST));
    }
}
