//! Slices of what a node or network has: pools, places, devices with attributes, capacities, counters and taints.

use crate::api::{Api, random};
use crate::table::{LABEL, SUBDOMAIN, kept, merged, refused};
use serde_json::{Map, Value, json};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const PLACES: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

fn slice(spec: Value) -> Value {
    let base = json!({"metadata": {"name": random("s-")}, "spec": {"driver": "a.b", "allNodes": true,
        "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1}}});
    merged(&base, &json!({"spec": spec}))
}

/// A slice of one device.
fn of(device: Value) -> Value {
    slice(json!({"devices": [merged(&json!({"name": "d"}), &device)]}))
}

#[tokio::test]
async fn slices_are_of_a_pool_and_some_nodes() {
    let api = Api::new().await;
    let node = format!("spec.nodeName: Invalid value: \"N_\": {SUBDOMAIN}");
    let terms = "spec.nodeSelector.nodeSelectorTerms";
    let all = format!(
        "spec: Invalid value: \"{{`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`}}\": {PLACES}, but multiple fields are set"
    );
    let none = format!("spec: Required value: {PLACES}");
    let part = |text: &str| format!("spec.pool.name: Invalid value: {text:?}: {SUBDOMAIN}");
    let odd = "must be either unset or set to true";
    let counters = |name: &str, counters: Value| json!({"name": name, "counters": counters});
    let one = json!({"m": {"value": "1"}});
    let set = "spec.sharedCounters";
    let sets = json!([
        counters("", json!({})),
        counters("C", json!({"M": {"value": "1"}})),
        counters("x", one.clone()),
        counters("x", one.clone())
    ]);
    refused(
        &api,
        SLICES,
        &[
            (
                slice(json!({"driver": "", "pool": {"name": "A_//b", "resourceSliceCount": 0, "generation": -1}})),
                &[
                    "spec.driver: Required value",
                    &part("A_"),
                    &part(""),
                    "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                    "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
                ],
            ),
            (slice(json!({"allNodes": null})), &[&none]),
            (
                slice(json!({"nodeName": "N_", "nodeSelector": {"nodeSelectorTerms": []}, "perDeviceNodeSelection": true})),
                &[
                    &node,
                    &format!("{terms}: Required value: must have at least one node selector term"),
                    &format!("{terms}: Invalid value: []: must have exactly one node selector term"),
                    &all,
                ],
            ),
            (
                slice(json!({"allNodes": false, "nodeName": "", "perDeviceNodeSelection": false})),
                &[
                    "spec.nodeName: Invalid value: \"\": must be either unset or set to a non-empty string",
                    &format!("spec.allNodes: Invalid value: false: {odd}"),
                    &format!("spec.perDeviceNodeSelection: Invalid value: false: {odd}"),
                    &none,
                ],
            ),
            (
                slice(json!({"sharedCounters": [counters("c", one.clone())], "devices": [{"name": "d"}]})),
                &["spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"],
            ),
            (
                slice(json!({"sharedCounters": sets})),
                &[
                    &format!("{set}[0].name: Required value"),
                    &format!("{set}[0].counters: Required value"),
                    &format!("{set}[1].name: Invalid value: \"C\": {LABEL}"),
                    &format!("{set}[1].counters: Invalid value: \"M\": {LABEL}"),
                    &format!("{set}[3]: Duplicate value: \"x\""),
                ],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn slices_have_so_many_devices_at_most() {
    let api = Api::new().await;
    let devices = |count: usize, more: Value| {
        let one = |i: usize| merged(&json!({"name": format!("d{i}")}), &more);
        slice(json!({"devices": (0..count).map(one).collect::<Vec<_>>()}))
    };
    let tainted = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
    let taints: Vec<Value> =
        (0..17).map(|i| json!({"key": format!("k{i}"), "effect": "NoSchedule"})).collect();
    let attributes: Map<String, Value> = (0..33).map(|i| (format!("a{i}"), json!({"int": 1}))).collect();
    let conditions = |letter: &str| (0..5).map(|i| format!("{letter}{i}")).collect::<Vec<_>>();
    let at = "spec.devices[0]";
    refused(
        &api,
        SLICES,
        &[
            (devices(129, json!({})), &["spec.devices: Too many: 129: must have at most 128 items"]),
            (devices(65, tainted), &["spec.devices: Too many: 65: must have at most 64 items"]),
            (of(json!({"taints": taints})), &[&format!("{at}.taints: Too many: 17: must have at most 16 items")]),
            (
                of(json!({"attributes": attributes})),
                &[&format!("{at}: Invalid value: 33: the total number of attributes and capacities must not exceed 32")],
            ),
            (
                of(json!({"bindingConditions": conditions("a"), "bindingFailureConditions": conditions("b")})),
                &[
                    &format!("{at}.bindingConditions: Too many: 5: must have at most 4 items"),
                    &format!("{at}.bindingFailureConditions: Too many: 5: must have at most 4 items"),
                ],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn devices_have_attributes_taints_and_conditions() {
    let api = Api::new().await;
    let at = "spec.devices[0]";
    let attributes = json!({"a.b/c": {}, "b": {"int": 1, "bool": true}, "c": {"string": "x".repeat(65)}, "d": {"version": "1.2"}});
    let one = "exactly one value must be specified";
    let taints = json!([{"key": "", "effect": ""}, {"key": "k", "value": "-", "effect": "Nope"}]);
    let places = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    let each = |device: Value| {
        slice(
            json!({"allNodes": null, "perDeviceNodeSelection": true, "devices": [merged(&json!({"name": "d"}), &device)]}),
        )
    };
    let counted =
        json!([{"counterSet": "", "counters": {}}, {"counterSet": "c", "counters": {"M": {"value": "1"}}}]);
    refused(
        &api,
        SLICES,
        &[
            (
                of(json!({"attributes": {"1x": {"int": 1}}})),
                &[&format!("{at}.attributes: Invalid value: \"1x\": a valid C identifier must start with…")],
            ),
            (
                of(json!({"attributes": attributes})),
                &[
                    &format!("{at}.attributes[a.b/c]: Invalid value: \"\": {one}"),
                    &format!("{at}.attributes[b]: Invalid value: {{\"IntValue\":1,\"BoolValue\":true,\"StringValue\":null,\"VersionValue\":null,\"IntValues\":null,\"BoolValues\":null,\"StringValues\":null,\"VersionValues\":null}}: {one}"),
                    &format!("{at}.attributes[c].string: Too long: may not be more than 64 bytes"),
                    &format!("{at}.attributes[d].version: Invalid value: \"1.2\": must be a string compatible with semver.org spec 2.0.0"),
                ],
            ),
            (
                of(json!({"taints": taints})),
                &[
                    &format!("{at}.taints[0].key: Invalid value: \"\": name part must be non-empty"),
                    &format!("{at}.taints[0].key: Invalid value: \"\": name part must consist of…"),
                    &format!("{at}.taints[0].effect: Required value"),
                    &format!("{at}.taints[1].value: Invalid value: \"-\": a valid label must be…"),
                    &format!("{at}.taints[1].effect: Unsupported value: \"Nope\": supported values: \"NoExecute\", \"NoSchedule\", \"None\""),
                ],
            ),
            (
                of(json!({"consumesCounters": counted})),
                &[
                    &format!("{at}.consumesCounters[0].counterSet: Required value"),
                    &format!("{at}.consumesCounters[0].counters: Required value"),
                    &format!("{at}.consumesCounters[1].counters: Invalid value: \"M\": {LABEL}"),
                ],
            ),
            (each(json!({})), &[&format!("{at}: Required value: {places}")]),
            (
                each(json!({"nodeName": "n", "allNodes": true})),
                &[&format!("{at}: Invalid value: \"{{`nodeName`, `allNodes`}}\": {places}")],
            ),
            (
                of(json!({"nodeName": "n"})),
                &[&format!("{at}: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if…")],
            ),
            (
                of(json!({"bindingConditions": ["a b", "a", "a"], "bindingFailureConditions": ["a"]})),
                &[
                    &format!("{at}.bindingConditions[0]: Invalid value: \"a b\": name part must consist of…"),
                    &format!("{at}.bindingConditions[2]: Duplicate value: \"a\""),
                    &format!("{at}.bindingFailureConditions[0]: Invalid value: \"a\": bindingFailureConditions must not overlap with bindingConditions"),
                ],
            ),
            (
                of(json!({"bindingFailureConditions": ["a"]})),
                &[&format!("{at}.bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions")],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn capacities_are_asked_for_in_parts() {
    let api = Api::new().await;
    let at = "spec.devices[0].capacity[m].requestPolicy";
    let policy = |policy: Value| {
        of(
            json!({"allowMultipleAllocations": true, "capacity": {"m": {"value": "10Gi", "requestPolicy": policy}}}),
        )
    };
    refused(
        &api,
        SLICES,
        &[
            (
                of(json!({"capacity": {"m": {"value": "10Gi", "requestPolicy": {"default": "1Gi"}}}})),
                &[&format!("{at}: Forbidden: allowMultipleAllocations must be true")],
            ),
            (
                policy(json!({"validValues": ["1Gi"], "validRange": {"min": "1Gi"}, "default": "1Gi"})),
                &[&format!("{at}: Forbidden: exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time")],
            ),
            (
                policy(json!({"default": "3Gi", "validValues": ["2Gi", "1Gi", "20Gi"]})),
                &[
                    &format!("{at}.validValues[1]: Invalid value: \"1Gi\": values must be sorted in ascending order"),
                    &format!("{at}.validValues[2]: Invalid value: \"20Gi\": option is larger than capacity value: 10Gi"),
                    &format!("{at}.validValues: Invalid value: \"3Gi\": default value is not valid according to the requestPolicy"),
                ],
            ),
            (
                policy(json!({"default": "20Gi", "validRange": {"min": "2Gi", "max": "8Gi", "step": "5Gi"}})),
                &[
                    &format!("{at}.validRange.max: Invalid value: \"20Gi\": default is more than max: 8Gi"),
                    &format!("{at}.validRange.step: Invalid value: \"20Gi\": value is not a multiple of a given step (5Gi) from (2Gi)"),
                    &format!("{at}.validRange.step: Invalid value: \"8Gi\": value is not a multiple of a given step (5Gi) from (2Gi)"),
                ],
            ),
        ],
    )
    .await;
    api.done().await;
}

#[tokio::test]
async fn slices_stay_what_they_are() {
    let api = Api::new().await;
    let device = json!({"name": "d", "attributes": {"x": {"ints": [1], "int": 1}}, "taints": [{"key": "k", "effect": "NoSchedule"}]});
    let made = api.post(SLICES, slice(json!({"driver": "A.b", "devices": [device]}))).await.expect(201);
    let warning = "spec.driver: driver names should be lowercase; \\\"A.b\\\" contains uppercase characters";
    assert!(made.warnings().iter().any(|told| told.contains(warning)), "{:?}", made.warnings());
    let device = &made.body["spec"]["devices"][0];
    // Lists are not taken by this version, and a taint has a time.
    assert_eq!(device["attributes"], json!({"x": {"int": 1}}));
    assert_eq!(device["taints"][0]["timeAdded"], made.body["metadata"]["creationTimestamp"]);
    let at = format!("{SLICES}/{}", made.body["metadata"]["name"].as_str().unwrap());
    let other = json!({"spec": {"driver": "c.d", "nodeName": "n", "pool": {"name": "q"}}});
    let two =
        format!("spec: Invalid value: \"{{`nodeName`, `allNodes`}}\": {PLACES}, but multiple fields are set");
    kept(
        &api,
        &at,
        &[(
            other,
            &[
                "spec.pool.name: Invalid value: \"q\": field is immutable",
                "spec.driver: Invalid value: \"c.d\": field is immutable",
                "spec.nodeName: Invalid value: \"n\": field is immutable",
                &two,
            ],
        )],
    )
    .await;
    api.delete(&at, Value::Null).await.expect(200);
    api.done().await;
}
