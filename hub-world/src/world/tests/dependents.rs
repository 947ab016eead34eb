//! Which bindings a change of what jobs depend on marks.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn kind(api_version: &str, kind: &str) -> KindRef {
    crate::kinds::known(api_version, kind).expect("a kind")
}

/// A batch job whose pods read these ConfigMaps, and pull with the Secret `pull` if there is one.
fn job(namespace: &str, name: &str, maps: &[&str]) -> Value {
    let from: Vec<Value> = maps.iter().map(|map| json!({"configMapRef": {"name": map}})).collect();
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": namespace, "name": name, "uid": name},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "envFrom": from}],
            "imagePullSecrets": [{"name": "pull"}]}}}})
}

/// A world in which jobs and dependencies are listed.
struct Hub(World);

impl Hub {
    fn new() -> Self {
        let mut hub = Self(World::default());
        for kind in crate::kinds::jobs().into_iter().chain(crate::kinds::dependencies()) {
            hub.marked(Observation::Object(kind, Change::reset(Vec::new())));
        }
        hub
    }

    /// Names of the bindings that an observation marks.
    fn marked(&mut self, observation: Observation) -> Vec<String> {
        self.0.observe(observation);
        let dirty = self.0.take_dirty().into_iter();
        dirty
            .filter_map(|dirty| if let Dirty::Binding((_, name)) = dirty { Some(name) } else { None })
            .collect()
    }

    /// A job, and its binding of the same name.
    fn submit(&mut self, job: Value, depends: bool, clusters: &[&str]) {
        let targets: Vec<Value> = clusters.iter().map(|name| json!({"name": name, "replicas": 1})).collect();
        let meta = job["metadata"].clone();
        self.edit(job);
        self.marked(Observation::Binding(Change::Apply(read(json!({
            "apiVersion": "fleet.dev/v1alpha1", "kind": "ResourceBinding", "metadata": meta,
            "spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": meta["namespace"],
                    "name": meta["name"], "uid": meta["uid"]},
                "policy": {"kind": "PropagationPolicy", "namespace": meta["namespace"], "name": "p"},
                "propagateDeps": depends, "clusters": targets, "epoch": 1}})))));
    }

    fn edit(&mut self, job: Value) {
        self.marked(Observation::Object(kind("batch/v1", "Job"), Change::Apply(read(job))));
    }

    /// The Work of a job of namespace `a` in cluster `east`.
    fn send(&mut self, name: &str, sent: Value) {
        self.marked(Observation::Work(Change::Apply(read(json!({
            "apiVersion": "fleet.dev/v1alpha1", "kind": "Work",
            "metadata": {"name": name, "namespace": "fleet-east", "uid": name},
            "spec": {"binding": {"namespace": "a", "name": name, "uid": name}, "epoch": 1,
                "workload": {"manifests": [sent]}}})))));
    }

    /// A dependency of namespace `a`, whose uid is `uid`, is created or changed.
    fn apply(&mut self, of: &str, name: &str, uid: &str) -> Vec<String> {
        self.marked(Observation::Object(kind("v1", of), Change::Apply(read(dependency(of, name, uid)))))
    }

    fn delete(&mut self, of: &str, name: &str, uid: &str) -> Vec<String> {
        self.marked(Observation::Object(kind("v1", of), Change::Delete(read(dependency(of, name, uid)))))
    }
}

fn dependency(of: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": of, "metadata": {"namespace": "a", "name": name, "uid": uid}})
}

