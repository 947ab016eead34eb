use super::*;
use crate::reservations::entry::CopyWrite;
use fleet_member_state::testing::{pod, reservation, state, used};

/// A book over a state, with all writes that become due, as text, each done at once.
struct Desk {
    book: Book,
    state: MemberState,
    now: Timestamp,
    log: Vec<String>,
}

impl Desk {
    fn new(nodes: &[&str]) -> Self {
        Self { book: Book::default(), state: state(nodes), now: Timestamp::UNIX_EPOCH, log: Vec::new() }
    }

    fn apply(&mut self, reservation: &Reservation) -> &mut Self {
        self.book.apply(reservation, &mut self.state);
        self.settle()
    }

    fn settle(&mut self) -> &mut Self {
        self.book.expire(self.now, &mut self.state);
        self.book.plan_asked(&mut self.state, self.now, 7);
        while let Some(write) = self.book.next_write() {
            let copy = match &write.copy {
                CopyWrite::Keep => "keep",
                CopyWrite::Create(_) => "create",
                CopyWrite::Delete => "delete",
            };
            let answer = write.answer.as_ref().map(|(_, status)| phase(status));
            self.log.push(format!("{} {copy} {}", write.name, answer.unwrap_or_default()));
            let copy = match &write.copy {
                CopyWrite::Keep => None,
                CopyWrite::Delete => Some(CopyState::None),
                CopyWrite::Create(_) => Some(CopyState::Stands),
            };
            let written =
                HoldWritten { name: write.name, copy, answered: write.answer, version: None, refused: None };
            self.book.written(written, &mut self.state);
        }
        self
    }

    fn written(&mut self, write: &HoldWrite, copy: Option<CopyState>, refused: Option<&str>) {
        let refused = refused.map(str::to_owned);
        let written = HoldWritten { name: write.name.clone(), copy, answered: None, version: None, refused };
        self.book.written(written, &mut self.state);
    }

    fn pass(&mut self, seconds: i64) -> &mut Self {
        self.now += SignedDuration::from_secs(seconds);
        self.settle()
    }

    /// Writes since the last look.
    fn log(&mut self) -> String {
        std::mem::take(&mut self.log).join("; ")
    }
}

fn phase(status: &ReservationStatus) -> String {
    let phase = status.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
    let lapses = if status.expires_at.is_some() { " until" } else { "" };
    let message = if phase == "Reserved" { "" } else { status.message.as_deref().unwrap_or_default() };
    format!("{phase}{lapses} {message}").trim_end().to_owned()
}

#[test]
fn asked_reserved_consumed_gone() {
    let mut desk = Desk::new(&["n1 8", "n2 8"]);
    desk.apply(&reservation("r", "u", 1, &["master 1 2", "worker 2 6"]));
    assert_eq!(desk.log(), "r create Reserved until");
    assert_eq!(used(&desk.state), "n1 8/2, n2 6/1");
    desk.book.consume("u", 2);
    desk.book.consume("other", 1);
    assert_eq!(desk.settle().log(), "");
    desk.book.consume("u", 1);
    desk.book.consume("u", 1);
    assert_eq!(desk.settle().log(), "", "nothing is written of it");
    desk.pass(3600);
    assert_eq!(desk.log(), "");
    desk.book.remove("r", &mut desk.state);
    assert_eq!(desk.settle().log(), "r delete ");
    assert_eq!(used(&desk.state), "n1 0/0, n2 0/0");
    assert!(desk.book.entries.is_empty() && desk.book.by_binding.is_empty());
}

#[test]
fn two_gangs_room_for_one() {
    let mut desk = Desk::new(&["n1 8", "n2 8"]);
    desk.book.apply(&reservation("a", "a", 1, &["worker 2 8"]), &mut desk.state);
    desk.book.apply(&reservation("b", "b", 1, &["worker 2 8"]), &mut desk.state);
    desk.settle();
    assert_eq!(
        desk.log(),
        "a create Reserved until; b keep Refused 0 of 2 pods fit; 0/2 nodes are available: 2 Insufficient nvidia.com/gpu (requested 8, available 0)"
    );
    let ReservationState::Closed(status) = &desk.book.entries["b"].verdict else { panic!("refused") };
    let component = &status.refusals[0];
    assert_eq!((component.wanted, component.fit, component.nodes), (2, 0, 2));
    assert_eq!(component.short, ["nvidia.com/gpu: requested 8, available 0"]);
}

