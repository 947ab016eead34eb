//! Warnings of `kubectl apply`: a ValidatingAdmissionPolicy that refuses nothing and warns at once of what
//! the controller would report in a condition. It works on every API server with ValidatingAdmissionPolicies.
//!
//! The chart and `fleet up` install it.
//!
//! Generated from the same table of attributes as the controller's messages. A test compares the chart's copy
//! with it.

use fleet_quota_tree::{ATTRIBUTES, Attribute, On, Values};
use serde_json::{Value, json};

/// Name of the policy and of its binding.
const NAME: &str = "fleet-quota-tree";
/// The tree's root, as a variable of the policy.
const ROOT: &str = "variables.root";
/// Levels of the tree that the policy and the schema check; the controller checks all.
pub const LEVELS: usize = 6;
/// A fraction without a unit, or thousandths of one.
const FRACTION: &str = "^[+]?([0-9]*[.][0-9]*[1-9][0-9]*|[0-9]*[1-9][0-9]{0,2}m)$";
const DURATION: &str = "^[[:space:]]*([0-9]+(ms|s|m|h|d))+[[:space:]]*$";
/// One key of a JSON object with its quantity.
const PAIR: &str = "[[:space:]]*\"[^\"{[,:]+\"[[:space:]]*:[[:space:]]*\
                    (\"[^\"{[,]+\"|[^\"{[,[:space:]]([^\"{[,]*[^\"{[,[:space:]])?)[[:space:]]*";
const NAMESPACE: &str = "[a-z0-9-]{1,63}";

/// Variables of the policy and the expressions of their messages; empty if nothing is wrong. One variable for
/// each rule and level, because servers parse expressions recursively and a long one is deep.
fn variables() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for level in 0..LEVELS {
        for (number, known) in ATTRIBUTES.iter().enumerate() {
            let own = |node: &str, path: &str| attribute(node, path, known);
            found.push((format!("attribute{number}level{level}"), at_level(level, &own)));
        }
        found.push((format!("unknown{level}"), at_level(level, &unknown)));
        found.push((format!("amounts{level}"), at_level(level, &amounts)));
        found.push((format!("jobs{level}"), at_level(level, &jobs)));
    }
    found
}

