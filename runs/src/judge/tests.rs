use fleet_policies::spec::{ApplicationFailover, ClusterFailover, DecisionConditions};
use proptest::prelude::*;

use super::*;

fn moves(toleration_s: i64) -> Failover {
    let conditions = DecisionConditions { toleration_seconds: Some(toleration_s) };
    let application = ApplicationFailover { decision_conditions: conditions, ..Default::default() };
    let cluster = ClusterFailover { toleration_seconds: Some(toleration_s), ..Default::default() };
    Failover { application: Some(application), cluster: Some(cluster), allow_two_runs: None }
}

fn gang(failover: Option<&Failover>) -> Job<'_> {
    Job {
        failover,
        is_gang: true,
        is_batch: true,
        is_suspended: false,
        start_timeout_ms: None,
        failures: 0,
        admitted_ms: None,
    }
}

fn ready() -> Cluster<'static> {
    Cluster { name: "east", ready_since_ms: Some(None), ..Cluster::default() }
}

fn judgement(job: &Job, run: &Run, report: &Report, cluster: &Cluster, now_ms: i64) -> Judgement {
    judge(job, run, report, cluster, None, &Limits::default(), now_ms)
}

fn reason(found: &Judgement) -> Option<Reason> {
    match &found.verdict {
        Verdict::Evict(over) => Some(over.reason),
        _ => None,
    }
}

const STARTED: Run = Run {
    since_ms: 0,
    started_at_ms: Some(1),
    lost_since_ms: None,
    unhealthy_since_ms: None,
    suspended_since_ms: None,
};

#[test]
fn a_failure_is_tolerated_from_when_it_was_first_seen_and_then_ends_the_run() {
    let failover = moves(10);
    let failed = Report { outcome: Some(Outcome::Failed), ..Report::default() };
    let first = judgement(&gang(Some(&failover)), &STARTED, &failed, &ready(), 5000);
    assert_eq!(first.verdict, Verdict::Tolerated { since_ms: 5000 });
    assert_eq!(first.wake_ms, Some(15_000));
    let noted = Run { unhealthy_since_ms: Some(5000), ..STARTED };
    let due = judgement(&gang(Some(&failover)), &noted, &failed, &ready(), 15_000);
    assert_eq!(reason(&due), Some(Reason::ApplicationFailure));
    // The last allowed run is the job's end, at once.
    let last = Job { failures: 2, ..gang(Some(&failover)) };
    assert_eq!(judgement(&last, &noted, &failed, &ready(), 5000).verdict, Verdict::Ended(Outcome::Failed));
    // So is any failure without a policy, and of what is copied to several clusters.
    assert_eq!(
        judgement(&gang(None), &STARTED, &failed, &ready(), 5000).verdict,
        Verdict::Ended(Outcome::Failed)
    );
    let copied = Job { is_gang: false, ..gang(Some(&failover)) };
    assert_eq!(
        judgement(&copied, &STARTED, &failed, &ready(), 5000).verdict,
        Verdict::Ended(Outcome::Failed)
    );
}

#[test]
fn an_unhealthy_run_that_must_never_be_purged_goes_on_unless_two_runs_are_accepted() {
    let mut failover = moves(0);
    let unhealthy = Report { is_running: true, is_unhealthy: true, ..Report::default() };
    failover.application.as_mut().expect("one").purge_mode = Some(PurgeMode::Never);
    let kept = judgement(&gang(Some(&failover)), &STARTED, &unhealthy, &ready(), 0);
    assert_eq!(kept.verdict, Verdict::GoesOn);
    failover.allow_two_runs = Some(true);
    let moved = judgement(&gang(Some(&failover)), &STARTED, &unhealthy, &ready(), 0);
    assert_eq!(reason(&moved), Some(Reason::ApplicationFailure));
}

