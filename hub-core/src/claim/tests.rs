use std::{collections::BTreeMap, sync::Arc};

use fleet_quota_tree::{NodeSpec, QUOTA_LABELS, QuotaTree, REQUIRE_QUEUE};

use super::*;
use crate::{
    kinds, manifests,
    observation::{Change, Observation},
};

#[test]
fn a_policy_that_suspends_dispatching_for_a_while_lets_a_bound_run_go_on() {
    let settled = |known: Value, asked: Value| {
        let mut desired = json!({"suspension": asked});
        settle_queueing(&json!({"suspension": known}), &mut desired);
        desired.get("suspension").map(Value::to_string).unwrap_or_default()
    };
    let left = json!({"scheduling": false});
    assert_eq!(settled(json!({"scheduling": false, "dispatching": true}), json!({})), left.to_string());
    assert_eq!(
        settled(json!({"dispatching": true}), json!({"scheduling": true})),
        "",
        "it waits in no queue"
    );
    assert_eq!(settled(left.clone(), Value::Null), left.to_string());
    assert!(settled(left, json!({"dispatching": true})).contains("\"dispatching\":true"));
}

/// `research` is in a leaf that requires queues, `open` in one that does not.
fn world(root: &str) -> World {
    let node = |name: &str, requires: &str, children: Vec<NodeSpec>| NodeSpec {
        name: name.to_string(),
        namespaces: if children.is_empty() { vec![name.to_string()] } else { Vec::new() },
        attributes: [(REQUIRE_QUEUE.to_string(), requires.to_string())].into(),
        children,
        ..NodeSpec::default()
    };
    let leaves = vec![node("research", "true", Vec::new()), node("open", "false", Vec::new())];
    let (tree, _) = QuotaTree::build(&node("root", root, leaves)).expect("a tree");
    let mut world = World::default();
    world.quota_tree = Some(Arc::new(tree));
    world
}

/// What the binding of a job says of its queue, under a policy that says `suspension`.
fn suspension(world: &mut World, namespace: &str, label: &str, kind: &str, suspension: Value) -> Value {
    let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "own", "namespace": namespace, "uid": "p", "generation": 1},
        "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}], "suspension": suspension,
            "placement": {"replicaScheduling": {"replicaSchedulingType": kind}}}});
    world.observe(Observation::Policy(Change::Apply(serde_json::from_value(policy).expect("a policy"))));
    let labels: BTreeMap<&str, &str> = [(QUOTA_LABELS[0], label)].into();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace, "uid": "u", "labels": labels},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let known = kinds::known("batch/v1", "Job").expect("a kind");
    world.observe(Observation::Object(
        known.clone(),
        Change::Apply(serde_json::from_value(job).expect("a job")),
    ));
    let key = (namespace.to_string(), "train".to_string());
    match plan(world, &mut Forms::default(), &known, &key, Timestamp::UNIX_EPOCH)
        .pop()
        .map(|write| write.verb)
    {
        Some(Verb::Create(body)) => body["spec"]["suspension"].clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tenants_policy_leads_no_gang_past_a_queue_that_is_required() {
    let queues = json!({"scheduling": true});
    for (root, namespace, label, queued) in [
        ("false", "research", "", true),
        ("false", "research", "open", true),
        ("false", "research", "no-such-leaf", true),
        ("false", "open", "research", true),
        ("false", "open", "", false),
        ("false", "nowhere", "", false),
        ("true", "nowhere", "", true),
    ] {
        for own in [Value::Null, json!({"scheduling": false}), json!({})] {
            let found = suspension(&mut world(root), namespace, label, "Divided", own.clone());
            assert_eq!(found == queues, queued, "{root} {namespace} {label} {own}: {found}");
        }
    }
    let found = suspension(&mut world("true"), "research", "", "Divided", json!({"dispatching": true}));
    assert_eq!(found, json!({"dispatching": true, "scheduling": true}));
    // Copies do not queue; they are not placed at all if they ask for what is bounded.
    assert_eq!(suspension(&mut world("true"), "research", "", "Duplicated", Value::Null), Value::Null);
    let mut none = World::default();
    assert_eq!(suspension(&mut none, "research", "", "Divided", Value::Null), Value::Null);
}

fn kind_of(job: &Value) -> KindRef {
    let text = |field: &str| job[field].as_str().expect("a text");
    kinds::known(text("apiVersion"), text("kind")).expect("a kind")
}

fn submit(world: &mut World, job: &Value) {
    let object = serde_json::from_value(job.clone()).expect("an object");
    world.observe(Observation::Object(kind_of(job), Change::Apply(object)));
}

/// A world with the job, and a policy of its namespace that has `extra` in its spec.
fn governed(job: &Value, extra: &Value) -> World {
    let mut world = World::default();
    submit(&mut world, job);
    govern(&mut world, job, extra);
    world
}

fn govern(world: &mut World, job: &Value, extra: &Value) {
    let mut spec = json!({"resourceSelectors": [{"apiVersion": job["apiVersion"], "kind": job["kind"]}], "placement": {}});
    for (field, value) in extra.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "own", "namespace": "team", "uid": "p", "generation": 1}, "spec": spec});
    world.observe(Observation::Policy(Change::Apply(serde_json::from_value(policy).expect("a policy"))));
}

