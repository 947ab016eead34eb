//! Limit ranges and resource quotas.
//!
//! Inputs: decoded objects, defaults applied.

use fleet_apiserver_pods::requirements::{PIECES, STANDARD};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::validate;
use fleet_resources::quantity;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn amount(name: &str, text: &str) -> Option<i64> {
    quantity::parse(name, text).ok()
}

/// Checks a LimitRange.
pub fn limit_range(new: &At) {
    let limits = new.at("spec.limits");
    let mut types = BTreeSet::new();
    for limit in limits.items() {
        let kind = limit.at("type");
        if kind.text().is_empty() {
            for why in [validate::NO_NAME_PART, validate::QUALIFIED] {
                kind.note(Cause::invalid(kind.path(), &json!(""), why));
            }
        } else if !types.insert(kind.text()) {
            kind.duplicate();
        } else if !matches!(kind.text(), "Pod" | "Container" | "PersistentVolumeClaim") {
            if !kind.text().contains('/') {
                kind.invalid("must be a standard limit type or fully qualified");
            } else {
                kind.qualified();
            }
        }
        if kind.text() == "Pod" {
            for field in ["default", "defaultRequest"] {
                let field = limit.at(field);
                if !field.is_empty() {
                    field.forbidden("may not be specified when `type` is 'Pod'");
                }
            }
        }
        if kind.text() == "PersistentVolumeClaim" {
            let bounds = [limit.at("min"), limit.at("max")];
            if bounds.iter().all(|b| b.value().get("storage").is_none()) {
                limit.at("limits").required(
                    "either minimum or maximum storage value is required, but neither was provided",
                );
            }
        }
        limit_names(&limit, kind.text());
        limit_amounts(&limit, kind.text());
    }
}

/// Names of what is bounded.
fn limit_names(limit: &At, kind: &str) {
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let amounts = limit.at(field);
        if kind == "Pod" && field.starts_with("default") {
            continue;
        }
        for (name, amount) in amounts.entries() {
            resource_name(&amount, name, matches!(kind, "Pod" | "Container"));
        }
    }
}

/// Checks the name of an amount; `contained`: of what containers can have.
pub fn resource_name(amount: &At, name: &str, contained: bool) {
    let note = |why: &str| amount.note(Cause::invalid(amount.path(), &json!(name), why));
    let domain = name.contains('/');
    if !validate::is_qualified(name) {
        note(validate::QUALIFIED);
    } else if !domain && !is_standard(name) {
        note("must be a standard resource type or fully qualified");
    }
    let container = CONTAINER_NAMES.contains(&name) || name.starts_with(HUGE_PAGES);
    let extended = !name.starts_with("requests.") && validate::is_qualified(&format!("requests.{name}"));
    if !contained {
        return;
    }
    if !domain && !container {
        note("must be a standard resource for containers");
    } else if !is_native(name) && !extended {
        note("doesn't follow extended resource name standard");
    }
}

const CONTAINER_NAMES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name) || name.strip_prefix("requests.").unwrap_or(name).starts_with(HUGE_PAGES)
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn limit_amounts(limit: &At, kind: &str) {
    let (least, most) = (limit.at("min"), limit.at("max"));
    // Refused as a whole for pods.
    let defaults = |field: &str| limit.value().get(field).filter(|_| kind != "Pod");
    let given = limit.beside("default", defaults("default"));
    let asked = limit.beside("defaultRequest", defaults("defaultRequest"));
    let text = |map: &At, name: &str| {
        map.value().get(name).and_then(Value::as_str).and_then(|t| Some((amount(name, t)?, t.to_string())))
    };
    // Each pair: what must not be above what, the words for both, whose place is blamed, and whose value is shown.
    let pairs = [
        (&least, "min", &most, "max", &least, &least),
        (&least, "min", &asked, "default request", &asked, &asked),
        (&asked, "default request", &most, "max", &asked, &asked),
        (&asked, "default request", &given, "default limit", &asked, &asked),
        (&least, "min", &given, "default", &given, &least),
        (&given, "default", &most, "max", &given, &most),
    ];
    for (low, low_name, high, high_name, blamed, shown) in pairs {
        for (name, _) in low.entries() {
            let (Some(a), Some(b)) = (text(low, name), text(high, name)) else { continue };
            if a.0 > b.0 {
                let why = format!("{low_name} value {} is greater than {high_name} value {}", a.1, b.1);
                shown.key(name).invalid_as(blamed.key(name).path(), &why);
            }
        }
    }
    // What cannot be given out twice has one amount.
    for (name, request) in
        asked.entries().filter(|(name, _)| !is_native(name) || name.starts_with(HUGE_PAGES))
    {
        if let (Some(a), Some(b)) = (text(&given, name), text(&asked, name))
            && a.0 != b.0
        {
            let why = format!("default value {} must equal to defaultRequest value {} in {name}", a.1, b.1);
            request.invalid(&why);
        }
    }
    let ratios = limit.at("maxLimitRequestRatio");
    for (name, ratio) in ratios.entries() {
        if amount("cpu", ratio.text()).is_some_and(|milli| milli < 1000) {
            ratio.invalid(&format!("ratio {} is less than 1", ratio.text()));
        }
        if let (Some(a), Some(b)) = (text(&least, name), text(&most, name))
            && a.0 > 0
            && amount("cpu", ratio.text())
                .is_some_and(|milli| i128::from(milli) * i128::from(a.0) > i128::from(b.0) * 1000)
        {
            ratio.invalid(&format!(
                "ratio {} is greater than max/min = {:.6}",
                ratio.text(),
                b.0 as f64 / a.0 as f64
            ));
        }
    }
}

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// True for a name that may be bound for the objects of a scope alone.
fn scope_fits(scope: &str, name: &str) -> bool {
    const COMPUTE: [&str; 6] =
        ["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];
    if !STANDARD.contains(&name) && !name.contains(HUGE_PAGES) {
        return true;
    }
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        known if SCOPES.contains(&known) => name == "pods" || COMPUTE.contains(&name),
        _ => true,
    }
}

