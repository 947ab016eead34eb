//! State preservation: values of the last run's status become labels of the next run and environment variables.

use std::collections::BTreeMap;

use jsonpath_rust::JsonPath;
use serde_json::{Value, json};

use crate::{
    names::may_carry_state,
    reason::Reason,
    spec::{self, Failover, StatePreservation},
    workload::{self, WorkloadKind},
};

/// Prefix of the environment variables.
const ENV_PREFIX: &str = "FLEET_RESTORE_";
/// Longest value of a label.
const LABEL_MAX: usize = 63;

/// The values that the policy's rules find in the last status of a run, by alias.
pub fn read(failover: Option<&Failover>, reason: Reason, status: Option<&Value>) -> BTreeMap<String, String> {
    let (Some(failover), Some(status)) = (failover, status) else { return BTreeMap::new() };
    let of_application = failover.application.as_ref().and_then(|a| a.state_preservation.as_ref());
    let of_cluster = failover.cluster.as_ref().and_then(|c| c.state_preservation.as_ref());
    let rules: Option<&StatePreservation> = match reason {
        Reason::ApplicationFailure | Reason::GangNotStarted => of_application.or(of_cluster),
        _ => of_cluster.or(of_application),
    };
    let rules = rules.map_or(&[][..], |preservation| &preservation.rules);
    let found = rules.iter().filter_map(|rule| {
        let value = find(status, &rule.json_path)?;
        Some((rule.alias_label_name.clone(), value))
    });
    found.collect()
}

/// The first value at a path; strings unchanged, other values as JSON.
fn find(status: &Value, path: &str) -> Option<String> {
    // A binding may still have a policy that is older than the rule of [`crate::spec`].
    if !spec::is_plain_json_path(path) {
        return None;
    }
    let found = status.query(&standard(path)).ok()?;
    match found.first()? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Converts Kubernetes' form `{.a.b}` to the standard form `$.a.b`.
fn standard(path: &str) -> String {
    let path = path.trim();
    let path = path.strip_prefix('{').and_then(|path| path.strip_suffix('}')).unwrap_or(path);
    match path.strip_prefix('$') {
        Some(_) => path.to_string(),
        None if path.starts_with(['.', '[']) => format!("${path}"),
        None => format!("$.{path}"),
    }
}

/// Adds the preserved state of earlier runs to an object for a member. Values of later runs take precedence.
pub fn hand_over<'s>(
    kind: WorkloadKind,
    object: &mut Value,
    runs: impl Iterator<Item = &'s BTreeMap<String, String>>,
) {
    let state: BTreeMap<&String, &String> = runs.flatten().collect();
    if state.is_empty() {
        return;
    }
    for (alias, value) in &state {
        // A value that is not a valid label is still in the environment. A binding may still have a policy that is
        // older than the rule of [`crate::spec`].
        if is_label_value(value) && may_carry_state(alias) {
            object["metadata"]["labels"][alias.as_str()] = json!(value);
        }
    }
    let env: Vec<(String, String)> =
        state.into_iter().map(|(alias, value)| (env_name(alias), value.clone())).collect();
    workload::set_env(kind, object, &env);
}

/// `FLEET_RESTORE_CHECKPOINT_STEP` for `example.com/checkpoint-step`: the name after the prefix, in capitals.
fn env_name(alias: &str) -> String {
    let name = alias.rsplit('/').next().unwrap_or(alias);
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
    format!("{ENV_PREFIX}{}", letters.collect::<String>())
}

fn is_label_value(value: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= LABEL_MAX
        && edge(value.chars().next())
        && edge(value.chars().last())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_forms_find_values() {
        let status = json!({"step": 1200, "conditions": [{"type": "Running", "reason": "x"}], "none": null});
        let check = |path: &str, expected: Option<&str>| {
            assert_eq!(find(&status, path).as_deref(), expected, "{path}");
        };
        check("{.step}", Some("1200"));
        check(".step", Some("1200"));
        check("$.step", Some("1200"));
        check("step", Some("1200"));
        check("{.conditions[0].type}", Some("Running"));
        check("{.conditions[?(@.type=='Running')].reason}", Some("x"));
        check("{.conditions[?(@.type==\"Running\")].reason}", Some("x"));
        check("{.none}", None);
        check("{.other}", None);
        check("{.broken[}", None);
    }

    #[test]
    fn names_of_variables() {
        assert_eq!(env_name("example.com/checkpoint-step"), "FLEET_RESTORE_CHECKPOINT_STEP");
        assert!(is_label_value("epoch-12.pt"));
        assert!(!is_label_value("s3://bucket/epoch-12.pt"));
    }
}