fn planned(world: &World, job: &Value) -> Option<Verb> {
    planned_at(world, job, Timestamp::UNIX_EPOCH)
}

fn planned_at(world: &World, job: &Value, now: Timestamp) -> Option<Verb> {
    let key = ("team".to_string(), "train".to_string());
    let mut writes = plan(world, &mut Forms::default(), &kind_of(job), &key, now);
    assert!(writes.len() <= 1, "{writes:?}");
    writes.pop().map(|write| write.verb)
}

/// Makes the binding that is planned, bound to those clusters.
fn claim(world: &mut World, job: &Value, clusters: &Value) -> Key {
    let Some(Verb::Create(mut body)) = planned(world, job) else { panic!("no binding") };
    body["metadata"]["uid"] = "b".into();
    body["metadata"]["resourceVersion"] = "7".into();
    body["spec"]["clusters"] = clusters.clone();
    body["spec"]["epoch"] = 3.into();
    world.observe(Observation::Binding(Change::Apply(serde_json::from_value(body).expect("a binding"))));
    world.bindings.keys().next().expect("it stands").clone()
}

/// What the policy's change from `before` to `after` writes into the spec of a binding with those clusters.
fn follows(job: &Value, clusters: &Value, before: &Value, after: &Value) -> Value {
    let mut world = governed(job, before);
    claim(&mut world, job, clusters);
    assert!(planned(&world, job).is_none(), "nothing changed");
    govern(&mut world, job, after);
    match planned(&world, job) {
        Some(Verb::Merge(patch)) => patch["spec"].clone(),
        None => Value::Null,
        other => panic!("{other:?}"),
    }
}

fn torch(roles: &[(&str, i64, &str)]) -> Value {
    let role = |(role, replicas, cpu): &(&str, i64, &str)| {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
        (
            (*role).to_string(),
            json!({"replicas": replicas, "template": {"spec": {"containers": [container]}}}),
        )
    };
    let roles: serde_json::Map<String, Value> = roles.iter().map(role).collect();
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": {"pytorchReplicaSpecs": roles}})
}

fn deployment(replicas: i64) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "train", "namespace": "team", "uid": "u"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[test]
fn a_job_is_not_placed_by_what_it_asked_for_before_an_edit() {
    let job = torch(&[("Master", 1, "1")]);
    let edits = [
        (torch(&[("Master", 1, "1")]), true),
        (torch(&[("Master", 1, "2")]), false),
        (torch(&[("Master", 1, "1"), ("Worker", 2, "1")]), false),
    ];
    for (edited, expected) in edits {
        let mut world = governed(&job, &Value::Null);
        let key = claim(&mut world, &job, &json!([]));
        submit(&mut world, &edited);
        let entry = &world.bindings[&key];
        let object = world.bound_object(entry).expect("its job");
        assert_eq!(Forms::default().is_current(&world, entry, object), expected, "{edited}");
    }
}

/// The edit and its place are one write, so no leader that comes later finds the one without the other.
#[test]
fn an_edit_of_a_waiting_job_takes_a_new_place_unless_it_asks_for_less() {
    let job = torch(&[("Worker", 2, "4")]);
    let in_leaf = |leaf: &str| {
        let mut job = job.clone();
        job["metadata"]["labels"] = json!({QUOTA_LABELS[0]: leaf});
        job
    };
    let now = Timestamp::from_millisecond(9_500).expect("a time");
    for (edited, moves) in [
        (torch(&[("Worker", 3, "4")]), true),
        (torch(&[("Worker", 2, "5")]), true),
        (torch(&[("Worker", 1, "4")]), false),
        (in_leaf("other"), true),
    ] {
        let mut world = governed(&job, &Value::Null);
        claim(&mut world, &job, &json!([]));
        submit(&mut world, &edited);
        let Some(Verb::Merge(patch)) = planned_at(&world, &edited, now) else { panic!("{edited}") };
        let since = if moves { json!("1970-01-01T00:00:09.500Z") } else { Value::Null };
        assert_eq!(patch["spec"]["queuePlace"]["since"], since, "{edited}");
        // A run keeps its place, and goes back to it, whatever is edited meanwhile.
        let mut world = governed(&job, &Value::Null);
        claim(&mut world, &job, &json!([{"name": "east"}]));
        submit(&mut world, &edited);
        assert!(planned_at(&world, &edited, now).is_none(), "{edited}");
    }
}

