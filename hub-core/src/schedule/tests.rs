use fleet_api::names;
use fleet_policies::reason::Reason;
use serde_json::{Value, json};

use super::*;
use crate::{
    asked, dispatch, kinds,
    observation::{Change, Observation},
    virtual_clusters::Configurations,
};

mod admitted;
mod cells;
mod edits;
mod followers;
mod held_back;
mod left_behind;
mod model;
mod places;
mod require_queue;
mod unqueued_use;

const API: &str = crate::binding::API_VERSION;

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

/// A member `m` whose node `n` is a cell of two GPUs, promised to `vc`.
struct Stage {
    world: World,
    intents: Intents,
    scheduler: Scheduler,
    configurations: Configurations,
    now: Timestamp,
}

impl Stage {
    fn new() -> Self {
        let mut stage = Self {
            world: World::default(),
            intents: Intents::default(),
            scheduler: Scheduler::new(&Options::default()),
            configurations: Configurations::default(),
            now: Timestamp::UNIX_EPOCH,
        };
        let time = "1970-01-01T00:00:00Z";
        stage.observe(Observation::Namespace(Change::Apply(read(json!({"metadata": {"name": "default"}})))));
        stage.observe(Observation::Cluster(Change::Apply(read(json!({
            "apiVersion": API, "kind": "Cluster", "metadata": {"name": "m", "uid": "m"}, "spec": {},
            "status": {"reservation": true, "reportSequence": 1, "apiEnablements": ["batch/v1/Job"],
                "nodeShapes": [{"count": 1, "allocatable": {}, "free": {}, "nodes": ["n"]}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m",
                    "lastTransitionTime": time}]},
        })))));
        stage.observe(Observation::CellConfiguration(Change::Apply(read(json!({
            "apiVersion": API, "kind": "CellConfiguration",
            "metadata": {"name": "cells", "uid": "cells", "generation": 1, "creationTimestamp": time},
            "spec": {
                "physicalCluster": {
                    "skuTypes": {"GPU": {"gpu": 1, "cpu": 4, "memory": "8Gi"}},
                    "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": 2, "isNodeLevel": true}},
                    "physicalCells": [{"cellType": "NODE", "cellAddress": "n"}],
                },
                "virtualClusters": {"vc": {"virtualCells": [{"cellType": "NODE", "cellNumber": 1}]}},
            },
        })))));
        stage.configure();
        stage.pass();
        for write in stage.scheduler.keep_cell_nodes(&stage.world, "m") {
            stage.reserved(&write);
        }
        stage
    }

    fn observe(&mut self, observation: Observation) {
        self.intents.observe(&mut self.world, observation);
    }

    fn configure(&mut self) {
        if let Some(change) = self.configurations.read(&self.world) {
            self.scheduler.set_cells(change.as_deref(), &mut self.world, &self.intents, self.now);
        }
        let trouble = self.configurations.trouble();
        self.scheduler.cells_read(trouble, &mut self.world, &self.intents, self.now);
    }

    /// Another process leads, and knows what stands on the hub.
    fn restart(&mut self) {
        self.scheduler = Scheduler::new(&Options::default());
        self.configurations = Configurations::default();
        self.world.recount.insert("m".to_string());
        self.configure();
        for name in ["first", "second"] {
            self.look(name);
        }
    }

    /// A write that makes a reservation stands, and the member has answered it.
    fn reserved(&mut self, write: &Write) -> Key {
        let Verb::Create(body) = &write.verb else { panic!("{write:?}") };
        let mut body = body.clone();
        body["metadata"]["uid"] = json!(write.name);
        body["status"] = json!({"phase": "Reserved"});
        let (namespace, name) = (write.namespace.clone(), write.name.clone());
        self.observe(Observation::Reservation(Change::Apply(read(body))));
        self.world.recount.insert("m".to_string());
        (namespace, name)
    }

    fn look(&mut self, name: &str) {
        self.scheduler.look(&mut self.world, &self.intents, &key(name), self.now);
    }

    fn pass(&mut self) -> Vec<Write> {
        self.now += SignedDuration::from_secs(1);
        let pass = self.scheduler.pass(&mut self.world, &mut self.intents, self.now);
        assert!(pass.violations.is_empty(), "{:?}", pass.violations);
        pass.writes.into_iter().map(|(_, write)| write).collect()
    }

    fn waiting(&self, name: &str) -> String {
        self.scheduler.waiting(&key(name)).map(|w| format!("{}: {}", w.reason, w.message)).unwrap_or_default()
    }

    /// The node is promised to another virtual cluster from now on.
    fn promise(&mut self, vc: &str) {
        let promised = json!({vc: {"virtualCells": [{"cellType": "NODE", "cellNumber": 1}]}});
        self.reconfigure("virtualClusters", promised);
    }

    fn reconfigure(&mut self, field: &str, value: Value) {
        let mut configuration = self.world.cell_configurations.values().next().expect("one").clone();
        let mut spec = json!(configuration.spec);
        spec[field] = value;
        configuration.spec = read(spec);
        configuration.metadata.generation =
            configuration.metadata.generation.map(|generation| generation + 1).or(Some(2));
        self.observe(Observation::CellConfiguration(Change::Apply(configuration)));
        self.configure();
    }

    fn submit(&mut self, name: &str) {
        self.submit_as(name, job(name));
    }

    fn submit_as(&mut self, name: &str, job: Value) {
        let kind = kinds::known("batch/v1", "Job").expect("a kind");
        self.observe(Observation::Object(kind.clone(), Change::Apply(read(job))));
        let key = ("default".to_string(), name.to_string());
        let object = self.world.object(&kind, &key).expect("it stands").clone();
        let counted =
            asked::counted(&self.world, &kind, &key, &object, &Default::default(), &mut Default::default());
        let components: Vec<_> =
            counted.expect("components").iter().map(fleet_api::convert::component).collect();
        self.bind(name, json!(components), json!([]), 0);
    }

    fn bind(&mut self, name: &str, components: Value, clusters: Value, epoch: i64) {
        self.observe(Observation::Binding(Change::Apply(binding(name, components, clusters, epoch))));
        self.look(name);
    }

    /// The job's reservation is answered, it is bound, and its Work stands.
    fn start(&mut self, name: &str, write: &Write) -> (Key, Value) {
        let place = self.reserved(write);
        self.scheduler.asked(&mut self.world, &self.intents, &key(name), self.now);
        let components = json!(self.world.bindings[&key(name)].object.spec.components);
        self.bind(name, components, json!([{"name": "m"}]), 1);
        let entry = &self.world.bindings[&key(name)];
        let sent = (*self.world.bound_object(entry).expect("its object").value).clone();
        let work = json!({
            "apiVersion": API, "kind": "Work",
            "metadata": {"namespace": place.0, "name": entry.work_name(), "uid": "w",
                "finalizers": [names::WORK_FINALIZER]},
            "spec": {"binding": {"namespace": "default", "name": entry.name(), "uid": entry.uid()}, "epoch": 1,
                "reservation": place.1, "workload": {"manifests": [sent]}},
        });
        self.observe(Observation::Work(Change::Apply(read(work.clone()))));
        self.look(name);
        (place, work)
    }

    /// The job goes, and garbage collection takes its binding along.
    fn delete(&mut self, name: &str) {
        let kind = kinds::known("batch/v1", "Job").expect("a kind");
        self.observe(Observation::Object(kind, Change::Delete(read(job(name)))));
        let gone = self.world.bindings[&key(name)].object.clone();
        self.observe(Observation::Binding(Change::Delete(gone)));
        self.look(name);
    }

    fn orphan(&self, key: &Key) -> Vec<Write> {
        dispatch::plan_orphan(&self.world, &self.intents, key)
    }
}

