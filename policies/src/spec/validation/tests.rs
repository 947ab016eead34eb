use serde_json::json;

use super::*;

/// `patch` is laid over a valid spec; `expected` are the fields found wrong.
fn check(patch: Value, expected: &[&str]) {
    let mut spec = json!({
        "resourceSelectors": [{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}],
        "propagateDeps": true
    });
    for (key, value) in patch.as_object().unwrap() {
        spec[key] = value.clone();
    }
    let found = validate(&spec, PolicyScope::Namespaced, "default");
    let fields: Vec<&str> = found.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, expected, "{patch}: {found:?}");
}

#[test]
fn the_walkthrough_policies_are_valid() {
    check(json!({}), &[]);
    check(
        json!({
            "suspension": {"scheduling": true},
            "failover": {"application": {"decisionConditions": {"tolerationSeconds": 30}, "purgeMode": "Immediately"}},
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}}
        }),
        &[],
    );
}

#[test]
fn what_fleet_writes_is_never_propagated() {
    let selects = |kinds: &[(&str, &str)]| {
        let selectors: Vec<Value> =
            kinds.iter().map(|(version, kind)| json!({"apiVersion": version, "kind": kind})).collect();
        json!({ "resourceSelectors": selectors })
    };
    for kind in [
        ("fleet.dev/v1alpha1", "ResourceBinding"),
        ("fleet.dev/v1beta7", "Anything"),
        ("policy.one.alibabacloud.com/v1alpha1", "PropagationPolicy"),
        ("scheduling.x-k8s.io/v1alpha1", "QueueUnit"),
        ("scheduling.sigs.k8s.io/v1beta1", "ElasticQuotaTree"),
        ("v1", "Event"),
        ("events.k8s.io/v1", "Event"),
        ("coordination.k8s.io/v1", "Lease"),
    ] {
        check(selects(&[("v1", "ConfigMap"), kind]), &["spec.resourceSelectors[1]"]);
    }
    check(selects(&[("scheduling.x-k8s.io/v1alpha1", "PodGroup"), ("v1", "Secret")]), &[]);
    check(selects(&[("v1", "ConfigMap"); 256]), &[]);
    check(selects(&[("v1", "ConfigMap"); 257]), &["spec.resourceSelectors"]);
    let broad = |values: usize| {
        let mut spec = selects(&[("v1", "ConfigMap")]);
        let expression = json!({"key": "a", "operator": "In", "values": vec!["b"; values]});
        spec["resourceSelectors"][0]["labelSelector"] = json!({"matchExpressions": [expression]});
        spec
    };
    check(broad(2046), &[]);
    check(broad(2047), &["spec.resourceSelectors"]);
}

/// Each object that the policy selects has a copy.
#[test]
fn what_is_copied_into_bindings_and_statuses_is_small() {
    let without =
        |names: usize| json!({"placement": {"clusterAffinity": {"exclude": vec!["cluster"; names]}}});
    check(without(3_000), &[]);
    check(without(4_000), &["spec.placement"]);
    let rules = vec![json!({"aliasLabelName": "a", "jsonPath": "{.x}"}); 1_000];
    let failover = json!({"failover": {"application": {"decisionConditions": {"tolerationSeconds": 3},
        "purgeMode": "Directly", "statePreservation": {"rules": rules}}}});
    check(failover, &["spec.failover"]);
    let long = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}],
        "placement": {"clusterTolerations": [{"operator": "x".repeat(30_000)}]}});
    let found = validate(&long, PolicyScope::Namespaced, "default");
    assert!(found.len() == 1 && found[0].to_string().len() < 300, "{found:?}");
}

