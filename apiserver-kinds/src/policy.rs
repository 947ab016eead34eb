//! Disruption budgets, leases, runtime classes, roles and their bindings.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::core_v1;
use fleet_apiserver_pods::placing;
use fleet_apiserver_schema::conditions;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, Causes};
use fleet_apiserver_schema::validate::NameRule;
use serde_json::{Value, json};

/// Checks a PodDisruptionBudget.
pub fn budget(new: &At, subresource: &str) {
    if subresource == "status" {
        let status = new.at("status");
        conditions::check(&status.at("conditions"));
        for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
            status.at(field).non_negative();
        }
        return;
    }
    let spec = new.at("spec");
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if least.is_set() && most.is_set() {
        // Shown with the names of the internal type.
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            least.value(),
            spec.at("selector").value(),
            most.value(),
            spec.at("unhealthyPodEvictionPolicy").value(),
        );
        spec.wrong(&format!("{shown}: minAvailable and maxUnavailable cannot be both set"));
    }
    for bound in [&least, &most] {
        if !bound.is_set() {
            continue;
        }
        bound.count_or_percent();
        if bound.text().strip_suffix('%').and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 100) {
            bound.invalid("must not be greater than 100%");
        }
    }
    spec.at("selector").label_selector();
    spec.at("unhealthyPodEvictionPolicy").if_set_one_of(&["AlwaysAllow", "IfHealthyBudget"]);
}

/// Checks a Lease.
pub fn lease(new: &At) {
    let spec = new.at("spec");
    spec.at("leaseDurationSeconds").positive();
    spec.at("leaseTransitions").non_negative();
}

/// Checks a RuntimeClass.
pub fn runtime_class(new: &At, old: Option<&At>) {
    let handler = new.at("handler");
    handler.need_name(NameRule::Label);
    // Told where limits of a container would be.
    let overhead = new.at("overhead");
    let amounts = overhead.beside("limits", overhead.value().get("podFixed"));
    for (name, amount) in amounts.entries() {
        core_v1::resource_name(&amount, name, true);
        core_v1::quantity_value(&amount, name);
    }
    new.at("scheduling.nodeSelector").labels();
    let tolerations = new.at("scheduling.tolerations");
    placing::tolerations(&tolerations);
    unique_tolerations(&tolerations);
    if let Some(old) = old {
        handler.same_as(&old.at("handler"));
    }
}

/// No two tolerations of a class tolerate the same.
fn unique_tolerations(list: &At) {
    let mut seen = std::collections::BTreeSet::new();
    for item in list.items() {
        let text = |field: &str| item.at(field).text();
        let (key, operator, value, effect) = (text("key"), text("operator"), text("value"), text("effect"));
        if !seen.insert((key, operator, value, effect)) {
            let shown = |text: &str| Value::from(text).to_string();
            let message = format!(
                "Duplicate value: {{\"Key\":{},\"Operator\":{},\"Value\":{},\"Effect\":{},\"TolerationSeconds\":{}}}",
                shown(key),
                shown(operator),
                shown(value),
                shown(effect),
                item.at("tolerationSeconds").value(),
            );
            item.note(Cause::new("FieldValueDuplicate", item.path(), message));
        }
    }
}

/// Checks a Role or a ClusterRole.
pub fn role(new: &At, namespaced: bool) {
    for rule in new.at("rules").items() {
        let (verbs, urls) = (rule.at("verbs"), rule.at("nonResourceURLs"));
        let (groups, resources) = (rule.at("apiGroups"), rule.at("resources"));
        if verbs.is_empty() {
            verbs.required("verbs must contain at least one value");
        }
        if !urls.is_empty() {
            if namespaced {
                urls.invalid("namespaced rules cannot apply to non-resource URLs");
            }
            if !(groups.is_empty() && resources.is_empty() && rule.at("resourceNames").is_empty()) {
                urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
            }
            continue;
        }
        if groups.is_empty() {
            groups.required("resource rules must supply at least one api group");
        }
        if resources.is_empty() {
            resources.required("resource rules must supply at least one resource");
        }
    }
    let aggregation = new.at("aggregationRule");
    if aggregation.is_set() {
        let selectors = aggregation.at("clusterRoleSelectors");
        if selectors.is_empty() {
            selectors.required("at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for selector in selectors.items() {
            let found = Causes::default();
            At::root(selector.value(), &found).label_selector();
            let wrong = !found.into_inner().is_empty();
            selector.label_selector();
            if wrong {
                // Nothing of it is shown.
                selector.note(Cause::invalid(selector.path(), &Value::Null, "invalid label selector."));
            }
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Checks a RoleBinding or a ClusterRoleBinding.
pub fn binding(new: &At, old: Option<&At>, namespaced: bool) {
    let role = new.at("roleRef");
    let (group, kind, name) = (role.at("apiGroup"), role.at("kind"), role.at("name"));
    if group.text() != RBAC {
        group.unsupported(&[RBAC]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&kind.text()) {
        kind.unsupported(kinds);
    }
    name.need_name(NameRule::Path);
    for subject in new.at("subjects").items() {
        let (kind, group) = (subject.at("kind"), subject.at("apiGroup"));
        let (name, namespace) = (subject.at("name"), subject.at("namespace"));
        name.need();
        match kind.text() {
            "ServiceAccount" => {
                name.name(NameRule::Subdomain);
                if !group.text().is_empty() {
                    group.unsupported(&[""]);
                }
                if !namespaced && namespace.text().is_empty() {
                    namespace.required("");
                }
            }
            "User" | "Group" => {
                if group.text() != RBAC {
                    group.unsupported(&[RBAC]);
                }
            }
            _ => kind.unsupported(&["ServiceAccount", "User", "Group"]),
        }
    }
    if let Some(old) = old
        && old.at("roleRef").value() != role.value()
    {
        // Shown with the names of the internal type.
        let found = json!({"APIGroup": group.text(), "Kind": kind.text(), "Name": name.text()});
        role.note(Cause::invalid(role.path(), &found, "cannot change roleRef"));
    }
}
