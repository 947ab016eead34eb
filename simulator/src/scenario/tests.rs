use std::time::Duration;

use serde_json::json;

use super::*;

const CLUSTERS: &str = "clusters:\n  - name: east\n    nodePools:\n      - {name: a100, count: 2, allocatable: {cpu: 8, nvidia.com/gpu: 8}}\n";

fn read(rest: &str) -> Scenario {
    Scenario::read("s.yaml", &format!("{CLUSTERS}{rest}")).expect(rest)
}

fn applied(event: &Event) -> &Manifest {
    match &event.action {
        Action::Apply(manifest) => manifest,
        other => panic!("{other:?}"),
    }
}

/// What does not count names itself, where it stands and what is allowed.
#[test]
fn values_that_do_not_count_are_remarked_on() {
    let file = |tree: &str, events: &str| {
        format!(
            "clusters: [{{name: east, nodePools: [{{name: p, allocatable: {{cpu: 8}}}}]}}]\nobjects:\n  - apiVersion: \
             scheduling.sigs.k8s.io/v1beta1\n    kind: ElasticQuotaTree\n    metadata: {{name: t}}\n    spec: {{root: \
             {{name: root, min: {{cpu: 8}}, max: {{cpu: 8}}, {tree}}}}}\nevents:\n  - {{at: 1s, job: {{name: a, components: \
             [{{name: worker, requests: {{cpu: 1}}}}]}}}}\n{events}"
        )
    };
    let check = |tree: &str, events: &str, expected: &[&str]| {
        let (found, more) = Scenario::read("s.yaml", &file(tree, events)).expect("readable").remarks();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!((found.len(), more), (usize::from(!expected.is_empty()), 0), "{found:?}");
        assert!(expected.iter().all(|part| found[0].contains(part)), "{found:?}");
    };
    check("children: [{name: a, min: {cpu: 1}, namespaces: [default]}]", "", &[]);
    let root = "quota root, attributes[fleet.dev/share-preemption]: found fairshare; allowed: FairShare";
    check("attributes: {fleet.dev/share-preemption: fairshare}", "", &["s.yaml:3: ElasticQuotaTree t", root]);
    let leaf = |fields: &str| format!("children: [{{name: a, namespaces: [default], {fields}}}]");
    let weight = leaf("min: {cpu: 1}, attributes: {fleet.dev/weight: '-3'}");
    check(
        &weight,
        "",
        &["quota root/a, attributes[fleet.dev/weight]: found -3; allowed: a number of 0 or more"],
    );
    let above = leaf("min: {cpu: 2}, max: {cpu: 1}");
    check(&above, "", &["quota root/a, min[cpu]: found 2; allowed: at most the max, here 1"]);
    check(&leaf("min: {cpu: 3x}"), "", &["root/a, min", "\"3x\"", "the tree is not used"]);
    check(
        &leaf("mins: {cpu: 3}"),
        "",
        &["quota root/a: found the field \"mins\"; allowed: name, namespaces"],
    );
    let job = |name: &str| {
        format!(
            "  - {{at: 2s, job: {{name: {name}, components: [{{name: worker, requests: {{cpu: 1}}}}]}}}}\n"
        )
    };
    check(&leaf("min: {cpu: 1}"), &job("b"), &[]);
    check(&leaf("min: {cpu: 1}"), &job("a"), &["a second job default/a", "each name once"]);
    check(&leaf("min: {cpu: 1}"), &job("a").replacen("job:", "edit:", 1), &[]);
    let deleted = format!("  - {{at: 1500ms, delete: {{kind: PyTorchJob, name: a}}}}\n{}", job("a"));
    check(&leaf("min: {cpu: 1}"), &deleted, &[]);
    let policy = "  - at: 3s\n    apply: {apiVersion: policy.one.alibabacloud.com/v1alpha1, kind: \
                  ClusterPropagationPolicy, metadata: {name: p}, spec: {resourceSelectors: [], placement: {}}}\n";
    check(
        &leaf("min: {cpu: 1}"),
        policy,
        &["ClusterPropagationPolicy p: spec.resourceSelectors", "governs nothing"],
    );
}