/// True for scopes of which one leaves out what the other is about.
fn conflicting(chosen: &[&str]) -> bool {
    let both = |a: &str, b: &str| chosen.contains(&a) && chosen.contains(&b);
    both("BestEffort", "NotBestEffort") || both("Terminating", "NotTerminating")
}

/// The amounts of a quota, and of what is used of it.
fn quota_amounts(amounts: &At) {
    for (name, bound) in amounts.entries() {
        bound.quantity();
        let known = STANDARD.contains(&name) || name.contains(HUGE_PAGES) || name.contains('/');
        if !validate::is_qualified(name.strip_prefix("requests.").filter(|n| n.contains('/')).unwrap_or(name))
        {
            bound.note(Cause::invalid(bound.path(), &json!(name), validate::QUALIFIED));
        } else if !known {
            bound.note(Cause::invalid(bound.path(), &json!(name), "must be a standard resource for quota"));
        }
        let whole = PIECES.contains(&name) || (!is_native(name) && !name.starts_with("requests."));
        if whole && amount("cpu", bound.text()).is_some_and(|milli| milli % 1000 != 0) {
            bound.invalid("must be an integer");
        }
    }
}

/// Checks a ResourceQuota.
pub fn resource_quota(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == "status" {
        quota_amounts(&new.at("status.hard"));
        quota_amounts(&new.at("status.used"));
        return;
    }
    let spec = new.at("spec");
    let hard = spec.at("hard");
    quota_amounts(&hard);
    let scopes = spec.at("scopes");
    let chosen: Vec<&str> = scopes.items().map(|s| s.text()).collect();
    for scope in &chosen {
        if !SCOPES.contains(scope) {
            scopes.invalid("unsupported scope");
        }
        for _ in hard.entries().filter(|(name, _)| !scope_fits(scope, name)) {
            scopes.invalid("unsupported scope applied to resource");
        }
    }
    if conflicting(&chosen) {
        scopes.invalid("conflicting scopes");
    }
    scope_selector(&spec);
    if let Some(old) = old {
        let before: BTreeSet<&str> = old.at("spec.scopes").items().map(|s| s.text()).collect();
        if chosen.iter().copied().collect::<BTreeSet<_>>() != before {
            scopes.invalid("field is immutable");
        }
    }
}

/// Scopes that an object has or has not, and that have no values.
const PLAIN: [&str; 5] =
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "Terminating"];

/// The selector of scopes. Paths are told without the number of the expression.
fn scope_selector(spec: &At) {
    let (hard, list) = (spec.at("hard"), spec.at("scopeSelector.matchExpressions"));
    for e in list.items() {
        let (scope, operator, values) = (
            list.beside("scopeName", Some(e.at("scopeName").value())),
            list.beside("operator", Some(e.at("operator").value())),
            list.beside("values", Some(e.at("values").value())),
        );
        if !SCOPES.contains(&scope.text()) {
            scope.invalid("unsupported scope");
        }
        for _ in hard.entries().filter(|(name, _)| !scope_fits(scope.text(), name)) {
            let why = format!("{}: unsupported scope applied to resource", shown_selector(&list));
            list.wrong(&why);
        }
        if PLAIN.contains(&scope.text()) && operator.text() != "Exists" {
            operator.invalid("must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => {
                values.required(
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
                );
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                values.invalid(
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
                );
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => operator.invalid("not a valid selector operator"),
        }
    }
    let chosen: Vec<&str> = list.items().map(|e| e.at("scopeName").text()).collect();
    if conflicting(&chosen) {
        // The list of scopes is shown, which is another one.
        spec.at("scopes").invalid_as(list.path(), "conflicting scopes");
    }
}

/// A selector in the form of the server's own type.
fn shown_selector(list: &At) -> String {
    let one = |e: At| {
        let text = |field: &str| e.at(field).value().to_string();
        format!(
            "{{\"ScopeName\":{},\"Operator\":{},\"Values\":{}}}",
            text("scopeName"),
            text("operator"),
            text("values")
        )
    };
    let expressions: Vec<String> = list.items().map(one).collect();
    format!("{{\"MatchExpressions\":[{}]}}", expressions.join(","))
}
