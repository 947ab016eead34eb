use super::*;

fn rule(alias: &str, path: &str) -> StatePreservationRule {
    StatePreservationRule { alias_label_name: alias.to_owned(), json_path: path.to_owned() }
}

#[test]
fn paths_of_both_forms_find_values() {
    let status = json!({"step": 1200, "conditions": [{"type": "Running", "reason": "x"}], "none": null});
    let check = |path: &str, expected: Option<&str>| {
        let mut allowance = VISITED;
        assert_eq!(find(&status, path, &mut allowance).as_deref(), expected, "{path}");
    };
    check("{.step}", Some("1200"));
    check("$.step", Some("1200"));
    check("{.conditions[?(@.type=='Running')].reason}", Some("x"));
    check("{.conditions[0]}", Some(r#"{"reason":"x","type":"Running"}"#));
    check("{.none}", None);
    check("{.other}", None);
    check("{.broken[}", None);
}

/// The bindings of a policy that was valid once have these paths still.
#[test]
fn a_path_that_would_visit_a_status_without_end_finds_nothing() {
    let status = json!({"a": 1, "b": 2, "c": 3});
    let absolute = format!("${}[?@]{}", "[?$".repeat(59), "]".repeat(59));
    let functions = format!("$[?{}@", "count(".repeat(40));
    for path in [absolute, functions] {
        let mut allowance = VISITED;
        assert_eq!(find(&status, &path, &mut allowance), None);
        assert_eq!(allowance, VISITED, "nothing is visited");
    }
}

#[test]
fn all_rules_together_visit_and_keep_a_bounded_part_of_a_status() {
    let status = json!({"list": vec![json!({"a": 1}); 10_000], "first": "x", "long": "ä".repeat(5_000)});
    let mut rules = vec![rule("first", ".first"), rule("none", "$.list[?@.b]"), rule("last", ".first")];
    let found = |rules: &[StatePreservationRule], visits: u32| -> Vec<String> {
        find_all(rules, &status, &mut Allowance(visits)).into_keys().collect()
    };
    assert_eq!(found(&rules, 100_000), ["first", "last"]);
    assert_eq!(found(&rules, 1_000), ["first"], "the second rule has used it all");
    rules = (0..20).map(|i| rule(&format!("a{i:02}"), ".first")).collect();
    assert_eq!(found(&rules, 100_000).len(), 16);
    rules = (0..16).map(|i| rule(&format!("a{i:02}"), ".long")).collect();
    let state = find_all(&rules, &status, &mut Allowance(100_000));
    assert_eq!(state.len(), 7, "an eighth value has no room");
    assert!(state.values().all(|value| value.len() == 1024));
}

#[test]
fn names_of_variables() {
    assert_eq!(env_name("example.com/checkpoint-step"), "FLEET_RESTORE_CHECKPOINT_STEP");
    assert!(is_label_value("epoch-12.pt"));
    assert!(!is_label_value("s3://bucket/epoch-12.pt"));
}