#[test]
fn only_a_volcano_job_keeps_its_pods_within_a_tier_of_the_network() {
    let wish = json!({"mode": "hard", "highestTierAllowed": 1});
    let container = json!({"name": "c", "image": "i"});
    let volcano = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "uid": "u"},
        "spec": {"networkTopology": wish, "minAvailable": 1, "tasks": [
            {"name": "t", "replicas": 1, "template": {"spec": {"containers": [container]}}}]}});
    let mut other = torch(&[("Master", 1, "1")]);
    other["spec"]["networkTopology"] = wish.clone();
    for (job, expected) in [(volcano, wish), (other, Value::Null)] {
        let Some(Verb::Create(body)) = planned(&governed(&job, &Value::Null), &job) else { panic!("{job}") };
        assert_eq!(body["spec"]["networkTopology"], expected, "{}", job["kind"]);
    }
}

#[test]
fn an_edit_of_a_job_reaches_its_binding_unless_its_places_are_held() {
    let placed = json!([{"name": "east"}]);
    for (clusters, job, edited, follows) in [
        (json!([]), torch(&[("Master", 1, "1")]), torch(&[("Master", 1, "2"), ("Worker", 2, "1")]), true),
        (
            placed.clone(),
            torch(&[("Master", 1, "1")]),
            torch(&[("Master", 1, "2"), ("Worker", 2, "1")]),
            false,
        ),
        // No places are held for a Deployment.
        (placed, deployment(1), deployment(3), true),
    ] {
        let mut world = governed(&job, &Value::Null);
        claim(&mut world, &job, &clusters);
        submit(&mut world, &edited);
        match planned(&world, &job) {
            Some(Verb::Merge(patch)) => {
                assert!(follows, "{clusters} {patch}");
                assert_eq!(patch["spec"]["replicas"], 3, "{clusters}");
                assert_eq!(patch["metadata"]["resourceVersion"], "7", "a bind meanwhile is not overwritten");
                let placing = ["clusters", "epoch"].map(|field| patch["spec"].get(field).is_some());
                assert_eq!(placing, [false, false], "the target is the scheduler's: {patch}");
            }
            None => assert!(!follows, "{clusters} {edited}"),
            other => panic!("{other:?}"),
        }
    }
}

