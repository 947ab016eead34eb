use serde::de::DeserializeOwned;

use super::*;
use crate::{
    binding::API_VERSION,
    kinds::{self, KindRef},
    observation::{Change, Observation},
};

mod any_form;
mod edited;
mod ends;
mod given_up;
mod left;
mod messages;
mod preserved;
mod sent;

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).expect("an object")
}

/// A hub with one job of the namespace `team`, its binding, and the cluster `east`. Writes take effect at once.
struct Hub {
    world: World,
    intents: Intents,
    job: Value,
    now: Timestamp,
    stands: BTreeMap<(Target, Key), Value>,
}

impl Hub {
    /// The binding is to those clusters.
    fn new(job: Value, clusters: &[&str]) -> Self {
        let (mut world, intents) = (World::default(), Intents::default());
        world.namespaces.insert("team".to_string(), fleet_policies::pod_security::Level::Privileged);
        let mut hub = Self { world, intents, job, now: Timestamp::UNIX_EPOCH, stands: BTreeMap::new() };
        hub.stand(
            Target::Cluster,
            json!({"apiVersion": API_VERSION, "kind": "Cluster", "metadata": {"name": "east", "uid": "c"},
                "spec": {}, "status": {"reservation": false, "conditions": [{"type": "Ready", "status": "True",
                    "reason": "r", "message": "m", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}}),
        );
        hub.submit(hub.job.clone());
        hub.bind("b", clusters, 1);
        hub
    }

    fn kind(&self) -> KindRef {
        let text = |field: &str| self.job[field].as_str().expect("a text");
        kinds::known(text("apiVersion"), text("kind")).expect("a kind")
    }

    fn submit(&mut self, job: Value) {
        self.job = job.clone();
        self.stand(Target::Object(self.kind()), job);
    }

    /// Binds the job to those clusters, as a binding of that uid.
    fn bind(&mut self, uid: &str, clusters: &[&str], epoch: i64) {
        let kind = self.kind();
        let object: kube_core::DynamicObject = read(&self.job);
        let object = Object {
            uid: self.job["metadata"]["uid"].as_str().unwrap_or_default().to_string(),
            labels: BTreeMap::new(),
            deleting: false,
            created: String::new(),
            derived: Default::default(),
            value: std::sync::Arc::new(json!(object)),
        };
        let key = ("team".to_string(), "train".to_string());
        let asked = crate::asked::counted(
            &self.world,
            &kind,
            &key,
            &object,
            &Default::default(),
            &mut Default::default(),
        );
        let asked = asked.expect("it is read");
        let components: Vec<_> = asked.iter().map(fleet_api::convert::component).collect();
        let targets: Vec<Value> =
            clusters.iter().map(|name| json!({"name": name, "replicas": components[0].replicas})).collect();
        self.stand(
            Target::Binding,
            json!({"apiVersion": API_VERSION, "kind": "ResourceBinding",
                "metadata": {"namespace": "team", "name": "train-b", "uid": uid},
                "spec": {"resource": {"apiVersion": kind.api_version, "kind": kind.kind, "namespace": "team",
                        "name": "train", "uid": object.uid},
                    "policy": {"kind": "PropagationPolicy", "namespace": "team", "name": "p"},
                    "propagateDeps": true, "suspension": {"scheduling": clusters.is_empty()},
                    "components": components, "clusters": targets, "epoch": epoch}}),
        );
    }

    fn observe(&mut self, observation: Observation) {
        self.intents.observe(&mut self.world, observation);
    }

    /// The object is now as that.
    fn stand(&mut self, target: Target, value: Value) {
        let observed = match &target {
            Target::Object(kind) => Observation::Object(kind.clone(), Change::Apply(read(&value))),
            Target::Binding => Observation::Binding(Change::Apply(read(&value))),
            Target::Work => Observation::Work(Change::Apply(read(&value))),
            Target::Unit => Observation::Unit(Change::Apply(read(&value))),
            Target::Reservation => Observation::Reservation(Change::Apply(read(&value))),
            Target::Cluster => Observation::Cluster(Change::Apply(read(&value))),
            other => panic!("{other:?}"),
        };
        let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_string();
        let key = (text("namespace"), text("name"));
        self.observe(observed);
        self.stands.insert((target, key), value);
    }

    fn change(&mut self, target: &Target, key: &Key, change: &Value) {
        let mut value = self.stands[&(target.clone(), key.clone())].clone();
        merge(&mut value, change);
        self.stand(target.clone(), value);
    }

    fn change_binding(&mut self, change: &Value) {
        self.change(&Target::Binding, &key(), change);
    }

    /// The Work of the job in the cluster as it was sent, of that binding and epoch, under that name.
    fn work(&mut self, cluster: &str, name: &str, uid: &str, epoch: i64) -> Key {
        let metadata = json!({"namespace": format!("fleet-{cluster}"), "name": name, "uid": name, "generation": 1,
            "finalizers": [names::WORK_FINALIZER]});
        self.stand(
            Target::Work,
            json!({"apiVersion": API_VERSION, "kind": "Work", "metadata": metadata, "spec": {
                "binding": {"namespace": "team", "name": "train-b", "uid": uid}, "epoch": epoch,
                "workload": {"manifests": [self.job]}}}),
        );
        (format!("fleet-{cluster}"), name.to_string())
    }

    /// The member has applied the Work, and reports that status of its object.
    fn report(&mut self, work: &Key, status: &Value) {
        let applied = json!({"type": "Applied", "status": "True", "reason": "r", "message": "", "observedGeneration": 1,
            "lastTransitionTime": "1970-01-01T00:00:00Z"});
        let kind = self.kind();
        let (group, version) = kind.api_version.split_once('/').expect("a group");
        let identifier =
            json!({"ordinal": 0, "group": group, "version": version, "kind": kind.kind, "name": "train"});
        let statuses = json!([{"identifier": identifier, "status": status}]);
        let epoch = self.stands[&(Target::Work, work.clone())]["spec"]["epoch"].clone();
        let status = json!({"observedEpoch": epoch, "conditions": [applied], "manifestStatuses": statuses});
        self.change(&Target::Work, work, &json!({"status": status}));
    }

    fn step(&self, waiting: Option<&Waiting>) -> Vec<Write> {
        let step = plan(&self.world, &self.intents, &key(), waiting, &Options::default(), self.now);
        step.writes.into_iter().chain(step.later.into_iter().map(|(_, write)| write)).collect()
    }

    /// Makes the writes of one reconcile.
    fn settle(&mut self, waiting: Option<&Waiting>) -> Vec<Write> {
        let writes = self.step(waiting);
        for write in &writes {
            let key = (write.namespace.clone(), write.name.clone());
            match (&write.target, &write.verb) {
                (Target::Event, _) => {}
                (target, Verb::Create(body)) => {
                    let mut body = body.clone();
                    merge(&mut body, &json!({"metadata": {"uid": write.name, "generation": 1}}));
                    self.stand(target.clone(), body);
                }
                (target, Verb::Merge(change) | Verb::MergeStatus(change)) => {
                    self.change(target, &key, change);
                }
                (target, Verb::Delete { .. }) => {
                    let gone = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}});
                    self.change(target, &key, &gone);
                }
                other => panic!("{other:?}"),
            }
        }
        writes
    }

    /// The condition of the binding: status and reason.
    fn condition(&self, kind: &str) -> Option<(String, String)> {
        let status = self.world.bindings[&key()].object.status.clone()?;
        find_condition(&status.conditions, kind).map(|found| (found.status.clone(), found.reason.clone()))
    }

    fn job_status(&self) -> &Value {
        let object = self.world.bound_object(&self.world.bindings[&key()]).expect("its job");
        &object.value["status"]
    }

    fn phase(&self) -> String {
        let unit = self.world.units.values().next().expect("a unit");
        json!(unit.status)["phase"].as_str().unwrap_or_default().to_string()
    }
}

