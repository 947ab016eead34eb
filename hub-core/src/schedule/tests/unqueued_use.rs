//! What the quota tree reports of jobs that do not queue.

use fleet_quota_tree::{MAX_JOBS, NodeId, NodeSpec};

use super::*;
use crate::tree::Sums;

/// Jobs without a queue stand beside `used`, which stays below its max at every level; what a queued job asks is in neither.
#[test]
fn jobs_without_a_queue_are_not_part_of_what_is_used() {
    let mut stage = Stage::new();
    let max = |amount: &str| [(MAX_JOBS.to_string(), amount.to_string())].into();
    let team = NodeSpec {
        name: "team".to_string(),
        namespaces: vec!["default".to_string()],
        max: [(MAX_JOBS.to_string(), "1".to_string()), ("nvidia.com/gpu".to_string(), "4".to_string())]
            .into(),
        ..NodeSpec::default()
    };
    let root =
        NodeSpec { name: "root".to_string(), max: max("1"), children: vec![team], ..NodeSpec::default() };
    let (tree, _) = QuotaTree::build(&root).expect("a tree");
    stage.scheduler.set_tree(Some(Arc::new(tree)), None, &mut stage.world, &stage.intents, stage.now);
    let runs = |stage: &mut Stage, name: &str| {
        stage.submit(name);
        let components = json!(stage.world.bindings[&key(name)].object.spec.components);
        stage.bind(name, components, json!([{"name": "m"}]), 1);
    };
    (0..8).for_each(|number| runs(&mut stage, &format!("job-{number}")));
    let status = |stage: &Stage| {
        let quota = stage.scheduler.planner().quota().expect("a tree");
        Sums::of(&stage.world, quota).status(NodeId::ROOT)
    };
    let expected = |name: &str| {
        let of =
            |field: &str, jobs: &str, gpus: &str| (field.to_string(), jobs.to_string(), gpus.to_string());
        (name.to_string(), [of("used", "0", "0"), of("unqueued", "8", "16"), of("request", "8", "16")])
    };
    let found = |node: &Value| {
        let of = |field: &str| {
            let amount = |name: &str| node[field][name].as_str().unwrap_or("0").to_string();
            (field.to_string(), amount(MAX_JOBS), amount("nvidia.com/gpu"))
        };
        (node["name"].as_str().unwrap_or_default().to_string(), ["used", "unqueued", "request"].map(of))
    };
    let all = status(&stage);
    assert_eq!(found(&all), expected("root"), "{all}");
    assert_eq!(found(&all["children"][0]), expected("team"), "{all}");

    // One that queues waits for both, and is not used before it is admitted.
    stage.submit("queued");
    stage.suspend("queued", json!({"scheduling": true}));
    assert!(stage.pass().iter().all(|write| write.target != Target::Reservation));
    let waits = "Insufficient quota(jobs) in quota root/team: request 1, max 1, used 0, unqueued 8";
    assert!(stage.waiting("queued").contains(waits), "{}", stage.waiting("queued"));
    let all = status(&stage);
    assert_eq!(found(&all["children"][0]), expected("team"), "{all}");
    // Once all others are gone and it is admitted, it is what is used.
    (0..8).for_each(|number| stage.delete(&format!("job-{number}")));
    let mut admitted = stage.world.bindings[&key("queued")].object.clone();
    admitted.spec.clusters = read(json!([{"name": "m"}]));
    admitted.spec.epoch = 1;
    admitted.spec.suspension = read(json!({"scheduling": false}));
    stage.observe(Observation::Binding(Change::Apply(admitted)));
    stage.look("queued");
    let all = status(&stage);
    assert_eq!((&all["used"][MAX_JOBS], &all["unqueued"]), (&json!("1"), &Value::Null), "{all}");
}
