//! Holds that lost places to pods of other schedulers: they are planned again while none of their pods is
//! bound.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Book, plan};
use crate::reservations::entry::{ReservationState, expired};
use fleet_member_state::{Hold, MemberState};

impl Book {
    /// Replaces lost places: all places of a gang of which no pod is bound yet. If nothing else fits, a hold
    /// whose job has not arrived expires; one whose job is present is planned again later ([`Book::replan`]).
    /// Returns whether any new place is held.
    pub fn repair(
        &mut self,
        lost: &BTreeMap<String, Vec<String>>,
        state: &mut MemberState,
        now: Timestamp,
        next_report: i64,
    ) -> bool {
        let mut held = false;
        for (name, nodes) in lost {
            let Some(entry) = self.entries.get_mut(name) else { continue };
            let ReservationState::Held(status) = &mut entry.verdict else { continue };
            let mut nodes = nodes.clone();
            nodes.sort_unstable();
            nodes.dedup();
            let why = format!("places on {} were taken by pods of other schedulers", nodes.join(", "));
            tracing::warn!(reservation = %name, "{why}");
            self.due.insert(name.clone());
            if !state.is_vacant(name) {
                status.message = Some(why);
                continue;
            }
            state.remove_hold(name);
            match plan(name, &entry.spec, state, now, next_report) {
                Ok(mut anew) => {
                    state.add_hold(Hold::new(name, &entry.spec, &anew.nodes));
                    // The time to live stays.
                    anew.expires_at = status.expires_at.take();
                    anew.message = Some(format!("{why}; {}", anew.message.unwrap_or_default()));
                    *status = anew;
                    held = true;
                }
                Err(refused) if !entry.arrived => {
                    let message = format!("{why}; {}", refused.message.unwrap_or_default());
                    entry.verdict = ReservationState::Closed(expired(&message));
                }
                Err(refused) => {
                    status.nodes.clear();
                    status.message = Some(format!("{why}; {}", refused.message.unwrap_or_default()));
                    self.placeless.insert(name.clone());
                }
            }
        }
        held
    }

    /// Whether holds wait for places.
    pub fn has_placeless(&self) -> bool {
        !self.placeless.is_empty()
    }

