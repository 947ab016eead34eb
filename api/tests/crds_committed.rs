//! The committed definitions are the generated ones. `UPDATE_CRDS=1 cargo test -p fleet-api` rewrites them.

use std::path::Path;

use fleet_api::crds::{self, Side};

fn check(side: Side, chart: &str, embedded: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let yaml = crds::yaml(side).expect("definitions can be written as YAML");
    let json = serde_json::to_string(&crds::generate(side)).expect("definitions can be written as JSON");
    for (path, generated) in
        [(root.join("../charts").join(chart), yaml), (root.join("crds").join(embedded), json)]
    {
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::write(&path, &generated).expect("the folder can be written");
        }
        let committed = std::fs::read_to_string(&path).expect("the definitions are committed");
        assert!(
            committed == generated,
            "{} is not what the types say; run UPDATE_CRDS=1 cargo test -p fleet-api",
            path.display()
        );
    }
}

#[test]
fn hub_definitions_are_committed() {
    check(Side::Hub, "fleet/crds/hub.yaml", "hub.json");
}

#[test]
fn member_definitions_are_committed() {
    check(Side::Member, "member-agent/crds/member.yaml", "member.json");
}

#[test]
fn on_a_hub_the_word_queue_means_the_scheduling_queue() {
    let groups: Vec<String> = crds::definitions(Side::Hub)
        .iter()
        .filter(|definition| definition["spec"]["names"]["plural"] == "queues")
        .map(|definition| definition["spec"]["group"].as_str().unwrap_or_default().to_string())
        .collect();
    assert_eq!(groups, ["scheduling.x-k8s.io"]);
}

#[test]
fn schemas_are_structural_and_check_pod_templates() {
    for side in [Side::Hub, Side::Member] {
        for definition in crds::definitions(side) {
            walk(crds::name(&definition), &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        }
    }
    let hub = crds::definitions(Side::Hub);
    let pytorch = hub.iter().find(|d| crds::name(d) == "pytorchjobs.kubeflow.org").expect("served");
    let template = &pytorch["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["pytorchReplicaSpecs"]["additionalProperties"]["properties"]["template"];
    let limits = &template["properties"]["spec"]["properties"]["containers"]["items"]["properties"]["resources"]
        ["properties"]["limits"]["additionalProperties"];
    assert_eq!(limits["x-kubernetes-int-or-string"], true);
}

/// No `$ref`, no null types: what Kubernetes calls a structural schema.
fn walk(name: &str, schema: &serde_json::Value) {
    match schema {
        serde_json::Value::Object(map) => {
            assert!(!map.contains_key("$ref"), "{name}: a reference in {schema}");
            if let Some(kind) = map.get("type") {
                assert!(kind.is_string() || kind.is_object(), "{name}: type {kind}");
            }
            map.values().for_each(|value| walk(name, value));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|value| walk(name, value)),
        _ => {}
    }
}
