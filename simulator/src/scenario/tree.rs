//! The types of a quota tree's fields. Values of the right type that mean nothing are remarks.

use super::fields::{Field, Read};

const NODE: &str = "a node of a quota tree: a map with name, namespaces, attributes, min, max, children";
const AMOUNTS: &str = "a map of resource names to quantities, such as {cpu: 4, nvidia.com/gpu: 8}";

/// Refuses what an API server would not take.
pub(super) fn check(root: &Field<'_>) -> Read<()> {
    let mut open = vec![root.clone()];
    while let Some(node) = open.pop() {
        for (name, field) in node.entries(NODE)? {
            match name {
                "name" => field.quoted("a name, in quotes if it could be read as something else")?,
                _ if field.is_empty() => {}
                "namespaces" => {
                    for namespace in field.list("a list of namespaces")? {
                        namespace.quoted("a namespace, in quotes if it could be read as something else")?;
                    }
                }
                "attributes" => {
                    for (name, value) in field.entries("a map of attributes to texts")? {
                        // An empty text is read, and said to be ignored.
                        let quoted = format!("a text in quotes, such as {name}: {:?}", shown(&value));
                        value.quoted(&quoted)?;
                    }
                }
                "min" | "max" => {
                    for (_, amount) in field.entries(AMOUNTS)? {
                        amount.amount("a quantity such as 4, 500m or 16Gi")?;
                    }
                }
                "children" => open.extend(field.list("a list of nodes")?),
                _ => {}
            }
        }
    }
    Ok(())
}

/// What was probably meant.
fn shown(value: &Field<'_>) -> String {
    value.scalar("").unwrap_or_else(|_| "value".to_string())
}
