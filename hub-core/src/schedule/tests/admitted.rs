//! A run stays what it was admitted as, whatever its object says later.

use fleet_quota_tree::{NodeSpec, PREEMPTIBLE_LABEL};

use super::*;

impl Stage {
    /// One leaf for all, with GPUs of which none is its own: what runs there borrows.
    fn lend(&mut self) {
        let leaf = NodeSpec {
            name: "own".to_string(),
            namespaces: vec!["default".to_string()],
            max: [("nvidia.com/gpu".to_string(), "8".to_string())].into(),
            ..NodeSpec::default()
        };
        let root = NodeSpec { name: "root".to_string(), children: vec![leaf], ..NodeSpec::default() };
        let tree = Arc::new(QuotaTree::build(&root).expect("a tree").0);
        self.scheduler.set_tree(Some(tree), None, &mut self.world, &self.intents, self.now);
    }

    /// Submits a job that queues, as it is after `change`, until its places are there.
    fn queue(&mut self, change: impl Fn(&mut Value)) -> Key {
        let mut first = job("first");
        change(&mut first);
        self.submit_as("first", first);
        self.suspend("first", json!({"scheduling": true}));
        let asked = only(self.pass());
        let place = self.reserved(&asked);
        self.scheduler.asked(&mut self.world, &self.intents, &key("first"), self.now);
        self.look("first");
        place
    }

    fn edit(&mut self, change: impl Fn(&mut Value)) {
        let mut first = job("first");
        change(&mut first);
        let kind = kinds::known("batch/v1", "Job").expect("a kind");
        self.observe(Observation::Object(kind, Change::Apply(read(first))));
        self.look("first");
    }

    /// What the scheduler writes of the answered places takes effect.
    fn apply_bind(&mut self) {
        let write = only(self.scheduler.answers(&self.world, &key("first"), self.now));
        let Verb::Patch(operations) = &write.verb else { panic!("{write:?}") };
        let mut bound = json!(self.world.bindings[&key("first")].object);
        for operation in operations.as_array().expect("operations").iter().filter(|one| one["op"] != "test") {
            let path = operation["path"].as_str().expect("a path");
            let (parent, field) = path.rsplit_once('/').expect("a path");
            bound.pointer_mut(parent).expect("its parent")[field] = operation["value"].clone();
        }
        self.observe(Observation::Binding(Change::Apply(read(bound))));
        self.look("first");
    }

    /// Conditions that the dispatch writes of the running job.
    fn conditions(&self) -> String {
        let options = Options::default();
        let step = dispatch::plan(&self.world, &self.intents, &key("first"), None, &options, self.now);
        let all = step.writes.iter().chain(step.later.iter().map(|(_, write)| write));
        let told =
            all.filter(|write| write.target == Target::Binding).filter_map(|write| match &write.verb {
                Verb::MergeStatus(body) => Some(body["status"]["conditions"].to_string()),
                _ => None,
            });
        told.collect()
    }

    fn planned(&self) -> &crate::planner::Job {
        self.scheduler.planner().job(&job_id(&key("first"))).expect("it is planned with")
    }

    fn unbind(&mut self) {
        let mut free = self.world.bindings[&key("first")].object.clone();
        free.spec.clusters = Vec::new();
        free.spec.suspension = read(json!({"scheduling": true}));
        self.observe(Observation::Binding(Change::Apply(free)));
        let reservations: Vec<_> = self.world.reservations.values().cloned().collect();
        for reservation in reservations {
            self.observe(Observation::Reservation(Change::Delete(reservation)));
        }
        self.look("first");
    }
}

fn firm(job: &mut Value) {
    job["metadata"]["labels"][PREEMPTIBLE_LABEL] = "false".into();
}

#[test]
fn a_label_on_a_running_borrower_takes_nothing_from_those_who_lend() {
    let mut stage = Stage::new();
    stage.lend();
    stage.queue(|_| ());
    stage.apply_bind();
    stage.edit(firm);
    assert!(stage.planned().preemptible);
    let entry = &stage.world.bindings[&key("first")];
    assert!(unqueued::is_preemptible(entry, stage.world.bound_object(entry)), "also for the check of a plan");
    let told = stage.conditions();
    let label = "metadata.labels[quota.scheduling.alibabacloud.com/preemptible] changed while the job runs";
    assert!(told.contains("EditPending") && told.contains(label), "{told}");
    // Another process knows it from the binding alone.
    stage.restart();
    stage.lend();
    assert!(stage.planned().preemptible);
    // The next run is what the label says.
    stage.unbind();
    assert!(!stage.planned().preemptible);
}

