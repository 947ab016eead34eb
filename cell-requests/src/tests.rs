use fleet_policies::workload::WorkloadKind;
use serde_json::{Value, json};

use super::*;

const TWO: &str = include_str!("../../cells/testdata/two-virtual-clusters.yaml");

fn config() -> ClusterConfig {
    let value: Value = fleet_api::yaml::read(TWO).expect("YAML");
    let text = value["hivedscheduler"]["config"].as_str().expect("wrapped");
    ClusterConfig::read(&fleet_api::yaml::read(text).expect("YAML")).expect("a configuration")
}

/// A Volcano Job with tasks `name replicas` and the same metadata on each template.
fn job(labels: Value, annotations: Value, tasks: &[(&str, i64, Option<&str>)], requests: Value) -> Value {
    let task = |(name, replicas, spec): &(&str, i64, Option<&str>)| {
        let annotations = spec.map(|spec| json!({names::POD_SCHEDULING_SPEC_ANNOTATION: spec}));
        json!({"name": name, "replicas": replicas, "template": {"metadata": {"annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": {"limits": requests}}]}}})
    };
    let tasks: Vec<Value> = tasks.iter().map(task).collect();
    json!({"metadata": {"name": "j", "labels": labels, "annotations": annotations}, "spec": {"tasks": tasks}})
}

fn read_volcano(job: &Value) -> Result<CellRequest, String> {
    read(WorkloadKind::VolcanoJob, job).map_err(|error| error.to_string())
}

fn gpu(number: i64) -> Value {
    json!({"nvidia.com/gpu": number.to_string(), "cpu": "2", "memory": "4Gi"})
}

#[test]
fn labels_and_annotations_say_it_all() {
    let labels = json!({"fleet.dev/virtual-cluster": "vc1", "fleet.dev/class": "prod"});
    let annotations = json!({"fleet.dev/leaf-cell-type": "GPU-D", "fleet.dev/lazy-preemption": "true",
        "fleet.dev/within-one-cell": "GPU-D-NODE"});
    let request = read_volcano(&job(labels, annotations, &[("a", 2, None), ("b", 1, None)], gpu(3)))
        .expect("a request");
    assert_eq!((request.vc.as_deref(), request.class, request.whole), (Some("vc1"), 100, true));
    let groups = request.groups("ns/j", "vc1", &config()).expect("groups");
    let [group] = groups.as_slice() else { panic!("{groups:?}") };
    let request = &group.request;
    assert_eq!((request.name(), request.leaf_cell_type.as_str()), ("ns/j", "GPU-D"));
    assert!(request.lazy_preemption_enable);
    assert_eq!(request.affinity_group.root.within_one_cell, "GPU-D-NODE");
    let members = &request.affinity_group.root.members;
    let members: Vec<_> = members.iter().map(|member| (member.pod_number, member.leaf_cell_number)).collect();
    assert_eq!(members, [(2, 3), (1, 3)]);
    assert_eq!(group.pods, [("a".into(), 0), ("a".into(), 1), ("b".into(), 0)]);
}

#[test]
fn cells_of_a_pod_follow_from_what_a_cell_holds() {
    let check = |requests: Value, annotations: Value, expected: Result<i64, &str>| {
        let labels = json!({"fleet.dev/virtual-cluster": "vc1"});
        let request =
            read_volcano(&job(labels, annotations, &[("a", 1, None)], requests)).expect("a request");
        assert_eq!(request.class, 10, "test is the class of a job that names none");
        let groups = request.groups("ns/j", "vc1", &config()).map_err(|error| error.to_string());
        let cells = groups.map(|groups| groups[0].request.affinity_group.root.members[0].leaf_cell_number);
        assert_eq!(cells, expected.map_err(str::to_string));
    };
    check(gpu(1), json!({}), Ok(1));
    check(gpu(3), json!({}), Ok(3));
    check(json!({"nvidia.com/gpu": "1", "cpu": "5"}), json!({}), Ok(3));
    check(json!({"nvidia.com/gpu": "1", "memory": "9Gi"}), json!({}), Ok(3));
    check(gpu(1), json!({"fleet.dev/cells-per-pod": "8"}), Ok(8));
    check(json!({}), json!({"fleet.dev/cells-per-pod": "2"}), Ok(2));
    check(
        json!({}),
        json!({}),
        Err(
            "component a: requests: found nothing; allowed: a request for devices, or fleet.dev/cells-per-pod",
        ),
    );
}

