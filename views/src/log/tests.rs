use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    BindingFacts, ClusterFacts, Id, Job, Known, NodeGroup, QuotaFacts, Said, Sight, State, TreeFacts,
    UnitFacts,
    amounts::GPU,
    facts::{AttemptFacts, End, RunFacts},
};

/// A run with a reclaim, as `fleet simulate -o jsonl` writes it.
const RUN: &str = r#"{"t":0,"event":"Submitted","job":"b/long","kind":"PyTorchJob","gpus":8,"components":{"worker":2},"priority":0}
{"t":0,"event":"Queued","job":"b/long","queue":"root/b","reason":"Queuing","message":"its queue has not reached it yet"}
{"t":0,"event":"Admitted","job":"b/long","queue":"root/b"}
{"t":0,"event":"Bound","job":"b/long","cluster":"east","epoch":1,"components":{"worker":2}}
{"t":0.5,"event":"Started","job":"b/long","cluster":"east","epoch":1,"nodes":{"worker":["n-0","n-1"]}}
{"t":10,"event":"Submitted","job":"a/own","kind":"Job","gpus":4,"components":{"job":1},"priority":3}
{"t":10,"event":"Queued","job":"a/own","queue":"root/a","reason":"Queuing","message":""}
{"t":11,"event":"Preempted","job":"b/long","cluster":"east","epoch":1,"by":"a/own","reason":"Reclaim","lost_s":11}
{"t":11,"event":"Requeued","job":"b/long","queue":"root/b","reason":"Preempted"}
{"t":12,"event":"Admitted","job":"a/own","queue":"root/a"}
{"t":12,"event":"Bound","job":"a/own","cluster":"east","epoch":1,"components":{"job":1}}
{"t":12,"event":"Started","job":"a/own","cluster":"east","epoch":1,"nodes":{"job":["n-0"]}}
{"t":20,"event":"Finished","job":"a/own","cluster":"east","epoch":1,"result":"Succeeded","attempts":1}
{"t":30,"event":"Deleted","job":"a/own"}
{"summary":{"jobs":2,"violations":[{"invariant":3,"t":4.5,"objects":[],"what":"node n-0 is full"}]}}
"#;

/// The same with the lines that `fleet simulate --log` writes besides.
fn simulated_log() -> String {
    let group = NodeGroup {
        count: 3,
        gpus: 8,
        gpus_free: 8,
        names: vec!["n-0".into(), "n-1".into(), "n-2".into()],
        ..NodeGroup::default()
    };
    let amounts = |gpus: i64| BTreeMap::from([(GPU.to_owned(), gpus)]);
    let facts = ClusterFacts {
        ready: Some(true),
        nodes: 3,
        nodes_ready: 3,
        allocatable: amounts(24),
        groups: vec![group],
        ..ClusterFacts::default()
    };
    let leaf =
        |name: &str, min: i64| QuotaFacts { name: name.into(), min: amounts(min), ..QuotaFacts::default() };
    let root =
        QuotaFacts { children: vec![leaf("a", 16), leaf("b", 4)], max: amounts(24), ..leaf("root", 20) };
    let of_none = |event| Line { at_ms: 0, id: None, event }.text(None);
    let cluster = of_none(Event::Cluster { cluster: "east".into(), facts: Some(Box::new(facts)) });
    let tree = of_none(Event::Tree { root: Some(Box::new(root)), problems: vec![] });
    format!("{cluster}\n{tree}\n{RUN}")
}

fn read(text: &str) -> Recording {
    let mut recording = Recording::default();
    for line in text.lines() {
        recording.push(line).expect("a line of a log");
    }
    recording
}

/// What a fresh reader knows at an instant.
fn fresh(text: &str, at_ms: i64) -> Known {
    let mut replay = Replay::default();
    for (index, line) in text.lines().enumerate() {
        if let Parsed::Line(line) = Line::parse(index + 1, line).expect("a line")
            && line.at_ms <= at_ms
        {
            replay.take(&line);
        }
    }
    replay.shown()
}

/// Whether two show the same: their versions count changes.
fn same(a: &Known, b: &Known) -> bool {
    (a.jobs(), a.clusters(), a.tree()) == (b.jobs(), b.clusters(), b.tree())
        && crate::home(a, &Sight::all(), "", 0) == crate::home(b, &Sight::all(), "", 0)
}

