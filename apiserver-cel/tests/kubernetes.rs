//! Expressions are accepted, refused and evaluated as by a real API server. See `expressions.txt`.

use fleet_apiserver_cel::rules::{self, Rules, SIGNATURES};
use serde_json::{Value, json};

const TABLE: &str = include_str!("expressions.txt");

/// The declared fields of `spec`, and a `spec`.
const OBJECT: &str = include_str!("expressions.json");

fn part(name: &str) -> Value {
    let whole: Value = serde_json::from_str(OBJECT).expect("JSON");
    whole[name].clone()
}

/// A definition whose `spec` has one rule.
fn schema(rule: &str) -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": part("properties"),
        "x-kubernetes-validations": [{"rule": rule, "message": "does not hold"}]}}})
}

fn object() -> Value {
    json!({"spec": part("spec")})
}

/// What becomes of a rule, and the first words about it.
fn verdict(rule: &str) -> (&'static str, String) {
    let schema = schema(rule);
    if let Some(cause) = rules::problems(&schema, "s").first() {
        return ("refused", cause.message.clone());
    }
    let found = Rules::compile(&schema).expect("has a rule").broken(&object(), None);
    match found.first().map(|cause| cause.message.clone()) {
        None => ("true", String::new()),
        Some(why) if why == "Invalid value: does not hold" => ("false", why),
        Some(why) => ("error", why),
    }
}

fn rows() -> Vec<(&'static str, String)> {
    let rows = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| {
        let (wanted, rule) = row.split_once(' ').expect("a verdict and an expression");
        // A line break within an expression.
        (wanted, rule.trim_start().replace("⏎", "\n"))
    })
    .collect()
}

#[test]
fn expressions_mean_what_they_mean_to_kubernetes() {
    let mut wrong = Vec::new();
    for (wanted, rule) in rows() {
        let (found, why) = verdict(&rule);
        if found != wanted {
            wrong.push(format!("{rule}\n    wanted {wanted}, found {found}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows().len(), wrong.join("\n"));
}

/// Every function that is accepted is called in the table and gives a value there.
#[test]
fn every_function_is_in_the_table() {
    let called: Vec<String> = rows()
        .into_iter()
        .filter(|(wanted, _)| matches!(*wanted, "true" | "false"))
        .map(|(_, rule)| rule)
        .collect();
    let missing: Vec<&str> = SIGNATURES
        .iter()
        .filter(|signature| {
            let name = signature.name.replace("@sortByAssociatedKeys", "sortBy");
            !called.iter().any(|rule| rule.contains(&format!("{name}(")))
        })
        // Those of the authorizer have no variable here; see `expression`.
        .filter(|signature| !["Check", "Authorizer", "Decision"].iter().any(|of| signature.text.contains(of)))
        .map(|signature| signature.text)
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