#[test]
fn a_component_without_devices_beside_others_takes_no_cells() {
    let template =
        |requests: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"limits": requests}}]}});
    let mpi = |launcher: Value, annotations: Value| {
        json!({"metadata": {"name": "j", "labels": {"fleet.dev/virtual-cluster": "vc1"}, "annotations": annotations},
            "spec": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": template(launcher)},
                "Worker": {"replicas": 2, "template": template(gpu(2))}}}})
    };
    let pods = |job: &Value| -> Vec<(String, i64, i64)> {
        let request = read(WorkloadKind::MPIJob, job).expect("a request");
        let groups = request.groups("ns/j", "vc1", &config()).expect("groups");
        let of = |group: &CellGroupAsk| {
            let sizes = group.request.affinity_group.root.members.iter();
            let sizes = sizes.flat_map(|m| std::iter::repeat_n(m.leaf_cell_number, m.pod_number as usize));
            let pods: Vec<_> = group
                .pods
                .iter()
                .zip(sizes)
                .map(|((name, index), size)| (name.clone(), *index, size))
                .collect();
            pods
        };
        groups.iter().flat_map(of).collect()
    };
    let workers = [("Worker".to_string(), 0, 2), ("Worker".to_string(), 1, 2)];
    for launcher in [json!({}), json!({"cpu": "1", "memory": "1Gi"})] {
        for annotations in [
            json!({}),
            json!({"fleet.dev/gang-allocation": "false"}),
            json!({"fleet.dev/cells-per-pod": "2"}),
        ] {
            assert_eq!(pods(&mpi(launcher.clone(), annotations)), workers);
        }
    }
    let with = pods(&mpi(gpu(1), json!({})));
    assert_eq!(with[0], ("Launcher".to_string(), 0, 1), "one with devices takes cells");
    // A job without any devices takes cells by what it requests otherwise.
    let cpu = job(json!({}), json!({}), &[("a", 1, None)], json!({"cpu": "4"}));
    let groups = read_volcano(&cpu).expect("a request").groups("ns/j", "vc1", &config()).expect("groups");
    assert_eq!(groups[0].request.affinity_group.root.members[0].leaf_cell_number, 2);
}

#[test]
fn nonsense_is_told_with_field_found_and_allowed() {
    let check = |labels: Value, annotations: Value, expected: &str| {
        let error = read_volcano(&job(labels, annotations, &[("a", 1, None)], gpu(1))).expect_err("nonsense");
        assert_eq!(error, expected);
    };
    let class = |found: &str, expected: &str| {
        let allowed = "allowed: oppo, test, prod, crit, or a number from -1 to 1000";
        check(
            json!({"fleet.dev/class": found}),
            json!({}),
            &format!("metadata.labels[fleet.dev/class]: {expected}; {allowed}"),
        );
    };
    class("gold", "found \"gold\"");
    class("1001", "found \"1001\"");
    class("-2", "found \"-2\"");
    check(
        json!({}),
        json!({"fleet.dev/cells-per-pod": "0"}),
        "metadata.annotations[fleet.dev/cells-per-pod]: found \"0\"; allowed: a number from 1",
    );
    check(
        json!({}),
        json!({"fleet.dev/gang-allocation": "maybe"}),
        "metadata.annotations[fleet.dev/gang-allocation]: found \"maybe\"; allowed: true or false",
    );
    check(
        json!({}),
        json!({"fleet.dev/pinned-cell": "p", "fleet.dev/leaf-cell-type": "V100"}),
        "metadata.annotations[fleet.dev/leaf-cell-type]: found \"V100\"; allowed: nothing beside fleet.dev/pinned-cell",
    );
    check(
        json!({}),
        json!({"fleet.dev/gang-allocation": "false", "fleet.dev/within-one-cell": "NODE"}),
        "metadata.annotations[fleet.dev/within-one-cell]: found \"NODE\"; allowed: nothing where pods start one by one: \
         each is then placed by itself",
    );
    check(
        json!({}),
        json!({"fleet.dev/gang-allocation": "false", "fleet.dev/gang-release": "true"}),
        "metadata.annotations[fleet.dev/gang-release]: found \"true\"; allowed: false where pods start one by one: each \
         gives back its own cells",
    );
}