fn id(text: &str) -> Id {
    let (namespace, name) = text.split_once('/').expect("namespace/name");
    (namespace.to_owned(), name.to_owned())
}

fn at(recording: &mut Recording, at_ms: i64) -> std::sync::Arc<Known> {
    let number = recording.number_at(at_ms);
    recording.after(number).0
}

#[test]
fn a_run_is_seen_at_each_instant() {
    let mut recording = read(RUN);
    let state = |recording: &mut Recording, at_ms, job: &str| {
        at(recording, at_ms)
            .job(&id(job))
            .map(|job| (job.state(), job.queue().to_owned(), job.said().0.to_owned()))
    };
    let is = |state, queue: &str, reason: &str| Some((state, queue.to_owned(), reason.to_owned()));
    assert_eq!(state(&mut recording, 0, "b/long"), is(State::Starting, "root/b", ""));
    assert_eq!(state(&mut recording, 0, "a/own"), None);
    assert_eq!(state(&mut recording, 9_000, "b/long"), is(State::Running, "root/b", ""));
    assert_eq!(state(&mut recording, 10_000, "a/own"), is(State::Waiting, "root/a", "Queuing"));
    assert_eq!(state(&mut recording, 15_000, "b/long"), is(State::Waiting, "root/b", "Preempted"));
    assert_eq!(state(&mut recording, 15_000, "a/own"), is(State::Running, "root/a", ""));
    assert_eq!(state(&mut recording, 29_999, "a/own"), is(State::Succeeded, "root/a", ""));
    assert_eq!(state(&mut recording, 30_000, "a/own"), None);
    let known = at(&mut recording, 15_000);
    let long = known.job(&id("b/long")).expect("a job");
    let message = "preempted by a/own (Reclaim)".to_owned();
    let attempt = AttemptFacts {
        cluster: "east".into(),
        epoch: 1,
        reason: "Preempted".into(),
        message,
        started_s: Some(0),
        ended_s: 11,
    };
    assert_eq!(long.binding.attempts, [attempt]);
    assert_eq!(long.binding.resource, "pytorchjobs.kubeflow.org");
    assert_eq!(recording.violations(), ["invariant 3: node n-0 is full"]);
    // Without lines about them, queues and clusters are those that jobs name.
    let paths: Vec<String> =
        crate::queues(&known, &Sight::all()).rows.into_iter().map(|row| row.path).collect();
    assert_eq!(paths, ["root", "root/a", "root/b"]);
    assert_eq!(known.clusters().keys().collect::<Vec<_>>(), ["east"]);
}

#[test]
fn use_of_nodes_and_queues_follows_from_jobs() {
    let text = simulated_log();
    let mut recording = read(&text);
    let rows = |known: &Known| {
        let text = |row: crate::QueueRow| {
            format!(
                "{}: {}",
                row.path,
                row.bars.iter().map(|bar| bar.text.as_str()).collect::<Vec<_>>().join("; ")
            )
        };
        crate::queues(known, &Sight::all()).rows.into_iter().map(text).collect::<Vec<_>>()
    };
    let known = at(&mut recording, 5_000);
    assert_eq!(
        rows(&known),
        [
            "root: 8 of 24 gpu used, 20 guaranteed",
            "root/a: 0 gpu used, 16 guaranteed, 4 lent",
            "root/b: 8 gpu used, 4 guaranteed, 4 borrowed"
        ]
    );
    let east = &known.clusters()["east"];
    let groups: Vec<_> =
        east.groups.iter().map(|group| (group.count, group.gpus_free, group.names.clone())).collect();
    assert_eq!(groups, [(1, 8, vec!["n-2".to_owned()]), (2, 4, vec!["n-0".to_owned(), "n-1".to_owned()])]);
    assert_eq!(east.allocated[GPU], 8);
    assert_eq!(at(&mut recording, 25_000).clusters()["east"].groups[0].count, 3);
    assert_eq!(recording.after(2).1, Coverage { all: true, left_out: 0 });
}

