use super::*;

fn work(name: &str, version: &str) -> Work {
    let binding = fleet_api::reservation::BindingReference {
        namespace: "team".to_owned(),
        name: name.to_owned(),
        uid: format!("binding of {name}"),
    };
    let mut work = Work::new(name, fleet_api::WorkSpec { binding, ..Default::default() });
    work.metadata.namespace = Some("fleet-east".to_owned());
    work.metadata.uid = Some(name.to_owned());
    work.metadata.resource_version = Some(version.to_owned());
    work
}

/// The hub deletes a Work while its status is being written: the answer is the first to show it.
#[test]
fn a_change_that_only_an_answer_shows_is_acted_on() {
    let mut state = State::default();
    state.take_works(Change::Reset(vec![work("one", "1")].into()));
    let mut answer = work("one", "2");
    answer.status = Some(fleet_api::work::WorkStatus { live_pods: Some(1), ..Default::default() });
    assert_eq!(state.update_work(answer.clone()), []);
    answer.metadata.resource_version = Some("4".to_owned());
    answer.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH.into());
    assert_eq!(state.update_work(answer.clone()), [Key::Work("one".to_owned())]);
    assert_eq!(state.take_works(Change::Apply(answer)), [], "the watch has nothing newer");
}

#[test]
fn a_state_that_only_an_answer_shows_is_acted_on() {
    let resource = fleet_agent_ground::resource("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
    let (kind, mut state) = (KindId::of(&resource), State::default());
    state.add_kind(kind.clone(), resource.clone());
    let job = |version: &str, data: serde_json::Value| {
        let mut job = DynamicObject::new("job", &resource).within("team").data(data);
        job.metadata.uid = Some("uid".to_owned());
        job.metadata.resource_version = Some(version.to_owned());
        job
    };
    let id = ObjectId::of_object(&kind, &job("1", serde_json::json!({})));
    let mut work = work("one", "1");
    work.spec.workload.manifests =
        vec![serde_json::json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {"name": "job", "namespace": "team"}})];
    state.take_works(Change::Reset(vec![work].into()));
    state.take_objects(&kind, Change::reset(vec![job("1", serde_json::json!({}))]));
    let labelled = job("2", serde_json::json!({"spec": {"a": 1}}));
    assert_eq!(state.update_object(&id, labelled), [], "what the agent itself wrote");
    let ended = job("4", serde_json::json!({"spec": {"a": 1}, "status": {"startTime": "x"}}));
    assert_eq!(state.update_object(&id, ended), [Key::Work("one".to_owned())]);
}

#[test]
fn a_late_listing_ends_no_work_that_came_after_it_was_asked_for() {
    let listing = |version: u64, objects: Vec<Work>| {
        let version = fleet_mirror::Version::Number(version);
        Listing { objects, version, incarnation: None }
    };
    let mut state = State::default();
    state.take_works(Change::Reset(listing(2, vec![work("gone", "1"), work("stands", "2")])));
    state.take_works(Change::Answer(work("new", "4")));
    state.check_works(listing(3, vec![work("stands", "2")]));
    let stand = |name: &str| state.has_binding(&format!("binding of {name}"));
    assert_eq!((stand("gone"), stand("stands"), stand("new")), (false, true, true));
}

/// A pod whose controller is that object, and whose template names the PyTorchJob `job`.
fn pod(version: &str, kind: &str, owner: &str, named: bool) -> Pod {
    let mut value = serde_json::json!({"metadata": {"name": "p", "namespace": "team", "uid": "p",
        "resourceVersion": version, "annotations": {"other": "x"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": kind, "name": owner, "uid": "o", "controller": true}]}});
    if named {
        value["metadata"]["annotations"][JOB_ANNOTATION] = "kubeflow.org/v1/PyTorchJob/job".into();
    }
    serde_json::from_value(value).expect("a pod")
}

fn id(api_version: &str, kind: &str, name: &str) -> ObjectId {
    ObjectId {
        kind: KindId { api_version: api_version.to_owned(), kind: kind.to_owned() },
        namespace: "team".to_owned(),
        name: name.to_owned(),
    }
}

/// The launcher of an MPIJob is the pod of a batch Job.
#[test]
fn a_pod_of_an_intermediate_object_is_a_pod_of_its_job() {
    let mut state = State::default();
    let (job, launcher) = (id("kubeflow.org/v1", "PyTorchJob", "job"), id("batch/v1", "Job", "job-launcher"));
    state.take_pods(Change::reset(vec![pod("1", "Job", "job-launcher", true)]));
    for uid in [None, Some("uid of the job")] {
        assert_eq!(state.pods_of(&job, uid).len(), 1, "{uid:?}");
    }
    assert!(state.pods_of(&launcher, None).is_empty());
    state.take_pods(Change::Apply(pod("2", "Job", "job-launcher", false)));
    assert_eq!((state.pods_of(&job, None).len(), state.pods_of(&launcher, None).len()), (0, 1));
    state.take_pods(Change::Delete(pod("3", "Job", "job-launcher", false)));
    assert!(state.pods_of(&launcher, None).is_empty());
}