#[test]
fn a_gang_of_any_kind_may_give_back_cells_pod_by_pod() {
    let released_together = |annotations: Value| {
        let request =
            read_volcano(&job(json!({}), annotations, &[("a", 2, None)], gpu(1))).expect("a request");
        let groups = request.groups("ns/j", "vc1", &config()).expect("groups");
        groups.iter().map(|group| group.request.gang_release_enable).collect::<Vec<_>>()
    };
    assert_eq!(released_together(json!({})), [true]);
    assert_eq!(released_together(json!({"fleet.dev/gang-release": "true"})), [true]);
    assert_eq!(released_together(json!({"fleet.dev/gang-release": "false"})), [false]);
    let one_by_one = json!({"fleet.dev/gang-allocation": "false", "fleet.dev/gang-release": "false"});
    assert_eq!(released_together(one_by_one).len(), 2);
}

#[test]
fn hiveds_annotation_makes_groups_over_all_templates() {
    let spec = |cells: i64| {
        format!(
            "{{virtualCluster: vc1, priority: 100, leafCellNumber: {cells}, affinityGroup: {{name: u~j/default, \
             members: [{{podNumber: 2, leafCellNumber: 1}}, {{podNumber: 1, leafCellNumber: 4}}]}}}}"
        )
    };
    let (small, large) = (spec(1), spec(4));
    let tasks = [("a", 2, Some(small.as_str())), ("b", 1, Some(large.as_str()))];
    let request = read_volcano(&job(json!({}), json!({}), &tasks, gpu(1))).expect("a request");
    assert_eq!((request.vc.as_deref(), request.class, request.whole), (Some("vc1"), 100, true));
    let groups = request.groups("ns/j", "vc1", &config()).expect("groups");
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].request.name(), "ns/j/u~j/default");
    assert_eq!(groups[0].pods, [("a".into(), 0), ("a".into(), 1), ("b".into(), 0)]);
    // Each pod by itself.
    let alone = "virtualCluster: vc1\npriority: -1\ngpuType: V\ngpuNumber: 2\n";
    let request =
        read_volcano(&job(json!({}), json!({}), &[("a", 2, Some(alone))], gpu(1))).expect("a request");
    let groups = request.groups("ns/j", "vc1", &config()).expect("groups");
    let names: Vec<&str> = groups.iter().map(|group| group.request.name()).collect();
    assert_eq!(names, ["ns/j/a-0", "ns/j/a-1"]);
    // Version 2.
    let second = "{version: v2, virtualCluster: vc1, priority: 5, cellType: NODE, cellNumber: 1, podRootGroup: {name: g, \
         withinOneCell: RACK, pod: {podMinNumber: 2, podMaxNumber: 2, cellsPerPod: {cellType: NODE, cellNumber: 1}, \
         containsCurrentPod: true}}}";
    let request =
        read_volcano(&job(json!({}), json!({}), &[("a", 2, Some(second))], gpu(1))).expect("a request");
    let groups = request.groups("ns/j", "vc1", &config()).expect("groups");
    assert_eq!(groups[0].request.affinity_group.root.within_one_cell, "RACK");
    assert_eq!(groups[0].pods.len(), 2);
}

