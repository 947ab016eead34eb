use super::*;

#[test]
fn a_job_held_back_on_the_hub_is_run_by_the_member() {
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"},
        "spec": {"managedBy": "fleet.dev/fleet-controller", "manualSelector": true, "selector": {}}});
    strip_for_member(&mut job);
    assert_eq!(job["spec"], json!({"manualSelector": true, "selector": {}}));
}

#[test]
fn only_what_the_user_wrote_stays() {
    let mut job = json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 2,
            "creationTimestamp": "t", "managedFields": [], "ownerReferences": [], "labels": {"k": "v"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
        "spec": {"x": 1}, "status": {"conditions": []}});
    strip_for_member(&mut job);
    let expected = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "a", "namespace": "n", "labels": {"k": "v"}}, "spec": {"x": 1}});
    assert_eq!(job, expected);
}

#[test]
fn nobody_speaks_to_a_member_in_fleets_name() {
    let marks = json!({"fleet.dev/reservation": "other", "fleet.dev/after-end": "10s", "k": "v"});
    let mut job = json!({"metadata": {"name": "a", "annotations": marks, "labels": {"fleet.dev/managed": "true"}},
        "spec": {"tasks": [{"template": {"metadata": {"annotations": marks}, "spec": {"containers": []}}}]}});
    strip_for_member(&mut job);
    let left = json!({"fleet.dev/after-end": "10s", "k": "v"});
    assert_eq!(job["metadata"], json!({"name": "a", "annotations": left, "labels": {}}));
    assert_eq!(job["spec"]["tasks"][0]["template"]["metadata"]["annotations"], left);
}

#[test]
fn no_template_says_which_devices_its_pods_have() {
    let given = json!({"volcano.sh/vgpu-ids-new": "0,x,1,100:1,x,1,100", "volcano.sh/gpu-index": "0,1", "volcano.sh/vgpu-mode": "mig",
        "volcano.sh/bind-phase": "allocating", "hivedscheduler.microsoft.com/pod-leaf-cell-isolation": "0"});
    let template = || json!({"metadata": {"annotations": given}, "spec": {"containers": []}});
    let mut job = json!({"kind": "Job", "metadata": {"annotations": given}, "spec": {"template": template(),
        "jobTemplate": {"spec": {"template": template()}}, "tasks": [{"template": template()}]}});
    strip_for_member(&mut job);
    // What users ask of the scheduler stays.
    let asked = json!({"volcano.sh/vgpu-mode": "mig"});
    assert_eq!(job["metadata"]["annotations"], asked);
    for path in ["/spec/template", "/spec/jobTemplate/spec/template", "/spec/tasks/0/template"] {
        assert_eq!(job.pointer(path).expect("a template")["metadata"]["annotations"], asked, "{path}");
    }
}

#[test]
fn no_pod_is_kept_by_a_finalizer_of_its_template() {
    let held = || json!({"labels": {"k": "v"}, "finalizers": ["a.io/x"]});
    let template = || json!({"template": {"metadata": held(), "spec": {"finalizers": [1]}}});
    let mut job =
        json!({"metadata": held(), "spec": {"tasks": [template(), template()], "r": {"Worker": template()}}});
    remove_finalizers(&mut job);
    let left = json!({"template": {"metadata": {"labels": {"k": "v"}}, "spec": {"finalizers": [1]}}});
    let expected = json!({"metadata": {"labels": {"k": "v"}},
        "spec": {"tasks": [left, left], "r": {"Worker": left}}});
    assert_eq!(job, expected);
}

#[test]
fn a_batch_job_loses_the_hubs_selector() {
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "template": {"metadata": {"labels": {"controller-uid": "u", "app": "x"}}}}});
    strip_for_member(&mut job);
    assert_eq!(job["spec"], json!({"template": {"metadata": {"labels": {"app": "x"}}}}));
}

#[test]
fn replicas() {
    let mut object = json!({"spec": {"replicas": 1}});
    revise_replicas(WorkloadKind::Deployment, &mut object, 4);
    revise_replicas(WorkloadKind::PyTorchJob, &mut object, 9);
    assert_eq!(object, json!({"spec": {"replicas": 4}}));
}
