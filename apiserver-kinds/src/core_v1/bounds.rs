//! Limit ranges and resource quotas.
//!
//! Inputs: decoded objects, defaults applied.

use fleet_apiserver_pods::requirements::{PIECES, STANDARD};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::names;
use fleet_resources::quantity;
use serde_json::json;
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
        let whys = names::qualified(kind.text());
        kind.tell(kind.text(), &whys);
        if whys.is_empty() && !kind.text().contains('/') && !TYPES.contains(&kind.text()) {
            kind.invalid("must be a standard limit type or fully qualified");
        }
        if !types.insert(kind.text()) {
            kind.note(Cause::new(
                "FieldValueDuplicate",
                kind.path(),
                format!("Duplicate value: {}", json!(kind.text())),
            ));
        }
        limit_names(&limit, kind.text());
        limit_amounts(&limit, kind.text());
    }
}

const TYPES: [&str; 3] = ["Container", "PersistentVolumeClaim", "Pod"];

/// Names of what is bounded, and what a type of objects cannot be without or cannot have.
fn limit_names(limit: &At, kind: &str) {
    let contained = matches!(kind, "Pod" | "Container");
    let check = |field: &str| {
        for (name, amount) in limit.at(field).entries() {
            resource_name(&amount, name, contained);
        }
    };
    check("max");
    check("min");
    for field in ["default", "defaultRequest"] {
        if kind != "Pod" {
            check(field);
        } else if !limit.at(field).is_empty() {
            limit.at(field).forbidden("may not be specified when `type` is 'Pod'");
        }
    }
    let unbound = ["min", "max"].iter().all(|field| limit.at(field).value().get("storage").is_none());
    if kind == "PersistentVolumeClaim" && unbound {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        limit.at("limits").required(why);
    }
    check("maxLimitRequestRatio");
}

/// Checks the name of an amount; `contained`: of what containers can have.
pub fn resource_name(amount: &At, name: &str, contained: bool) {
    let note = |why: &str| amount.tell(name, &[why]);
    let domain = name.contains('/');
    standard_name(amount, name);
    let container = CONTAINER_NAMES.contains(&name) || name.starts_with(HUGE_PAGES);
    if !contained {
        return;
    }
    if !domain && !container {
        note("must be a standard resource for containers");
    } else if !is_native(name) && !is_extended(name) {
        note("doesn't follow extended resource name standard");
    }
}

/// A name that is standard, or has a domain.
fn standard_name(amount: &At, name: &str) {
    let whys = names::qualified(name);
    amount.tell(name, &whys);
    if whys.is_empty() && !name.contains('/') && !is_standard(name) {
        amount.tell(name, &["must be a standard resource type or fully qualified"]);
    }
}

/// Checks an amount of something: not less than none, and whole where pieces are counted.
pub fn quantity_value(at: &At, name: &str) {
    at.quantity();
    let pieces = PIECES.contains(&name) || is_extended(name);
    if pieces && amount("cpu", at.text()).is_some_and(|milli| milli % 1000 != 0) {
        at.invalid("must be an integer");
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

/// What only some nodes have, which has a domain of its own.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified(&format!("requests.{name}")).is_empty()
}

/// One amount by its name: its number and its text.
fn named<'v>(amounts: &At<'v, '_>, name: &str) -> Option<(i64, &'v str)> {
    let text = amounts.value().get(name)?.as_str()?;
    Some((amount(name, text)?, text))
}

/// How the amounts of each name go together.
fn limit_amounts(limit: &At, kind: &str) {
    let (least, most) = (limit.at("min"), limit.at("max"));
    // Refused as a whole for pods.
    let defaults = |field: &str| limit.value().get(field).filter(|_| kind != "Pod");
    let given = limit.beside("default", defaults("default"));
    let asked = limit.beside("defaultRequest", defaults("defaultRequest"));
    let ratios = limit.at("maxLimitRequestRatio");
    // Each pair: what must not be above what, the words for both, whose place is blamed, and whose value is shown.
    let pairs = [
        (&least, "min", &most, "max", &least, &least),
        (&least, "min", &asked, "default request", &asked, &asked),
        (&asked, "default request", &most, "max", &asked, &asked),
        (&asked, "default request", &given, "default limit", &asked, &asked),
        (&least, "min", &given, "default", &given, &least),
        (&given, "default", &most, "max", &given, &most),
    ];
    let all = [&most, &least, &given, &asked, &ratios];
    let all: BTreeSet<&str> = all.iter().flat_map(|map| map.entries()).map(|(name, _)| name).collect();
    for name in all {
        for (low, low_name, high, high_name, blamed, shown) in pairs {
            let (Some(a), Some(b)) = (named(low, name), named(high, name)) else { continue };
            if a.0 > b.0 {
                let why = format!("{low_name} value {} is greater than {high_name} value {}", a.1, b.1);
                shown.key(name).invalid_as(blamed.key(name).path(), &why);
            }
        }
        limit_ratio(&ratios.key(name), named(&least, name), named(&most, name));
        // What cannot be given out twice has one amount.
        let single = !is_native(name) || name.starts_with(HUGE_PAGES);
        if let (true, Some(a), Some(b)) = (single, named(&given, name), named(&asked, name))
            && a.0 != b.0
        {
            let why = format!("default value {} must equal to defaultRequest value {} in {name}", a.1, b.1);
            asked.key(name).invalid(&why);
        }
    }
}

fn limit_ratio(ratio: &At, least: Option<(i64, &str)>, most: Option<(i64, &str)>) {
    let Some(milli) = amount("cpu", ratio.text()) else { return };
    if milli < 1000 {
        ratio.invalid(&format!("ratio {} is less than 1", ratio.text()));
    }
    let (Some((least, _)), Some((most, _))) = (least, most) else { return };
    if least > 0 && i128::from(milli) * i128::from(least) > i128::from(most) * 1000 {
        let bound = most as f64 / least as f64;
        ratio.invalid(&format!("ratio {} is greater than max/min = {bound:.6}", ratio.text()));
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
    if (!STANDARD.contains(&name) || name == "storage") && !name.contains(HUGE_PAGES) {
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
        standard_name(&bound, name);
        let known = (STANDARD.contains(&name) && name != "storage")
            || name.strip_prefix("requests.").unwrap_or(name).starts_with(HUGE_PAGES);
        if !name.contains('/') && !known {
            bound.tell(name, &["must be a standard resource for quota"]);
        }
        quantity_value(&bound, name);
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
