use fleet_api::convert::within;

use super::*;

fn written(world: &World, namespace: &str, manifest: Value, cluster: &str) -> Result<Value, Waiting> {
    super::written(world, namespace, manifest, cluster, &mut Visits::default())
}

fn component(name: &str, replicas: i64, cpu: &str) -> Component {
    Component {
        name: name.to_string(),
        replicas,
        request: [("cpu".to_string(), cpu.to_string())].into(),
        ..Component::default()
    }
}

#[test]
fn nothing_is_sent_that_was_not_counted() {
    let counted = [component("worker", 4, "2"), component("master", 1, "1")];
    let check = |asked: Component, expected: Result<(), &str>| {
        assert_eq!(within(&[asked], &counted), expected.map_err(str::to_string));
    };
    check(component("worker", 4, "2"), Ok(()));
    check(component("worker", 1, "500m"), Ok(()));
    check(component("chief", 0, "9"), Ok(()));
    check(component("worker", 5, "1"), Err("component worker: found 5 replicas; counted: 4"));
    check(component("master", 1, "1500m"), Err("component master: found 1500 cpu per pod; counted: 1000"));
    check(component("chief", 1, "1"), Err("component chief: found 1 replicas; counted: none"));
}

#[test]
fn neither_a_template_nor_an_override_keeps_pods_in_a_member_by_a_finalizer() {
    let read = |value: serde_json::Value| serde_json::from_value(value).expect("an object");
    let mut world = World::default();
    world.namespaces.insert("n".to_string(), pod_security::Level::Privileged);
    world.clusters.insert("east".to_string(), read_cluster());
    let add = |path: &str| serde_json::json!({"path": path, "operator": "add", "value": ["a.io/x"]});
    let policy: fleet_api::OverridePolicy = read(serde_json::json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"namespace": "n", "name": "o", "uid": "o"},
        "spec": {"overrideRules": [{"overriders": {"plaintext": [add("/spec/template/metadata/finalizers")]}}]}}));
    let change = crate::observation::Change::Apply(policy);
    world.observe(crate::observation::Observation::Override(change));
    let job = serde_json::json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "n"},
        "spec": {"template": {"metadata": {"finalizers": ["b.io/y"]}, "spec": {"containers": []}}}});
    for cluster in ["east", "unknown"] {
        let sent = written(&world, "n", job.clone(), cluster).expect("it is sent");
        assert!(!sent.to_string().contains("finalizers"), "{cluster}: {sent}");
    }
}

/// A policy may select Secrets themselves, with override policies or without any.
#[test]
fn a_credential_of_the_hub_is_not_sent_as_an_object_of_its_own() {
    let secret = |kind: &str| {
        serde_json::json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "data": {"token": "aHVi"},
            "metadata": {"name": "tok1", "namespace": "n", "annotations": {"kubernetes.io/service-account.name": "ci"}}})
    };
    let mut world = World::default();
    world.clusters.insert("east".to_string(), read_cluster());
    for _ in ["without overrides", "with one"] {
        for kind in ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"] {
            let why = written(&world, "n", secret(kind), "east").expect_err("a credential");
            assert_eq!(why.reason, Reason::InvalidWorkload);
            let told =
                format!("Secret tok1: type: found {kind}, which is a credential of an API server; allowed");
            assert!(why.message.starts_with(&told), "{}", why.message);
        }
        assert!(written(&world, "n", secret("Opaque"), "east").is_ok());
        let policy = serde_json::json!({
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"namespace": "n", "name": "o", "uid": "o"}, "spec": {"overrideRules": []}});
        let policy = serde_json::from_value(policy).expect("a policy");
        let change = crate::observation::Change::Apply(policy);
        world.observe(crate::observation::Observation::Override(change));
    }
}

#[test]
fn a_service_that_takes_addresses_is_not_sent() {
    let mut world = World::default();
    world.clusters.insert("east".to_string(), read_cluster());
    let service = |spec: serde_json::Value| serde_json::json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": spec});
    let taken = service(serde_json::json!({"externalIPs": ["10.0.0.1"]}));
    let why = written(&world, "n", taken, "east").expect_err("an address");
    assert_eq!(why.reason, Reason::InvalidWorkload);
    assert!(why.message.starts_with("Service s: spec.externalIPs: found"), "{}", why.message);
    let plain = service(serde_json::json!({"selector": {"app": "a"}, "ports": [{"port": 80}]}));
    assert!(written(&world, "n", plain.clone(), "east").is_ok());
    let added = serde_json::json!({"path": "/spec/externalIPs", "operator": "add", "value": ["10.0.0.1"]});
    let policy = serde_json::json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
        "metadata": {"namespace": "n", "name": "o", "uid": "o"},
        "spec": {"overrideRules": [{"overriders": {"plaintext": [added]}}]}});
    let policy = serde_json::from_value(policy).expect("a policy");
    world.observe(crate::observation::Observation::Override(crate::observation::Change::Apply(policy)));
    let why = written(&world, "n", plain, "east").expect_err("an address");
    assert_eq!(why.reason, Reason::OverrideInvalid);
}