#[test]
fn a_hold_lapses_unless_its_pods_exist() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.apply(&reservation("r", "u", 1, &["worker 1 4"]));
    desk.apply(&reservation("s", "v", 1, &["worker 1 4"]));
    desk.log();
    desk.state.apply_pod(&pod("j-worker-0: gpu=4 component=worker reservation=s"));
    assert_eq!(desk.pass(29).log(), "");
    assert_eq!(desk.pass(1).log(), "r delete Expired the job did not arrive within 30 s");
    assert_eq!(desk.pass(3600).log(), "");
    assert_eq!(used(&desk.state), "n1 4/1");
}

#[test]
fn a_copy_that_nobody_knows_of_is_removed() {
    let mut desk = Desk::new(&["n1 8"]);
    let late = reservation("r", "u", 1, &["worker 1 4"]);
    desk.book.see_copy(&late);
    assert_eq!(desk.settle().log(), "r delete ");
    assert!(desk.book.entries.is_empty());
    // One that is wanted stays, told of once or twice.
    desk.apply(&reservation("s", "v", 1, &["worker 1 4"]));
    desk.log();
    desk.book.see_copy(&reservation("s", "v", 1, &["worker 1 4"]));
    assert_eq!(desk.settle().log(), "");
    // The write of this one was given up, and took effect after it was withdrawn.
    let withdrawn = reservation("w", "x", 1, &["worker 1 4"]);
    desk.book.apply(&withdrawn, &mut desk.state);
    desk.book.plan_asked(&mut desk.state, desk.now, 7);
    let write = desk.book.next_write().expect("a copy to make");
    desk.book.remove("w", &mut desk.state);
    desk.written(&write, Some(CopyState::Maybe), None);
    assert_eq!(desk.settle().log(), "w delete ");
    desk.book.see_copy(&withdrawn);
    // It may even arrive between the removal and the answer to it.
    let removal = desk.book.next_write().expect("a removal");
    desk.book.see_copy(&withdrawn);
    desk.written(&removal, Some(CopyState::None), None);
    assert_eq!(desk.settle().log(), "w delete ");
    assert_eq!(used(&desk.state), "n1 4/1");
}

#[test]
fn asking_again_gets_the_same_places() {
    let mut desk = Desk::new(&["n1 8"]);
    let mut asked = reservation("r", "u", 1, &["worker 1 8"]);
    desk.apply(&asked).apply(&asked);
    assert_eq!(desk.log(), "r create Reserved until");
    // Made anew under the same name: answered again, held once.
    asked.metadata.uid = Some("anew".into());
    desk.apply(&asked);
    assert_eq!(desk.log(), "r keep Reserved until");
    assert_eq!(used(&desk.state), "n1 8/1");
}

#[test]
fn a_refused_one_made_anew_is_planned_anew() {
    let mut desk = Desk::new(&["n1 4"]);
    let mut asked = reservation("r", "u", 1, &["worker 1 8"]);
    desk.apply(&asked);
    desk.log();
    desk.state.apply_node(&fleet_member_state::testing::node("n2 8"));
    desk.book.remove("r", &mut desk.state);
    asked.metadata.uid = Some("anew".into());
    desk.apply(&asked);
    assert_eq!(desk.log(), "r create Reserved until");
}

#[test]
fn the_end_of_a_run_gives_back_its_epoch_and_older_ones() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.apply(&reservation("one", "u", 1, &["worker 1 2"]));
    desk.apply(&reservation("two", "u", 2, &["worker 1 2"]));
    desk.apply(&reservation("three", "u", 3, &["worker 1 2"]));
    desk.log();
    desk.book.release("u", 2, &mut desk.state);
    assert_eq!(desk.settle().log(), "one delete ; two delete ");
    assert_eq!(used(&desk.state), "n1 2/1");
}

