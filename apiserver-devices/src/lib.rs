//! Kinds of dynamic resource allocation: claims of devices, their classes, and slices of what a node or network has.
//!
//! Inputs: decoded objects of the group `resource.k8s.io`. Source: Kubernetes 1.36. Absent on purpose: giving devices out, and
//! who may do what (see the admission wing).

mod allocation;
mod capacity;
mod claim;
mod defaults;
mod parts;
mod requests;
mod slice;

pub use allocation::{device_key, drop_freed};
pub use defaults::{defaults, stamp};

use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::claim_spec;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::go_text;
use serde_json::Value;

/// Group of the kinds.
pub const GROUP: &str = "resource.k8s.io";

/// Checks a new or changed object of a kind of the group.
pub fn check(plural: &str, new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    match (plural, old) {
        ("resourceclaims", Some(old)) if subresource == "status" => allocation::status(new, old),
        // Nothing but a change can be wrong with what was accepted.
        ("resourceclaims", Some(old)) => parts::lasting(&spec, &old.at("spec"), "ResourceClaimSpec"),
        ("resourceclaims", None) => claim::spec(&spec),
        ("resourceclaimtemplates", _) => {
            claim_spec::check_template_meta(&new.at("spec.metadata"));
            claim::spec(&new.at("spec.spec"));
            if let Some(old) = old {
                parts::lasting(&spec, &old.at("spec"), "ResourceClaimTemplateSpec");
            }
        }
        ("deviceclasses", _) => claim::class(&spec),
        ("resourceslices", _) => {
            let before = old.map(|old| old.at("spec"));
            slice::spec(&spec, before.as_ref());
        }
        _ => {}
    }
}

/// What a client is warned of who writes an object of the group.
pub fn warning(plural: &str, value: &Value) -> Option<String> {
    let driver = tree::text(value, &["spec", "driver"]);
    let odd = plural == "resourceslices" && driver != driver.to_lowercase();
    let driver = go_text::quoted(driver);
    odd.then(|| {
        format!("spec.driver: driver names should be lowercase; {driver} contains uppercase characters")
    })
}