fn key(name: &str) -> Key {
    ("default".to_string(), names::binding_name("batch/v1", "Job", name))
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "default", "name": name, "uid": format!("o-{name}"), "generation": 1,
            "labels": {names::VIRTUAL_CLUSTER_LABEL: "vc"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}},
    })
}

fn binding(name: &str, components: Value, clusters: Value, epoch: i64) -> fleet_api::ResourceBinding {
    read(json!({
        "apiVersion": API, "kind": "ResourceBinding",
        "metadata": {"namespace": "default", "name": key(name).1, "uid": format!("b-{name}"),
            "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": name,
            "uid": format!("o-{name}")},
            "policy": {"kind": "PropagationPolicy", "namespace": "default", "name": "p"},
            "components": components, "replicas": 1, "clusters": clusters, "epoch": epoch},
    }))
}

#[track_caller]
fn only(mut writes: Vec<Write>) -> Write {
    assert_eq!(writes.len(), 1, "{writes:?}");
    writes.remove(0)
}

/// What overrides make is known before anything is reserved: a run that cannot be sent would hold its quota.
#[test]
fn overrides_that_cannot_be_sent_reserve_nothing() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |value, _| json!({"a": value}));
    let set = |path: &str, value: Value| json!({"path": path, "operator": "add", "value": value});
    let large = json!("x".repeat(1_300_000));
    for (kind, set, says) in [
        ("Job", set("/spec/zz", nested(80)), "82 levels of nested objects and lists; allowed: 64 levels"),
        ("Job", set("/spec/zz", large.clone()), "allowed: 1200000 in total"),
        (
            "ConfigMap",
            set("/data/zz", nested(80)),
            "82 levels of nested objects and lists; allowed: 64 levels",
        ),
        ("ConfigMap", set("/data/zz", large), "allowed: 1200000 in total"),
        ("ConfigMap", json!({"path": "/data/none/none", "operator": "remove"}), "a path whose parent exists"),
        (
            "Job",
            set("/spec/template/spec/priorityClassName", json!("system-node-critical")),
            "spec.template.spec.priorityClassName: found system-node-critical; allowed",
        ),
        (
            "Secret",
            set("/type", json!("kubernetes.io/service-account-token")),
            "which is a credential of an API server",
        ),
    ] {
        let mut stage = Stage::new();
        for of in ["ConfigMap", "Secret"] {
            let of_kind = kinds::dependencies().into_iter().find(|kind| kind.kind == of).expect("a kind");
            let object = json!({"apiVersion": "v1", "kind": of, "data": {"k": "v"},
                "metadata": {"namespace": "default", "name": "c", "uid": of}});
            stage.observe(Observation::Object(of_kind, Change::Apply(read(object))));
        }
        let version = if kind == "Job" { "batch/v1" } else { "v1" };
        stage.observe(Observation::Override(Change::Apply(read(json!({
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"namespace": "default", "name": "o", "uid": "o"},
            "spec": {"resourceSelectors": [{"apiVersion": version, "kind": kind}],
                "overrideRules": [{"overriders": {"plaintext": [set]}}]}})))));
        let mut job = job("first");
        job["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
            json!([{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "c"}}]);
        stage.submit_as("first", job);
        let mut bound = stage.world.bindings[&key("first")].object.clone();
        bound.spec.propagate_deps = Some(true);
        stage.observe(Observation::Binding(Change::Apply(bound)));
        stage.look("first");
        assert!(stage.pass().is_empty(), "{says}");
        assert!(stage.waiting("first").contains(says), "{says}: {:.600}", stage.waiting("first"));
    }
}

