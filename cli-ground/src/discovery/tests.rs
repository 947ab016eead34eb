use super::*;

fn kind(group: &str, version: &str, kind: &str, plural: &str, short: &str) -> Kind {
    Kind {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: short.split(',').filter(|word| !word.is_empty()).map(str::to_string).collect(),
        categories: if plural == "pods" { vec!["all".into()] } else { Vec::new() },
        namespaced: true,
        listable: true,
    }
}

#[test]
fn words_find_their_kinds() {
    let kinds = [
        kind("", "v1", "Pod", "pods", "po"),
        kind("apps", "v1", "Deployment", "deployments", "deploy"),
        kind("batch", "v1", "Job", "jobs", ""),
        kind("batch.volcano.sh", "v1alpha1", "Job", "jobs", "vcjob,vj"),
        kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", ""),
        kind("scheduling.x-k8s.io", "v1alpha1", "Queue", "queues", ""),
    ];
    let check = |word: &str, expect: &[&str]| {
        let found: Vec<String> = resolve(&kinds, word).into_iter().map(Kind::plural_group).collect();
        assert_eq!(found, expect, "{word}");
    };
    check("pod", &["pods"]);
    check("po", &["pods"]);
    check("PyTorchJob", &["pytorchjobs.kubeflow.org"]);
    check("pytorchjobs.kubeflow.org", &["pytorchjobs.kubeflow.org"]);
    check("pytorchjob.v1.kubeflow.org", &["pytorchjobs.kubeflow.org"]);
    check("job", &["jobs.batch"]);
    check("job.batch.volcano.sh", &["jobs.batch.volcano.sh"]);
    check("jobs.batch.volcano", &["jobs.batch.volcano.sh"]);
    check("vj", &["jobs.batch.volcano.sh"]);
    check("deploy", &["deployments.apps"]);
    check("queue", &["queues.scheduling.x-k8s.io"]);
    check("all", &["pods"]);
    check("nothing", &[]);
    check("pod.kubeflow.org", &[]);
}

#[test]
fn both_forms_of_discovery_say_the_same() {
    let aggregate = serde_json::json!({"items": [{"metadata": {"name": "kubeflow.org"}, "versions": [{
            "version": "v1", "resources": [{"resource": "pytorchjobs", "responseKind": {"kind": "PyTorchJob"},
            "scope": "Namespaced", "singularResource": "pytorchjob", "verbs": ["get", "list"]}]}]}]});
    let list = serde_json::json!({"resources": [
            {"name": "pytorchjobs", "kind": "PyTorchJob", "namespaced": true, "singularName": "pytorchjob",
             "verbs": ["get", "list"]},
            {"name": "pytorchjobs/status", "kind": "PyTorchJob", "namespaced": true, "verbs": ["get"]}]});
    assert_eq!(aggregated(&aggregate), legacy("kubeflow.org", "v1", &list));
    assert_eq!(aggregated(&aggregate)[0].path(Some("a")), "/apis/kubeflow.org/v1/namespaces/a/pytorchjobs");
}
