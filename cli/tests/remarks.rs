//! What `fleet simulate` says of values that it ignores or does not know: a warning for each on stderr, with file, line,
//! object, field and what is allowed. The log on stdout and the exit status are those of the run.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
    command.env_remove("KUBECONFIG").env_remove("FLEET_HOME").env("HOME", "/nonexistent");
    command.arg("simulate").args(arguments).output().expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A tree of two leaves, a queue, and a job that runs on: with this root of the tree, policy of the queue, node and job.
fn scenario(root: &str, queue: &str, node: &str, job: &str) -> String {
    format!(
        "clusters:
  - name: east
    nodePools: [{{name: p, allocatable: {{{node}}}}}]
objects:
  - apiVersion: scheduling.sigs.k8s.io/v1beta1
    kind: ElasticQuotaTree
    metadata: {{name: t}}
    spec:
      root: {{name: root, min: {{cpu: 8}}, max: {{cpu: 8}}, {root}
        children: [{{name: a, min: {{cpu: 1}}, namespaces: [default]}}, {{name: b, namespaces: [other]}}]}}
  - apiVersion: scheduling.x-k8s.io/v1alpha1
    kind: Queue
    metadata:
      name: q
      labels: {{create-by-kubequeue: 'true'}}
      annotations: {{kube-queue/quota-fullname: root/a}}
    spec: {{queuePolicy: {queue}}}
events:
  - {{at: 1s, job: {{name: j, {job}components: [{{name: worker, requests: {{cpu: 1}}}}]}}}}
"
    )
}

#[test]
fn what_is_ignored_or_unknown_is_warned_of_and_the_run_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.yaml").to_string_lossy().to_string();
    let run = |text: &str| {
        std::fs::write(&file, text).expect("written");
        simulate(&[&file])
    };
    let good = run(&scenario("", "Block", "cpu: 8", ""));
    assert_eq!((good.status.code(), text(&good.stderr).as_str()), (Some(0), ""));
    assert!(text(&good.stdout).contains("RUNS on east"), "{}", text(&good.stdout));

    let odd = run(&scenario(
        "attributes: {fleet.dev/share-preemption: fairshare}, mins: {cpu: 8},",
        "Fifo",
        "cpu: 8, gpu: 8",
        "annotations: {sim.fleet.dev/runtime: soon, sim.fleet.dev/fail-on: west}, ",
    ));
    let warned = text(&odd.stderr);
    assert_eq!(odd.status.code(), Some(0), "{warned}");
    assert!(text(&odd.stdout).contains("RUNS on east"), "{}", text(&odd.stdout));
    assert!(warned.lines().all(|line| line.starts_with(&format!("warning: {file}:"))), "{warned}");
    let told = [
        ("1: cluster east: ", "nodePools[p].allocatable: found the resource \"gpu\"; allowed: cpu, memory"),
        ("5: ElasticQuotaTree t: ", "found the field \"mins\"; allowed: name, namespaces"),
        ("5: ElasticQuotaTree t: ", "[fleet.dev/share-preemption]: found fairshare; allowed: FairShare"),
        ("11: Queue q: ", "spec.queuePolicy: found \"Fifo\"; allowed: Priority, Block, Intelligent"),
        ("19: PyTorchJob j: ", "[sim.fleet.dev/runtime]: found \"soon\"; allowed: forever, or numbers"),
        ("19: PyTorchJob j: ", "[sim.fleet.dev/fail-on]: found \"west\"; allowed: east; it is ignored"),
    ];
    for (place, sentence) in told {
        let line = warned.lines().find(|line| line.contains(sentence));
        let line = line.unwrap_or_else(|| panic!("{sentence} in\n{warned}"));
        assert!(line.starts_with(&format!("warning: {file}:{place}")), "{place} in {line}");
    }
    assert_eq!(warned.lines().count(), told.len(), "{warned}");

    let lost = run(&scenario("", "Block", "cpu: 8", "priorityClassName: nosuch, "));
    let (warned, story) = (text(&lost.stderr), text(&lost.stdout));
    assert!(
        warned.contains("priorityClassName: found \"nosuch\"; allowed: a PriorityClass of this file"),
        "{warned}"
    );
    assert!(
        story.contains("InvalidWorkload") && story.contains("found nosuch; allowed: a PriorityClass"),
        "{story}"
    );
}

/// Many remarks are counted, so that one mistake made everywhere does not bury the rest.
#[test]
fn of_many_remarks_the_first_are_told_and_the_others_counted() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("s.yaml").to_string_lossy().to_string();
    let mut many = scenario("", "Block", "cpu: 8", "");
    for number in 0..53 {
        many.push_str(&format!(
            "  - {{at: 2s, job: {{name: k{number}, annotations: {{sim.fleet.dev/runtime: soon}}, components: [{{name: worker, \
             requests: {{cpu: 1}}}}]}}}}\n"
        ));
    }
    std::fs::write(&file, many).expect("written");
    let run = simulate(&[&file, "-o", "jsonl"]);
    let warned = text(&run.stderr);
    assert_eq!(run.status.code(), Some(0), "{warned}");
    assert_eq!(warned.lines().count(), 51, "{warned}");
    assert_eq!(warned.lines().last(), Some(format!("warning: {file}: 3 more of these").as_str()));
    assert!(text(&run.stdout).lines().all(|line| line.starts_with('{')), "warnings are on stderr alone");
}

/// A trace says which of its columns it lacks or leaves aside.
#[test]
fn a_trace_says_what_of_it_is_left_aside() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let (trace, fleet) = (path("jobs.csv"), path("fleet.yaml"));
    std::fs::write(&trace, "job_id,submit_s,duration_s,gpus,cluster\na,0,10,8,b\n").expect("written");
    let pool = "{name: n, count: 2, allocatable: {cpu: 64, nvidia.com/gpu: 8}}";
    let clusters =
        format!("clusters: [{{name: a, nodePools: [{pool}]}}, {{name: b, nodePools: [{pool}]}}]\n");
    std::fs::write(&fleet, clusters).expect("written");
    let ignored = "note: the recorded cluster is ignored; --pin-clusters keeps it";
    let free = simulate(&["--trace", &trace, "--fleet", &fleet]);
    assert!(free.status.success() && text(&free.stderr).contains(ignored), "{}", text(&free.stderr));
    let pinned = simulate(&["--trace", &trace, "--fleet", &fleet, "--pin-clusters"]);
    assert!(pinned.status.success() && !text(&pinned.stderr).contains(ignored), "{}", text(&pinned.stderr));
}