#[test]
fn what_is_not_said_has_its_default() {
    let scenario = read("");
    assert_eq!((scenario.seed, scenario.until, scenario.mode), (1, None, Mode::Fast));
    let east = &scenario.clusters[0];
    assert!(east.reservation);
    assert_eq!(east.node_pools[0].allocatable["pods"], "110");
    let kinds: Vec<&str> = scenario.objects.iter().map(|object| object.kind.as_str()).collect();
    assert_eq!(kinds, ["ClusterPropagationPolicy", "ElasticQuotaTree"]);
    let policy = &scenario.objects[0].value["spec"];
    assert_eq!(policy["suspension"]["scheduling"], true);
    assert_eq!(policy["placement"]["replicaScheduling"]["customSchedulingType"], "Gang");
}

#[test]
fn the_shorthand_becomes_a_real_manifest() {
    let scenario = read(
        "events:\n  - {at: 1m, job: {name: j1, namespace: team-a, priority: -3, preemptible: false, runtime: 1m30s, \
         result: fail, failOn: [east], labels: {a: b}, components: [{name: master, requests: {cpu: 1}}, \
         {name: worker, replicas: 2, requests: {cpu: 500m, nvidia.com/gpu: 4}, nodeSelector: {x: y}}]}}\n",
    );
    assert_eq!(scenario.events[0].at, Duration::from_secs(60));
    let job = applied(&scenario.events[0]);
    assert_eq!(
        (job.kind.as_str(), job.namespace.as_str(), job.name.as_str()),
        ("PyTorchJob", "team-a", "j1")
    );
    let metadata = &job.value["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"a": "b", "quota.scheduling.alibabacloud.com/preemptible": "false"})
    );
    let annotations = json!({"sim.fleet.dev/runtime": "90000ms", "sim.fleet.dev/result": "fail",
        "sim.fleet.dev/fail-on": "east"});
    assert_eq!(metadata["annotations"], annotations);
    let read = fleet_policies::workload::components(
        fleet_policies::workload::WorkloadKind::of(&job.api_version, &job.kind),
        &job.value,
    )
    .expect("the production reader reads it");
    assert_eq!(
        read.iter().map(|c| (c.name.as_str(), c.replicas)).collect::<Vec<_>>(),
        [("master", 1), ("worker", 2)]
    );
    assert_eq!(read[1].requests.get("nvidia.com/gpu"), 4);
    assert_eq!(read[1].requests.get("cpu"), 500);
    assert_eq!(read[1].pod_spec.node_selector["x"], "y");
    assert_eq!(read[0].pod_spec.priority_class_name.as_deref(), Some("priority-minus-3"));
    let class = scenario.objects.iter().find(|o| o.kind == "PriorityClass").expect("made");
    assert_eq!((class.name.as_str(), &class.value["value"]), ("priority-minus-3", &json!(-3)));
    let tree = scenario.objects.iter().find(|o| o.kind == "ElasticQuotaTree").expect("assumed");
    assert_eq!(tree.value["spec"]["root"]["children"][0]["namespaces"], json!(["team-a"]));
}

#[test]
fn every_kind_of_job_is_read_by_the_production_reader() {
    for (kind, components) in [
        ("TFJob", "[{name: ps, replicas: 2}, {name: chief}]"),
        ("MPIJob", "[{name: launcher}, {name: worker, replicas: 4}]"),
        ("Job", "[{name: job, replicas: 3}]"),
        ("VolcanoJob", "[{name: any, replicas: 3}, {name: other}]"),
    ] {
        let scenario = read(&format!(
            "events:\n  - {{at: 0s, job: {{kind: {kind}, name: j, components: {components}}}}}\n"
        ));
        let job = applied(&scenario.events[0]);
        let workload = fleet_policies::workload::WorkloadKind::of(&job.api_version, &job.kind);
        let read = fleet_policies::workload::components(workload, &job.value).expect(kind);
        assert!(read.iter().map(|c| c.replicas).sum::<i64>() >= 3, "{kind}: {read:?}");
    }
}