fn merge(value: &mut Value, change: &Value) {
    let Some(fields) = change.as_object() else {
        *value = change.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (field, change) in fields {
        match change {
            Value::Null => drop(value.as_object_mut().map(|fields| fields.remove(field))),
            change => merge(&mut value[field], change),
        }
    }
}

fn key() -> Key {
    ("team".to_string(), "train-b".to_string())
}

/// Reasons of the events among the writes.
fn events(writes: &[Write]) -> Vec<String> {
    let events = writes.iter().filter(|write| write.target == Target::Event);
    let reason = |write: &Write| match &write.verb {
        Verb::Create(body) => body["reason"].as_str().unwrap_or_default().to_string(),
        _ => String::new(),
    };
    events.map(reason).collect()
}

/// Objects of the target that the writes delete.
fn deleted(writes: &[Write], target: &Target) -> Vec<String> {
    let deletes = |write: &&Write| write.target == *target && matches!(write.verb, Verb::Delete { .. });
    writes.iter().filter(deletes).map(|write| write.name.clone()).collect()
}

fn with_status(mut job: Value, status: Value) -> Value {
    job["status"] = status;
    job
}

fn batch() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "team", "uid": "o", "generation": 5},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

/// Its pods read the object of that kind and of the name `data`.
fn batch_that_reads(field: &str, source: Value) -> Value {
    let mut job = batch();
    job["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", field: source}]);
    job
}

fn torch() -> Value {
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team", "uid": "o"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": {"containers": [
            {"name": "pytorch", "image": "i"}]}}}}}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "train", "namespace": "team", "uid": "o", "generation": 5},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}
