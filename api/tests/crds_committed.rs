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

/// `kubectl explain` has a text for every kind and every field of it; pod templates are Kubernetes' own.
#[test]
fn every_field_is_explained() {
    let mut missing = Vec::new();
    let mut kinds = std::collections::BTreeMap::new();
    for definition in [Side::Hub, Side::Member].into_iter().flat_map(crds::generate) {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let (mut bare, name) = (Vec::new(), crds::name(&definition).to_string());
        let text = schema["description"].as_str().unwrap_or_default().to_string();
        if text.trim().is_empty() || text.contains("derived type") {
            bare.push(format!("itself, found {text:?}"));
        }
        if let Some(other) = kinds.insert(text, name.clone()).filter(|other| *other != name) {
            bare.push(format!("itself, with a text of its own: it has that of {other}"));
        }
        unexplained(schema, "", &mut bare);
        missing.extend(bare.into_iter().map(|path| format!("{} {path}", crds::name(&definition))));
    }
    assert!(missing.is_empty(), "no text for:\n{}", missing.join("\n"));
}

fn unexplained(schema: &serde_json::Value, path: &str, bare: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let built_in = [".metadata", ".apiVersion", ".kind"].contains(&path.as_str());
        if !built_in && field["description"].as_str().is_none_or(|text| text.trim().is_empty()) {
            bare.push(path.clone());
        }
        let is_kubernetes = (name == "template"
            && field["properties"]["spec"]["properties"]["containers"].is_object())
            || name == "volumeClaim"
            || (name == "metrics" && field["items"]["properties"]["containerResource"].is_object());
        if !built_in && !is_kubernetes {
            unexplained(field, &path, bare);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            unexplained(&schema[inner], &format!("{path}[]"), bare);
        }
    }
}

/// An amount that is no quantity is refused wherever one is asked for.
#[test]
fn quantities_have_a_pattern() {
    for side in [Side::Hub, Side::Member] {
        for definition in crds::generate(side) {
            amounts(crds::name(&definition), &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
        }
    }
}

fn amounts(name: &str, schema: &serde_json::Value) {
    if schema["x-kubernetes-int-or-string"] == true && schema["anyOf"][0]["type"] == "integer" {
        assert!(schema["pattern"].is_string(), "{name}: {schema}");
    }
    match schema {
        serde_json::Value::Object(map) => map.values().for_each(|value| amounts(name, value)),
        serde_json::Value::Array(items) => items.iter().for_each(|value| amounts(name, value)),
        _ => {}
    }
}

#[test]
fn the_page_of_fields_is_what_kubectl_explains() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fields.md");
    let page = fleet_api::texts::reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).expect("the page can be written");
    }
    let standing = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        standing == page,
        "docs/fields.md is out of date; run UPDATE_DOCS=1 cargo test -p fleet-api page_of_fields"
    );
}

/// API servers enforce bounds, and no formats.
#[test]
fn integers_of_32_bits_have_bounds() {
    for side in [Side::Hub, Side::Member] {
        for definition in crds::definitions(side) {
            let versions = definition["spec"]["versions"].as_array().expect("versions");
            versions.iter().for_each(|version| bounds(crds::name(&definition), &version["schema"]));
        }
    }
}

fn bounds(name: &str, schema: &serde_json::Value) {
    match schema {
        serde_json::Value::Object(map) => {
            if map.get("format").is_some_and(|format| format == "int32") {
                let bound = |name: &str| map.get(name).and_then(serde_json::Value::as_f64);
                let (least, most) = (bound("minimum"), bound("maximum"));
                assert!(least.is_some_and(|least| least >= i32::MIN.into()), "{name}: {schema}");
                assert!(most.is_some_and(|most| most <= i32::MAX.into()), "{name}: {schema}");
            }
            map.values().for_each(|value| bounds(name, value));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|value| bounds(name, value)),
        _ => {}
    }
}
