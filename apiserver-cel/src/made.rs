//! Names of the objects that the expressions of a mutation make: `JSONPatch`, and parts of the object it changes.
//!
//! A part is named by its place, such as `Object.spec.template`.

/// An operation of a JSON patch.
pub const PATCH: &str = "JSONPatch";
/// The object that is changed.
pub const OBJECT: &str = "Object";
/// The function that writes a key as part of a path.
pub const ESCAPE: &str = "jsonpatch.escapeKey";

/// Whether there is a type of this name.
pub fn is_type(name: &str) -> bool {
    name == PATCH || name == OBJECT || name.starts_with("Object.")
}
