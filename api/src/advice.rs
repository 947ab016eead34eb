//! Warnings of `kubectl apply`: a ValidatingAdmissionPolicy that refuses nothing and tells at once what the controller
//! would say in a condition. Any API server that has such policies (Kubernetes 1.30 and the embedded one) gives them.
//!
//! Made from the same table of attributes as the controller's words; the chart's copy is held to it by a test.

use fleet_quota::known_attributes;
use serde_json::{Value, json};

/// Name of the policy and of its binding.
const NAME: &str = "fleet-quota-tree";
/// Levels of the tree that are looked at; the controller looks at all.
const LEVELS: usize = 6;
/// A number of 0 or more, as attributes write it.
const NUMBER: &str = "^([0-9]+([.][0-9]*)?|[.][0-9]+)m?$";
const DURATION: &str = "^([0-9]+(ms|s|m|h|d))+$";

/// The policy and its binding, for a hub.
pub fn objects() -> Vec<Value> {
    let variable = |name: &str, own: &dyn Fn(&str, &str) -> String| json!({"name": name, "expression": below("object.spec.root", "'root'", own, LEVELS)});
    let check = |name: &str| {
        let text = format!("variables.{name}");
        json!({"expression": format!("{text} == ''"), "messageExpression": text})
    };
    let rule = json!({"apiGroups": ["scheduling.sigs.k8s.io"], "apiVersions": ["v1beta1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["elasticquotatrees"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": NAME},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {"resourceRules": [rule]},
            "variables": [variable("attributes", &attributes), variable("amounts", &amounts)],
            "validations": [check("attributes"), check("amounts")],
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

/// An expression: the texts of a node at `path` and of all below it, one after the other. Expressions cannot
/// recurse, so the tree's levels are written out.
fn below(node: &str, path: &str, own: &dyn Fn(&str, &str) -> String, levels: usize) -> String {
    let text = own(node, path);
    if levels <= 1 {
        return text;
    }
    let child = format!("n{levels}");
    let rest = below(&child, &format!("{path} + '/' + {child}.name"), own, levels - 1);
    format!("{text} + (has({node}.children) ? {node}.children.map({child}, {rest}).join('') : '')")
}

/// What is wrong with a node's attributes.
fn attributes(node: &str, path: &str) -> String {
    let found = |allowed: &str| {
        format!(
            "'quota ' + {path} + ', attributes[' + a + ']: found ' + {node}.attributes[a] + '; allowed: {allowed}. '"
        )
    };
    let names: Vec<&str> = known_attributes().map(|(name, ..)| name).collect();
    let unknown = found(&format!("the attributes {}", names.join(", ")));
    let mut text = format!("(a.startsWith('fleet.dev/') ? {unknown} : '')");
    for (name, nodes, values) in known_attributes() {
        let fits = match values.as_str() {
            "a number of 0 or more" => format!("{node}.attributes[a].matches('{NUMBER}')"),
            "a duration such as 90s, 5m or 1h30m" => format!("{node}.attributes[a].matches('{DURATION}')"),
            "a JSON object of quantities" => format!("{node}.attributes[a].matches('^ *[{{].*[}}] *$')"),
            words => {
                let words: Vec<String> = words.split(", ").map(|word| format!("'{word}'")).collect();
                format!("{node}.attributes[a] in [{}]", words.join(", "))
            }
        };
        let leaf = format!("(!has({node}.children) || size({node}.children) == 0)");
        let root = path == "'root'";
        let here = match nodes {
            "the root" => root.to_string(),
            "leaves" => leaf,
            "any node" => "true".to_string(),
            _ => format!("{} && !{leaf}", !root),
        };
        let (wrong, elsewhere) = (found(&values), found(&format!("this attribute on {nodes}")));
        text = format!("(a == '{name}' ? (!({fits}) ? {wrong} : !({here}) ? {elsewhere} : '') : {text})");
    }
    format!("(has({node}.attributes) ? {node}.attributes.map(a, {text}).join('') : '')")
}

/// Mins above their max.
fn amounts(node: &str, path: &str) -> String {
    let (min, max) = (format!("string({node}.min[r])"), format!("string({node}.max[r])"));
    format!(
        "(has({node}.min) && has({node}.max) ? {node}.min.map(r, r in {node}.max && isQuantity({min}) && \
         isQuantity({max}) && quantity({min}).isGreaterThan(quantity({max})) ? 'quota ' + {path} + ', min[' + r + \
         ']: found ' + {min} + '; allowed: at most the max, here ' + {max} + '. ' : '').join('') : '')"
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
        // A template of the chart: what Helm would read as its own is not there.
        assert!(!text.contains("{{"), "{text}");
    }
}