#[test]
fn events_are_in_order_of_time_and_ties_in_that_of_the_file() {
    let scenario = read(
        "events:\n  - {at: 9s, heal: {cluster: east}}\n  - {at: 2s, crash: {process: hub}}\n  \
         - {at: 2s, partition: {cluster: east}}\n  - {at: 0, node: {cluster: east, name: a100-1, ready: false}}\n  \
         - {at: 3s, delete: {kind: PyTorchJob, namespace: a, name: j}}\n  \
         - {at: 4s, crash: {process: agent, cluster: east, restartAfter: 500ms}}\n",
    );
    let times: Vec<u128> = scenario.events.iter().map(|event| event.at.as_millis()).collect();
    assert_eq!(times, [0, 2000, 2000, 3000, 4000, 9000]);
    assert!(matches!(
        scenario.events[1].action,
        Action::Crash { process: Process::Hub, restart_after: None }
    ));
    assert!(matches!(&scenario.events[4].action, Action::Crash { process: Process::Agent { cluster },
        restart_after: Some(after) } if cluster == "east" && after.as_millis() == 500));
}

/// Every mistake is one line with file, line, field, found and allowed.
#[test]
fn mistakes_of_a_document_are_told_exactly() {
    let with = |rest: &str| format!("{CLUSTERS}{rest}");
    are_told(vec![
        (String::new(), "s.yaml:1: the document: found nothing; allowed: a map with clusters, objects"),
        ("a: [\n".into(), "the document: found"),
        ("clusters: []\n".into(), "s.yaml:1: clusters: found a list of 0; allowed: a list of 1 to"),
        (with("sed: 2\n"), "s.yaml:5: sed: found an unknown field; allowed: seed, until, mode, clusters"),
        (with("seed: -1\n"), "s.yaml:5: seed: found -1; allowed: a whole number from 0"),
        (with("mode: slow\n"), "s.yaml:5: mode: found \"slow\"; allowed: fast or whole"),
        (with("until: 5\n"), "s.yaml:5: until: found 5; allowed: 0, or numbers with units h, m, s, ms"),
        (with("until: 1d\n"), "s.yaml:5: until: found \"1d\"; allowed"),
        (with("events: 3\n"), "s.yaml:5: events: found 3; allowed: a list of events"),
        (
            with("events:\n  - {at: 1s}\n"),
            "s.yaml:6: events[0]: found none of them; allowed: at and one of job",
        ),
        (
            with("events:\n  - {at: 1s, jib: {}}\n"),
            "s.yaml:6: events[0].jib: found an unknown field; allowed: at,",
        ),
        (
            with("events:\n  - {at: 1s, heal: {cluster: west}}\n"),
            "s.yaml:6: events[0].heal.cluster: found \"west\"; allowed: east",
        ),
        (
            with("events:\n  - {at: 1s, node: {cluster: east, name: a100-2, ready: true}}\n"),
            "s.yaml:6: events[0].node.name: found \"a100-2\"; allowed: a100-0 to a100-1",
        ),
        (
            with("events:\n  - {at: 1s, heal: {cluster: east}, partition: {cluster: east}}\n"),
            "s.yaml:6: events[0]: found partition and heal; allowed: at and one of",
        ),
        (
            with("events:\n  - {at: 1s, crash: {process: agent}}\n"),
            "s.yaml:6: events[0].crash.cluster: found nothing; allowed: the cluster whose agent",
        ),
        (
            with("objects:\n  - {kind: Queue}\n"),
            "s.yaml:6: objects[0].apiVersion: found nothing; allowed: the object's API version",
        ),
    ]);
}