#[test]
fn a_dependency_marks_the_jobs_that_name_it_and_no_others() {
    let mut hub = Hub::new();
    hub.submit(job("a", "reads", &["named"]), true, &[]);
    hub.submit(job("a", "brings-its-own", &["named"]), false, &[]);
    let other = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "a", "name": "other", "uid": "other"}, "spec": {}});
    hub.submit(other, true, &[]);
    hub.submit(job("b", "of-another", &["named"]), true, &[]);
    let none: [&str; 0] = [];
    hub.0.schedule = false;
    for of in ["ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim"] {
        for _ in 0..3 {
            assert_eq!(hub.apply(of, "unnamed", "u"), none, "{of}");
        }
        assert_eq!(hub.delete(of, "unnamed", "u"), none, "{of}");
    }
    assert_eq!(hub.apply("Secret", "named", "s"), none, "of another kind");
    assert!(!hub.0.schedule);
    assert_eq!(hub.apply("ConfigMap", "named", "1"), ["reads"], "it waited for it");
    assert!(hub.0.schedule);
    assert_eq!(hub.apply("ConfigMap", "named", "1"), ["reads"], "changed");
    assert_eq!(hub.delete("ConfigMap", "named", "1"), ["reads"]);
    assert_eq!(hub.apply("ConfigMap", "named", "2"), ["reads"], "created again");
    assert_eq!(hub.apply("Secret", "pull", "p"), ["reads"], "pods start without it, but are sent with it");
    let maps = kind("v1", "ConfigMap");
    assert_eq!(hub.marked(Observation::Object(maps.clone(), Change::Listing)), none);
    let listed = Change::reset(vec![read(dependency("ConfigMap", "unnamed", "u2"))]);
    assert_eq!(hub.marked(Observation::Object(maps, listed)), ["reads"], "the list does not have it");
    hub.edit(job("a", "reads", &["unnamed"]));
    assert_eq!(hub.apply("ConfigMap", "named", "3"), none);
    assert_eq!(hub.apply("ConfigMap", "unnamed", "u2"), ["reads"]);
}

/// A run that is older than an edit is sent with what it names, and overrides may name more than the object does.
#[test]
fn what_is_sent_marks_its_job_whatever_the_object_names() {
    let mut hub = Hub::new();
    hub.submit(job("a", "runs", &["now"]), true, &["east"]);
    hub.submit(job("a", "waits", &["now"]), true, &[]);
    let none: [&str; 0] = [];
    assert_eq!(hub.apply("ConfigMap", "before", "b"), none);
    hub.send("runs", job("a", "runs", &["before"]));
    assert_eq!(hub.apply("ConfigMap", "before", "b"), ["runs"]);
    assert_eq!(hub.delete("ConfigMap", "before", "b"), ["runs"]);
    assert_eq!(hub.apply("ConfigMap", "before", "b2"), ["runs"], "created again");
    assert_eq!(hub.apply("ConfigMap", "now", "n"), ["runs", "waits"]);
    hub.send("runs", job("a", "runs", &["later"]));
    assert_eq!(hub.apply("ConfigMap", "before", "b2"), none, "the next run of it was sent");
    assert_eq!(hub.apply("ConfigMap", "later", "l"), ["runs"]);
    hub.marked(Observation::Override(Change::Apply(read(json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"namespace": "a", "name": "o", "uid": "o"},
        "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job", "name": "runs"}],
            "overrideRules": [{"overriders": {"plaintext": []}}]}})))));
    assert_eq!(hub.apply("ConfigMap", "unnamed", "u"), ["runs"], "what it names may not be sent yet");
}

/// A bound job is not sent before all that it may read is listed, also if a list is empty.
#[test]
fn a_kind_is_known_with_its_first_list_which_marks_bound_jobs() {
    let mut hub = Hub(World::default());
    hub.submit(job("a", "runs", &[]), true, &["east"]);
    hub.submit(job("a", "waits", &[]), true, &[]);
    hub.submit(job("a", "alone", &[]), false, &["east"]);
    let none: [&str; 0] = [];
    for kind in crate::kinds::dependencies() {
        assert_eq!(hub.marked(Observation::Object(kind.clone(), Change::Listing)), none);
        assert!(!hub.0.objects.contains_key(&kind));
        assert_eq!(hub.marked(Observation::Object(kind.clone(), Change::reset(Vec::new()))), ["runs"]);
        assert!(hub.0.objects.contains_key(&kind));
        assert_eq!(hub.marked(Observation::Object(kind.clone(), Change::Listing)), none);
        assert_eq!(hub.marked(Observation::Object(kind, Change::reset(Vec::new()))), none);
    }
}