#[test]
fn copies_are_held_again_after_a_restart() {
    let mut desk = Desk::new(&["n1 8"]);
    let mut held = reservation("r", "u", 1, &["worker 2 4"]);
    let nodes: &[(&str, &[&str])] = &[("worker", &["n1", "n1"])];
    let status = fleet_member_state::testing::status(ReservationPhase::Reserved, nodes);
    // The annotation has the places.
    let text = serde_json::to_string(&status).unwrap();
    held.metadata.annotations =
        Some([(crate::reservations::write::PLACES_ANNOTATION.to_owned(), text)].into());
    desk.book.recover(&held, &mut desk.state);
    desk.settle();
    assert_eq!(desk.log(), "");
    assert_eq!(used(&desk.state), "n1 8/2");
    // The hub did not get the answer before.
    desk.apply(&reservation("r", "u", 1, &["worker 2 4"]));
    assert_eq!(desk.log(), "r keep Reserved");
    desk.book.remove("r", &mut desk.state);
    assert_eq!(desk.settle().log(), "r delete ");
    assert_eq!(used(&desk.state), "n1 0/0");
}

#[test]
fn an_answer_whose_copy_is_lost_is_taken_back() {
    let mut desk = Desk::new(&["n1 8"]);
    let mut answered = reservation("r", "u", 1, &["worker 2 4"]);
    answered.status = Some(fleet_member_state::testing::status(ReservationPhase::Reserved, &[]));
    desk.apply(&answered);
    assert_eq!(desk.log(), "r keep Expired the member holds no places for it any more");
}

/// A write that nobody heard of arrives after the nodes are as before.
#[test]
fn an_answer_that_arrives_late_is_written_over() {
    let mut desk = Desk::new(&["n1 8"]);
    let mut asked = reservation("r", "u", 1, &["worker 1 4"]);
    desk.apply(&asked);
    let ReservationState::Held(held) = desk.book.entries["r"].verdict.clone() else { panic!("held") };
    desk.log();
    let mut seen = |version: &str, status: &ReservationStatus| {
        asked.metadata.resource_version = Some(version.to_owned());
        asked.status = Some(status.clone());
        desk.apply(&asked).log()
    };
    let late = ReservationStatus { bad_nodes: vec!["n1".into()], ..held.clone() };
    assert_eq!(seen("5", &held), "");
    assert_eq!(seen("7", &late), "r keep Reserved until");
    assert_eq!(seen("6", &late), "", "that is how it was before");
    assert_eq!(seen("8", &held), "");
}

#[test]
fn an_amount_that_is_no_quantity_is_refused_by_name() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.apply(&reservation("r", "u", 1, &["worker 2 many"]));
    let log = desk.log();
    assert!(
        log.starts_with("r keep Refused resource \"nvidia.com/gpu\": \"many\" is not a quantity"),
        "{log}"
    );
}

#[test]
fn a_write_that_failed_is_due_again() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.book.apply(&reservation("r", "u", 1, &["worker 1 4"]), &mut desk.state);
    desk.book.plan_asked(&mut desk.state, desk.now, 7);
    let write = desk.book.next_write().unwrap();
    assert!(desk.book.next_write().is_none(), "one write for a name at a time");
    // The job came while the copy was being written, and that write failed.
    desk.book.consume("u", 1);
    desk.written(&write, None, None);
    assert_eq!(desk.settle().log(), "r create Reserved until");
    assert_eq!(desk.pass(3600).log(), "");
}

#[test]
fn a_copy_that_may_stand_is_made_again() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.book.apply(&reservation("r", "u", 1, &["worker 1 4"]), &mut desk.state);
    desk.book.plan_asked(&mut desk.state, desk.now, 7);
    let write = desk.book.next_write().unwrap();
    desk.written(&write, Some(CopyState::Maybe), None);
    assert_eq!(desk.settle().log(), "r create Reserved until");
}

