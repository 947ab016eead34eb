use super::*;
use serde_json::json;

#[test]
fn the_last_of_two_keys_counts_and_both_are_told() {
    let text = b"a: 1\nb:\n  c: x\n  c: y\nl:\n- {d: 1, d: 2}\na: 2\nb:\n  e: 1\n";
    assert_eq!(parse(text).expect("YAML"), json!({"a": 2, "b": {"e": 1}, "l": [{"d": 2}]}));
    let told = repeated(text);
    assert_eq!(
        told,
        [
            "line 4: key \"c\" already set in map",
            "line 6: key \"d\" already set in map",
            "line 7: key \"a\" already set in map",
            "line 9: key \"b\" already set in map"
        ]
    );
    assert_eq!(as_error(&told[..1]), format!("yaml: unmarshal errors:\n  {}", told[0]));
    assert!(repeated(b"a: 1\nb: 2").is_empty() && repeated(b"{\"a\": [").is_empty());
    assert_eq!(repeated(b"{\"a\": 1,\n\"a\": 2}"), ["line 2: key \"a\" already set in map"]);
}

#[test]
fn a_hostile_body_does_not_make_an_answer_arbitrarily_long() {
    assert_eq!(repeated("a: 1\n".repeat(10_000).as_bytes()).len(), TOLD);
}
