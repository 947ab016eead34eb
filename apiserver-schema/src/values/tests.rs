use super::*;
use serde_json::json;

fn found(schema: Value, value: Value) -> Vec<String> {
    let schema =
        Schema::compile_root(&json!({"type": "object", "properties": {"v": schema}, "required": ["v"]}));
    let mut causes = Vec::new();
    judge(&schema, &json!({"v": value}), None, &Path::Whole(""), &mut causes);
    causes.into_iter().map(|c| format!("{} {}: {}", c.reason, c.field, c.message)).collect()
}

#[test]
fn all_that_is_said_of_a_value_is_judged() {
    let wrong_type = "FieldValueTypeInvalid v: Invalid value: ";
    for (schema, value, want) in [
        (
            json!({"type": "integer", "enum": [1, 2]}),
            json!("x"),
            vec![
                format!("{wrong_type}\"string\": v in body must be of type integer: \"string\""),
                "FieldValueNotSupported v: Unsupported value: \"x\": supported values: \"1\", \"2\"".into(),
            ],
        ),
        (
            json!({"type": "string", "minLength": 3, "pattern": "^a"}),
            json!("b"),
            vec![
                "FieldValueInvalid v: Invalid value: \"b\": v in body should be at least 3 chars long".into(),
            ],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!("b\u{200b}"),
            vec![format!("{wrong_type}\"b\\u200b\": v in body must be of type date: \"b\\u200b\"")],
        ),
        (
            json!({"type": "string", "format": "date"}),
            json!(5),
            vec![format!("{wrong_type}\"int64\": v in body must be of type date: \"int64\"")],
        ),
        (
            json!({"type": "string", "nullable": true, "enum": ["a"]}),
            json!(null),
            vec!["FieldValueNotSupported v: Unsupported value: null: supported values: \"a\"".into()],
        ),
        (
            json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
            json!(["a", 1]),
            vec![
                "FieldValueTypeInvalid v[1]: Invalid value: \"integer\": v[1] in body must be of type string: \"integer\"".into(),
                "FieldValueTooMany v: Too many: 2: must have at most 1 item".into(),
            ],
        ),
        (
            json!({"type": "object", "minProperties": 2, "additionalProperties": {"type": "string"}}),
            json!({"a": "x"}),
            vec!["FieldValueInvalid v: Invalid value: 1: v in body should have at least 2 properties".into()],
        ),
    ] {
        assert_eq!(found(schema.clone(), value), want, "{schema}");
    }
}

#[test]
fn numbers_have_the_range_of_their_format() {
    let whole = |why: &str| format!("FieldValueInvalid <nil>: Invalid value: \"\": {why}");
    let invalid =
        |shown: &str, why: &str| format!("FieldValueInvalid v: Invalid value: {shown}: v in body {why}");
    for (schema, value, want) in [
        (
            json!({"type": "integer", "format": "int32"}),
            json!(2_147_483_648_i64),
            vec![whole("Checked value must be of type integer with format int32 in v")],
        ),
        (
            json!({"type": "number", "format": "float"}),
            json!(1e300),
            vec![whole("Checked value must be of type number with format float in v")],
        ),
        (
            json!({"type": "integer", "maximum": 10}),
            json!(11),
            vec![invalid("11", "should be less than or equal to 10")],
        ),
        (
            json!({"type": "number", "minimum": 2_000_000.5, "exclusiveMinimum": true}),
            json!(2.5),
            vec![invalid("2.5", "should be greater than 2.0000005e+06")],
        ),
        (
            json!({"type": "integer", "minimum": 0.5}),
            json!(1),
            vec![whole("Minimum boundary value must be of type integer (default format) in v")],
        ),
        (
            json!({"type": "integer", "multipleOf": 3}),
            json!(7),
            vec![invalid("7", "should be a multiple of 3")],
        ),
        (json!({"type": "number", "multipleOf": 0.1}), json!(0.3), vec![]),
        (json!({"type": "integer", "format": "int64"}), json!(i64::MAX), vec![]),
    ] {
        assert_eq!(found(schema.clone(), value), want, "{schema}");
    }
    let both = found(json!({"type": "integer"}), json!(1.5));
    let checked = whole("Checked value must be of type integer (default format) in v");
    assert_eq!(both.len(), 2, "{both:?}");
    assert_eq!(both[1], checked);
}

#[test]
fn of_alternatives_the_one_that_fits_best_is_told() {
    let fields = |names: &[&str]| -> Value {
        let kinds: serde_json::Map<String, Value> =
            names.iter().map(|name| ((*name).to_string(), json!({"maxLength": 1}))).collect();
        json!({"properties": kinds})
    };
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "anyOf": [{"required": ["z"]}, fields(&["a", "b", "c"])]});
    let told = found(schema, json!({"a": "x", "b": "y", "c": "zz"}));
    let want = [
        "FieldValueInvalid <nil>: Invalid value: \"\": \"v\" must validate at least one schema (anyOf)",
        "FieldValueTooLong v.c: Too long: may not be more than 1 byte",
    ];
    assert_eq!(told, want);
    let all = json!({"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 5}]});
    let told = found(all, json!(9));
    let want = "FieldValueInvalid <nil>: Invalid value: \"\": \"v\" must validate all the schemas (allOf)";
    assert_eq!((told.len(), told[1].as_str()), (2, want));
}

#[test]
fn a_long_name_above_many_values_is_written_only_for_causes() {
    // A path of a megabyte for each of the items would be more than a hundred gigabytes.
    let long = "a".repeat(1 << 20);
    let items =
        json!({"type": "array", "items": {"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 5}]}});
    let schema = json!({"type": "object", "additionalProperties": items});
    assert!(found(schema.clone(), json!({&long: vec![1; 1 << 17]})).is_empty());
    let told = found(schema, json!({&long: ["x"]}));
    assert_eq!(told.len(), 1, "each cause has its place");
    assert!(told[0].contains(&format!("v.{long}[0] in body must be of type integer")));
    let path = Path::Field(&Path::Whole("v"), &long);
    assert_eq!(path.length(), path.to_string().len());
    assert_eq!(Path::Item(&Path::Field(&Path::Whole(""), "a"), 7).to_string(), "a[7]");
}
