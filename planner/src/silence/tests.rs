use super::*;

fn at(seconds: i64) -> i64 {
    seconds * 1000
}

fn job(namespace: &str) -> Key {
    (namespace.to_string(), "job".to_string())
}

#[test]
fn an_answer_is_waited_for_only_so_long() {
    let (mut silence, job) = (Silence::default(), job("team"));
    let mut due = |uid, now| silence.due(&job, Some(uid), "east", at(now));
    assert_eq!((due("a", 100), due("a", 110)), (at(115), at(115)));
    assert_eq!(due("b", 112), at(127), "another reservation");
    assert_eq!(due("b", 50), at(65), "a clock that was set back");
    silence.forget(&job);
    assert_eq!(silence.due(&job, Some("b"), "east", at(120)), at(135));
}

#[test]
fn a_member_that_answers_others_may_take_longer() {
    let mut silence = Silence::default();
    assert_eq!(silence.due(&job("slow"), None, "east", at(100)), at(115));
    silence.answered(&job("other"), "east", at(110));
    assert_eq!(silence.due(&job("slow"), None, "east", at(111)), at(125));
    silence.answered(&job("other"), "east", at(215));
    assert_eq!(silence.due(&job("slow"), None, "east", at(216)), at(220), "but not for ever");
}

#[test]
fn a_silent_member_is_asked_ever_less_often_until_it_answers() {
    let mut silence = Silence::default();
    let missed = |silence: &mut Silence, now| ["a", "b"].map(|n| silence.missed(&job(n), "east", at(now)));
    missed(&mut silence, 100);
    missed(&mut silence, 101);
    assert_eq!(silence.next_end(at(0)), Some(at(115)), "asked together");
    assert_eq!(silence.take_changed(at(101)).len(), 1);
    assert!(silence.is_muted("east", at(114)) && !silence.is_muted("east", at(115)));
    assert!(silence.take_changed(at(114)).is_empty());
    assert_eq!((silence.take_changed(at(115)).len(), silence.take_changed(at(115)).len()), (1, 0));
    assert_eq!(silence.next_end(at(0)), None);
    missed(&mut silence, 130);
    assert_eq!(silence.next_end(at(0)), Some(at(160)));
    for now in 1..20 {
        silence.take_changed(at(1_000 * now));
        missed(&mut silence, 1_000 * now);
    }
    assert_eq!(silence.next_end(at(0)), Some(at(19_300)), "five minutes at most");
    silence.answered(&job("a"), "east", at(19_001));
    assert!(!silence.is_muted("east", at(19_001)));
    missed(&mut silence, 30_000);
    assert_eq!(silence.next_end(at(0)), Some(at(30_015)));
}

/// A job that an honest member cannot answer keeps no other tenant out of it.
#[test]
fn one_namespace_alone_mutes_no_member() {
    let mut silence = Silence::default();
    for now in 1..20 {
        silence.missed(&job("a"), "east", at(100 * now));
    }
    assert_eq!((silence.next_end(at(0)), silence.take_changed(at(2_000)).len()), (None, 0));
    silence.answered(&job("b"), "east", at(2_000));
    silence.missed(&job("a"), "east", at(2_001));
    silence.missed(&job("b"), "east", at(2_002));
    assert!(!silence.is_muted("east", at(2_003)), "it answered a moment ago");
}

#[test]
fn a_member_that_takes_up_nothing_gets_nothing_until_it_does() {
    let mut silence = Silence::default();
    silence.sent(&job("a"), "east", "1", at(100));
    silence.sent(&job("a"), "east", "1", at(130));
    silence.sent(&job("b"), "east", "2", at(110));
    silence.sent(&job("c"), "west", "3", at(110));
    assert_eq!(silence.next_end(at(110)), Some(at(160)));
    assert!(silence.take_changed(at(169)).is_empty(), "one job may be at fault");
    assert_eq!(silence.take_changed(at(170)), BTreeSet::from(["east".to_string()]));
    assert!(silence.is_muted("east", at(900)) && !silence.is_muted("west", at(900)));
    silence.answered(&job("d"), "east", at(171));
    assert!(silence.take_changed(at(171)).is_empty(), "to grant reservations is not enough");
    silence.heard(&job("a"), Some("east"), at(180));
    assert_eq!(silence.take_changed(at(180)), BTreeSet::from(["east".to_string()]));
    assert!(!silence.is_muted("east", at(180)));
}

#[test]
fn a_member_that_takes_up_one_after_the_other_is_slow_and_no_more() {
    let mut silence = Silence::default();
    let many: Vec<Key> = (0..20).map(|n| ("a".to_string(), format!("j{n}"))).collect();
    many.iter().for_each(|job| silence.sent(job, "east", "u", at(100)));
    for (n, job) in many.iter().enumerate() {
        let now = at(150 + 50 * n as i64);
        assert!(silence.take_changed(now).is_empty());
        silence.heard(job, Some("east"), now);
    }
    // Works that are taken back are no sign of life.
    many.iter().for_each(|job| silence.sent(job, "west", "u", at(2000)));
    silence.heard(&many[0], None, at(2050));
    assert_eq!(silence.take_changed(at(2060)), BTreeSet::from(["west".to_string()]));
    many.iter().for_each(|job| silence.heard(job, None, at(2070)));
    assert_eq!(silence.take_changed(at(2070)).len(), 1, "nothing of it waits there any more");
}
