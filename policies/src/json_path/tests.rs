use proptest::prelude::*;
use serde_json::json;

use super::*;

/// The number of values visited, and the value that is found.
fn looked(path: &str, status: &Value) -> (u32, Option<Value>) {
    let path = JsonPath::read(path).unwrap_or_else(|| panic!("{path} cannot be read"));
    let mut left = Allowance(1_000_000);
    let found = path.first(status, &mut left).expect("it is allowed enough").cloned();
    (1_000_000 - left.0, found)
}

#[test]
fn every_form_of_a_path_is_understood() {
    let status = json!({"step": 1200, "conditions": [{"type": "Created"}, {"type": "Running", "reason": "x"}],
        "a-b": {"c d": [0, 1, 2, 3, 4], "it's": true, "n": null}, "steps": {"best": 7}, "zero": 0});
    let check = |path: &str, expected: Value| {
        assert_eq!(looked(path, &status).1.unwrap_or_default(), expected, "{path}");
    };
    for path in
        ["{.step}", ".step", "$.step", "step", " { $.step } ", "$['step']", "{[\"step\"]}", "['step']"]
    {
        check(path, json!(1200));
    }
    check("$.a-b['c d'][1]", json!(1));
    check("$.a-b['c d'][-1]", json!(4));
    check("$.a-b['c d'][5]", Value::Null);
    check("$.a-b['c d'][-6]", Value::Null);
    check("$.a-b['c d'][1:]", json!(1));
    check("$.a-b['c d'][-2 : : 2]", json!(3));
    check("$.a-b['c d'][3:2]", Value::Null);
    check("$.a-b['c d'][?@ > 1 && @ != 2]", json!(3));
    check("$.a-b['it\\'s']", json!(true));
    check("$.*[1]", json!({"type": "Running", "reason": "x"}));
    check("{.conditions[?(@.type=='Running')].reason}", json!("x"));
    check("{.conditions[?(@.type==\"Running\")].reason}", json!("x"));
    check("{.conditions[?(@.reason)].type}", json!("Running"));
    check("{.conditions[?!@.reason].type}", json!("Created"));
    check("{.conditions[?@.type < 'D' || @.type >= 'R'].type}", json!("Created"));
    check("$[?(@.best > 6.5)].best", json!(7));
    check("$[?@.best == null || @ == 0]", json!(0));
    check("$", status.clone());
}

#[test]
fn what_reaches_values_again_and_what_has_no_end_cannot_be_read() {
    for path in [
        "",
        "{}",
        "{.broken[}",
        "$..a",
        ".a..b",
        "$['a','b']",
        "$[0,1]",
        "$[?$.a]",
        "$[?@.a == $.a]",
        "$[?$[?@]]",
        "$[?length(@.a) > 1]",
        "$[?match(@.a, 'x{1000}{1000}')]",
        "$[?count(count(count(count(@.a",
        "$[?@[*] == 1]",
        "$[?'a']",
        "$[::0]",
        "$[::-1]",
        "$['a",
        "$.a b",
        "$[99999999999999999999]",
    ] {
        assert_eq!(JsonPath::read(path), None, "{path}");
    }
    let nested = |levels: usize| format!("${}@{}", "[?@.a".repeat(levels), "]".repeat(levels));
    assert_eq!(JsonPath::read(&nested(1)), None, "two terms without an operator");
    let nested = |levels: usize| format!("${}{}", "[?@.a".repeat(levels), "]".repeat(levels));
    assert!(JsonPath::read(&nested(8)).is_some());
    assert_eq!(JsonPath::read(&nested(9)), None);
    for open in ["[?", "[?(", "[?!", "[?count(", "[?@.a[?"] {
        assert_eq!(JsonPath::read(&format!("${}", open.repeat(200 / open.len()))), None, "{open}");
    }
    let long = |length: usize| format!(".{}", "a".repeat(length - 1));
    assert!(JsonPath::read(&long(JsonPath::MAX)).is_some());
    assert_eq!(JsonPath::read(&long(JsonPath::MAX + 1)), None);
}

/// Whatever a path of this length asks, it is a small number of times the values that there are.
#[test]
fn a_look_visits_values_a_bounded_number_of_times() {
    let leaf = json!({"a": 1, "b": 2, "c": 3, "d": 4});
    let grown = |inner: &Value| json!({"a": inner, "b": inner, "c": inner, "d": inner});
    let status = (0..6).fold(leaf, |inner, _| grown(&inner));
    let values = (0..=7).map(|level| 4_u32.pow(level)).sum::<u32>();
    for path in [
        "$[*][*][*][*][*][*][*].none",
        "$[*][*][*][?@.a[?@.a[?@.a.none]]].none",
        "$[*][*][*][*][*][*][?@ == 9 || @ == 8 || @ == 7]",
        "$[?@.a[?@.a[?@.a[?@.a[?@.a[?@.a == 9]]]]]]",
        "$[?((((@.a[*][*][*][*][*][*] && @.none))))]",
    ] {
        let (visited, found) = looked(path, &status);
        assert_eq!(found, None, "{path}");
        assert!(visited <= values * 8, "{path}: {visited} of {values}");
    }
}

#[test]
fn a_look_ends_when_its_allowance_is_spent() {
    let status = json!({"list": vec![json!({"a": 1}); 1_000]});
    let path = JsonPath::read("$.list[?@.b]").expect("a path");
    let mut left = Allowance(100);
    assert_eq!(path.first(&status, &mut left), Err(Exhausted));
    assert_eq!(left, Allowance(0));
    assert_eq!(path.first(&json!({"list": [{"b": 2}]}), &mut Allowance(100)), Ok(Some(&json!({"b": 2}))));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A filter of one level; comparisons are with scalars.
fn filter() -> impl Strategy<Value = String> {
    let path = proptest::collection::vec(prop_oneof!["\\.[abc]", "\\[-?[12]\\]"], 0..3)
        .prop_map(|segments| format!("@{}", segments.concat()));
    let literal = prop_oneof!["-?[12]", "'[ab]{0,2}'", Just("null".to_owned()), Just("true".to_owned())];
    let operator = prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">=")];
    let compared = (path.clone(), operator, literal).prop_map(|(path, op, to)| format!("{path} {op} {to}"));
    let term = prop_oneof![path.clone(), path.prop_map(|path| format!("!{path}")), compared];
    let joined = (term.clone(), prop_oneof![Just("&&"), Just("||")], term.clone())
        .prop_map(|(left, op, right)| format!("({left} {op} {right})"));
    prop_oneof![term, joined]
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        "\\.[abc]",
        "\\['[abc]'\\]",
        "\\[-?[12]\\]",
        Just("[0]".to_owned()),
        Just("[*]".to_owned()),
        Just(".*".to_owned()),
        "\\[-?[12]:-?[12]\\]",
        "\\[:[12]:[12]\\]",
        filter().prop_map(|filter| format!("[?{filter}]")),
    ];
    proptest::collection::vec(segment, 0..5).prop_map(|segments| format!("${}", segments.concat()))
}

proptest! {
    /// The oracle implements the standard, at any cost.
    #[test]
    fn the_standard_finds_the_same(status in value(), path in path()) {
        let expected = jsonpath_rust::JsonPath::query(&status, &path).expect("a path");
        let (_, found) = looked(&path, &status);
        prop_assert_eq!(found.as_ref(), expected.first().copied(), "{}", path);
    }
}