/// Places were asked for as those of a borrower.
#[test]
fn a_label_between_the_places_and_the_bind_changes_nothing() {
    let mut stage = Stage::new();
    stage.lend();
    stage.queue(|_| ());
    stage.edit(firm);
    stage.apply_bind();
    assert!(stage.planned().preemptible);
    // A process that never saw it as a borrower counts it as the label says, and gives the places back.
    let mut stage = Stage::new();
    stage.lend();
    stage.queue(|_| ());
    stage.edit(firm);
    stage.restart();
    stage.lend();
    let write = only(stage.scheduler.answers(&stage.world, &key("first"), stage.now));
    assert!(matches!(write.verb, Verb::Delete { .. }), "{write:?}");
}

/// It follows the policy and the classes of the pods until the run is bound.
#[test]
fn a_running_job_keeps_its_priority() {
    let mut stage = Stage::new();
    stage.submit("first");
    let asked = only(stage.pass());
    stage.start("first", &asked);
    let kind = kinds::known("batch/v1", "Job").expect("a kind");
    let policy = json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "p", "namespace": "default", "uid": "p", "generation": 1},
        "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "schedulePriority": {"priorityClassSource": "KubePriorityClass", "priorityClassName": "high"}}});
    stage.observe(Observation::Policy(Change::Apply(read(policy))));
    stage.observe(Observation::PriorityClass(Change::Apply(read(
        json!({"apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass", "metadata": {"name": "high", "uid": "h"}, "value": 7}),
    ))));
    let named = ("default".to_string(), "first".to_string());
    let priority = |stage: &Stage| {
        let writes =
            crate::claim::plan(&stage.world, &mut crate::forms::Forms::default(), &kind, &named, stage.now);
        let of = |write: &Write| match &write.verb {
            Verb::Merge(body) => body["spec"]["priority"].clone(),
            verb => panic!("{verb:?}"),
        };
        writes.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(priority(&stage), [Value::Null], "the rest of the policy is taken over");
    stage.unbind();
    assert_eq!(priority(&stage), [json!(7)]);
}

fn deadline(seconds: i64) -> impl Fn(&mut Value) {
    move |job| job["spec"]["activeDeadlineSeconds"] = seconds.into()
}

impl Stage {
    /// The run time with which the job is sent; `work`: as it was sent before.
    fn sent(&self, work: Option<&fleet_api::Work>) -> (Value, Vec<String>, Vec<String>) {
        let entry = &self.world.bindings[&key("first")];
        let object = self.world.bound_object(entry).expect("its object");
        let built = manifests::build(&self.world, entry, object, "m", 0, work, &mut Default::default())
            .expect("it can be sent");
        (built.manifests[0]["spec"]["activeDeadlineSeconds"].clone(), built.pending, built.withheld)
    }
}

/// On its word it may have passed a job that has a claim.
#[test]
fn a_run_gets_no_more_time_than_it_was_admitted_with() {
    let mut stage = Stage::new();
    stage.lend();
    stage.queue(deadline(60));
    stage.edit(deadline(1_000_000_000));
    stage.apply_bind();
    assert_eq!(stage.planned().runtime_ms, Some(60_000), "it was edited before it was bound");
    stage.restart();
    stage.lend();
    assert_eq!(stage.planned().runtime_ms, Some(60_000));
    assert_eq!(stage.sent(None), (json!(60), vec![], vec![]));

    let mut sent = job("first");
    deadline(60)(&mut sent);
    let entry = &stage.world.bindings[&key("first")];
    let work: fleet_api::Work = read(json!({
        "apiVersion": API, "kind": "Work",
        "metadata": {"namespace": "fleet-m", "name": entry.work_name(), "uid": "w"},
        "spec": {"binding": {"namespace": "default", "name": entry.name(), "uid": entry.uid()}, "epoch": 1,
            "workload": {"manifests": [sent]}},
    }));
    stage.observe(Observation::Work(Change::Apply(work.clone())));
    stage.look("first");
    let waits = vec!["spec.activeDeadlineSeconds".to_string()];
    assert_eq!(stage.sent(Some(&work)), (json!(60), waits, vec![]));
    assert_eq!(stage.planned().runtime_ms, Some(60_000));
    stage.edit(deadline(30));
    assert_eq!(stage.sent(Some(&work)), (json!(30), vec![], vec![]), "it may end earlier");
}

#[test]
fn an_override_gives_no_more_time_than_the_job_declares() {
    let mut stage = Stage::new();
    stage.observe(Observation::Override(Change::Apply(read(json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"namespace": "default", "name": "o", "uid": "o"},
        "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "overrideRules": [{"overriders": {"plaintext": [
                {"path": "/spec/activeDeadlineSeconds", "operator": "replace", "value": 600}]}}]}})))));
    stage.lend();
    stage.queue(deadline(60));
    stage.apply_bind();
    let told =
        "spec.activeDeadlineSeconds: 600, as an override asks; allowed: at most the 60 that the job declares";
    assert_eq!(stage.sent(None), (json!(60), vec![], vec![told.to_string()]));
    stage.edit(deadline(900));
    assert_eq!(stage.sent(None).0, json!(60), "nor than it was admitted with");
}