/// Nobody looks further than what fits into a Work, so the reason stays the same while other dependencies change.
#[test]
fn a_job_is_refused_by_the_first_dependencies_that_are_too_large() {
    let mut stage = Stage::new();
    let maps = kinds::dependencies().into_iter().find(|kind| kind.kind == "ConfigMap").expect("a kind");
    let map = |n: usize, length: usize| {
        let (name, text) = (format!("c{n}"), "x".repeat(length));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": text},
            "metadata": {"namespace": "default", "name": name, "uid": name}});
        Observation::Object(maps.clone(), Change::Apply(read(map)))
    };
    (0..9).for_each(|n| stage.observe(map(n, 500_000)));
    let from: Vec<Value> = (0..9).map(|n| json!({"configMapRef": {"name": format!("c{n}")}})).collect();
    let mut job = job("first");
    job["spec"]["template"]["spec"]["containers"][0]["envFrom"] = json!(from);
    stage.submit_as("first", job);
    let mut bound = stage.world.bindings[&key("first")].object.clone();
    bound.spec.propagate_deps = Some(true);
    stage.observe(Observation::Binding(Change::Apply(bound)));
    stage.look("first");
    assert!(stage.pass().is_empty());
    let told = stage.waiting("first");
    let says = "WorkloadTooLarge: the job and its 9 dependencies: found more than 1200000 bytes of JSON, the largest of the \
                first 4 objects is ConfigMap c0 with 5";
    assert!(told.starts_with(says), "{told}");
    stage.observe(map(8, 900_000));
    stage.look("first");
    assert!(stage.pass().is_empty());
    assert_eq!(stage.waiting("first"), told);
    (0..9).for_each(|n| stage.observe(map(n, 10)));
    stage.look("first");
    assert!(!stage.pass().is_empty(), "{}", stage.waiting("first"));
}

