//! What a typed decoder of the real server calls a field that it cannot read: its struct, its path and its type.
//!
//! Inputs: the schema of a built-in kind and the path of a field. Looked up only for an error. Source of the types that
//! schemas do not tell: the Go types of the API, 1.36 (`data/go_types.txt`).

use crate::schema::{Schema, Type};

/// Fields whose Go type is not the one their schema suggests: `definition: field type, field type`.
static TYPES: &str = include_str!("../data/go_types.txt");

/// A field as an error of the decoder names it.
#[derive(Debug, PartialEq)]
pub struct Place {
    /// The innermost struct and the fields on the way: `Container.spec.containers.image`.
    pub field: String,
    /// Type of the field, or of its item.
    pub ty: String,
}

/// The place of a path such as `spec.containers[0].image` in a built-in kind.
pub fn place(root: &Schema, path: &str) -> Option<Place> {
    let (mut schema, mut rest) = (root, path);
    let mut owner = root.name()?;
    let mut fields: Vec<&str> = Vec::new();
    let mut ty = derived(root);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            schema = schema.get().items.as_deref()?;
            ty = match ty.strip_prefix("[]") {
                Some(item) => item.trim_start_matches('*').to_string(),
                None => derived(schema),
            };
            rest = after.split_once(']')?.1;
        } else if schema.properties().next().is_some() {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let name = &rest[..end];
            owner = schema.name()?;
            schema = schema.field(name)?;
            ty = known(owner, name).map_or_else(|| derived(schema), str::to_string);
            fields.push(name);
            rest = &rest[end..];
        } else {
            schema = schema.get().additional.as_deref()?;
            ty = match ty.strip_prefix("map[").and_then(|ty| ty.split_once(']')) {
                Some((_, value)) => value.trim_start_matches('*').to_string(),
                None => derived(schema),
            };
            rest = after_key(schema, rest);
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    let owner = owner.rsplit('.').next().unwrap_or(owner);
    Some(Place { field: format!("{owner}.{}", fields.join(".")), ty })
}

/// What follows the key of a map's entry; keys may have dots, and are no part of the place.
fn after_key<'a>(values: &Schema, rest: &'a str) -> &'a str {
    let node = values.get();
    if node.items.is_some() {
        return rest.find('[').map_or("", |at| &rest[at..]);
    }
    if values.properties().next().is_some() || node.additional.is_some() {
        return rest.split_once('.').map_or("", |(_, below)| below);
    }
    ""
}

/// The type of a field that its schema does not tell.
fn known(owner: &str, field: &str) -> Option<&'static str> {
    let of_owner = |line: &'static str| line.strip_prefix(owner)?.strip_prefix(": ");
    let fields = TYPES.lines().find_map(of_owner)?;
    fields.split(", ").find_map(|one| one.strip_prefix(field)?.strip_prefix(' '))
}

/// The type that a schema suggests.
fn derived(schema: &Schema) -> String {
    let node = schema.get();
    let below = |s: &Option<Box<Schema>>| s.as_deref().map_or_else(|| "interface {}".into(), derived);
    match node.ty {
        Type::Array => format!("[]{}", below(&node.items)),
        Type::Object if node.additional.is_some() => format!("map[string]{}", below(&node.additional)),
        Type::String if node.rules.as_ref().is_some_and(|r| r.format.as_deref() == Some("byte")) => {
            "[]uint8".into()
        }
        Type::String => "string".into(),
        Type::Integer if node.rules.as_ref().is_some_and(|r| r.format.as_deref() == Some("int64")) => {
            "int64".into()
        }
        // What is a number or a text is read as a number unless it is quoted.
        Type::Integer | Type::IntOrString => "int32".into(),
        Type::Number => "float64".into(),
        Type::Boolean => "bool".into(),
        Type::Any | Type::Object | Type::Quantity => match schema.name() {
            Some(name) => {
                let mut parts = name.rsplit('.');
                let (kind, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{package}.{kind}")
            }
            None => "interface {}".into(),
        },
    }
}

#[cfg(test)]
mod tests;
