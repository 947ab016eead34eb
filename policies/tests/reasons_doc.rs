//! `docs/reasons.md` is made from the reasons of the code. `UPDATE_DOCS=1 cargo test -p fleet-policies --test
//! reasons_doc` rewrites it.

use std::path::Path;

use fleet_policies::reason::Reason;

const HEAD: &str = "\
# Reasons

Every reason that Fleet gives, generated from `policies/src/reason.rs`. The same word is used in conditions, in events, in
`status.reason` of a QueueUnit, and in the output of `fleet`. The message with it has amounts and names.
[Operate](operations.md#troubleshooting) says what to do about each.

| reason | meaning |
| --- | --- |
";

fn reference() -> String {
    let rows = Reason::ALL.iter().map(|reason| format!("| `{reason}` | {} |\n", reason.describe()));
    HEAD.to_string() + &rows.collect::<String>()
}

#[test]
fn the_committed_reference_is_the_one_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reasons.md");
    let made = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &made).expect("the docs folder can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the reference is committed");
    assert!(
        committed == made,
        "docs/reasons.md is not what the code says; run UPDATE_DOCS=1 cargo test -p fleet-policies --test reasons_doc"
    );
}

#[test]
fn every_reason_has_a_row_that_says_what_to_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (_, table) = page.split_once("## Troubleshooting").expect("the section is there");
    let named: Vec<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |").map(|(cell, _)| cell))
        .flat_map(|cell| cell.split("`, `"))
        .collect();
    for reason in Reason::ALL {
        let rows = named.iter().filter(|name| **name == reason.as_str()).count();
        assert_eq!(
            rows, 1,
            "{reason}: found {rows} rows under Troubleshooting in docs/operations.md; allowed: 1"
        );
    }
}