/// A credential of the hub is sent to no member; pods start without what is optional.
#[test]
fn tokens_of_the_hub_are_sent_to_no_member() {
    let secret = kinds::dependencies().into_iter().find(|kind| kind.kind == "Secret").expect("a kind");
    for optional in [false, true] {
        let mut stage = Stage::new();
        stage.observe(Observation::Object(
            secret.clone(),
            Change::Apply(read(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "data": {"token": "aHVi"},
            "metadata": {"namespace": "default", "name": "tok1", "uid": "s"}}))),
        ));
        let mut job = job("first");
        job["spec"]["template"]["spec"]["volumes"] =
            json!([{"name": "t", "secret": {"secretName": "tok1", "optional": optional}}]);
        stage.submit_as("first", job);
        let mut bound = stage.world.bindings[&key("first")].object.clone();
        bound.spec.propagate_deps = Some(true);
        stage.observe(Observation::Binding(Change::Apply(bound)));
        stage.look("first");
        assert_eq!(stage.pass().is_empty(), !optional, "{}", stage.waiting("first"));
        if !optional {
            let told = stage.waiting("first");
            assert!(told.starts_with("InvalidWorkload: Secret tok1: type: found kubernetes.io/"), "{told}");
        }
        let entry = &stage.world.bindings[&key("first")];
        let object = stage.world.bound_object(entry).expect("its job");
        let built =
            crate::manifests::build(&stage.world, entry, object, "m", 0, None, &mut Default::default())
                .expect("a Work");
        assert_eq!((built.manifests.len(), built.withheld.len()), (1, usize::from(!optional)));
        assert!(!json!(built.manifests).to_string().contains("aHVi"));
    }
}

