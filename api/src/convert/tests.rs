use super::*;

#[test]
fn a_component_survives_the_wire() {
    let pod = json!({"nodeSelector": {"gpu": "a100"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms":
            [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m", "nvidia.com/gpu": 2}}}]});
    let job =
        json!({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": {"spec": pod}}}}});
    let read = workload::components(workload::WorkloadKind::PyTorchJob, &job).expect("readable");
    let wire: Vec<Component> = read.iter().map(component).collect();
    let gang = gang(&wire).expect("quantities are ours");
    assert_eq!(gang.components.len(), 1);
    let worker = &gang.components[0];
    assert_eq!((worker.name.as_str(), worker.replicas), ("worker", 3));
    assert_eq!(worker.shape.requests, read[0].requests);
    assert_eq!(worker.shape.node_selector, read[0].pod_spec.node_selector);
    assert_eq!(worker.shape.node_affinity, read[0].pod_spec.node_affinity);
    assert_eq!(worker.shape.tolerations, read[0].pod_spec.tolerations);
}

#[test]
fn a_node_shape_survives_the_wire() {
    let shape = placement::NodeShape {
        allocatable: Resources::from_pairs([("cpu", 64_000), ("nvidia.com/gpu", 8)]),
        free: Resources::from_pairs([("cpu", 32_000)]),
        max_pods: 110,
        pods: 4,
        count: 3,
        ..placement::NodeShape::default()
    };
    assert_eq!(placement_shapes(&[node_shape(&shape)]), [shape]);
}

#[test]
fn a_member_that_reports_any_number_of_nodes_fills_no_memory() {
    let counts = |counts: &[i64]| -> Vec<i64> {
        let shape = |count: &i64| NodeShape { count: *count, ..NodeShape::default() };
        let shapes: Vec<NodeShape> = counts.iter().map(shape).collect();
        placement_shapes(&shapes).iter().map(|shape| shape.count).collect()
    };
    assert_eq!(counts(&[3, -1, 4]), [3, 0, 4]);
    assert_eq!(counts(&[99_990, 1_000_000_000, i64::MAX, 1]), [99_990, 10, 0, 0]);
    let pods = |number: i64| BTreeMap::from([(PODS.to_string(), number.to_string())]);
    let shape = NodeShape { allocatable: pods(i64::MAX), free: pods(-i64::MAX), ..NodeShape::default() };
    assert_eq!(node_shape(&placement_shapes(&[shape])[0]).free[PODS], "0");
}

#[test]
fn a_member_that_reports_any_number_of_resources_fills_no_memory() {
    let list = |names: &[String]| -> BTreeMap<String, String> {
        names.iter().map(|name| (name.clone(), "1".to_owned())).collect()
    };
    let many: Vec<String> = (0..20_000).map(|i| format!("a.example/r{i:05}")).collect();
    let own = ["cpu", "memory", "pods"].map(str::to_owned);
    let whole = NodeShape { count: MOST_NODES, allocatable: list(&many), ..NodeShape::default() };
    // The names may also be in another list, and differ from shape to shape.
    let free = NodeShape { count: 1, free: list(&many), allocatable: list(&own), ..NodeShape::default() };
    let one = |name: &String| {
        let allocatable = list(&[name.clone(), own[0].clone()]);
        NodeShape { count: 1, allocatable, ..NodeShape::default() }
    };
    for shapes in [vec![whole, free], many.iter().map(one).collect()] {
        let planned = placement_shapes(&shapes);
        let amounts = planned.iter().flat_map(|shape| shape.allocatable.iter().chain(shape.free.iter()));
        let names: BTreeSet<&str> = amounts.map(|(name, _)| name.as_str()).collect();
        assert!(names.len() <= MOST_RESOURCES && names.contains("cpu"), "{}", names.len());
        assert!(names.contains("a.example/r00100"), "the first of the others stay");
        assert!(planned_names(lists_of(&shapes)).1 >= 20_000 - MOST_RESOURCES);
    }
    let few = [NodeShape { count: 1, allocatable: list(&own), ..NodeShape::default() }];
    assert_eq!(planned_names(lists_of(&few)).1, 0);
}
