//! JSON Patch operations at a JSON pointer (RFC 6902, RFC 6901).

use serde_json::Value;

use super::allowance::Allowance;
use super::problem::Problem;
use super::spec::Operator;

/// Adds, replaces or removes the value at `path`. `add` sets a field of an object, or inserts an item before an
/// index (`-`: at the end). `replace` and `remove` need an existing value.
pub(super) fn change(
    document: &mut Value,
    path: &str,
    operator: Operator,
    value: &Value,
    allowance: &mut Allowance<'_>,
) -> Result<(), Problem> {
    allowance.operation(path)?;
    if operator != Operator::Remove {
        allowance.value(path, path.matches('/').count(), value)?;
    }
    let Some((parent_path, last)) = path.rsplit_once('/') else {
        return Err(Problem::new(
            path,
            format!("the path {path:?}"),
            "a JSON pointer that starts with \"/\"",
        ));
    };
    let key = last.replace("~1", "/").replace("~0", "~");
    let Some(parent) = document.pointer_mut(parent_path) else {
        return Err(Problem::new(path, "no such parent", "a path whose parent exists"));
    };
    match parent {
        Value::Object(fields) => match operator {
            Operator::Add => {
                fields.insert(key, value.clone());
            }
            Operator::Replace => {
                let Some(field) = fields.get_mut(&key) else { return Err(missing(path)) };
                *field = value.clone();
            }
            Operator::Remove => {
                fields.remove(&key).ok_or_else(|| missing(path))?;
            }
        },
        Value::Array(items) => {
            // Later items move.
            allowance.visits(path, items.len())?;
            let index = if key == "-" { Some(items.len()) } else { key.parse::<usize>().ok() };
            match (operator, index) {
                (Operator::Add, Some(at)) if at <= items.len() => items.insert(at, value.clone()),
                (Operator::Replace, Some(at)) if at < items.len() => items[at] = value.clone(),
                (Operator::Remove, Some(at)) if at < items.len() => {
                    items.remove(at);
                }
                _ => return Err(Problem::new(path, format!("index {key:?}"), "an index inside the list")),
            }
        }
        other => {
            return Err(Problem::new(path, format!("{other} as parent"), "an object or a list as parent"));
        }
    }
    Ok(())
}

fn missing(path: &str) -> Problem {
    Problem::new(path, "nothing", "a field that exists")
}