#[test]
fn the_facts_table() {
    check(
        json!({"suspension": {"dispatching": true, "dispatchingOnClusters": {"clusterNames": ["a"]}}}),
        &["spec.suspension"],
    );
    check(
        json!({"suspension": {"dispatching": false, "dispatchingOnClusters": {"clusterNames": ["a"]}}}),
        &[],
    );
    check(
        json!({"placement": {"clusterAffinity": {}, "clusterAffinities": [{"affinityName": "a"}]}}),
        &["spec.placement"],
    );
    check(
        json!({"placement": {"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1, "minGroups": 2}]}}),
        &["spec.placement.spreadConstraints[0].maxGroups"],
    );
    let application = |value: Value| json!({"failover": {"application": value}});
    check(
        application(json!({"decisionConditions": {"tolerationSeconds": -100}})),
        &["spec.failover.application.decisionConditions.tolerationSeconds"],
    );
    check(
        application(json!({"gracePeriodSeconds": 100, "purgeMode": "Directly"})),
        &["spec.failover.application.gracePeriodSeconds"],
    );
    check(application(json!({"gracePeriodSeconds": 100, "purgeMode": "Graciously"})), &[]);
}

#[test]
fn two_runs_at_once_only_when_accepted() {
    let failover = |value: Value| json!({"failover": value});
    let gracefully = json!({"purgeMode": "Gracefully"});
    check(
        failover(json!({"application": gracefully, "cluster": {}})),
        &["spec.failover.application.purgeMode"],
    );
    check(failover(json!({"cluster": gracefully})), &["spec.failover.cluster.purgeMode"]);
    check(failover(json!({"application": gracefully, "cluster": {}, "allowTwoRuns": true})), &[]);
    check(failover(json!({"application": gracefully, "cluster": {"fencing": "None"}})), &[]);
    check(failover(json!({"application": gracefully})), &[]);
    check(failover(json!({"application": {}, "cluster": {}})), &[]);
    check(
        failover(json!({"cluster": {"tolerationSeconds": -1}})),
        &["spec.failover.cluster.tolerationSeconds"],
    );
    check(failover(json!({"application": {"backoffLimit": 0}})), &["spec.failover.application.backoffLimit"]);
}

#[test]
fn the_rest() {
    check(json!({"resourceSelectors": []}), &["spec.resourceSelectors"]);
    check(
        json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "Pod", "namespace": "other"}]}),
        &["spec.resourceSelectors[0].namespace"],
    );
    check(json!({"preemption": "Always"}), &["spec.resourceSelectors[0].name"]);
    check(json!({"preemption": "Sometimes"}), &["spec.preemption"]);
    check(json!({"priority": "high"}), &["spec"]);
    check(
        json!({"failover": {"cluster": {"fencing": "Wish", "purgeMode": "Never"}}}),
        &["spec.failover.cluster.purgeMode", "spec.failover.cluster.fencing"],
    );
    check(
        json!({"placement": {"spreadConstraints": [{"spreadByField": "region"}]}}),
        &["spec.placement.spreadConstraints"],
    );
    check(
        json!({"placement": {"clusterTolerations": [{"key": "a", "operator": "Gt"}]}}),
        &["spec.placement.clusterTolerations[0].operator"],
    );
    check(
        json!({"placement": {"clusterAffinity": {"fieldSelector": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}}}),
        &["spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].operator"],
    );
    check(
        json!({"propagateDeps": false, "failover": {"application": {"statePreservation": {"rules": [
            {"aliasLabelName": "-bad-", "jsonPath": "{.x}"}]}}}}),
        &["spec.propagateDeps", "spec.failover.application.statePreservation.rules[0].aliasLabelName"],
    );
    for reserved in ["fleet.dev/binding-uid", "fleet.dev/gang", "quota.scheduling.alibabacloud.com/name"] {
        check(
            json!({"propagateDeps": true, "failover": {"application": {"statePreservation": {"rules": [
                {"aliasLabelName": reserved, "jsonPath": "{.x}"}]}}}}),
            &["spec.failover.application.statePreservation.rules[0].aliasLabelName"],
        );
    }
    check(
        json!({"placement": {"replicaScheduling": {"weightPreference": {"staticWeightList": [{"weight": 0}]}}}}),
        &["spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight"],
    );
}
#[test]
fn what_state_preservation_may_ask_is_bounded() {
    let of =
        |rules: Vec<Value>| json!({"failover": {"application": {"statePreservation": {"rules": rules}}}});
    let rule = |path: &str| json!({"aliasLabelName": "a", "jsonPath": path});
    let at = "spec.failover.application.statePreservation.rules";
    let levels = |open: &str| format!("${}[?@]{}", open.repeat(12), "]".repeat(12));
    let paths = ["$..a", "$['a','b']", "$[?count(count(@)) > 1]", "{.a[}", &levels("[?$"), &levels("[?@.a")];
    for path in paths {
        check(of(vec![rule(path)]), &[&format!("{at}[0].jsonPath")]);
    }
    check(of(vec![rule("{.conditions[?(@.type=='Running')].reason}")]), &[]);
    check(of(vec![rule("{.a}"); 16]), &[]);
    check(of(vec![rule("{.a}"); 17]), &[at]);
}