#[test]
fn places_that_cannot_be_stored_are_refused() {
    let mut desk = Desk::new(&["n1 8"]);
    let ask = |desk: &mut Desk, name: &str| {
        desk.book.apply(&reservation(name, name, 1, &["worker 1 4"]), &mut desk.state);
        desk.book.plan_asked(&mut desk.state, desk.now, 7);
        desk.book.next_write().expect("a copy to make")
    };
    let write = ask(&mut desk, "r");
    desk.written(&write, Some(CopyState::Maybe), Some("the annotations are too long"));
    assert_eq!(desk.settle().log(), "r delete Refused the annotations are too long");
    assert_eq!(used(&desk.state), "n1 0/0");
    // A job that has arrived keeps its places.
    let write = ask(&mut desk, "s");
    desk.book.consume("s", 1);
    desk.written(&write, Some(CopyState::Maybe), Some("the annotations are too long"));
    assert_eq!(desk.settle().log(), "s create Reserved until");
    assert_eq!(used(&desk.state), "n1 4/1");
}

#[test]
fn after_a_restart_the_count_begins_anew_with_the_hubs_word() {
    let mut desk = Desk::new(&["n1 8"]);
    let asked = |name: &str| reservation(name, name, 1, &["worker 1 4"]);
    for name in ["came", "late"] {
        let mut held = asked(name);
        let nodes: &[(&str, &[&str])] = &[("worker", &["n1"])];
        let mut status = fleet_member_state::testing::status(ReservationPhase::Reserved, nodes);
        status.expires_at = Some("1960-01-01T00:00:00Z".to_owned());
        let text = serde_json::to_string(&status).unwrap();
        held.metadata.annotations =
            Some([(crate::reservations::write::PLACES_ANNOTATION.to_owned(), text)].into());
        desk.book.recover(&held, &mut desk.state);
    }
    // The hub is not heard: a run may be in these places, whatever the copies say.
    assert_eq!(desk.pass(3600).log(), "");
    desk.apply(&asked("came")).apply(&asked("late"));
    assert_eq!(desk.log(), "came keep Reserved until; late keep Reserved until");
    desk.book.consume("came", 1);
    assert_eq!(desk.pass(29).log(), "");
    assert_eq!(desk.pass(1).log(), "late delete Expired the job did not arrive within 30 s");
    assert_eq!(desk.pass(3600).log(), "");
    assert_eq!(used(&desk.state), "n1 4/1");
}

/// A reservation that a leader of this term asks for.
fn of_term(name: &str, term: i64) -> Reservation {
    let mut asked = reservation(name, name, 1, &["worker 1 1"]);
    asked.spec.term = Some(term);
    asked
}

#[test]
fn a_former_leader_of_the_hub_gets_no_places() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.apply(&of_term("of-leader", 3));
    assert_eq!(desk.log(), "of-leader create Reserved until");
    let older = "term 2 is older than 3, the newest seen of a leader of the hub";
    desk.apply(&of_term("of-former", 2));
    assert_eq!(desk.log(), format!("of-former keep Refused {older}"));
    desk.apply(&of_term("of-leader-too", 3)).apply(&of_term("of-next", 4));
    assert_eq!(desk.log(), "of-leader-too create Reserved until; of-next create Reserved until");
    desk.apply(&reservation("of-no-leader", "u", 1, &["worker 1 1"]));
    assert_eq!(desk.log(), "of-no-leader create Reserved until");
    assert_eq!(used(&desk.state), "n1 4/4");
}

#[test]
fn a_leader_that_only_a_work_has_shown_fences_the_former_one() {
    let mut desk = Desk::new(&["n1 8"]);
    assert_eq!(desk.book.see_term(3), 3);
    assert_eq!(desk.book.see_term(2), 3, "terms of former leaders change nothing");
    desk.apply(&of_term("r", 2));
    assert_eq!(desk.log(), "r keep Refused term 2 is older than 3, the newest seen of a leader of the hub");
}

