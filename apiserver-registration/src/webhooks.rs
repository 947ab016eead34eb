//! Checks of webhooks.

use super::matching::{CONDITION, match_conditions, rule, selecting};
use fleet_apiserver_schema::client_config;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate::{self, NameRule};

/// What a webhook may do beside its answer.
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// Checks a configuration of webhooks.
pub fn check(new: &At) {
    let hooks = new.at("webhooks");
    hooks.items().for_each(|hook| webhook(&hook));
    hooks.unique("name");
}

fn webhook(hook: &At) {
    let name = hook.at("name");
    if name.need() {
        if let Some(why) = validate::name(NameRule::Subdomain, name.text()) {
            name.invalid(&why);
        } else if name.text().split('.').count() < 3 {
            name.invalid("should be a domain with at least three segments separated by dots");
        }
    }
    hook.at("rules").items().for_each(|one| rule(&one));
    hook.at("failurePolicy").one_of(&["Fail", "Ignore"]);
    let effects = hook.at("sideEffects");
    if !effects.is_set() {
        effects.required(&format!("must specify one of {}", SIDE_EFFECTS.join(", ")));
    } else if !SIDE_EFFECTS.contains(&effects.text()) {
        effects.unsupported(&SIDE_EFFECTS);
    }
    let timeout = hook.at("timeoutSeconds");
    if timeout.number().is_some_and(|s| !(1..=30).contains(&s)) {
        timeout.invalid("the timeout value must be between 1 and 30 seconds");
    }
    selecting(hook);
    hook.at("reinvocationPolicy").one_of(&["IfNeeded", "Never"]);
    client_config::check(&hook.at("clientConfig"));
    match_conditions(&hook.at("matchConditions"), &CONDITION);
    client_config::review_versions(&hook.at("admissionReviewVersions"), "must specify one of v1, v1beta1");
}