#[test]
fn cells_of_a_deleted_job_are_given_to_others_when_its_member_has_let_go_of_them() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let (place, work) = stage.start("first", &asked);
    stage.delete("first");
    stage.submit("second");
    let work_key = (place.0.clone(), work["metadata"]["name"].as_str().expect("a name").to_string());
    let waits =
        format!("{}: waits for 1 job to leave its cells: default/job-first", Reason::WaitingForVictims);
    let waits = waits.replace("job-first", &key("first").1);
    for look in ["at once", "after a restart"] {
        assert!(stage.pass().is_empty(), "{look}: pods of the first still have the cells");
        assert_eq!(stage.waiting("second"), waits, "{look}");
        assert!(stage.orphan(&place).is_empty(), "{look}: the reservation says which cells these are");
        assert!(matches!(only(stage.orphan(&work_key)).verb, Verb::Delete { .. }), "{look}");
        stage.restart();
    }
    // The finalizer is gone, and with it the Work.
    stage.observe(Observation::Work(Change::Delete(read(work))));
    stage.look("first");
    assert!(matches!(only(stage.orphan(&place)).verb, Verb::Delete { .. }));
    let asked = only(stage.pass());
    let Verb::Create(body) = &asked.verb else { panic!("{asked:?}") };
    assert_eq!(body["spec"]["cells"][0]["places"][0]["node"], "n");
}

#[test]
fn a_pod_that_has_ended_leaves_its_cells_also_when_no_pod_of_its_job_has_any() {
    let mut stage = Stage::new();
    let two = |mut job: Value| {
        job["spec"]["parallelism"] = 2.into();
        job["spec"]["completions"] = 2.into();
        job["metadata"]["annotations"] = json!({names::GANG_ALLOCATION_ANNOTATION: "false"});
        job
    };
    stage.submit_as("first", two(job("first")));
    let asked = only(stage.pass());
    let (place, _) = stage.start("first", &asked);
    let mut ended = stage.world.reservations[&place].clone();
    ended.status =
        Some(read(json!({"phase": "Reserved", "nodes": {"job": ["n", ""]}, "ended": {"job": [0]}})));
    // The virtual cluster has no cells for the other pod.
    stage.promise("other");
    stage.observe(Observation::Reservation(Change::Apply(ended)));
    stage.look("first");
    let regroup: Vec<Write> = stage.pass().into_iter().filter(|write| write.name == place.1).collect();
    let Verb::Merge(patch) = only(regroup).verb else { panic!("a patch") };
    let groups = patch["spec"]["cells"].as_array().expect("groups");
    assert!(!groups.is_empty(), "without any it would be a reservation of any nodes");
    assert!(groups.iter().all(|group| group["places"][0].get("node").is_none()), "{groups:?}");
    assert!(stage.waiting("first").contains("vc"), "{}", stage.waiting("first"));
}

#[test]
fn cells_of_a_finished_job_are_held_while_pods_of_it_live() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let (place, mut work) = stage.start("first", &asked);
    stage.submit("second");
    let mut finished = stage.world.bindings[&key("first")].object.clone();
    finished.status = Some(read(json!({"result": {"outcome": "Succeeded", "cluster": "m", "epoch": 1,
        "recordedAt": "1970-01-01T00:00:00Z"}})));
    stage.observe(Observation::Binding(Change::Apply(finished)));
    for (live, deleted) in [(1, 0), (0, 1)] {
        work["status"] = json!({"livePods": live, "observedEpoch": 1, "manifestStatuses": [{
            "identifier": {"ordinal": 0, "version": "v1", "group": "batch", "kind": "Job", "name": "first"},
            "status": {"conditions": [{"type": "Complete", "status": "True"}]}}]});
        stage.observe(Observation::Work(Change::Apply(read(work.clone()))));
        stage.restart();
        assert_eq!(stage.pass().len(), deleted, "{live} live: {}", stage.waiting("second"));
        let step =
            dispatch::plan(&stage.world, &stage.intents, &key("first"), None, &Options::default(), stage.now);
        let dropped = |write: &&Write| write.name == place.1 && matches!(write.verb, Verb::Delete { .. });
        assert_eq!(step.writes.iter().filter(dropped).count(), deleted, "{live} live: {:?}", step.writes);
    }
}

