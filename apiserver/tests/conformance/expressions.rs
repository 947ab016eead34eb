//! Expressions of rules, by the table of `apiserver-cel`: which are refused, and what the others come to.

use crate::api::{Answer, Api, CRDS, random};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TABLE: &str = include_str!("../../../apiserver-cel/tests/expressions.txt");
const OBJECT: &str = include_str!("../../../apiserver-cel/tests/expressions.json");
/// Rules of one definition: all of them together may not cost too much.
const TOGETHER: usize = 20;

type Row = (&'static str, String);

fn rows() -> Vec<Row> {
    let rows = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = rows.map(|row| row.split_once(' ').expect("a verdict and an expression"));
    rows.map(|(wanted, rule)| (wanted, rule.trim_start().replace('⏎', "\n"))).collect()
}

fn definition(group: &str, rules: &[Row]) -> Value {
    let object: Value = serde_json::from_str(OBJECT).expect("JSON");
    let rule = |(i, (_, rule)): (usize, &Row)| json!({"rule": rule, "message": format!("§{i}§")});
    let rules: Vec<Value> = rules.iter().enumerate().map(rule).collect();
    let spec =
        json!({"type": "object", "properties": object["properties"], "x-kubernetes-validations": rules});
    json!({"metadata": {"name": format!("foos.{group}")}, "spec": {"group": group, "scope": "Cluster",
        "names": {"plural": "foos", "kind": "Foo"}, "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]}})
}

/// The messages of an answer that are about single rules, by the number between two signs.
fn numbered(
    answer: &Answer,
    place: impl Fn(&Value) -> &str,
    from: &str,
    to: &str,
) -> BTreeMap<usize, String> {
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let number = |cause: &Value| {
        let rest = place(cause).split_once(from)?.1;
        Some((rest.split_once(to)?.0.parse().ok()?, cause["message"].as_str()?.to_string()))
    };
    causes.iter().filter_map(number).collect()
}

#[tokio::test]
async fn rules_are_judged_as_kubernetes_judges_them() {
    let api = Api::new().await;
    let mut wrong = Vec::new();
    let mut tell = |(wanted, rule): &Row, found: &str, why: &str| {
        if *wanted != found {
            wrong.push(format!("{rule}\n    wanted {wanted}, found {found}: {why}"));
        }
    };
    let mut accepted = Vec::new();
    for rows in rows().chunks(TOGETHER) {
        let group = format!("{}.example.com", random("g"));
        let answer = api.post(&format!("{CRDS}?dryRun=All"), definition(&group, rows)).await;
        let refused = numbered(&answer, |c| c["field"].as_str().unwrap_or_default(), "validations[", "]");
        for (i, row) in rows.iter().enumerate() {
            match refused.get(&i) {
                Some(why) => tell(row, "refused", why),
                None => accepted.push(row.clone()),
            }
        }
    }
    let spec = serde_json::from_str::<Value>(OBJECT).expect("JSON")["spec"].clone();
    for rows in accepted.chunks(TOGETHER) {
        let group = format!("{}.example.com", random("g"));
        api.post(CRDS, definition(&group, rows)).await.expect(201);
        let path = format!("/apis/{group}/v1/foos");
        api.until_code(&path, 200).await;
        let foo = json!({"apiVersion": format!("{group}/v1"), "kind": "Foo", "metadata": {"name": "f"}, "spec": spec});
        let answer = api.post(&path, foo).await;
        assert!(matches!(answer.code, 201 | 422), "{}", answer.text);
        let broken = numbered(&answer, |c| c["message"].as_str().unwrap_or_default(), "§", "§");
        for (i, row) in rows.iter().enumerate() {
            let message = broken.get(&i).map(String::as_str).unwrap_or_default();
            let found = match message {
                "" => "true",
                message if message == format!("Invalid value: §{i}§") => "false",
                _ => "error",
            };
            tell(row, found, message);
        }
        api.delete(&format!("{CRDS}/foos.{group}"), Value::Null).await.expect(200);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    api.done().await;
}