#[test]
fn a_gang_that_does_not_start_gives_its_places_back_when_its_cluster_had_the_time() {
    let waits = Run { since_ms: 1000, ..Run::default() };
    let nothing = Report::default();
    let early = judgement(&gang(None), &waits, &nothing, &ready(), 600_999);
    assert_eq!((early.verdict, early.wake_ms), (Verdict::GoesOn, Some(601_000)));
    assert_eq!(
        reason(&judgement(&gang(None), &waits, &nothing, &ready(), 601_000)),
        Some(Reason::GangNotStarted)
    );
    // A cluster that came back gets the whole time, a silent one is not judged, the job may say another limit.
    let back = Cluster { ready_since_ms: Some(Some(500_000)), ..ready() };
    assert_eq!(judgement(&gang(None), &waits, &nothing, &back, 601_000).wake_ms, Some(1_100_000));
    let silent = Cluster { ready_since_ms: None, ..ready() };
    assert_eq!(judgement(&gang(None), &waits, &nothing, &silent, i64::MAX).verdict, Verdict::GoesOn);
    let hasty = Job { start_timeout_ms: Some(1), ..gang(None) };
    assert_eq!(reason(&judgement(&hasty, &waits, &nothing, &ready(), 1001)), Some(Reason::GangNotStarted));
    let suspended = Job { is_suspended: true, ..gang(None) };
    assert_eq!(judgement(&suspended, &waits, &nothing, &ready(), i64::MAX).verdict, Verdict::GoesOn);
}

#[test]
fn the_time_of_a_run_goes_on_while_its_job_is_suspended() {
    let short = Job { admitted_ms: Some(60_000), ..gang(None) };
    let runs = Run { since_ms: 1000, started_at_ms: Some(10_000), ..Run::default() };
    let (running, paused) = (
        Report { is_running: true, ..Report::default() },
        Report { is_suspended: true, ..Report::default() },
    );
    // Its controller ends a run that was never suspended.
    assert_eq!(judgement(&short, &runs, &running, &ready(), i64::MAX).verdict, Verdict::GoesOn);
    let noted = standing(runs, &paused, &ready(), 20_000);
    assert_eq!(noted.suspended_since_ms, Some(20_000));
    assert_eq!(standing(noted, &running, &ready(), 30_000), noted, "the record stays when it is resumed");
    for report in [&paused, &running] {
        let early = judgement(&short, &noted, report, &ready(), 69_999);
        assert_eq!((early.verdict, early.wake_ms), (Verdict::GoesOn, Some(70_000)));
        assert_eq!(reason(&judgement(&short, &noted, report, &ready(), 70_000)), Some(Reason::RunTimeOver));
    }
    // Its end is reported first. What declared no time was let past nobody.
    let ended = Report { outcome: Some(Outcome::Succeeded), ..paused.clone() };
    let verdict = judgement(&short, &noted, &ended, &ready(), 70_000).verdict;
    assert_eq!(verdict, Verdict::Ended(Outcome::Succeeded));
    assert_eq!(judgement(&gang(None), &noted, &paused, &ready(), i64::MAX).verdict, Verdict::GoesOn);
    // A silent cluster is not judged, and one that is back reports first what has ended there.
    let silent = Cluster { ready_since_ms: None, ..ready() };
    assert_eq!(judgement(&short, &noted, &paused, &silent, i64::MAX).verdict, Verdict::GoesOn);
    let back = Cluster { ready_since_ms: Some(Some(100_000)), ..ready() };
    assert_eq!(judgement(&short, &noted, &paused, &back, 100_000).wake_ms, Some(160_000));
    // One that was suspended before it started counts from its binding.
    let waits = Run { started_at_ms: None, ..noted };
    assert_eq!(reason(&judgement(&short, &waits, &paused, &ready(), 61_000)), Some(Reason::RunTimeOver));
}

#[test]
fn a_lost_cluster_is_left_after_its_toleration_and_never_without_the_mark() {
    let failover = moves(30);
    let lost = Cluster { is_lost: true, ready_since_ms: None, ..ready() };
    let noted = standing(STARTED, &Report::default(), &lost, 100_000);
    assert_eq!(noted.lost_since_ms, Some(100_000));
    let early = judgement(&gang(Some(&failover)), &noted, &Report::default(), &lost, 129_999);
    assert_eq!((early.wake_ms, early.wants_mark), (Some(130_000), false));
    let unmarked = judgement(&gang(Some(&failover)), &noted, &Report::default(), &lost, 130_000);
    assert_eq!((unmarked.verdict, unmarked.wants_mark), (Verdict::GoesOn, true));
    let marked = Cluster { may_leave: true, ..lost.clone() };
    let left = judgement(&gang(Some(&failover)), &noted, &Report::default(), &marked, 130_000);
    assert_eq!(reason(&left), Some(Reason::ClusterLost));
    // Without a policy it stays, whatever happens.
    let stays = judgement(&gang(None), &noted, &Report::default(), &marked, i64::MAX);
    assert_eq!(stays.verdict, Verdict::GoesOn);
    // Silence after a restart forgets nothing; only an answer does.
    let unknown = Cluster { is_lost: false, ready_since_ms: None, ..ready() };
    assert_eq!(standing(noted, &Report::default(), &unknown, 140_000).lost_since_ms, Some(100_000));
    assert_eq!(standing(noted, &Report::default(), &ready(), 140_000).lost_since_ms, None);
}

