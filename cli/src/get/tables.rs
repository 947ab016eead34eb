//! Merges tables of several servers into one: the columns of the servers' own tables, with CLUSTER second and
//! ADOPTION last. Pure.

use fleet_api::names::MANAGED_LABEL;
use fleet_cli_ground::{age, discovery::Kind};
use jiff::Timestamp;
use serde_json::Value;

use fleet_console::{jsonpath, table::Table};

/// The answer of one server for one kind.
pub struct Part<'a> {
    pub cluster: &'a str,
    /// A `meta.k8s.io/v1 Table`, or a plain object or list of a server without tables.
    pub answer: &'a Value,
}

pub struct Style {
    /// Objects of members: with CLUSTER, and with ADOPTION if any row has it.
    pub clusters: bool,
    /// Also columns of lower priority.
    pub wide: bool,
    pub namespaces: bool,
    pub headers: bool,
    /// Names as `kind/name`, when several kinds are printed.
    pub prefixed: bool,
    /// Path of the field for sorting.
    pub sort_by: Option<String>,
    /// Columns of the terminal, if it has a limit.
    pub width: Option<usize>,
}

struct Column<'a> {
    name: &'a str,
    wide: bool,
}

/// The table, or nothing if no server has a row.
///
/// # Errors
/// The sort path is invalid.
pub fn merge(kind: &Kind, parts: &[Part<'_>], style: &Style, now: Timestamp) -> anyhow::Result<String> {
    // Pods belong to a job, which shows whether Fleet created it.
    let adoption = style.clusters && !(kind.group.is_empty() && kind.plural == "pods");
    let columns: Vec<Column<'_>> = parts
        .iter()
        .map(|part| columns(part.answer))
        .max_by_key(Vec::len)
        .unwrap_or_default()
        .into_iter()
        .filter(|column| style.wide || !column.wide)
        .collect();
    let mut table = Table::default();
    if style.namespaces && kind.namespaced {
        table.headers.push("NAMESPACE".to_string());
    }
    for (index, column) in columns.iter().enumerate() {
        table.headers.push(column.name.to_uppercase());
        if index == 0 && style.clusters {
            table.headers.push("CLUSTER".to_string());
        }
    }
    if adoption {
        table.headers.push("ADOPTION".to_string());
    }
    let mut sorted = Vec::new();
    for part in parts {
        for row in rows(part.answer, now) {
            let mut cells = Vec::new();
            if style.namespaces && kind.namespaced {
                cells.push(row.namespace.clone());
            }
            for (index, column) in columns.iter().enumerate() {
                let cell =
                    row.cells.iter().find(|(name, _)| *name == column.name).map(|(_, cell)| cell.clone());
                let cell = cell.unwrap_or_default();
                cells.push(match index {
                    0 if style.prefixed => format!("{}/{cell}", kind.singular_group()),
                    _ => cell,
                });
                if index == 0 && style.clusters {
                    cells.push(part.cluster.to_string());
                }
            }
            if adoption {
                cells.push(if row.managed { "Y" } else { "N" }.to_string());
            }
            let key =
                style.sort_by.as_deref().map(|path| jsonpath::sort_key(row.object, path)).transpose()?;
            sorted.push((key, cells));
        }
    }
    if sorted.is_empty() {
        return Ok(String::new());
    }
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    table.rows = sorted.into_iter().map(|(_, cells)| cells).collect();
    Ok(if style.headers { table.print_within(style.width) } else { table.rows_within(style.width) })
}

struct Row<'a> {
    cells: Vec<(&'a str, String)>,
    namespace: String,
    managed: bool,
    /// The object, as far as the server includes it.
    object: &'a Value,
}

fn is_table(answer: &Value) -> bool {
    answer["kind"] == "Table"
}

fn columns(answer: &Value) -> Vec<Column<'_>> {
    if !is_table(answer) {
        return vec![Column { name: "Name", wide: false }, Column { name: "Age", wide: false }];
    }
    let definitions = answer["columnDefinitions"].as_array().into_iter().flatten();
    definitions
        .map(|column| Column {
            name: column["name"].as_str().unwrap_or_default(),
            wide: column["priority"].as_i64().unwrap_or_default() > 0,
        })
        .collect()
}

fn rows(answer: &Value, now: Timestamp) -> Vec<Row<'_>> {
    if !is_table(answer) {
        let items: Vec<&Value> = match answer["items"].as_array() {
            Some(items) => items.iter().collect(),
            None => vec![answer],
        };
        return items
            .into_iter()
            .map(|item| {
                let name = item["metadata"]["name"].as_str().unwrap_or_default().to_string();
                row(vec![("Name", name), ("Age", age::of(item, now))], item)
            })
            .collect();
    }
    let names: Vec<&str> = columns(answer).into_iter().map(|column| column.name).collect();
    let all = answer["rows"].as_array().into_iter().flatten();
    all.map(|each| {
        let cells = each["cells"].as_array().into_iter().flatten();
        let cells = names.iter().copied().zip(cells.map(cell)).collect();
        row(cells, &each["object"])
    })
    .collect()
}

fn row<'a>(cells: Vec<(&'a str, String)>, object: &'a Value) -> Row<'a> {
    let metadata = &object["metadata"];
    Row {
        object,
        cells,
        namespace: metadata["namespace"].as_str().unwrap_or_default().to_string(),
        managed: metadata["labels"][MANAGED_LABEL] == "true",
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