/// The policy and its binding, for a hub.
pub fn objects() -> Vec<Value> {
    let found = variables();
    let mut variables = vec![json!({"name": "root", "expression": "object.spec.root"})];
    variables.extend(found.iter().map(|(name, text)| json!({"name": name, "expression": text})));
    let check = |(name, _): &(String, String)| {
        let text = format!("variables.{name}");
        json!({"expression": format!("{text} == ''"), "messageExpression": text})
    };
    let checks: Vec<Value> = found.iter().map(check).collect();
    let rule = json!({"apiGroups": ["scheduling.sigs.k8s.io"], "apiVersions": ["v1beta1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["elasticquotatrees"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {"resourceRules": [rule]},
            "variables": variables,
            "validations": checks,
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": NAME},
        "spec": {"policyName": NAME, "validationActions": ["Warn"]},
    });
    vec![policy, binding]
}

/// The objects as one YAML stream.
///
/// # Errors
/// They cannot be written.
pub fn yaml() -> Result<String, crate::yaml::YamlError> {
    let texts: Result<Vec<String>, _> = objects().iter().map(crate::yaml::write).collect();
    Ok(texts?.iter().map(|text| format!("---\n{}\n", text.trim_end())).collect())
}

/// An expression that concatenates the messages of all nodes of one level. The root is level 0.
fn at_level(level: usize, own: &dyn Fn(&str, &str) -> String) -> String {
    below(ROOT, "'root'", own, level)
}

fn below(node: &str, path: &str, own: &dyn Fn(&str, &str) -> String, levels: usize) -> String {
    if levels == 0 {
        return own(node, path);
    }
    let child = format!("n{levels}");
    let rest = below(&child, &format!("{path} + '/' + {child}.name"), own, levels - 1);
    format!("(has({node}.children) ? {node}.children.map({child}, {rest}).join('') : '')")
}

fn found(node: &str, path: &str, key: &str, shown: &str, allowed: &str) -> String {
    format!(
        "'quota ' + {path} + ', attributes[{shown}]: found ' + {node}.attributes[{key}] + '; allowed: {allowed}. '"
    )
}

/// Message about one attribute of a node.
fn attribute(node: &str, path: &str, Attribute(name, on, values, ..): &Attribute) -> String {
    let key = format!("'{name}'");
    let fits = fits(&format!("{node}.attributes[{key}]"), *values);
    let leaf = format!("(!has({node}.children) || size({node}.children) == 0)");
    let is_root = node == ROOT;
    let here = match on {
        On::Root => is_root.to_string(),
        On::Leaf => leaf,
        On::Any => "true".to_string(),
        On::Inner => format!("{} && !{leaf}", !is_root),
    };
    let text = found(node, path, &key, name, &format!("{}, on {}", values.describe(), on.describe()));
    format!("(has({node}.attributes) && {key} in {node}.attributes && !({fits} && {here}) ? {text} : '')")
}

/// Whether a value is one of those allowed, as the controller reads them.
fn fits(value: &str, allowed: Values) -> String {
    let matches = |pattern: &str| format!("{value}.matches('{pattern}')");
    match allowed {
        Values::Words(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            format!("{value} in [{}]", words.join(", "))
        }
        Values::Number => format!("isQuantity({value}) && !quantity({value}).isLessThan(quantity('0'))"),
        Values::Duration => matches(DURATION),
        Values::Quantities => {
            matches(&format!("^[[:space:]]*[{{]([[:space:]]*|{PAIR}(,{PAIR})*)[}}][[:space:]]*$"))
        }
        Values::Namespaces => matches(&list(NAMESPACE)),
        Values::Subjects => matches(&list(&format!(
            "((user|group):[^;,]*[^;,[:space:]]|serviceaccount:{NAMESPACE}/[^:/;,]*[^:/;,[:space:]])"
        ))),
        Values::Name => format!("{value} != ''"),
    }
}

/// A pattern of entries with commas; empty ones count as none.
fn list(entry: &str) -> String {
    let entry = format!("[[:space:]]*({entry})?[[:space:]]*");
    format!("^{entry}(,{entry})*$")
}

/// Unknown attributes with the prefix `fleet.dev/`.
fn unknown(node: &str, path: &str) -> String {
    let names: Vec<&str> = ATTRIBUTES.iter().map(|known| known.0).collect();
    let listed: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let text = found(node, path, "a", "' + a + '", &format!("the attributes {}", names.join(", ")));
    format!(
        "(has({node}.attributes) ? {node}.attributes.map(a, a.startsWith('fleet.dev/') && !(a in [{}]) ? {text} : \
         '').join('') : '')",
        listed.join(", ")
    )
}

/// Mins above their max.
fn amounts(node: &str, path: &str) -> String {
    let (min, max) = (format!("string({node}.min[r])"), format!("string({node}.max[r])"));
    format!(
        "(has({node}.min) && has({node}.max) ? {node}.min.map(r, r in {node}.max && \
         quantity({min}).isGreaterThan(quantity({max})) ? 'quota ' + {path} + ', min[' + r + ']: found ' + {min} + '; \
         allowed: at most the max, here ' + {max} + '. ' : '').join('') : '')"
    )
}

/// Limits of jobs that are no whole number.
fn jobs(node: &str, path: &str) -> String {
    let max = format!("string({node}.max['kube-queue/max-jobs'])");
    format!(
        "(has({node}.max) && 'kube-queue/max-jobs' in {node}.max && {max}.matches('{FRACTION}') ? 'quota ' + {path} + ', \
         max[kube-queue/max-jobs]: found ' + {max} + '; allowed: a whole number; it counts as the next one. ' : '')"
    )
}

#[cfg(test)]
mod tests {
    /// Set to write the chart's copy instead of checking it.
    const UPDATE: &str = "UPDATE_CRDS";

    #[test]
    fn the_chart_has_the_policy() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/fleet/templates/quota-tree-warnings.yaml");
        let text = super::yaml().expect("it can be written");
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(file, &text).expect("the chart is written");
        }
        let standing = std::fs::read_to_string(file).unwrap_or_default();
        assert!(standing == text, "{file} is out of date; run {UPDATE}=1 cargo test -p fleet-api");
        // The embedded server takes no longer ones.
        for (name, expression) in super::variables() {
            assert!(expression.len() < 10_000, "{name}: {} bytes", expression.len());
        }
        // A template of the chart: what Helm would read as its own is not there.
        assert!(!text.contains("{{"), "{text}");
    }
}
