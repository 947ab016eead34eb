//! Views of cells as sentences.

use serde_json::Value;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Names, or nodes with their member cluster.
fn names(value: &Value) -> String {
    let name = |item: &Value| match (text(&item["cluster"]), text(&item["node"])) {
        (_, "") => text(item).to_string(),
        ("", node) => node.to_string(),
        (cluster, node) => format!("{cluster}/{node}"),
    };
    items(value).map(name).collect::<Vec<_>>().join(", ")
}

/// `GPU 0 of 4 used, 4 bad, 1 lent`.
pub(super) fn status(status: &Value) -> String {
    let of_type = |(name, counts): (&String, &Value)| {
        let mut said = format!("{name} {} of {} used", counts["used"], counts["guaranteed"]);
        for (field, word) in [("bad", "bad"), ("borrowedOut", "lent"), ("borrowedIn", "borrowed")] {
            if counts[field] != 0 {
                said.push_str(&format!(", {} {word}", counts[field]));
            }
        }
        said
    };
    let leaves: Vec<String> = status["leaves"].as_object().into_iter().flatten().map(of_type).collect();
    if leaves.is_empty() { "has no cells".to_string() } else { format!("has {}", leaves.join("; ")) }
}

/// `vc1 NODE of POOL 2 -> 1; young becomes opportunistic (TooFewCells)`.
pub(super) fn difference(difference: &Value) -> String {
    let mut said: Vec<String> = items(&difference["promises"])
        .map(|change| {
            let (vc, cell, chain) = (text(&change["vc"]), text(&change["cellType"]), text(&change["chain"]));
            let cell = match text(&change["pinnedCellId"]) {
                "" => cell.to_string(),
                pin => format!("pinned cell {pin}, {cell}"),
            };
            format!("{vc} {cell} of {chain} {} -> {}", change["before"], change["after"])
        })
        .collect();
    said.extend(items(&difference["groups"]).map(recovered));
    for (field, word) in [
        ("nodesAdded", "new nodes"),
        ("nodesRemoved", "nodes gone"),
        ("cancelled", "reservations cancelled of"),
    ] {
        let named = names(&difference[field]);
        if !named.is_empty() {
            said.push(format!("{word} {named}"));
        }
    }
    if said.is_empty() { "no promise, no node and no job".to_string() } else { said.join("; ") }
}

/// What a recovery could not keep.
pub(super) fn lost(lost: &Value) -> String {
    let said: Vec<String> = items(lost).map(recovered).collect();
    if said.is_empty() { "nothing is lost".to_string() } else { said.join("; ") }
}

fn recovered(group: &Value) -> String {
    let name = text(&group["group"]);
    let count = |field: &str, what: &str| match items(&group[field]).count() {
        0 => None,
        1 => Some(format!("runs on 1 cell {what}")),
        cells => Some(format!("runs on {cells} cells {what}")),
    };
    let promise = group["promiseLost"].as_str().map(|why| format!("becomes opportunistic ({why})"));
    let unknown = count("unknownCells", "that the configuration does not have");
    let taken = count("takenCells", "that another group has");
    let all: Vec<String> = [promise, unknown, taken].into_iter().flatten().collect();
    format!("{name} {}", all.join(" and "))
}
