//! Checks of webhooks.

use super::matching::{match_conditions, match_policy, rule, selectors};
use fleet_apiserver_cel::rules::Known;
use fleet_apiserver_schema::client_config;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::names;
use std::collections::BTreeSet;

/// What a webhook may do beside its answer.
const SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];

/// Checks a configuration of webhooks.
pub fn check(new: &At) {
    let mut names = BTreeSet::new();
    for hook in new.at("webhooks").items() {
        webhook(&hook);
        let name = hook.at("name");
        if !name.text().is_empty() && !names.insert(name.text()) {
            name.duplicate();
        }
    }
}

fn webhook(hook: &At) {
    let name = hook.at("name");
    if name.need() {
        let whys = names::subdomain(name.text());
        if !whys.is_empty() {
            name.invalid(&whys.join(","));
        } else if name.text().split('.').count() < 3 {
            name.invalid("should be a domain with at least three segments separated by dots");
        }
    }
    hook.at("rules").items().for_each(|one| rule(&one));
    hook.at("failurePolicy").if_set_one_of(&["Fail", "Ignore"]);
    match_policy(hook);
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
    selectors(hook);
    hook.at("reinvocationPolicy").if_set_one_of(&["IfNeeded", "Never"]);
    client_config::check(&hook.at("clientConfig"));
    match_conditions(&hook.at("matchConditions"), &Known::of_write().with_authorizer());
    client_config::review_versions(&hook.at("admissionReviewVersions"), "must specify one of v1, v1beta1");
}
