//! What kinds that make pods have in common: selectors, templates, and how many pods an update takes at once.
//!
//! Inputs: fields of a spec, defaults applied. Source: the validation of Kubernetes 1.36. A value of the server's own
//! types is shown in messages with the names that these have there.

use fleet_apiserver_ground::tree;
use fleet_apiserver_pods::spec as pod_spec;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::validate::{self, NameRule};
use serde_json::Value;

/// Longest label of a domain name, in bytes.
const LONGEST_LABEL: usize = 63;

/// A label selector as messages show it.
pub fn shown_selector(selector: &Value) -> String {
    if selector.is_null() {
        return "null".to_string();
    }
    let mut parts = Vec::new();
    for key in ["matchLabels", "matchExpressions"] {
        if let Some(part) = selector.get(key).filter(|part| !same(part, &Value::Null)) {
            parts.push(format!("\"{key}\":{part}"));
        }
    }
    format!("{{{}}}", parts.join(","))
}

/// True when a selector can be used: keys and values are those that labels can have, operators have what they need.
pub fn usable(selector: &Value) -> bool {
    let value = |v: &Value| v.as_str().is_some_and(validate::is_label_value);
    let mut labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let expression = |e: &Value| {
        let values = tree::list(e, &["values"]);
        let complete = match tree::text(e, &["operator"]) {
            "In" | "NotIn" => !values.is_empty(),
            "Exists" | "DoesNotExist" => values.is_empty(),
            _ => false,
        };
        complete && validate::is_qualified(tree::text(e, &["key"])) && values.iter().all(value)
    };
    labels.all(|(k, v)| validate::is_qualified(k) && value(v))
        && tree::list(selector, &["matchExpressions"]).iter().all(expression)
}

fn selects_all(selector: &At) -> bool {
    selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty()
}

/// A selector that does not select everything, if it is there.
pub fn selects_some(selector: &At, empty: &str) {
    if selector.is_set() && selects_all(selector) {
        selector.wrong(&format!("{}: {empty}", shown_selector(selector.value())));
    }
}

/// A selector that has to be there. False when it cannot be used, and nothing can be told of what it selects.
pub fn selector(spec: &At, empty: &str, unusable: &str) -> bool {
    let selector = spec.at("selector");
    if !selector.is_set() {
        selector.required("");
        return true;
    }
    selector.label_selector();
    selects_some(&selector, empty);
    let fine = usable(selector.value());
    if !fine {
        let shown = shown_selector(selector.value());
        selector.wrong(&if unusable.is_empty() { shown } else { format!("{shown}: {unusable}") });
    }
    fine
}

/// A selector stays what it was.
pub fn lasting_selector(spec: &At, before: &At) {
    let (now, was) = (spec.at("selector"), before.at("selector"));
    if !same(now.value(), was.value()) {
        now.wrong(&format!("{}: field is immutable", shown_selector(now.value())));
    }
}

/// The template of a kind that keeps its pods running, selected by its selector.
pub fn template(spec: &At, kind: &str) {
    let template = spec.at("template");
    pod_spec::selected(&spec.at("selector"), &template);
    pod_spec::template(&template);
    pod_spec::lasting_template(&template, kind);
}

/// The name of a host, without dots.
pub fn label(at: &At) {
    let name = at.text();
    if name.len() > LONGEST_LABEL {
        at.invalid(&format!("must be no more than {LONGEST_LABEL} characters"));
    }
    // A text that no name has is refused for its form alone.
    if validate::name(NameRule::Subdomain, name).is_some() {
        at.invalid(&validate::name(NameRule::Label, "_").unwrap_or_default());
    } else if name.contains('.') {
        at.invalid("must not contain dots");
    }
}

/// The number of a percentage, if it is one.
fn percentage(value: &Value) -> Option<i64> {
    let digits = value.as_str()?.strip_suffix('%')?;
    let fine = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    // What does not fit in 64 bits is the most that does.
    fine.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// How many pods, or how much of a hundred; what is neither counts as none.
pub fn amount(value: &Value) -> i64 {
    match value {
        Value::String(text) => percentage(value).unwrap_or_else(|| text.parse().unwrap_or(0)),
        other => other.as_i64().unwrap_or(0),
    }
}

/// A percentage is of at most 100.
pub fn at_most_all(at: &At) {
    if percentage(at.value()).is_some_and(|n| n > 100) {
        at.invalid("must not be greater than 100%");
    }
}

/// A field of a rolling update: its name in messages, its name, and what is shown where it is not there.
pub type Shown = (&'static str, &'static str, &'static str);

/// How many pods of a Deployment or DaemonSet are updated at once.
pub const BOUNDS: [Shown; 2] = [("MaxUnavailable", "maxUnavailable", "0"), ("MaxSurge", "maxSurge", "0")];

/// The parameters of a rolling update as messages show them.
pub fn shown_rolling(rolling: &Value, fields: &[Shown]) -> String {
    let mut parts = Vec::new();
    for (shown, key, missing) in fields {
        match rolling.get(*key).filter(|found| !found.is_null()) {
            Some(found) => parts.push(format!("\"{shown}\":{found}")),
            None => parts.push(format!("\"{shown}\":{missing}")),
        }
    }
    format!("{{{}}}", parts.join(","))
}

/// How updates are made, as messages show it.
pub fn shown_strategy(strategy: &Value, fields: &[Shown]) -> String {
    let rolling = match strategy.get("rollingUpdate") {
        Some(rolling) if !rolling.is_null() => shown_rolling(rolling, fields),
        _ => "null".to_string(),
    };
    format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", Value::from(tree::text(strategy, &["type"])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_read_as_numbers_or_percentages() {
        for (value, wanted) in [
            (json!(3), 3),
            (json!("25%"), 25),
            (json!("7"), 7),
            (json!("many"), 0),
            (json!("99999999999999999999%"), i64::MAX),
            (json!(null), 0),
        ] {
            assert_eq!(amount(&value), wanted, "{value}");
        }
    }

    #[test]
    fn values_are_shown_in_the_order_of_the_server() {
        let expression = json!({"key": "a", "operator": "Exists"});
        let selector = json!({"matchExpressions": [expression], "matchLabels": {"b": "c"}});
        assert_eq!(
            shown_selector(&selector),
            "{\"matchLabels\":{\"b\":\"c\"},\"matchExpressions\":[{\"key\":\"a\",\"operator\":\"Exists\"}]}"
        );
        assert_eq!(shown_selector(&json!({"matchLabels": {}})), "{}");
        let strategy = json!({"type": "Magic", "rollingUpdate": {"maxSurge": "5%"}});
        assert_eq!(
            shown_strategy(&strategy, &BOUNDS),
            "{\"Type\":\"Magic\",\"RollingUpdate\":{\"MaxUnavailable\":0,\"MaxSurge\":\"5%\"}}"
        );
    }
}
