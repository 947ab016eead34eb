use super::*;
use serde_json::json;

fn object() -> Value {
    json!({"a": {"b.c": 1, "n": null, "t": "x"}, "list": [10, 20, 30, 40], "empty": [], "status": {"conditions": [
        {"type": "Created", "status": "True", "n": 1, "ok": true},
        {"type": "Ready", "status": "False", "n": 2, "f": 1.5}]}})
}

fn found(path: &str) -> Option<String> {
    let path = JsonPath::new(path).unwrap_or_else(|| panic!("{path}"));
    path.first(&object()).map(|value| value.to_string())
}

#[test]
fn paths_lead_to_their_first_value() {
    for (path, want) in [
        (r#".status.conditions[?(@.type=="Ready")].status"#, "\"False\""),
        (r#".status.conditions[?(@.type=='Ready')].status"#, "\"False\""),
        (r".status.conditions[?(@.n > 1)].type", "\"Ready\""),
        (r".status.conditions[?(@.n<=1)].type", "\"Created\""),
        (r".status.conditions[?(@.ok==true)].type", "\"Created\""),
        (r".status.conditions[?(@.f)].type", "\"Ready\""),
        (".status.conditions[-1:].type", "\"Ready\""),
        (".status.conditions[-1].type", "\"Ready\""),
        (".status.conditions[*].type", "\"Created\""),
        (".list[1]", "20"),
        (".list[1:3]", "20"),
        (".list[::2]", "10"),
        (".list[3,0]", "40"),
        (r".a.b\.c", "1"),
        (r".a['b\.c']", "1"),
        (".a['t']", "\"x\""),
        (".a.n", "null"),
        ("..t", "\"x\""),
        (".a.*", "1"),
        ("$.a.t", "\"x\""),
    ] {
        assert_eq!(found(path).as_deref(), Some(want), "{path}");
    }
}

#[test]
fn what_cannot_be_followed_has_no_value() {
    for path in [
        ".nope.x",
        ".a.t.x",
        ".list[9]",
        ".list[-9]",
        ".list[3:1]",
        ".list[2:9]",
        ".empty[0]",
        ".a[0]",
        ".a.n[0]",
        ".a[?(@.x)]",
        // Of another type, or without an order.
        r#".status.conditions[?(@.n=="1")].type"#,
        ".status.conditions[?(@.f==1)].type",
        ".status.conditions[?(@.ok<true)].type",
        // The dot of a key is that of a path.
        ".a['b.c']",
        ".a range",
    ] {
        assert_eq!(found(path), None, "{path}");
    }
    for text in [".a[", ".a[\"b\"]", ".a[x]", ".a[?(@.b==1]", ".a[?(@.b==)]", ".....a", ".a\n"] {
        assert!(JsonPath::new(text).is_none(), "{text}");
    }
}

#[test]
fn a_path_finds_a_bounded_number_of_values() {
    let nested = (0..50).fold(json!(vec![1; 3000]), |inner, _| json!([inner, vec![1; 3000]]));
    let path = JsonPath::new("..[*]..[*]..[*]").expect("a path");
    assert!(path.first(&nested).is_none());
}