#[test]
fn mistakes_of_jobs_and_clusters_are_told_exactly() {
    let job = |fields: &str| format!("{CLUSTERS}events:\n  - at: 1s\n    job: {{name: j, {fields}}}\n");
    are_told(vec![
        (
            job("components: []"),
            "s.yaml:7: events[0].job.components: found a list of 0; allowed: one component",
        ),
        (
            job("components: [{name: chief}]"),
            "s.yaml:7: events[0].job.components[0].name: found \"chief\"; allowed: master, worker",
        ),
        (
            job("components: [{name: worker, requests: {cpu: 1x}}]"),
            "s.yaml:7: events[0].job.components[0].requests.cpu: found \"1x\"; allowed: a quantity",
        ),
        (
            job("components: [{name: worker, replicas: -1}]"),
            "s.yaml:7: events[0].job.components[0].replicas: found -1; allowed: a whole number from 0",
        ),
        (
            job("components: [{name: worker}], failOn: [mars]"),
            "s.yaml:7: events[0].job.failOn[0]: found \"mars\"; allowed: east",
        ),
        (
            job("components: [{name: worker}], result: maybe"),
            "result: found \"maybe\"; allowed: succeed or fail",
        ),
        (
            job("components: [{name: worker}], kind: Deployment"),
            "kind: found \"Deployment\"; allowed: PyTorchJob",
        ),
        (
            "clusters:\n  - {name: east, nodePools: []}\n  - {name: east, nodePools: []}\n".into(),
            "s.yaml:3: clusters[1]: found a second cluster \"east\"; allowed: each name once",
        ),
        (
            "clusters:\n  - name: East\n    nodePools: []\n".into(),
            "s.yaml:2: clusters[0].name: found \"East\"; allowed: a name of",
        ),
        (
            "clusters:\n  - {name: e, nodePools: [{name: p, count: 1000000, allocatable: {cpu: 1}}]}\n"
                .into(),
            "clusters[0].nodePools[0].count: found 1000000; allowed: a whole number from 0 to 200000",
        ),
    ]);
}

/// Each text is refused in one line that contains the sentence.
fn are_told(cases: Vec<(String, &str)>) {
    for (text, expect) in cases {
        let error = Scenario::read("s.yaml", &text).expect_err(&text).to_string();
        assert!(error.contains(expect), "{text}\n  gave   {error}\n  wanted {expect}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("s.yaml:"), "{error}");
    }
}

mod fuzz {
    use proptest::prelude::*;

    use super::*;

    /// Fields and values of scenario files, put together at random.
    fn piece() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("clusters: [{name: e, nodePools: [{name: p, allocatable: {cpu: 1}}]}]\n".to_string()),
            Just("events:\n".to_string()),
            Just("  - {at: 1s, job: {name: j, components: [{name: worker}]}}\n".to_string()),
            Just("  - {at: 99999999999999h, heal: {cluster: e}}\n".to_string()),
            Just("objects:\n  - {apiVersion: v1, kind: K, metadata: {name: n}}\n".to_string()),
            Just("  - {at: 1s, node: {cluster: e, name: p--0, ready: y}}\n".to_string()),
            Just("until: .nan\n".to_string()),
            Just("seed: 99999999999999999999999\n".to_string()),
            Just("&a [*a, *a]\n".to_string()),
            Just("<<: {a: 1}\n".to_string()),
            "[a-z]{1,6}: [ -~]{0,12}\n",
            "[ -~\n]{0,40}",
            "\\PC{0,20}",
        ]
    }

    proptest! {
        #[test]
        fn nothing_panics_and_every_error_is_one_line(pieces in prop::collection::vec(piece(), 0..8)) {
            if let Err(error) = Scenario::read("s.yaml", &pieces.concat()) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }

        #[test]
        fn a_good_file_with_one_character_changed_is_read_or_refused(at in 0usize..900, with in "\\PC") {
            let good = "seed: 7\nuntil: 10m\nmode: fast\nclusters:\n  - name: east\n    labels: {region: r}\n    \
                nodePools:\n      - {name: p, count: 2, allocatable: {cpu: 8, memory: 4Gi}, taints: [{key: k, effect: \
                NoSchedule}]}\nevents:\n  - {at: 1s, job: {name: j, priority: 3, runtime: 5s, components: [{name: \
                worker, replicas: 2, requests: {cpu: 1}}]}}\n  - {at: 2s, partition: {cluster: east}}\n";
            let mut text: Vec<char> = good.chars().collect();
            let place = at % text.len();
            text.splice(place..=place, with.chars());
            let text: String = text.into_iter().collect();
            if let Err(error) = Scenario::read("s.yaml", &text) {
                prop_assert!(error.line >= 1 && error.to_string().lines().count() == 1, "{}", error);
            }
        }
    }

    #[test]
    fn a_document_too_deep_is_refused() {
        let text = format!("clusters: {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Scenario::read("s.yaml", &text).is_err());
    }
}

