use super::*;
use crate::dict::{Dict, Shared};
use proptest::prelude::*;
use serde_json::{Value, json};

fn round(dict: &Dict, key: &str, value: &Value) -> usize {
    let packed = pack(dict, key, value);
    let node = Node::new(dict, key, &packed);
    let mut expect = value.clone();
    if let Some(meta) = expect.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.insert("resourceVersion".into(), "7".into());
    }
    assert_eq!(node.object(7, true), expect);
    let mut text = Vec::new();
    node.object_json(7, &[], &mut text);
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), expect, "{}", String::from_utf8_lossy(&text));
    let mut item = Vec::new();
    node.object_json(7, &["metadata", "spec"], &mut item);
    for key in ["metadata", "spec"] {
        expect.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(serde_json::from_slice::<Value>(&item).unwrap(), expect);
    for (key, part) in value.as_object().into_iter().flatten().filter(|(k, _)| *k != "metadata") {
        assert_eq!(node.get(key).map(Node::value).as_ref(), Some(part));
    }
    packed.len()
}

fn pod(i: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{i:06}"), "namespace": "default", "resourceVersion": "1",
            "uid": uuid::Uuid::from_u128(i as u128).to_string(), "creationTimestamp": "2026-11-21T12:00:00Z",
            "labels": {"job": "train", "rank": i.to_string()},
            "managedFields": [{"manager": "bench", "operation": "Update", "time": "2026-11-21T12:00:00Z",
                "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}}}}]},
        "spec": {"restartPolicy": "Always", "hostname": format!("pod-{i:06}"), "containers": [{"name": "main",
            "image": "registry/train:1", "env": [{"name": "RANK", "value": i.to_string()}],
            "resources": {"limits": {"cpu": "8", "memory": "64Gi"}, "requests": {"cpu": "8", "memory": "64Gi"}}}]},
        "status": {"phase": "Pending", "podIP": format!("10.0.{}.{}", i / 256, i % 256)}})
}

#[test]
fn pods_of_one_template_come_down_to_their_differences() {
    let dict = Dict::new(1);
    let sizes: Vec<usize> = (0..40).map(|i| round(&dict, &format!("default/pod-{i:06}"), &pod(i))).collect();
    assert!(sizes[0] > 400 && sizes[39] < 150, "{sizes:?}");
    let key = "default/pod-000001";
    let packed = pack(&dict, key, &pod(1));
    let node = Node::new(&dict, key, &packed);
    assert_eq!(node.at(&["metadata", "labels", "rank"]).and_then(Node::text).as_deref(), Some("1"));
    assert_eq!(node.at(&["spec", "containers"]).map(|n| n.items().len()), Some(1));
    assert!(node.at(&["spec", "nodeName"]).is_none());
    assert!(node.object(1, false)["metadata"].get("managedFields").is_none());
}

#[test]
fn texts_that_only_look_special_come_back_as_they_were() {
    let odd = [
        "007",
        "0",
        "18446744073709551616",
        "1.2.3.4",
        "01.2.3.4",
        "1.2.3",
        "2026-11-21T12:00:00Z",
        "2026-13-21T12:00:00Z",
        "1969-11-21T12:00:00Z",
        "2026-11-21T24:00:00Z",
        "9E2B8C1A-0000-4000-8000-000000000000",
        "9e2b8c1a-0000-4000-8000-000000000000",
        "",
        "n",
        "\u{0}\"\\é",
    ];
    let dict = Dict::new(1);
    for i in 0..4 {
        let list: Vec<Value> = odd.iter().map(|s| json!(s)).collect();
        let value =
            json!({"a": list, "n": [0, 15, 16, -1, i64::MIN, u64::MAX, 1.5, -0.0, true, null, {}, []]});
        round(&dict, &format!("x/n{i}"), &value);
    }
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
        "[a-z0-9.:-]{0,6}".prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{1,4}", inner, 0..6)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_object_comes_back(values in prop::collection::vec(tree(), 1..6)) {
        let dict = Dict::new(1);
        for round_no in 0..3 {
            for (i, value) in values.iter().enumerate() {
                let object = json!({"metadata": {"name": "n", "labels": value}, "spec": value});
                round(&dict, &format!("ns/{round_no}-{i}"), &object);
            }
        }
    }

    #[test]
    fn bytes_from_elsewhere_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let dict = Dict::new(1);
        dict.add(1, Shared::Text("text".into()));
        let node = Node::new(&dict, "a/b", &bytes);
        let _ = node.at(&["metadata", "labels"]).map(Node::value);
    }
}
