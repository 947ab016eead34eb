use std::collections::BTreeMap;

use super::bed::Bed;
use crate::config::PluginName::*;
use crate::extender::{Answer, GroupQuestion, Question};
use crate::*;

fn bed(verbs: &[&str]) -> Bed {
    let mut extender = Plugin::new(Extender).argument("extender.urlPrefix", "http://extender:8080/");
    for verb in verbs {
        extender = extender.argument(&format!("extender.{verb}Verb"), verb);
    }
    let config = Config {
        actions: vec![Action::Enqueue, Action::Allocate],
        tiers: vec![vec![Plugin::new(Gang), Plugin::new(Predicates), extender]],
        ..Config::default()
    };
    Bed::new(&config).nodes(&["n1 c4m4", "n2 c4m4"])
}

/// The one question that is new.
fn question(bed: &mut Bed, group: &str, question: Question) -> GroupQuestion {
    let asked = bed.cluster.take_questions();
    let group = bed.cluster.find_group("default", group).unwrap();
    assert_eq!(
        asked.iter().map(|asked| (asked.group, asked.question)).collect::<Vec<_>>(),
        [(group, question)]
    );
    asked[0]
}

#[test]
fn arguments_are_read() {
    let compile = |argument: &str, value: &str| {
        let plugin =
            Plugin::new(Extender).argument("extender.urlPrefix", "http://e").argument(argument, value);
        let config = Config { tiers: vec![vec![plugin]], ..Config::default() };
        Policy::compile(&config).map(|policy| policy.extender().unwrap().clone())
    };
    let read = compile("extender.httpTimeout", "250ms").unwrap();
    assert_eq!((read.timeout_ms, read.ignorable, read.predicate), (250, false, None));
    assert_eq!(compile("extender.httpTimeout", "2s").unwrap().timeout_ms, 2_000);
    let wrong = |argument, value| compile(argument, value).unwrap_err().to_string();
    assert_eq!(
        wrong("extender.httpTimeout", "0s"),
        "plugin extender, argument extender.httpTimeout: found \"0s\"; allowed: a duration such as 100ms or 2s"
    );
    assert_eq!(
        wrong("extender.urlPrefix", "extender"),
        "plugin extender, argument extender.urlPrefix: found \"extender\"; allowed: an address such as http://extender:8080"
    );
}

#[test]
fn a_group_enters_when_the_extender_says_so() {
    let mut bed = bed(&["jobEnqueueable"]).groups(&["a default phase=Pending minres=c1m1"]);
    bed.cycle_at(0);
    assert_eq!((bed.phase("a"), bed.why("a").as_str()), ("Pending", "waiting for the extender to answer"));
    let asked = question(&mut bed, "a", Question::MayEnter);
    bed.cycle_at(1);
    assert_eq!(bed.cluster.take_questions(), [], "it is asked once");
    bed.cluster.hear(asked, Answer::No("the licence server is full".to_owned()));
    bed.cycle_at(2);
    assert_eq!((bed.phase("a"), bed.why("a").as_str()), ("Pending", "the licence server is full"));
    assert_eq!(bed.cluster.next_word_ends(), Some(1 + 5));
    bed.cycle_at(6);
    // A no is no end; what was said to the question before counts no more.
    let again = question(&mut bed, "a", Question::MayEnter);
    bed.cluster.hear(asked, Answer::Yes);
    bed.cycle_at(6);
    assert_eq!(bed.phase("a"), "Pending");
    bed.cluster.hear(again, Answer::Yes);
    bed.cycle_at(7);
    assert_eq!((bed.phase("a"), bed.why("a").as_str()), ("Inqueue", ""));
}

#[test]
fn scores_choose_among_the_nodes_that_fit() {
    let mut bed = bed(&["prioritize"]).groups(&["a default", "b default"]).pods(&["a-a-0 a c1m1"]);
    let class = bed.cluster.pod(bed.pods["a-a-0"]).class;
    bed.cycle_at(0);
    assert_eq!((bed.binds().as_str(), bed.why("a").as_str()), ("", "waiting for the extender to answer"));
    let asked = question(&mut bed, "a", Question::Scores(class));
    let scores = BTreeMap::from([("n2".to_owned(), 7.5), ("elsewhere".to_owned(), 100.0)]);
    bed.cluster.hear(asked, Answer::Scores(scores));
    bed.cycle_at(1);
    assert_eq!(bed.binds(), "a-a-0>n2");
    bed.pod("b-a-0 b c1m1");
    bed.cycle_at(2);
    // Each group has its own.
    question(&mut bed, "b", Question::Scores(class));
}