/// A member that renews its lease and never answers a reservation holds no job up for ever.
#[test]
fn a_member_that_does_not_answer_is_not_waited_for() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let Verb::Create(mut body) = asked.verb.clone() else { panic!("{asked:?}") };
    body["metadata"]["uid"] = json!(asked.name);
    stage.observe(Observation::Reservation(Change::Apply(read(body))));
    stage.scheduler.asked(&mut stage.world, &stage.intents, &key("first"), stage.now);
    stage.look("first");
    let is_open =
        |stage: &Stage| stage.scheduler.planner().rooms().get("m").is_some_and(|room| room.facts.ready);
    let answers = |stage: &mut Stage| stage.scheduler.answers(&stage.world, &key("first"), stage.now);
    assert!(answers(&mut stage).is_empty());
    stage.now += SignedDuration::from_secs(14);
    assert!(answers(&mut stage).is_empty());
    stage.now += SignedDuration::from_secs(1);
    stage.scheduler.silence.missed(
        &("other".to_string(), "job".to_string()),
        "m",
        stage.now.as_millisecond(),
    );
    let given_up = only(answers(&mut stage));
    assert!(matches!(given_up.verb, Verb::Delete { .. }) && given_up.name == asked.name, "{given_up:?}");
    assert!(stage.pass().is_empty(), "it is not asked again at once");
    assert!(!is_open(&stage));
    stage.now += SignedDuration::from_secs(15);
    stage.pass();
    assert!(is_open(&stage));
}

/// The unit of an earlier run still names its leaf for a moment.
#[test]
fn a_job_counts_in_the_leaf_that_admitted_its_run() {
    let mut stage = Stage::new();
    let leaf = |name: &str, namespace: &str| fleet_quota_tree::NodeSpec {
        name: name.to_string(),
        namespaces: vec![namespace.to_string()],
        ..Default::default()
    };
    let root = fleet_quota_tree::NodeSpec {
        name: "root".to_string(),
        children: vec![leaf("a", "default"), leaf("b", "other")],
        ..Default::default()
    };
    let (tree, _) = QuotaTree::build(&root).expect("a tree");
    stage.scheduler.set_tree(Some(Arc::new(tree)), None, &mut stage.world, &stage.intents, stage.now);
    stage.submit("first");
    let entry = &stage.world.bindings[&key("first")];
    let unit = json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "QueueUnit",
        "metadata": {"namespace": "default", "name": entry.unit_name(), "uid": "u"},
        "spec": {"queue": "root/b", "consumerRef": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "first"}}});
    stage.observe(Observation::Unit(Change::Apply(read(unit))));
    let asked = stage.pass();
    let place =
        stage.reserved(asked.iter().find(|write| write.target == Target::Reservation).expect("places"));
    stage.look("first");
    assert_eq!(stage.world.leaves[&key("first")], "root/a", "{place:?}");
    let writes = stage.scheduler.answers(&stage.world, &key("first"), stage.now);
    let Verb::Patch(operations) = &writes[0].verb else { panic!("{writes:?}") };
    let leaf = operations.as_array().unwrap().iter().find(|operation| operation["path"] == "/spec/queue");
    assert_eq!(leaf.expect("a leaf")["value"], "root/a");
}

/// Its object was deleted while its cluster is away: its pods still run.
#[test]
fn a_deleted_deployment_counts_until_its_work_is_gone() {
    let mut stage = Stage::new();
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"namespace": "default", "name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}});
    let work: fleet_api::Work = read(json!({"apiVersion": API, "kind": "Work",
        "metadata": {"namespace": "fleet-m", "name": "web-deployment-1", "uid": "w", "deletionTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"binding": {"namespace": "default", "name": "web-deployment", "uid": "gone"}, "epoch": 1,
            "workload": {"manifests": [deployment]}}}));
    stage.observe(Observation::Work(Change::Apply(work.clone())));
    let key = ("default".to_string(), "web-deployment".to_string());
    stage.scheduler.look(&mut stage.world, &stage.intents, &key, stage.now);
    let left = stage.scheduler.remains[&key].first().expect("it counts").clone();
    assert!(stage.scheduler.planner().job(&left).is_some(), "{left}");
    stage.observe(Observation::Work(Change::Delete(work)));
    stage.scheduler.look(&mut stage.world, &stage.intents, &key, stage.now);
    assert!(stage.scheduler.remains.is_empty() && stage.scheduler.planner().job(&left).is_none());
}