#[test]
fn hiveds_annotation_is_refused_where_it_makes_no_sense() {
    let check = |labels: Value, tasks: &[(&str, i64, Option<&str>)], expected: &str| {
        let error = read_volcano(&job(labels, json!({}), tasks, gpu(1))).expect_err("nonsense");
        assert!(error.contains(expected), "{error}");
    };
    let group = "{virtualCluster: v, priority: 1, leafCellNumber: 1, affinityGroup: {name: g, members: [{podNumber: 2, \
         leafCellNumber: 1}]}}";
    let path =
        "spec.tasks[0].template.metadata.annotations[hivedscheduler.microsoft.com/pod-scheduling-spec]";
    check(
        json!({}),
        &[("a", 3, Some(group))],
        "found 3 pods of 1 cells; allowed: as many as group \"g\" declares",
    );
    check(json!({}), &[("a", 1, Some(group))], "found 1 pods more than the job has in group \"g\"");
    check(json!({}), &[("a", 2, Some(group)), ("b", 1, None)], "found nothing; allowed: a specification");
    check(
        json!({}),
        &[("a", 1, Some("{priority: 1, leafCellNumber: 1}"))],
        &format!("{path}.virtualCluster: found nothing"),
    );
    check(
        json!({}),
        &[("a", 1, Some("{virtualCluster: v, priority: 1001, leafCellNumber: 1}"))],
        "priority: found 1001",
    );
    check(
        json!({}),
        &[("a", 1, Some("{virtualCluster: v, priority: 1, leafCellNumber: 0}"))],
        "leafCellNumber: found 0",
    );
    check(json!({}), &[("a", 1, Some("{virtualCluster: v, leaves: 1}"))], ".leaves: found an unknown field");
    check(json!({}), &[("a", 1, Some("[1"))], "allowed: YAML");
    let other = json!({"fleet.dev/virtual-cluster": "w"});
    check(other, &[("a", 2, Some(group))], "virtualCluster: found \"v\"; allowed: \"w\", as the job's label");
    let other = json!({"fleet.dev/class": "prod"});
    check(other, &[("a", 2, Some(group))], "priority: found 1; allowed: 100");
}

#[test]
fn volcanos_jobs_say_how_many_pods_start_together() {
    let check = |least: Value, whole: bool| {
        let mut job = job(json!({"fleet.dev/virtual-cluster": "v"}), json!({}), &[("a", 2, None)], gpu(1));
        job["spec"]["minAvailable"] = least;
        assert_eq!(read_volcano(&job).expect("a request").whole, whole);
    };
    check(Value::Null, true);
    check(json!(2), true);
    check(json!(1), false);
}

#[test]
fn what_admission_can_read_is_the_label_or_plain_words() {
    let check = |labels: Value, spec: Option<&str>, expected: bool| {
        let job = job(labels, json!({}), &[("a", 1, None), ("b", 0, spec)], gpu(1));
        assert_eq!(names_for_admission(WorkloadKind::VolcanoJob, &job, "vc1"), expected, "{job}");
    };
    check(json!({"fleet.dev/virtual-cluster": "vc1"}), None, true);
    check(json!({"fleet.dev/virtual-cluster": "vc10"}), None, false);
    check(json!({}), None, false);
    for plain in [
        "virtualCluster: vc1",
        "{'virtualCluster' :\t\"vc1\"}",
        "priority: 1\r\nvirtualCluster: vc1 # mine\r\n",
    ] {
        check(json!({}), Some(plain), true);
    }
    for hidden in [
        "virtualCluster: vc10",
        "virtualCluster: \"\\x76c1\"",
        "virtualCluster:\n  vc1",
        "virtualCluster: &x vc1",
    ] {
        check(json!({}), Some(hidden), false);
    }
}