#[test]
fn where_an_instant_lies_is_told() {
    let recording = read(RUN);
    let around = recording.around(11_500);
    assert_eq!((around.begin_ms, around.end_ms, around.number, around.of), (0, 30_000, 9, 14));
    assert_eq!((around.earlier_ms, around.last_ms, around.later_ms), (Some(11_000), 11_000, Some(12_000)));
    assert_eq!(
        around.stories,
        ["b/long preempted in east for a/own (Reclaim)", "b/long queued again in root/b: Preempted"]
    );
    let at_line = recording.around(11_000);
    assert_eq!((at_line.earlier_ms, at_line.later_ms), (Some(10_000), Some(12_000)));
    let first = recording.around(-5);
    assert_eq!((first.at_ms, first.earlier_ms, first.later_ms), (0, None, Some(500)));
    let last = recording.around(99_000);
    assert_eq!((last.at_ms, last.earlier_ms, last.later_ms), (30_000, Some(20_000), None));
    assert_eq!(Recording::default().around(7), Around { at_ms: 0, ..Around::default() });
}

#[test]
fn a_line_that_is_none_says_which_and_what_is_allowed() {
    let mut recording = read("{\"t\":5,\"event\":\"Tree\"}");
    let mut check = |text: &str, expected: &str| {
        let error = recording.push(text).expect_err(text).to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(error.contains("; allowed: "), "{error}");
        error
    };
    check("{\"t\":6,\"ev", "line 2: found no JSON (EOF while parsing");
    check("{}", "line 3: found no t and event;");
    check("{\"t\":4,\"event\":\"Tree\"}", "line 4: found t 4 after 5;");
    let unknown = check(r#"{"t":6,"event":"Teleported","job":"a/b"}"#, "line 5: found event Teleported;");
    assert!(unknown.ends_with("Finished, Deleted, Violation"), "{unknown}");
    check(
        r#"{"t":6,"event":"Bound","job":"a/b","cluster":"east"}"#,
        "line 6: found event Bound with missing field `epoch`",
    );
    check(
        r#"{"t":6,"event":"Bound","job":"a/b","cluster":7,"epoch":1}"#,
        "line 7: found event Bound with invalid type",
    );
    check(r#"{"t":6,"event":"Deleted"}"#, "line 8: found an event of a job without job");
    check(r#"{"t":-6,"event":"Deleted","job":"a/b"}"#, "line 9: found no t and event");
    recording.push("{\"summary\":{}}").expect("a summary");
    assert!(recording.push("{\"summary\":{}}").expect_err("over").to_string().contains("after the summary"));
}

/// Many jobs, so that there are checkpoints and that some of them go.
fn long_log(jobs: i64) -> String {
    let mut text = String::new();
    for job in 0..jobs {
        let (at, name) = (job, format!("team-{}/job-{job}", job % 7));
        let mut line = |rest: &str| text.push_str(&format!("{{\"t\":{at},\"job\":\"{name}\",{rest}}}\n"));
        line(
            "\"event\":\"Submitted\",\"kind\":\"PyTorchJob\",\"gpus\":8,\"components\":{\"worker\":1},\"priority\":0",
        );
        line(&format!(
            "\"event\":\"Queued\",\"queue\":\"root/q{}\",\"reason\":\"Queuing\",\"message\":\"\"",
            job % 3
        ));
        if job % 2 == 0 {
            line("\"event\":\"Admitted\",\"queue\":\"root/q0\"");
            line("\"event\":\"Bound\",\"cluster\":\"east\",\"epoch\":1");
            line("\"event\":\"Started\",\"cluster\":\"east\",\"epoch\":1");
        }
    }
    text
}

#[test]
fn every_instant_is_that_of_a_fresh_replay() {
    let text = long_log(400);
    let mut recording = read(&text);
    // There and back, near and far, the same twice.
    for at_ms in [399_000, 0, 250_500, 250_500, 251_000, 249_000, 500, 1_000_000, 200_000] {
        let number = recording.number_at(at_ms);
        let (seen, _) = recording.after(number);
        assert!(same(&seen, &fresh(&text, at_ms)), "{at_ms}");
    }
}

#[test]
fn what_is_kept_of_a_long_log_is_bounded() {
    let text = long_log(9_000);
    let recording = read(&text);
    assert_eq!(recording.around(0).of, 31_500);
    let kept = recording.kept();
    assert!(kept.0 >= 3 && kept.0 <= 40 && kept.1 <= 60_000, "{kept:?}");
    // From the last checkpoint before it, no instant is far.
    assert!(recording.longest_way() <= 31_500 / 6, "{}", recording.longest_way());
}

fn facts(name: &str) -> BindingFacts {
    BindingFacts {
        api_version: "kubeflow.org/v1".into(),
        kind: "PyTorchJob".into(),
        resource: "pytorchjobs.kubeflow.org".into(),
        name: name.into(),
        is_job: true,
        created_s: 1_000,
        requests: BTreeMap::from([(GPU.to_owned(), 8), ("cpu".to_owned(), 1_500)]),
        pods: 2,
        ..BindingFacts::default()
    }
}

fn waiting(reason: &str) -> UnitFacts {
    let said = Said { reason: reason.into(), message: "for a while".into(), since_s: 1_000 };
    UnitFacts {
        queue: "root/a".into(),
        created_s: 1_000,
        waits: true,
        preemptible: true,
        said: (!reason.is_empty()).then_some(said),
        ..UnitFacts::default()
    }
}

fn events(lines: &[String]) -> Vec<String> {
    let event = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        value["event"].as_str().unwrap_or_default().to_owned()
    };
    lines.iter().map(event).collect()
}

#[test]
fn a_life_is_told_as_events() {
    let mut recorder = Recorder::default();
    let train = id("a/train-pytorchjob");
    let mut binding = facts("train");
    let mut unit = waiting("MaxJobs");
    let mut tell = |at_s: i64, binding: &BindingFacts, unit: Option<&UnitFacts>| {
        let lines = recorder.job(at_s * 1000, &train, Some((binding.clone(), unit.cloned())));
        events(&lines)
    };
    assert_eq!(tell(1_001, &binding, Some(&unit)), ["Submitted", "Queued"]);
    assert_eq!(tell(1_001, &binding, Some(&unit)), Vec::<String>::new());
    unit.said = waiting("ExceedsQuota").said;
    assert_eq!(tell(1_010, &binding, Some(&unit)), ["Pending"]);
    unit = UnitFacts { waits: false, said: None, ..unit };
    (binding.clusters, binding.epoch) = (vec!["east".into()], 1);
    binding.run = Some(RunFacts { since_s: 1_011, ..RunFacts::default() });
    assert_eq!(tell(1_012, &binding, Some(&unit)), ["Admitted", "Bound"]);
    binding.run = Some(RunFacts { since_s: 1_011, started_s: Some(1_020), lost_since_s: None });
    unit.runs = true;
    assert_eq!(tell(1_021, &binding, Some(&unit)), ["Started"]);
    binding.attempts.push(AttemptFacts {
        cluster: "east".into(),
        epoch: 1,
        reason: "Preempted".into(),
        message: "preempted by b/wide-rb in root (Reclaim); 9 s of work are lost".into(),
        started_s: Some(1_020),
        ended_s: 1_030,
    });
    (binding.clusters, binding.run) = (vec![], None);
    unit = UnitFacts { waits: true, runs: false, said: waiting("Queuing").said, ..unit };
    assert_eq!(tell(1_031, &binding, Some(&unit)), ["Preempted", "Requeued", "Pending"]);
    let end = End { is_success: false, at_s: 1_040, reason: Some("Stopped".into()), ..End::default() };
    binding.end = Some(end);
    assert_eq!(tell(1_041, &binding, None), ["Finished"]);
    // What no event says is told whole.
    binding.priority = 7;
    assert_eq!(tell(1_050, &binding, None), ["Known"]);
    assert_eq!(events(&recorder.job(1_060_000, &train, None)), ["Deleted"]);
    assert_eq!(recorder.job(1_061_000, &train, None), Vec::<String>::new());
}

#[test]
fn a_baseline_says_all_that_fits() {
    let mut recorder = Recorder::default();
    for index in 0..20 {
        let mut binding = facts(&format!("job-{index}"));
        binding.created_s = index;
        if index < 10 {
            binding.end = Some(End { at_s: index, is_success: true, ..End::default() });
        }
        recorder.job(index * 1000, &id(&format!("a/job-{index}")), Some((binding, None)));
    }
    recorder.cluster(0, "east", Some(ClusterFacts::default()));
    assert_eq!(recorder.cluster(1, "east", Some(ClusterFacts::default())), None);
    assert!(recorder.tree(0, &TreeFacts::default()).is_some());
    assert_eq!(recorder.tree(1, &TreeFacts::default()), None);
    let whole = recorder.baseline(30_000, usize::MAX);
    let text = whole.join("\n");
    assert!(same(&fresh(&text, 30_000), &recorder_known(&recorder)));
    let half = recorder.baseline(30_000, text.len() / 2).join("\n");
    assert!(half.len() <= text.len() / 2 + 100);
    let mut recording = read(&half);
    let (known, told) = recording.after(usize::MAX);
    assert_eq!(told.left_out + known.jobs().len(), 20);
    assert!(told.left_out > 5 && known.jobs().len() > 5);
    let live = known.jobs().values().filter(|job| job.binding.end.is_none());
    assert_eq!(live.count().min(9), known.jobs().len().min(9), "those that live come first");
}

fn recorder_known(recorder: &Recorder) -> Known {
    let text = recorder.baseline(30_000, usize::MAX).join("\n");
    fresh(&text, 30_000)
}

/// One state of a job after another, as they may follow each other on a hub; times within what is tolerated.
fn any_state() -> impl Strategy<Value = Option<(BindingFacts, Option<UnitFacts>)>> {
    let attempts = proptest::collection::vec((any::<bool>(), 1..4_i64), 0..3);
    let unit = proptest::option::of((any::<bool>(), any::<bool>(), 0..3_usize, 0..3_i32));
    let of_run = (proptest::option::of(0..2_usize), any::<bool>(), any::<bool>(), 0..4_i64);
    let end = proptest::option::of((any::<bool>(), any::<bool>()));
    (any::<bool>(), attempts, unit, of_run, end, 0..2_i32).prop_map(
        |(is_there, attempts, unit, run, end, priority)| {
            let mut binding = facts("j");
            (binding.priority, binding.epoch) = (priority, run.3);
            binding.attempts = attempts
                .into_iter()
                .map(|(is_preempted, epoch)| AttemptFacts {
                    cluster: "west".into(),
                    epoch,
                    reason: if is_preempted { "Preempted" } else { "ClusterLost" }.into(),
                    message: String::new(),
                    started_s: None,
                    ended_s: 1_000,
                })
                .collect();
            if let Some(cluster) = run.0 {
                binding.clusters = vec![["east", "west"][cluster].into()];
                let (started_s, lost_since_s) = (run.1.then_some(1_000), run.2.then_some(1_000));
                binding.run = Some(RunFacts { since_s: 1_000, started_s, lost_since_s });
            }
            binding.end = end.map(|(is_success, says)| End {
                is_success,
                cluster: "east".into(),
                at_s: 1_000,
                reason: says.then(|| "Stopped".to_owned()),
                message: None,
            });
            let unit = unit.map(|(waits, runs, reason, priority)| UnitFacts {
                waits,
                runs: runs && !waits,
                priority,
                ..waiting(["", "MaxJobs", "ExceedsQuota"][reason])
            });
            is_there.then_some((binding, unit))
        },
    )
}

fn shown(job: Option<&Job>) -> Option<(State, String, String, String, usize)> {
    let job = job?;
    // Which queue a job had that is over is not kept on a hub.
    let queue = if job.binding.end.is_some() { "" } else { job.queue() };
    let cluster = job.cluster().to_owned();
    Some((job.state(), queue.to_owned(), job.said().0.to_owned(), cluster, job.binding.attempts.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_reader_knows_what_the_recorder_was_told(states in proptest::collection::vec(any_state(), 1..12)) {
        let mut recorder = Recorder::default();
        let job = id("a/j-rb");
        let mut replay = Replay::default();
        for (index, state) in states.into_iter().enumerate() {
            for text in recorder.job(1_000_000, &job, state.clone()) {
                let Parsed::Line(line) = Line::parse(index, &text).expect("a line") else { panic!("{text}") };
                replay.take(&line);
            }
            let mut wanted = Known::default();
            if let Some((binding, unit)) = state {
                wanted.set_binding(job.clone(), Some(binding));
                wanted.set_unit(job.clone(), unit);
            }
            prop_assert_eq!(shown(replay.known().job(&job)), shown(wanted.job(&job)));
            prop_assert_eq!(replay.known().counts(), wanted.counts());
            prop_assert_eq!(replay.known().position(&job), wanted.position(&job));
        }
    }
}