/// The member may not know of the change, and the hub must not believe that it does.
#[test]
fn a_running_gang_keeps_the_fencing_and_the_scheduling_that_it_was_sent_with() {
    let job = torch(&[("Master", 1, "1")]);
    let fenced = |level: &str| json!({"failover": {"cluster": {"tolerationSeconds": 60, "fencing": level}}});
    let unsaid = json!({"failover": {"cluster": {"tolerationSeconds": 60}}});
    let pods = |who: &str| json!({"podScheduling": who});
    let copies = json!({"placement": {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}});
    let divided = json!({"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}});
    let none = Value::Null;
    let running = json!([{"name": "east"}]);
    for (before, after) in [
        (fenced("None"), fenced("Watchdog")),
        (fenced("Watchdog"), fenced("None")),
        (fenced("None"), unsaid.clone()),
        (unsaid, fenced("Watchdog")),
        (json!({"failover": {}}), json!({"failover": {"cluster": {"fencing": "None"}}})),
        (pods("Gates"), pods("AsWritten")),
        (pods("Gates"), none.clone()),
        (none.clone(), pods("Gates")),
        (none.clone(), copies.clone()),
        (divided.clone(), copies.clone()),
        // No quota was asked for copies, which may request nothing that it bounds.
        (copies.clone(), divided.clone()),
        (copies, none.clone()),
        (divided, none),
    ] {
        assert_eq!(follows(&job, &running, &before, &after), Value::Null, "{before} to {after}");
        let waiting = follows(&job, &json!([]), &before, &after);
        assert!(waiting.is_object(), "a waiting job follows its policy: {before} to {after}");
    }
    // What the member need not know follows at once.
    let patient = json!({"failover": {"cluster": {"tolerationSeconds": 90, "fencing": "Watchdog"}}});
    let found = follows(&job, &running, &fenced("None"), &patient);
    assert_eq!(found, json!({"failover": {"cluster": {"tolerationSeconds": 90}}}));
}

/// A tenant would have his job bound under a policy of his own, and delete that policy before the job is sent.
#[test]
fn what_a_tenants_policy_says_in_vain_does_not_count_under_that_of_the_cluster() {
    let job = torch(&[("Master", 1, "1")]);
    let policy = |kind: &str, namespace: &str, name: &str, scheduling: Option<&str>| {
        json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace, "uid": name, "generation": 1},
            "spec": {"resourceSelectors": [{"apiVersion": job["apiVersion"], "kind": job["kind"]}],
                "placement": {}, "podScheduling": scheduling}})
    };
    let own: fleet_api::PropagationPolicy =
        serde_json::from_value(policy("PropagationPolicy", "team", "own", Some("AsWritten")))
            .expect("a policy");
    let mut world = World::default();
    submit(&mut world, &job);
    world.observe(Observation::Policy(Change::Apply(own.clone())));
    let key = claim(&mut world, &job, &json!([{"name": "east"}]));
    let sent = |world: &World| {
        let body = manifests::work_spec(world, &world.bindings[&key], Vec::new(), None, None, None);
        body["podScheduling"].clone()
    };
    assert_eq!(sent(&world), Value::Null);
    let mut of_all = policy("ClusterPropagationPolicy", "", "all", None);
    of_all["metadata"]["namespace"] = Value::Null;
    let of_all = serde_json::from_value(of_all).expect("a policy");
    world.observe(Observation::ClusterPolicy(Change::Apply(of_all)));
    world.observe(Observation::Policy(Change::Delete(own)));
    let Some(Verb::Merge(patch)) = planned(&world, &job) else { panic!("the other policy takes over") };
    assert_eq!(patch["spec"]["policy"]["kind"], "ClusterPropagationPolicy");
    assert_eq!(patch["spec"].get("podScheduling"), Some(&Value::Null), "{patch}");
    let mut binding = json!(world.bindings[&key].object);
    binding["spec"]["policy"] = json!({"kind": "ClusterPropagationPolicy", "name": "all", "uid": "all"});
    binding["spec"]["podScheduling"] = patch["spec"]["podScheduling"].clone();
    world.observe(Observation::Binding(Change::Apply(serde_json::from_value(binding).expect("a binding"))));
    assert_eq!(sent(&world), Value::Null);
}

/// Its pods would run on reserved places that nobody holds for them, and end unseen.
#[test]
fn a_deployment_is_no_gang_whatever_its_policy_says() {
    let gang = json!({"placement": {"replicaScheduling": {
        "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}}, "suspension": {"scheduling": true}});
    let mut set = deployment(2);
    set["kind"] = "StatefulSet".into();
    for object in [deployment(2), set] {
        let world = governed(&object, &gang);
        assert!(planned(&world, &object).is_none(), "it is not placed: {}", object["kind"]);
        let (kind, key) = (kind_of(&object), ("team".to_string(), "train".to_string()));
        let told = unclaimed::Unclaimed::default().plan(&world, &kind, &key, jiff::Timestamp::UNIX_EPOCH);
        let text = format!("{told:?}");
        assert!(text.contains("InvalidWorkload") && text.contains("customSchedulingType"), "{text}");
        // One that runs already goes on as it was sent.
        let mut world = governed(&object, &Value::Null);
        let binding = claim(&mut world, &object, &json!([{"name": "east"}]));
        govern(&mut world, &object, &gang);
        assert!(planned(&world, &object).is_none());
        assert!(!world.bindings[&binding].is_gang());
        // A binding of an earlier release may say that it is a gang.
        let mut earlier = world.bindings[&binding].object.clone();
        earlier.spec.placement = serde_json::from_value(gang["placement"].clone()).ok();
        world.observe(Observation::Binding(Change::Apply(earlier)));
        assert!(!world.bindings[&binding].is_gang());
    }
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "train", "namespace": "team", "uid": "u"}});
    assert!(planned(&governed(&config, &gang), &config).is_some(), "it may be selected beside its job");
    let job = torch(&[("Master", 1, "1")]);
    assert!(planned(&governed(&job, &gang), &job).is_some());
}