/// Kinds are not listed in any order after a restart. What holds quota counts although its object is not known yet.
#[test]
fn a_bound_job_counts_before_its_kind_is_listed() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    let (_, work) = stage.start("first", &asked);
    // The controller died between the bind and the Work.
    stage.observe(Observation::Work(Change::Delete(read(work))));
    stage.submit("second");
    let kind = kinds::known("batch/v1", "Job").expect("a kind");
    stage.world.objects.remove(&kind);
    stage.restart();
    let counts = |stage: &Stage, name: &str| stage.scheduler.planner().job(&job_id(&key(name))).is_some();
    assert!(counts(&stage, "first") && !counts(&stage, "second"));
}

#[test]
fn pods_of_a_job_whose_class_is_edited_get_cells_while_its_run_is_admitted() {
    for (guaranteed, nodes) in [("default", ["", "n"]), ("other", ["", ""])] {
        let mut stage = Stage::new();
        let mut two = job("first");
        two["spec"]["parallelism"] = 2.into();
        two["spec"]["completions"] = 2.into();
        two["metadata"]["annotations"] = json!({names::GANG_ALLOCATION_ANNOTATION: "false"});
        two["metadata"]["labels"][names::CLASS_LABEL] = "test".into();
        stage.submit_as("first", two.clone());
        let asked = only(stage.pass());
        let (place, _) = stage.start("first", &asked);
        stage.reconfigure("access", json!({"vc": {"guaranteedNamespaces": [guaranteed]}}));
        two["metadata"]["labels"][names::CLASS_LABEL] = "oppo".into();
        let kind = kinds::known("batch/v1", "Job").expect("a kind");
        stage.observe(Observation::Object(kind, Change::Apply(read(two))));
        let mut ended = stage.world.reservations[&place].clone();
        ended.status =
            Some(read(json!({"phase": "Reserved", "nodes": {"job": ["n", ""]}, "ended": {"job": [0]}})));
        stage.observe(Observation::Reservation(Change::Apply(ended)));
        stage.look("first");
        let regroup: Vec<Write> = stage.pass().into_iter().filter(|write| write.name == place.1).collect();
        let Verb::Merge(patch) = only(regroup).verb else { panic!("a patch") };
        let places = patch["spec"]["cells"].as_array().into_iter().flatten().map(|group| &group["places"][0]);
        let found = places.map(|place| (place["index"].as_i64(), place["node"].as_str().unwrap_or_default()));
        let found: BTreeMap<_, _> = found.collect();
        let on = |index: i64| found.get(&Some(index)).copied().unwrap_or_default();
        assert_eq!([on(0), on(1)], nodes, "{patch}");
    }
}

#[test]
fn cells_whose_write_was_refused_are_written_again() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    stage.start("first", &asked);
    let mut binding = stage.world.bindings[&key("first")].object.clone();
    binding.spec.cells = Some(read(json!({"groups": []})));
    stage.observe(Observation::Binding(Change::Apply(binding.clone())));
    stage.look("first");
    let again = |stage: &Stage| stage.scheduler.regroup_again(&stage.world, &key("first"), stage.now);
    let write = only(again(&stage));
    let Verb::Merge(patch) = &write.verb else { panic!("{write:?}") };
    assert_eq!(write.target, Target::Binding);
    binding.spec.cells = Some(read(patch["spec"]["cells"].clone()));
    stage.observe(Observation::Binding(Change::Apply(binding)));
    stage.look("first");
    assert!(again(&stage).is_empty());
}
