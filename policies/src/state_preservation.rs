//! State preservation: values of the last run's status become labels of the next run and environment variables.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    json_path::{Allowance, JsonPath},
    names::may_carry_state,
    reason::Reason,
    spec::{Failover, StatePreservation, StatePreservationRule},
    workload::{self, WorkloadKind},
};

/// Prefix of the environment variables.
const ENV_PREFIX: &str = "FLEET_RESTORE_";
/// Longest value of a label.
const LABEL_MAX: usize = 63;

/// Values of a status that all rules together may visit.
const VISITED: Allowance = Allowance(100_000);
/// Longest value, in bytes.
const VALUE_MAX: usize = 1024;
/// Most bytes of all aliases and values of a run: the binding keeps them for dozens of runs.
const STATE_MAX: usize = 8 << 10;

/// The values that the policy's rules find in the last status of a run, by alias. Of a value the first 1024 bytes are
/// kept. A rule for whose value there is no room any more has none, and so have the rules that are left once 100,000
/// values of the status have been visited.
pub fn read(failover: Option<&Failover>, reason: Reason, status: Option<&Value>) -> BTreeMap<String, String> {
    let (Some(failover), Some(status)) = (failover, status) else { return BTreeMap::new() };
    let of_application = failover.application.as_ref().and_then(|a| a.state_preservation.as_ref());
    let of_cluster = failover.cluster.as_ref().and_then(|c| c.state_preservation.as_ref());
    let rules: Option<&StatePreservation> = match reason {
        Reason::ApplicationFailure | Reason::GangNotStarted => of_application.or(of_cluster),
        _ => of_cluster.or(of_application),
    };
    let mut allowance = VISITED;
    find_all(rules.map_or(&[][..], |preservation| &preservation.rules), status, &mut allowance)
}

fn find_all(
    rules: &[StatePreservationRule],
    status: &Value,
    allowance: &mut Allowance,
) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    let mut room = STATE_MAX;
    // A binding may still have a policy that is older than the rules of [`crate::spec`].
    for rule in rules.iter().take(StatePreservation::MOST_RULES) {
        let alias = &rule.alias_label_name;
        let Some(value) = find(status, &rule.json_path, allowance) else { continue };
        if let Some(left) = room.checked_sub(alias.len() + value.len()) {
            room = left;
            state.insert(alias.clone(), value);
        }
    }
    state
}

/// The beginning of the first value at a path; strings unchanged, other values as JSON.
fn find(status: &Value, path: &str, allowance: &mut Allowance) -> Option<String> {
    let mut text = match JsonPath::read(path)?.first(status, allowance).ok()?? {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.truncate(text.floor_char_boundary(VALUE_MAX));
    Some(text)
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
mod tests;