/// Of pods that all could be in the first place, each looks at one.
#[test]
fn a_hundred_thousand_pods_of_one_group_take_their_places() {
    let spec = "{virtualCluster: v, priority: 0, leafCellNumber: 1, affinityGroup: {name: g, members: [{podNumber: 100000, \
                leafCellNumber: 1}]}}";
    let tasks = [("a", 99_998, Some(spec)), ("b", 1, Some(spec)), ("c", 1, Some(spec))];
    let request = read_volcano(&job(json!({}), json!({}), &tasks, gpu(1))).expect("a request");
    let groups = request.groups("ns/j", "v", &config()).expect("groups");
    let [group] = groups.as_slice() else { panic!("{} groups", groups.len()) };
    assert_eq!(group.pods.len(), 100_000);
    assert_eq!(group.pods[99_997..], [("a".into(), 99_997), ("b".into(), 0), ("c".into(), 0)]);
    // Only the pods of the job take memory, however many each of its groups declares.
    let names: Vec<String> = (0..100).map(|i| format!("t{i}")).collect();
    let specs: Vec<String> =
        names.iter().map(|name| spec.replace("name: g", &format!("name: {name}"))).collect();
    let tasks: Vec<_> =
        names.iter().zip(&specs).map(|(name, spec)| (name.as_str(), 1, Some(spec.as_str()))).collect();
    let error = read_volcano(&job(json!({}), json!({}), &tasks, gpu(1))).expect_err("too few");
    assert!(error.contains("found 99999 pods more than the job has in group \"t0\""), "{error}");
}

#[test]
fn names_of_which_each_pod_gets_a_copy_are_short() {
    let long = "x".repeat(254);
    let check = |job: &Value, field: &str| {
        let error = read_volcano(job).expect_err("too long");
        assert!(error.ends_with(&format!("{field}: found 254 bytes; allowed: at most 253 bytes")), "{error}");
    };
    for name in ["virtual-cluster", "pinned-cell", "leaf-cell-type", "within-one-cell"] {
        let name = format!("fleet.dev/{name}");
        let of = |text: &str| job(json!({}), json!({&name: text}), &[("a", 2, None)], gpu(1));
        check(&of(&long), &format!("metadata.annotations[{name}]"));
        assert!(read_volcano(&of(&long[1..])).is_ok(), "{name}");
    }
    let spec = format!("{{virtualCluster: v, priority: 0, leafCellNumber: 1, leafCellType: {long}}}");
    check(&job(json!({}), json!({}), &[("a", 2, Some(&spec))], gpu(1)), ".leafCellType");
    check(&job(json!({}), json!({}), &[(&long, 2, None)], gpu(1)), "spec.tasks[0].template");
}

#[test]
fn a_job_names_its_class_and_its_cells_or_they_follow_from_its_pods() {
    let vc = json!({"fleet.dev/virtual-cluster": "vc1"});
    let prod = json!({"fleet.dev/virtual-cluster": "vc1", "fleet.dev/class": "prod"});
    let two = json!({names::CELLS_PER_POD_ANNOTATION: "2"});
    let tasks: &[(&str, i64, Option<&str>)] = &[("a", 2, None), ("b", 1, None)];
    for (labels, annotations, expected) in [
        (vc.clone(), json!({}), (None, None)),
        (prod, json!({}), (Some(100), None)),
        (vc, two, (None, Some(6))),
    ] {
        let request = read_volcano(&job(labels, annotations, tasks, gpu(1))).expect("a request");
        assert_eq!(request.named(), expected);
    }
    let spec = "virtualCluster: vc1\npriority: 7\nleafCellNumber: 3\n";
    let hived = job(json!({}), json!({}), &[("a", 4, Some(spec))], gpu(1));
    assert_eq!(read_volcano(&hived).expect("a request").named(), (Some(7), Some(12)));
}