/// The remarks on a file with this tree, queue fields, node and job.
fn remarks_on(allocatable: &str, queue: &str, job: &str) -> Vec<String> {
    let file = format!(
        "clusters: [{{name: east, nodePools: [{{name: p, allocatable: {{{allocatable}}}}}]}}]\nobjects:\n  - {{apiVersion: \
         scheduling.sigs.k8s.io/v1beta1, kind: ElasticQuotaTree, metadata: {{name: t}}, spec: {{root: {{name: root, \
         min: {{cpu: 8}}, max: {{cpu: 8}}, children: [{{name: a, min: {{cpu: 1}}, namespaces: [default]}}]}}}}}}\n  - \
         {{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: Queue, {queue}}}\nevents:\n  - {{at: 1s, job: {{name: j, \
         {job}}}}}\n"
    );
    let (found, _) = Scenario::read("s.yaml", &file).expect("readable").remarks();
    found.into_iter().map(|remark| format!("{}: {}", remark.object, remark.sentence)).collect()
}

#[test]
fn queues_nodes_and_jobs_whose_values_do_not_count_are_remarked_on() {
    let node = "cpu: 8, nvidia.com/gpu: 8";
    let metadata = |path: &str| {
        format!(
            "metadata: {{name: q, labels: {{create-by-kubequeue: 'true'}}, annotations: {{kube-queue/quota-fullname: \
             {path}}}}}"
        )
    };
    let queue = format!("{}, spec: {{queuePolicy: Block}}", metadata("root/a"));
    let pods = "components: [{name: worker, requests: {cpu: 1, nvidia.com/gpu: 1}}]";
    let check = |node: &str, queue: &str, job: &str, expected: &str| {
        let found = remarks_on(node, queue, job);
        assert_eq!(found.len(), usize::from(!expected.is_empty()), "{found:?}");
        assert!(found.iter().all(|sentence| sentence.starts_with(expected)), "{found:?}");
    };
    check(node, &queue, pods, "");
    let policy = format!("{}, spec: {{queuePolicy: Fifo}}", metadata("root/a"));
    check(
        node,
        &policy,
        pods,
        "Queue q: spec.queuePolicy: found \"Fifo\"; allowed: Priority, Block, Intelligent",
    );
    check(
        node,
        &format!("{}, spec: {{queuePolicy: Block}}", metadata("root/nosuch")),
        pods,
        "Queue q: metadata.annotations[kube-queue/quota-fullname]: found \"root/nosuch\"; allowed: the path of a node of \
         the quota tree: root, root/a",
    );
    let unlabelled = queue.replace("labels: {create-by-kubequeue: 'true'}, ", "");
    check(node, &unlabelled, pods, "Queue q: metadata.labels[create-by-kubequeue]: found nothing");
    check(
        "cpu: 8, gpu: 8",
        &queue,
        pods,
        "cluster east: nodePools[p].allocatable: found the resource \"gpu\"",
    );
    check(
        node,
        &queue,
        "components: [{name: worker, requests: {nvidia.com/gpu: 1500m}}]",
        "PyTorchJob j: spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.requests[nvidia.com/gpu]: \
         found 1500m; allowed: a whole number; it counts as 2",
    );
    let class = format!("priorityClassName: nosuch, {pods}");
    check(
        node,
        &queue,
        &class,
        "PyTorchJob j: spec.pytorchReplicaSpecs.Worker.template.spec.priorityClassName: found \"nosuch\"; allowed: a \
         PriorityClass of this file, which has none",
    );
    for (field, value, sentence) in [
        (
            "annotations",
            "sim.fleet.dev/runtime: soon",
            "metadata.annotations[sim.fleet.dev/runtime]: found \"soon\"",
        ),
        (
            "annotations",
            "sim.fleet.dev/fail-on: west",
            "metadata.annotations[sim.fleet.dev/fail-on]: found \"west\"",
        ),
        (
            "labels",
            "quota.scheduling.alibabacloud.com/preemptible: 'no'",
            "metadata.labels[quota.scheduling.alibabacloud.com/preemptible]: found \"no\"",
        ),
    ] {
        check(node, &queue, &format!("{field}: {{{value}}}, {pods}"), &format!("PyTorchJob j: {sentence}"));
    }
}

