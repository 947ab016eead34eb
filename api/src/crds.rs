//! The CustomResourceDefinitions of a hub and of a member, generated from the types of this crate.
//!
//! The YAML is committed beside the charts (`charts/fleet/crds/hub.yaml`,
//! `charts/member-agent/crds/member.yaml`); a test compares it with the types.

use serde_json::Value;

#[cfg(feature = "schemas")]
mod generate;
#[cfg(feature = "schemas")]
pub use generate::generate;

/// Which API server a set of definitions is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Hub,
    Member,
}

/// The definitions for one side, sorted by name, as committed under `api/crds/`. Generating them takes a
/// third of a second, which every start would pay.
pub fn definitions(side: Side) -> Vec<Value> {
    let text = match side {
        Side::Hub => include_str!("../crds/hub.json"),
        Side::Member => include_str!("../crds/member.json"),
    };
    // A test compares the files with the output of `generate`, so they are valid JSON.
    serde_json::from_str(text).unwrap_or_default()
}

/// The name of a definition, `plural.group`.
pub fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

/// The generated definitions of one side as one YAML stream.
pub fn yaml(side: Side) -> Result<String, crate::yaml::YamlError> {
    let mut text = String::new();
    for definition in definitions(side) {
        text.push_str("---\n");
        text.push_str(&crate::yaml::write(&definition)?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}