    /// Searches places for present jobs that have lost theirs. Returns whether any is held.
    pub fn replan(&mut self, state: &mut MemberState, now: Timestamp, next_report: i64) -> bool {
        let mut held = false;
        for name in std::mem::take(&mut self.placeless) {
            let Some(entry) = self.entries.get_mut(&name) else { continue };
            let ReservationState::Held(status) = &mut entry.verdict else { continue };
            // Pods of it were placed without it. If they go again, it needs places again.
            if state.is_placed(&name) {
                self.placeless.insert(name);
                continue;
            }
            match plan(&name, &entry.spec, state, now, next_report) {
                Ok(mut anew) => {
                    state.add_hold(Hold::new(&name, &entry.spec, &anew.nodes));
                    anew.expires_at = None;
                    *status = anew;
                    self.due.insert(name);
                    held = true;
                }
                Err(_) => drop(self.placeless.insert(name)),
            }
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_member_state::testing::{pod, reservation, state, used};

    /// A book in which `r`, two places of four GPUs, is held, and what others do next.
    fn held(nodes: &[&str], others: &[&str], consumed: bool) -> (Book, MemberState, bool) {
        let (mut book, mut state) = (Book::default(), state(nodes));
        book.apply(&reservation("r", "u", 1, &["w 2 4"]), &mut state);
        book.plan_asked(&mut state, Timestamp::UNIX_EPOCH, 7);
        if consumed {
            book.consume("u", 1);
        }
        for text in others {
            let mut other = pod(text);
            other.spec.scheduler_name = Some("default-scheduler".into());
            state.apply_pod(&other);
        }
        let lost = state.take_crowd().places;
        let anew = book.repair(&lost, &mut state, Timestamp::UNIX_EPOCH, 8);
        (book, state, anew)
    }

    fn verdict(book: &Book) -> String {
        let Some(entry) = book.entries.get("r") else { return "gone".to_owned() };
        match &entry.verdict {
            ReservationState::Held(status) => {
                let until = if status.expires_at.is_some() { " until" } else { "" };
                format!("held {:?}{until}: {}", status.nodes, status.message.clone().unwrap_or_default())
            }
            ReservationState::Closed(status) => {
                format!("{:?}: {}", status.phase, status.message.clone().unwrap_or_default())
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn places_are_held_elsewhere_as_long_as_nobody_is_in_them() {
        let (book, state, anew) = held(&["n1 4", "n2 4", "n3 4"], &["x: gpu=4 node=n1"], false);
        assert!(anew);
        assert_eq!(used(&state), "n1 4/1, n2 4/1, n3 4/1");
        let found = verdict(&book);
        assert!(
            found.starts_with("held {\"w\": [\"n2\", \"n3\"]} until: places on n1 were taken"),
            "{found}"
        );
    }

    #[test]
    fn a_hold_that_finds_no_other_places_lapses_while_its_job_is_on_its_way() {
        let (book, state, anew) = held(&["n1 4", "n2 4"], &["x: gpu=4 node=n1"], false);
        assert!(!anew && !book.has_placeless());
        assert_eq!(used(&state), "n1 4/1, n2 0/0");
        let found = verdict(&book);
        assert!(
            found.starts_with("Some(Expired): places on n1 were taken by pods of other schedulers"),
            "{found}"
        );
    }

    #[test]
    fn a_job_that_is_here_gets_places_when_there_is_room_again() {
        let (mut book, mut state, anew) = held(&["n1 4", "n2 4"], &["x: gpu=4 node=n1"], true);
        assert!(!anew && book.has_placeless());
        assert_eq!(used(&state), "n1 4/1, n2 0/0", "nothing is held for a gang that cannot start");
        assert!(!book.replan(&mut state, Timestamp::UNIX_EPOCH, 9));
        state.remove_pod(&fleet_member_state::testing::key("x"));
        assert!(book.replan(&mut state, Timestamp::UNIX_EPOCH, 9) && !book.has_placeless());
        assert_eq!(used(&state), "n1 4/1, n2 4/1");
        assert!(verdict(&book).starts_with("held {\"w\": [\"n1\", \"n2\"]}: "), "{}", verdict(&book));
    }

    #[test]
    fn a_job_whose_hold_lapsed_on_its_way_gets_places_when_there_is_room_again() {
        let (mut book, mut state, _) = held(&["n1 4", "n2 4"], &["x: gpu=4 node=n1"], false);
        assert!(verdict(&book).starts_with("Some(Expired)"), "{}", verdict(&book));
        book.consume("u", 1);
        assert!(book.has_placeless());
        assert!(!book.replan(&mut state, Timestamp::UNIX_EPOCH, 9) && book.has_placeless());
        state.remove_pod(&fleet_member_state::testing::key("x"));
        assert!(book.replan(&mut state, Timestamp::UNIX_EPOCH, 10) && !book.has_placeless());
        assert_eq!(used(&state), "n1 4/1, n2 4/1");
        assert!(verdict(&book).starts_with("held {\"w\": [\"n1\", \"n2\"]}: "), "{}", verdict(&book));
    }

    #[test]
    fn a_gang_that_was_placed_in_part_and_gave_way_gets_places_again() {
        let (mut book, mut state, anew) = held(&["n1 4", "n2 4"], &["x: gpu=4 node=n1"], true);
        assert!(!anew && book.has_placeless());
        // Behind its gate until its places were lost: the cluster's scheduler has bound one of two pods.
        let mut bound = pod("p: reservation=r component=w gpu=4 node=n2");
        bound.spec.scheduler_name = Some("default-scheduler".into());
        state.apply_pod(&bound);
        assert!(state.is_placed("r"), "{bound:?}");
        state.remove_pod(&fleet_member_state::testing::key("x"));
        assert!(!book.replan(&mut state, Timestamp::UNIX_EPOCH, 9), "its pods have a place");
        state.remove_pod(&fleet_member_state::testing::key("p"));
        assert!(book.replan(&mut state, Timestamp::UNIX_EPOCH, 10) && !book.has_placeless());
        assert_eq!(used(&state), "n1 4/1, n2 4/1");
    }
}