/// Whatever the kind: overrides of objects without a gang are checked nowhere else.
#[test]
fn no_override_makes_pods_that_keep_whoever_places_them_busy() {
    let tolerations = |number: usize| vec![serde_json::json!({"key": "k", "operator": "Exists"}); number];
    let job = |api_version: &str, kind: &str, own: usize| {
        serde_json::json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"},
            "spec": {"template": {"spec": {"tolerations": tolerations(own), "containers": [{"name": "c"}]}}}})
    };
    let kinds = [("batch/v1", "Job"), ("apps/v1", "Deployment"), ("example.com/v1", "Set")];
    let mut world = World::default();
    world.namespaces.insert("n".to_string(), pod_security::Level::Privileged);
    world.clusters.insert("east".to_string(), read_cluster());
    for (api_version, kind) in kinds {
        assert!(written(&world, "n", job(api_version, kind, 64), "east").is_ok(), "{kind}");
        let why = written(&world, "n", job(api_version, kind, 65), "east").expect_err("too many");
        assert_eq!(why.reason, Reason::InvalidWorkload);
    }
    for (number, fits) in [(64, true), (65, false)] {
        let replaced = serde_json::json!({"path": "/spec/template/spec/tolerations", "operator": "replace",
            "value": tolerations(number)});
        let policy = serde_json::json!({
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"namespace": "n", "name": "o", "uid": "o"},
            "spec": {"overrideRules": [{"overriders": {"plaintext": [replaced]}}]}});
        let policy = serde_json::from_value(policy).expect("a policy");
        world.observe(crate::observation::Observation::Override(crate::observation::Change::Apply(policy)));
        for (api_version, kind) in kinds {
            let sent = written(&world, "n", job(api_version, kind, 1), "east");
            assert_eq!(sent.is_ok(), fits, "{kind}");
            if let Err(why) = sent {
                assert_eq!(why.reason, Reason::OverrideInvalid);
                let told = "spec.template.spec.tolerations: found 65; allowed: at most 64";
                assert_eq!(why.message, told);
            }
        }
    }
}

#[test]
fn no_override_names_resources_without_end_or_the_devices_of_pods() {
    let amounts = |number: usize| -> serde_json::Map<String, Value> {
        (0..number).map(|i| (format!("example.com/r{i}"), "1".into())).collect()
    };
    let job = |number: usize| {
        let container = serde_json::json!({"name": "c", "resources": {"limits": amounts(number)}});
        serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"template": {"metadata": {"annotations": {"volcano.sh/gpu-index": "0,1,2,3"}},
                "spec": {"containers": [container]}}}})
    };
    let mut world = World::default();
    world.namespaces.insert("n".to_string(), pod_security::Level::Privileged);
    world.clusters.insert("east".to_string(), read_cluster());
    let sent = written(&world, "n", job(64), "east").expect("it is small");
    assert_eq!(sent["spec"]["template"]["metadata"]["annotations"], serde_json::json!({}));
    let why = written(&world, "n", job(65), "east").expect_err("too many");
    assert_eq!(why.reason, Reason::InvalidWorkload);
    let resources =
        "spec.template.spec.containers[0].resources.limits: found 65; allowed: at most 64 resources";
    assert_eq!(why.message, resources);
    for (path, value, told) in [
        ("/spec/template/spec/containers/0/resources/limits", Value::from(amounts(65)), resources),
        (
            "/spec/template/metadata/annotations/volcano.sh~1vgpu-ids-new",
            "0,x,1,100".into(),
            "allowed: no change: annotations with the devices of a pod are its scheduler's own",
        ),
    ] {
        let change = serde_json::json!({"path": path, "operator": "add", "value": value});
        let policy = serde_json::json!({
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "OverridePolicy",
            "metadata": {"namespace": "n", "name": "o", "uid": "o"},
            "spec": {"overrideRules": [{"overriders": {"plaintext": [change]}}]}});
        let policy = serde_json::from_value(policy).expect("a policy");
        world.observe(crate::observation::Observation::Override(crate::observation::Change::Apply(policy)));
        let why = written(&world, "n", job(1), "east").expect_err(path);
        assert_eq!(why.reason, Reason::OverrideInvalid, "{path}");
        assert!(why.message.contains(told), "{}", why.message);
    }
}

/// The watches of jobs and of namespaces are not ordered: a job of a new namespace may be seen first.
#[test]
fn pods_wait_until_the_level_of_their_namespace_is_known() {
    let mut world = World::default();
    world.clusters.insert("east".to_string(), read_cluster());
    let job = |privileged: bool| {
        serde_json::json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"template": {"spec": {"hostPID": privileged, "containers": [{"name": "c", "image": "i"}]}}}})
    };
    for privileged in [false, true] {
        let why = written(&world, "n", job(privileged), "east").expect_err("it waits");
        assert_eq!(why.reason, Reason::WaitingForDependencies);
        assert!(
            why.message.starts_with("Namespace n: found none on the hub yet; allowed: one"),
            "{}",
            why.message
        );
    }
    let settings = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}});
    assert!(written(&world, "n", settings, "east").is_ok(), "it has no pods");
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n",
        "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    world.observe(crate::observation::Observation::Namespace(crate::observation::Change::Apply(namespace)));
    assert!(written(&world, "n", job(false), "east").is_ok());
    let why = written(&world, "n", job(true), "east").expect_err("its level forbids it");
    assert_eq!(why.reason, Reason::PodSecurityViolation);
}

fn read_cluster() -> fleet_api::Cluster {
    serde_json::from_value(serde_json::json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster",
        "metadata": {"name": "east", "uid": "east"}, "spec": {}}))
    .expect("a cluster")
}