#[test]
fn a_leader_that_only_a_reservation_has_shown_fences_works_too() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.apply(&of_term("r", 5));
    // What the core passes on to those that look at Works.
    assert_eq!(desk.book.see_term(2), 5);
    // After a restart the copies tell it.
    let mut desk = Desk::new(&["n1 8"]);
    desk.book.recover(&of_term("r", 7), &mut desk.state);
    assert_eq!(desk.book.see_term(2), 7);
}

#[test]
fn a_restored_hub_whose_leaders_count_anew_gets_places() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.book.see_term(9);
    desk.book.forget_terms();
    desk.apply(&of_term("first", 1));
    assert_eq!(desk.log(), "first create Reserved until");
    desk.apply(&of_term("second", 2)).apply(&of_term("late", 1));
    let older = "term 1 is older than 2, the newest seen of a leader of the hub";
    assert_eq!(desk.log(), format!("second create Reserved until; late keep Refused {older}"));
}

/// The copy with which the member's server keeps places on `n1`.
fn copy_on_n1(name: &str) -> Reservation {
    let mut copy = reservation(name, name, 1, &["worker 1 4"]);
    let nodes: &[(&str, &[&str])] = &[("worker", &["n1"])];
    let status = fleet_member_state::testing::status(ReservationPhase::Reserved, nodes);
    let text = serde_json::to_string(&status).unwrap();
    copy.metadata.annotations =
        Some([(crate::reservations::write::PLACES_ANNOTATION.to_owned(), text)].into());
    copy
}

#[test]
fn recovered_places_that_the_hub_does_not_list_are_free_again() {
    let mut desk = Desk::new(&["n1 8"]);
    for name in ["stands", "withdrawn"] {
        desk.book.recover(&copy_on_n1(name), &mut desk.state);
    }
    desk.apply(&reservation("stands", "stands", 1, &["worker 1 4"]));
    desk.log();
    desk.book.listed(&mut desk.state);
    assert_eq!(desk.settle().log(), "withdrawn delete ");
    assert_eq!(used(&desk.state), "n1 4/1");
    assert!(!desk.book.entries.contains_key("withdrawn"));
}

#[test]
fn recovered_places_of_a_job_that_is_there_do_not_lapse_when_the_hub_names_them() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.book.recover(&copy_on_n1("r"), &mut desk.state);
    // The Work comes before the reservation: nothing orders the two watches.
    desk.book.consume("r", 1);
    desk.apply(&reservation("r", "r", 1, &["worker 1 4"]));
    assert_eq!(desk.log(), "r keep Reserved");
    assert_eq!(desk.pass(3600).log(), "");
    assert_eq!(used(&desk.state), "n1 4/1");
}

#[test]
fn places_asked_for_anew_lapse_when_their_answer_says() {
    let mut desk = Desk::new(&["n1 8"]);
    let mut asked = reservation("r", "u", 1, &["worker 1 8"]);
    desk.apply(&asked).pass(20);
    asked.metadata.uid = Some("anew".into());
    desk.apply(&asked);
    let ReservationState::Held(held) = &desk.book.entries["r"].verdict else { panic!("held") };
    assert_eq!(held.expires_at.as_deref(), Some("1970-01-01T00:00:30Z"));
    desk.log();
    assert_eq!(desk.pass(9).log(), "");
    assert_eq!(desk.pass(1).log(), "r delete Expired the job did not arrive within 30 s");
}

#[test]
fn a_copy_of_refused_places_that_arrives_late_is_removed() {
    let mut desk = Desk::new(&["n1 8"]);
    desk.apply(&reservation("r", "u", 1, &["worker 1 9"]));
    desk.log();
    // An earlier process had sent it.
    desk.book.see_copy(&reservation("r", "u", 1, &["worker 1 9"]));
    assert_eq!(desk.settle().log(), "r delete ");
    assert_eq!(used(&desk.state), "n1 0/0");
}