/// A value of the wrong type in a quota tree names its line and field, and what is allowed there.
#[test]
fn a_tree_with_values_of_the_wrong_type_is_refused_by_field() {
    let check = |fields: &str, expected: &str| {
        let rest = format!(
            "objects:\n  - apiVersion: scheduling.sigs.k8s.io/v1beta1\n    kind: ElasticQuotaTree\n    metadata: {{name: t}}\n    \
             spec:\n      root:\n        name: root\n        children:\n          - {{{fields}}}\n"
        );
        let error = Scenario::read("s.yaml", &format!("{CLUSTERS}{rest}")).expect_err(fields).to_string();
        assert!(
            error.starts_with(&format!("s.yaml:13: objects[0].spec.root.children[0]{expected}")),
            "{error}"
        );
    };
    check(
        "name: a, attributes: {fleet.dev/weight: 2}",
        ".attributes.fleet.dev/weight: found 2; allowed: a text in quotes, such as fleet.dev/weight: \"2\"",
    );
    check("name: a, max: {cpu: null}", ".max.cpu: found nothing; allowed: a quantity");
    check("name: a, min: x", ".min: found \"x\"; allowed: a map of resource names to quantities");
    check("name: a, namespaces: a", ".namespaces: found \"a\"; allowed: a list of namespaces");
    check("name: null", ".name: found nothing; allowed: a name");
    check("name: a, children: x", ".children: found \"x\"; allowed: a list of nodes");
}

#[test]
fn a_node_for_no_pods_and_an_event_of_no_node_are_refused() {
    let check = |file: &str, expected: &str| {
        let error = Scenario::read("s.yaml", file).expect_err(file).to_string();
        assert!(error.contains(expected), "{error}");
    };
    let cluster = |pool: &str| format!("clusters: [{{name: east, nodePools: [{{name: p, {pool}}}]}}]\n");
    check(
        &cluster("allocatable: {cpu: 8, pods: 0}"),
        "clusters[0].nodePools[0].allocatable.pods: found 0; allowed: 1 or more; without it, 110",
    );
    let event = "events: [{at: 1s, node: {cluster: east, name: p-0, ready: false}}]\n";
    check(
        &format!("{}{event}", cluster("count: 0, allocatable: {cpu: 8}")),
        "found \"p-0\"; allowed: nothing: east has no nodes",
    );
}
