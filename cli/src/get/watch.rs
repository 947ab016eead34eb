//! `fleet get -w`: repeats the query every second and prints changes.

use std::collections::BTreeMap;

use fleet_cli_ground::{answer::Answer, connect::Hub, listing};

use super::{Gathered, ServerAnswer, gather, print};
use crate::args::GetArgs;

/// Prints until the reader closes the pipe.
///
/// # Errors
/// The error of a poll.
pub async fn run(hub: &Hub, args: &GetArgs) -> anyhow::Result<Answer> {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    listing::repeat(async |is_first| {
        let Gathered { mut answer, mut asked, namespace } = gather(hub, args).await?;
        answer.for_people = super::is_for_people(args);
        let mut shown = args.clone();
        shown.listing.no_headers |= !is_first;
        if keep_changed(&mut asked, &mut seen) || is_first {
            answer.text = print(&asked, &shown)?;
        }
        if is_first {
            super::say_nothing_found(&mut answer, &asked, args, &namespace);
        }
        Ok(answer)
    })
    .await
}

/// Keeps in the answers only objects that are new or have changed since the last poll. Returns whether any are left.
fn keep_changed(asked: &mut [ServerAnswer], seen: &mut BTreeMap<String, String>) -> bool {
    let mut any = false;
    for one in asked {
        for found in &mut one.found {
            let prefix = format!("{} {}", one.server, found.kind.plural_group());
            let mut is_new = |metadata: &serde_json::Value| {
                let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_string();
                let id = format!("{prefix} {}/{}", text("namespace"), text("name"));
                let version = format!("{} {}", text("uid"), text("resourceVersion"));
                let new = seen.get(&id) != Some(&version);
                seen.insert(id, version);
                any |= new;
                new
            };
            if let Some(rows) = found.answer["rows"].as_array_mut() {
                rows.retain(|row| is_new(&row["object"]["metadata"]));
            } else if let Some(items) = found.answer["items"].as_array_mut() {
                items.retain(|item| is_new(&item["metadata"]));
            } else if !is_new(&found.answer["metadata"]) {
                // One object, asked for by name, as a list of none.
                found.answer = serde_json::json!({"items": []});
                found.named = false;
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::get::KindAnswer;
    use fleet_cli_ground::discovery::Kind;

    #[test]
    fn what_changed_is_left() {
        let mut seen = BTreeMap::new();
        let mut look = |versions: &[(&str, &str)]| {
            let rows: Vec<_> = versions
                .iter()
                .map(|(name, version)| json!({"cells": [name], "object": {"metadata": {"name": name, "resourceVersion": version}}}))
                .collect();
            let found = KindAnswer {
                kind: Kind::default(),
                answer: json!({"kind": "Table", "rows": rows}),
                named: false,
            };
            let mut asked = [ServerAnswer { server: "hub".into(), found: vec![found], missing: Vec::new() }];
            let any = keep_changed(&mut asked, &mut seen);
            (any, asked[0].found[0].answer["rows"].as_array().map_or(0, Vec::len))
        };
        assert_eq!(look(&[("a", "1"), ("b", "1")]), (true, 2));
        assert_eq!(look(&[("a", "1"), ("b", "1")]), (false, 0));
        assert_eq!(look(&[("a", "2"), ("b", "1"), ("c", "3")]), (true, 2));
    }
}