#[test]
fn what_is_asked_comes_first_then_gone_taint_and_refusal() {
    let refused = Eviction { reason: Reason::NameTaken, message: "taken".to_string() };
    let report = Report { refused: Some(refused), is_running: true, ..Report::default() };
    let taint = NotTolerated { key: "power".to_string(), until_ms: 0 };
    let cluster = Cluster { is_gone: true, taint: Some(taint), ..ready() };
    let asked = Eviction { reason: Reason::Preempted, message: "for another".to_string() };
    let of = |cluster: &Cluster, asked: Option<&Eviction>| {
        reason(&judge(&gang(None), &STARTED, &report, cluster, asked, &Limits::default(), 0))
    };
    assert_eq!(of(&cluster, Some(&asked)), Some(Reason::Preempted));
    assert_eq!(of(&cluster, None), Some(Reason::ClusterGone));
    let tainted = Cluster { is_gone: false, ..cluster.clone() };
    assert_eq!(of(&tainted, None), Some(Reason::TaintUntolerated));
    assert_eq!(of(&ready(), None), Some(Reason::NameTaken));
    // A job that has ended has ended, whoever asks.
    let ended = Report { outcome: Some(Outcome::Succeeded), ..report.clone() };
    let verdict = judge(&gang(None), &STARTED, &ended, &cluster, Some(&asked), &Limits::default(), 0).verdict;
    assert_eq!(verdict, Verdict::Ended(Outcome::Succeeded));
}

prop_compose! {
    fn facts()(
        failing in any::<bool>(), unhealthy in any::<bool>(), running in any::<bool>(), lost in any::<bool>(),
        heard in any::<bool>(), may_leave in any::<bool>(), tainted in prop::option::of(0..2_000_000i64),
    ) -> (Report, Cluster<'static>) {
        let outcome = failing.then_some(Outcome::Failed);
        let report = Report { outcome, is_running: running, is_unhealthy: unhealthy, ..Report::default() };
        let cluster = Cluster {
            is_lost: lost,
            ready_since_ms: (!lost && heard).then_some(None),
            may_leave,
            taint: tainted.map(|until_ms| NotTolerated { key: "power".to_string(), until_ms }),
            ..ready()
        };
        (report, cluster)
    }
}

proptest! {
    /// A verdict changes by time alone only at the time that was said, and any look in between says the same.
    #[test]
    fn nothing_changes_before_the_time_that_was_said((report, cluster) in facts(), toleration_s in 0..1000i64, later in 0..3_000_000i64) {
        let failover = moves(toleration_s);
        let job = gang(Some(&failover));
        let run = standing(Run::default(), &report, &cluster, 0);
        let first = judgement(&job, &run, &report, &cluster, 0);
        let noted = match first.verdict {
            Verdict::Tolerated { since_ms } => Run { unhealthy_since_ms: Some(since_ms), ..run },
            _ => run,
        };
        let again = judgement(&job, &noted, &report, &cluster, later);
        if first.wake_ms.is_none_or(|wake_ms| later < wake_ms) {
            prop_assert_eq!(&again.verdict, &first.verdict);
        }
        // What is over stays over, for the same reason, unless a taint's toleration has ended meanwhile.
        if let (Verdict::Evict(_), Verdict::Evict(_)) = (&first.verdict, &again.verdict)
            && reason(&again) != Some(Reason::TaintUntolerated)
        {
            prop_assert_eq!(reason(&first), reason(&again));
        }
    }
}
