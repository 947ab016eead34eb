use serde_json::{Value, json};

use super::{queues::Queues, review};
use fleet_agent_fixture::Fixture;
use fleet_agent_ground::{JobController, Object, Shown};

/// What the webhook says of a request, empty when it is allowed.
async fn said(queues: &Queues, kind: &str, operation: &str, object: &Value, old: Option<&Value>) -> String {
    let review = json!({"request": {"uid": "u", "kind": {"kind": kind}, "operation": operation,
        "name": object["metadata"]["name"], "object": object, "oldObject": old}});
    let answer = review::answer(serde_json::from_value(review).expect("a review"), queues).await;
    assert!(answer["response"]["warnings"].is_null(), "{answer}");
    match answer["response"]["allowed"].as_bool() {
        Some(true) => String::new(),
        _ => answer["response"]["status"]["message"].as_str().unwrap_or("refused").to_owned(),
    }
}

fn queue(name: &str, spec: Value, annotations: Value) -> Value {
    json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec})
}

#[tokio::test]
async fn queues_may_not_have_more_than_those_above_them() {
    let fixture = Fixture::new(&[JobController::VolcanoJob]).await;
    let queues = Queues::new(fixture.member.clone());
    let top = queue("top", json!({"capability": {"cpu": "8"}}), json!({}));
    let child = queue("child", json!({"parent": "top", "capability": {"cpu": "6"}}), json!({}));
    for one in [&top, &child] {
        fixture.create(&fixture.member, "scheduling.volcano.sh", "v1beta1", "queues", one.clone()).await;
        let object: Object = serde_json::from_value(one.clone()).expect("a queue");
        queues.change(Shown::Applied(object.into()));
    }
    let wide = queue("wide", json!({"parent": "top", "capability": {"cpu": "9"}}), json!({}));
    assert_eq!(
        said(&queues, "Queue", "CREATE", &wide, None).await,
        "queue wide, field spec.capability: found 9 cpu; allowed: up to the capability of top above it, 8"
    );
    let fine =
        queue("fine", json!({"parent": "top", "capability": {"cpu": "8", "memory": "1Ti"}}), json!({}));
    assert_eq!(said(&queues, "Queue", "CREATE", &fine, None).await, "");
    // Nor may those above come down below them.
    let lower = queue("top", json!({"capability": {"cpu": "5"}}), json!({}));
    assert_eq!(
        said(&queues, "Queue", "UPDATE", &lower, Some(&top)).await,
        "queue top, with it queue child, field spec.capability: found 6 cpu; allowed: up to the capability of top above \
         it, 5"
    );
    let lower = queue("top", json!({"capability": {"cpu": "6"}}), json!({}));
    assert_eq!(said(&queues, "Queue", "UPDATE", &lower, Some(&top)).await, "");
}

#[tokio::test]
async fn annotations_of_queues_make_a_path_with_a_weight_for_each_level() {
    let fixture = Fixture::new(&[JobController::VolcanoJob]).await;
    let queues = Queues::new(fixture.member.clone());
    let plain = queue("q", json!({"weight": 1}), json!({}));
    let with = async |path: &str, weights: &str| {
        let annotations = json!({"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights});
        let changed = queue("q", json!({"weight": 1}), annotations);
        let created = said(&queues, "Queue", "CREATE", &changed, None).await;
        assert_eq!(said(&queues, "Queue", "UPDATE", &changed, Some(&plain)).await, created);
        created
    };
    assert_eq!(with("root/a/b", "1/2/3").await, "");
    let wanted = "queue q, field metadata.annotations[volcano.sh/hierarchy-weights]: found \"1/2\", 2 weights for the 3 \
                  levels of root/a/b; allowed: one weight per level";
    assert_eq!(with("root/a/b", "1/2").await, wanted);
    for (path, weights, part) in [
        ("root/a", "1/2/3", "3 weights for the 2 levels"),
        ("root/a", "", "0 weights for the 2 levels"),
        ("root/a", "1/0", "found weight \"0\"; allowed: numbers above 0"),
        ("root/a", "1/x", "found weight \"x\""),
        ("root//a", "1/1/1", "found \"root//a\"; allowed: a path such as root/team/project"),
        ("", "1", "found \"\"; allowed: a path"),
    ] {
        let said = with(path, weights).await;
        assert!(said.contains(part), "{path} {weights}: {said}");
    }
}

#[tokio::test]
async fn cycles_and_patterns_are_refused_whatever_the_definition_lets_through() {
    let fixture = Fixture::new(&[JobController::VolcanoJob]).await;
    let queues = Queues::new(fixture.member.clone());
    let metadata = json!({"name": "a", "namespace": "default"});
    // A chain longer than a definition's rule follows leads into the cycle.
    let names = ["t0", "t1", "t2", "t3", "t4", "x", "y", "z"];
    let needs = |at: usize| match names[at] {
        "t0" => Vec::new(),
        "x" => vec!["t4", "z"],
        "y" | "z" => vec![names[at - 1]],
        _ => vec![names[at - 1]],
    };
    let tasks: Vec<Value> =
        (0..8).map(|at| json!({"name": names[at], "dependsOn": {"name": needs(at)}})).collect();
    let flows: Vec<Value> =
        (0..8).map(|at| json!({"name": names[at], "dependsOn": {"targets": needs(at)}})).collect();
    for (kind, spec, wanted) in [
        (
            "Job",
            json!({"tasks": tasks}),
            "job default/a, field spec.tasks: found the cycle x -> z -> y -> x; allowed: dependsOn without a cycle",
        ),
        (
            "JobFlow",
            json!({"flows": flows}),
            "jobflow default/a, field spec.flows: found the cycle x -> z -> y -> x; allowed: dependsOn without a cycle",
        ),
        (
            "HyperNode",
            json!({"tier": 1, "members": [{"type": "Node", "selector": {"regexMatch": {"pattern": "n-("}}}]}),
            "hypernode a, field spec.members[0].selector: regexMatch.pattern: found \"n-(\"; allowed: a regular expression",
        ),
    ] {
        let object = json!({"metadata": metadata, "spec": spec});
        assert_eq!(said(&queues, kind, "CREATE", &object, None).await, wanted);
    }
}
