//! Defaults and checks of the registrations themselves: webhook configurations, policies, and APIServices.
//!
//! Inputs: decoded objects of the groups `admissionregistration.k8s.io` and `apiregistration.k8s.io`. Absent on purpose:
//! running them.

use fleet_apiserver_ground::tree::{self, default_to};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes};
use serde_json::{Map, Value, json};

mod api_service;
mod matching;
mod mutating;
mod policies;
mod validating;
mod webhooks;

pub use api_service::api_service;

/// Group of the registrations; webhooks never review them.
pub const GROUP: &str = "admissionregistration.k8s.io";

fn each<'a>(value: &'a mut Value, path: &[&str]) -> Vec<&'a mut Map<String, Value>> {
    let Some((last, parents)) = path.split_last() else { return Vec::new() };
    let mut at = Some(value);
    for key in parents {
        at = at.and_then(|v| v.get_mut(*key));
    }
    let list = at.and_then(|v| v.get_mut(*last)).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut).collect()
}

fn match_defaults(map: &mut Map<String, Value>) {
    default_to(map, "matchPolicy", "Equivalent");
    default_to(map, "namespaceSelector", json!({}));
    default_to(map, "objectSelector", json!({}));
}

fn rule_defaults(map: &mut Map<String, Value>, key: &str) {
    let rules = map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten();
    rules.filter_map(Value::as_object_mut).for_each(|rule| default_to(rule, "scope", "*"));
}

/// Fills in the defaults of a registration.
pub fn defaults(plural: &str, value: &mut Value) {
    match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            for hook in each(value, &["webhooks"]) {
                match_defaults(hook);
                default_to(hook, "failurePolicy", "Fail");
                default_to(hook, "timeoutSeconds", 10);
                if plural.starts_with('m') {
                    default_to(hook, "reinvocationPolicy", "Never");
                }
                rule_defaults(hook, "rules");
                if let Some(Value::Object(service)) =
                    hook.get_mut("clientConfig").and_then(|c| c.get_mut("service"))
                {
                    default_to(service, "port", 443);
                }
            }
        }
        "validatingadmissionpolicies" => {
            let spec = tree::child(value, "spec");
            default_to(spec, "failurePolicy", "Fail");
            let constraints = tree::object(spec.entry("matchConstraints").or_insert_with(|| json!({})));
            match_defaults(constraints);
            rule_defaults(constraints, "resourceRules");
            rule_defaults(constraints, "excludeResourceRules");
        }
        "mutatingadmissionpolicies" => {
            let spec = tree::child(value, "spec");
            default_to(spec, "failurePolicy", "Fail");
            if let Some(Value::Object(constraints)) = spec.get_mut("matchConstraints") {
                match_defaults(constraints);
                rule_defaults(constraints, "resourceRules");
                rule_defaults(constraints, "excludeResourceRules");
            }
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            let spec = tree::child(value, "spec");
            if let Some(Value::Object(constraints)) = spec.get_mut("matchResources") {
                match_defaults(constraints);
                rule_defaults(constraints, "resourceRules");
                rule_defaults(constraints, "excludeResourceRules");
            }
        }
        _ => {}
    }
}

/// Names that only files of a server have.
const STATIC_NAMES: &str = ".static.k8s.io";

/// What a client is warned of who writes a registration of this name.
pub fn warning(name: &str) -> Option<String> {
    let why = "are reserved for static manifest-based configurations and cannot be managed via the API";
    name.ends_with(STATIC_NAMES).then(|| format!("metadata.name: names ending with {STATIC_NAMES:?} {why}"))
}

/// Checks a registration, or its status.
pub fn check(plural: &str, value: &Value, subresource: &str, causes: &mut Vec<Cause>) {
    let found = Causes::default();
    {
        let new = At::root(value, &found);
        match plural {
            "validatingadmissionpolicies" if subresource == "status" => {
                validating::status(&new.at("status"));
            }
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => webhooks::check(&new),
            "validatingadmissionpolicies" => validating::policy(&new),
            "validatingadmissionpolicybindings" => validating::binding(&new.at("spec")),
            "mutatingadmissionpolicies" => mutating::policy(&new.at("spec")),
            "mutatingadmissionpolicybindings" => mutating::binding(&new.at("spec")),
            _ => {}
        }
    }
    causes.extend(found.into_inner());
}