#[test]
fn a_veto_sends_the_pod_elsewhere_for_a_while() {
    let mut bed = bed(&["predicate"]).groups(&["a default", "b default"]).pods(&["a-a-0 a c1m1"]);
    let pod = bed.pods["a-a-0"];
    let turned_away = |bed: &mut Bed, node: &str| {
        assert_eq!(bed.binds(), format!("a-a-0>{node}"));
        bed.bound.clear();
        bed.cluster.update_pod(pod, Status::Pending, None);
        bed.cluster.veto(pod, node, "no licence here");
    };
    bed.cycle_at(0);
    turned_away(&mut bed, "n1");
    bed.cycle_at(1);
    turned_away(&mut bed, "n2");
    bed.cycle_at(2);
    assert_eq!(bed.binds(), "");
    let why = "0/2 nodes are unavailable: 2 node(s) were refused by the extender (no licence here).";
    assert_eq!(bed.why("a"), why);
    // Its equal is not refused with it.
    bed.pod("b-a-0 b c1m1");
    bed.cycle_at(3);
    assert_eq!(bed.binds(), "b-a-0>n1");
    bed.cycle_at(30);
    assert_eq!(bed.binds(), "a-a-0>n1 b-a-0>n1", "the veto on n1 was at 0");
}

#[test]
fn silence_holds_the_group_for_a_moment() {
    let mut bed = bed(&["predicate"]).groups(&["a default"]).pods(&["a-a-0 a c1m1"]);
    bed.cluster.no_answer(bed.pods["a-a-0"], "the extender does not answer");
    bed.cycle_at(4);
    assert_eq!((bed.binds().as_str(), bed.why("a").as_str()), ("", "the extender does not answer"));
    bed.cycle_at(5);
    assert_eq!(bed.binds(), "a-a-0>n1");
}

#[test]
fn a_queue_that_the_extender_calls_overused_holds_no_more() {
    let mut bed = bed(&["queueOverused"]).groups(&["a default"]).pods(&["a-a-0 a c1"]);
    bed.cycle_at(0);
    assert_eq!((bed.binds().as_str(), bed.why("a").as_str()), ("", "waiting for the extender to answer"));
    let asked = question(&mut bed, "a", Question::MayHold);
    bed.cluster.hear(asked, Answer::No("full".to_owned()));
    bed.cycle_at(1);
    assert_eq!((bed.binds().as_str(), bed.why("a").as_str()), ("", "full"));
    bed.cycle_at(6);
    let asked = question(&mut bed, "a", Question::MayHold);
    bed.cluster.hear(asked, Answer::Yes);
    bed.cycle_at(7);
    assert_eq!(bed.binds(), "a-a-0>n1");
}

#[test]
fn who_is_kept_leaves_for_nobody_for_a_while() {
    let config = Config {
        actions: vec![Action::Preempt],
        tiers: vec![vec![
            Plugin::with(Priority, &[Hook::JobOrder, Hook::Preemptable]),
            Plugin::with(Gang, &[Hook::Preemptable, Hook::JobPipelined, Hook::JobStarving]),
        ]],
        ..Config::default()
    };
    let mut bed = Bed::new(&config)
        .nodes(&["n1 c2"])
        .queues(&["q"])
        .groups(&["low q min=0 prio=1", "high q prio=9"])
        .pods(&["l-a-0 low c1 on=n1", "l-a-1 low c1 on=n1", "h-a-0 high c1"]);
    bed.cluster.keep(bed.pods["l-a-0"]);
    bed.cluster.keep(bed.pods["l-a-1"]);
    bed.cycle_at(0);
    assert_eq!(bed.evictions(), "");
    assert_eq!(bed.cluster.next_word_ends(), Some(30));
    bed.cycle_at(30);
    assert_eq!(bed.evicted.len(), 1);
}
