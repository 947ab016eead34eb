use serde_json::json;

use super::*;

#[test]
fn a_schema_is_compiled_once_and_another_one_anew() {
    let schema = |most: u64| {
        json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"n": {"type": "integer", "maximum": most}}}}})
    };
    assert!(check(&schema(4711), "schema").is_empty());
    let first = compiled(&schema(4711));
    assert!(Arc::ptr_eq(&first, &compiled(&schema(4711))));
    assert!(!Arc::ptr_eq(&first, &compiled(&schema(4712))));
}

#[test]
fn the_definitions_of_the_fleet_are_sound() {
    use fleet_api::crds::{self, Side};
    for definition in [Side::Hub, Side::Member].into_iter().flat_map(crds::definitions) {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let found = check(schema, "schema");
        assert!(found.is_empty(), "{}: {found:#?}", crds::name(&definition));
    }
}

#[test]
fn a_schema_that_is_not_sound_is_refused_each_time() {
    let broken = json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "!(has(self.a)"}]});
    for _ in 0..2 {
        assert_eq!(check(&broken, "schema").len(), 1);
    }
}
