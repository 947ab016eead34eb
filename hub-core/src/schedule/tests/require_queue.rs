//! Leaves in which nothing runs without having queued.

use fleet_quota_tree::{NodeSpec, REQUIRE_QUEUE};

use super::*;

/// `own` and `other` list one namespace each; `own` bounds GPUs. The root says whether all must queue, unless `own` does.
fn tree(root: &str, own: &str) -> Arc<QuotaTree> {
    let attributes = |value: &str| match value {
        "" => BTreeMap::new(),
        value => [(REQUIRE_QUEUE.to_string(), value.to_string())].into(),
    };
    let leaf = |name: &str, namespace: &str, requires: &str| NodeSpec {
        name: name.to_string(),
        namespaces: vec![namespace.to_string()],
        max: [("nvidia.com/gpu".to_string(), "8".to_string())].into(),
        attributes: attributes(requires),
        ..NodeSpec::default()
    };
    let root = NodeSpec {
        name: "root".to_string(),
        attributes: attributes(root),
        children: vec![leaf("own", "default", own), leaf("other", "elsewhere", "false")],
        ..NodeSpec::default()
    };
    Arc::new(QuotaTree::build(&root).expect("a tree").0)
}

impl Stage {
    fn plant(&mut self, root: &str, own: &str) {
        let tree = Some(tree(root, own));
        self.scheduler.set_tree(tree, None, &mut self.world, &self.intents, self.now);
    }

    /// The binding as it is now, in its queue or not.
    pub(super) fn suspend(&mut self, name: &str, suspension: Value) {
        let mut changed = self.world.bindings[&key(name)].object.clone();
        changed.spec.suspension = read(suspension);
        self.observe(Observation::Binding(Change::Apply(changed)));
        self.look(name);
    }

    fn answers(&mut self, name: &str) -> Vec<Write> {
        self.scheduler.answers(&self.world, &key(name), self.now)
    }
}

fn is_reservation(write: &Write) -> bool {
    write.target == Target::Reservation && matches!(write.verb, Verb::Create(_))
}

/// The policy of its tenant does not ask for a queue, and its binding does not say yet that it has one.
#[test]
fn a_gang_that_must_queue_is_not_placed_before_it_queues() {
    for (root, own, label, must) in [
        ("", "", "", false),
        ("true", "false", "", false),
        ("", "true", "", true),
        ("true", "", "", true),
        ("", "true", "other", true),
        ("", "true", "no-such-leaf", true),
    ] {
        let mut stage = Stage::new();
        stage.plant(root, own);
        let mut labelled = job("first");
        labelled["metadata"]["labels"][fleet_quota_tree::QUOTA_LABELS[0]] = label.into();
        stage.submit_as("first", labelled);
        let asked = stage.pass().iter().any(is_reservation);
        assert_eq!(asked, !must, "{root} {own} {label}: {}", stage.waiting("first"));
        if must && label != "no-such-leaf" {
            stage.suspend("first", json!({"scheduling": true}));
            assert!(stage.pass().iter().any(is_reservation), "{}", stage.waiting("first"));
        }
    }
}

/// Its label, or the tree, was changed after places were asked for.
#[test]
fn places_that_were_asked_for_without_a_queue_bind_nothing_that_must_queue() {
    let mut stage = Stage::new();
    stage.plant("", "");
    stage.submit("first");
    let asked = only(stage.pass());
    stage.world.take_dirty();
    stage.plant("", "true");
    let dirty = stage.world.take_dirty();
    assert!(dirty.contains(&Dirty::Binding(key("first"))), "{dirty:?}");
    assert!(
        dirty.iter().any(|dirty| matches!(dirty, Dirty::Object(_, key) if key.1 == "first")),
        "{dirty:?}"
    );
    stage.reserved(&asked);
    stage.look("first");
    assert!(stage.answers("first").is_empty());
    stage.suspend("first", json!({"scheduling": true}));
    let bound = only(stage.answers("first"));
    let Verb::Patch(operations) = &bound.verb else { panic!("{bound:?}") };
    let left = json!({"op": "replace", "path": "/spec/suspension/scheduling", "value": false});
    assert!(operations.as_array().expect("operations").contains(&left), "{operations}");
}

#[test]
fn a_run_without_a_queue_goes_on_and_its_next_run_queues() {
    let mut stage = Stage::new();
    stage.plant("", "");
    stage.submit("first");
    let asked = only(stage.pass());
    stage.start("first", &asked);
    let used = |stage: &Stage| {
        stage.scheduler.ledger().and_then(|ledger| ledger.job(&job_id(&key("first"))).cloned())
    };
    let before = used(&stage).expect("it counts");
    stage.plant("", "true");
    stage.look("first");
    assert_eq!(used(&stage).expect("it counts").request, before.request);
    assert!(unqueued::must_queue(&stage.world, &stage.world.bindings[&key("first")]));
    assert!(stage.pass().iter().all(|write| write.target != Target::Binding));
}

fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "spec": spec,
        "metadata": {"namespace": "default", "name": "web", "uid": "o-web", "generation": 1}})
}

fn pods(resource: &str) -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"limits": {resource: "1"}}}]}})
}

/// What never queues has no other way to the leaf's capacity than to ask for nothing of it.
#[test]
fn what_never_queues_is_not_placed_where_all_must_queue() {
    let deployment = |resource| json!({"replicas": 0, "template": pods(resource)});
    let cron = json!({"jobTemplate": {"spec": {"template": pods("nvidia.com/gpu")}}});
    let gpu = "nvidia.com/gpu";
    for (object, scheduling, barred) in [
        (object("apps/v1", "Deployment", deployment(gpu)), "Divided", true),
        (object("apps/v1", "StatefulSet", deployment(gpu)), "Duplicated", true),
        (object("batch/v1", "CronJob", cron), "Duplicated", true),
        (object("v1", "Pod", pods(gpu)["spec"].clone()), "Duplicated", true),
        (object("batch/v1", "Job", json!({"template": pods(gpu)})), "Duplicated", true),
        (object("apps/v1", "Deployment", deployment("cpu")), "Divided", false),
        (object("v1", "ConfigMap", Value::Null), "Duplicated", false),
    ] {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_string();
        for own in ["", "true"] {
            let mut stage = Stage::new();
            stage.plant("", own);
            let kind = crate::kinds::Kind::new(&text("apiVersion"), &text("kind"), "things", false);
            stage.observe(Observation::Object(kind.clone(), Change::Apply(read(object.clone()))));
            let web = ("default".to_string(), names::binding_name(&kind.api_version, &kind.kind, "web"));
            let mut binding = json!(binding("web", json!([]), json!([]), 0));
            binding["metadata"]["name"] = web.1.clone().into();
            binding["spec"]["resource"]["apiVersion"] = kind.api_version.clone().into();
            binding["spec"]["resource"]["kind"] = kind.kind.clone().into();
            binding["spec"]["placement"] =
                json!({"replicaScheduling": {"replicaSchedulingType": scheduling}});
            stage.observe(Observation::Binding(Change::Apply(read(binding))));
            let placed = stage.scheduler.spread(&mut stage.world, &web, stage.now);
            let is_barred = barred && own == "true";
            let waiting = stage.scheduler.waiting(&web).cloned();
            assert_eq!(placed.is_none(), is_barred, "{kind:?} {own}: {waiting:?}");
            // Nor is it sent where it is placed already, with a request that it did not have then.
            let entry = &stage.world.bindings[&web];
            let bound = stage.world.bound_object(entry).expect("its object");
            let built = manifests::build(&stage.world, entry, bound, "m", 0, None, &mut Default::default())
                .map(|_| ());
            assert_eq!(built.is_err(), is_barred, "{kind:?} {own}");
            if let Some(told) = built.err() {
                assert_eq!(told.reason, Reason::NotAdmittedToQueue);
                let says =
                    format!("root/own has fleet.dev/require-queue=true: found {} that asks for", kind.kind);
                assert!(told.message.starts_with(&says), "{}", told.message);
                assert_eq!(waiting.map(|waiting| waiting.message), Some(told.message));
            }
        }
    }
}

/// What a kind asks that Fleet does not know is not counted: as a gang it would queue for nothing.
#[test]
fn an_unknown_kind_with_pods_is_no_gang_that_queues() {
    let mut stage = Stage::new();
    stage.plant("", "true");
    let set = object("example.com/v1", "Set", json!({"template": pods("nvidia.com/gpu")}));
    let kind = crate::kinds::Kind::new("example.com/v1", "Set", "sets", false);
    stage.observe(Observation::Object(kind.clone(), Change::Apply(read(set))));
    let mut gang = json!(binding("web", json!([]), json!([]), 0));
    gang["spec"]["resource"]["apiVersion"] = "example.com/v1".into();
    gang["spec"]["resource"]["kind"] = "Set".into();
    gang["spec"]["suspension"] = json!({"scheduling": true});
    gang["spec"]["placement"] = json!({"replicaScheduling": {
        "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}});
    let web = ("default".to_string(), names::binding_name("example.com/v1", "Set", "web"));
    gang["metadata"]["name"] = web.1.clone().into();
    stage.observe(Observation::Binding(Change::Apply(read(gang))));
    stage.scheduler.look(&mut stage.world, &stage.intents, &web, stage.now);
    assert!(stage.scheduler.spread(&mut stage.world, &web, stage.now).is_none());
    assert!(stage.pass().iter().all(|write| !is_reservation(write)));
    assert_eq!(stage.scheduler.waiting(&web).map(|waiting| waiting.reason), Some(Reason::NotAdmittedToQueue));
}
