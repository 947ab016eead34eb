//! Kinds of the core group except pods: configuration, namespaces, nodes, accounts, ranges and quotas, events.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::placing;
use base64::Engine;
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::validate;
use fleet_resources::quantity;
use serde_json::{Value, json};

/// Most bytes of the values of a ConfigMap or Secret.
const MOST_BYTES: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

fn keys(map: &At) {
    for (key, entry) in map.entries() {
        if let Some(why) = validate::config_key(key) {
            entry.note(Cause::invalid(entry.path(), &json!(key), why));
        }
    }
}

/// Checks a ConfigMap.
pub fn config_map(new: &At, old: Option<&At>) {
    let (data, binary) = (new.at("data"), new.at("binaryData"));
    keys(&data);
    keys(&binary);
    for (key, entry) in data.entries() {
        if binary.value().get(key).is_some() {
            entry.note(Cause::invalid(entry.path(), &json!(key), "duplicate of key present in binaryData"));
        }
    }
    let text: usize = data.entries().map(|(_, v)| v.text().len()).sum();
    let bytes: usize = binary.entries().map(|(_, v)| decoded_length(v.text())).sum();
    if text + bytes > MOST_BYTES {
        let why = format!("Too long: may not be more than {MOST_BYTES} bytes");
        new.note(Cause::new("FieldValueTooLong", "[]", why));
    }
    frozen(new, old, &["data", "binaryData"]);
}

fn decoded_length(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count().min(text.len() / 4 * 3)
}

fn frozen(new: &At, old: Option<&At>, fields: &[&str]) {
    let Some(old) = old.filter(|old| old.at("immutable").is_true()) else { return };
    if !new.at("immutable").is_true() {
        new.at("immutable").forbidden(FROZEN);
    }
    for field in fields {
        if !same(new.at(field).value(), old.at(field).value()) {
            new.at(field).forbidden(FROZEN);
        }
    }
}

/// Checks a Secret.
pub fn secret(new: &At, old: Option<&At>) {
    let data = new.at("data");
    keys(&data);
    let bytes: usize = data.entries().map(|(_, v)| decoded_length(v.text())).sum();
    if bytes > MOST_BYTES {
        data.too_long(MOST_BYTES);
    }
    let need = |key: &str| {
        let entry = data.key(key);
        if !entry.is_set() {
            entry.required("");
        }
        entry.is_set()
    };
    match new.at("type").text() {
        "kubernetes.io/service-account-token" => {
            let annotations = new.at("metadata.annotations");
            let account = annotations.key("kubernetes.io/service-account.name");
            if account.text().is_empty() {
                account.required("");
            }
        }
        "kubernetes.io/dockercfg" => document(&data, ".dockercfg", need(".dockercfg")),
        "kubernetes.io/dockerconfigjson" => document(&data, ".dockerconfigjson", need(".dockerconfigjson")),
        "kubernetes.io/basic-auth" => {
            let some = ["username", "password"].iter().any(|key| data.key(key).is_set());
            if !some {
                need("username");
                need("password");
            }
        }
        "kubernetes.io/ssh-auth" => {
            need("ssh-privatekey");
        }
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        _ => {}
    }
    if let Some(old) = old {
        let kind = new.at("type");
        kind.same_as(&old.at("type"));
    }
    frozen(new, old, &["data"]);
}

fn document(data: &At, key: &str, there: bool) {
    if !there {
        return;
    }
    let entry = data.key(key);
    let bytes = base64::engine::general_purpose::STANDARD.decode(entry.text()).unwrap_or_default();
    if let Err(e) = serde_json::from_slice::<Value>(&bytes) {
        entry.note(Cause::invalid(entry.path(), &json!("<secret contents redacted>"), &e.to_string()));
    }
}

/// Checks a Namespace.
pub fn namespace(new: &At) {
    for finalizer in new.at("spec.finalizers").items() {
        if !finalizer.text().contains('/') && finalizer.text() != "kubernetes" {
            finalizer.invalid("name is neither a standard finalizer name nor is it fully qualified");
        }
        finalizer.qualified();
    }
}

/// Checks a Node.
pub fn node(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    // A node's taints are told at a place where they are not.
    placing::taints(&new.at("metadata").beside("taints", spec.value().get("taints")));
    let (addresses, mut seen) = (new.at("status.addresses"), std::collections::BTreeSet::new());
    for address in addresses.items() {
        if !seen.insert((address.at("type").text(), address.at("address").text())) {
            address.duplicate();
        }
    }
    for part in ["status.capacity", "status.allocatable"] {
        let amounts = new.at(part);
        for (name, amount) in amounts.entries() {
            amount.quantity();
            if !validate::is_qualified(name) {
                amount.note(Cause::invalid(amount.path(), &json!(name), validate::QUALIFIED));
            }
        }
    }
    pod_ranges(&spec.at("podCIDRs"));
    let Some(old) = old else { return };
    let before = old.at("spec");
    if !before.at("podCIDRs").is_empty() && !same(spec.at("podCIDRs").value(), before.at("podCIDRs").value())
    {
        spec.at("podCIDRs").forbidden("node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = before.at("providerID");
    if !provider.text().is_empty() && spec.at("providerID").text() != provider.text() {
        spec.at("providerID").forbidden("node updates may not change providerID except from \"\" to valid");
    }
    let source = spec.at("configSource");
    if source.is_set() {
        source.forbidden("configSource is not allowed");
    }
}

/// The ranges of addresses of a node's pods: one, or one of each family.
fn pod_ranges(ranges: &At) {
    let network = |text: &str| {
        let (ip, bits) = text.split_once('/')?;
        let (ip, bits) = (ip.parse::<std::net::IpAddr>().ok()?, bits.parse::<u32>().ok()?);
        (bits <= if ip.is_ipv4() { 32 } else { 128 }).then(|| ip.is_ipv4())
    };
    let families: Vec<Option<bool>> = ranges.items().map(|range| network(range.text())).collect();
    for (range, family) in ranges.items().zip(&families) {
        if family.is_none() {
            range.invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        }
    }
    if ranges.len() > 2 || (ranges.len() == 2 && families[0] == families[1]) {
        ranges.invalid("may specify no more than one CIDR for each IP family");
    }
}

/// Checks a ServiceAccount.
pub fn service_account(new: &At) {
    for secret in new.at("imagePullSecrets").items() {
        secret.at("name").name(validate::NameRule::Subdomain);
    }
}

fn amount(name: &str, text: &str) -> Option<i64> {
    quantity::parse(name, text).ok()
}

/// Checks a LimitRange.
pub fn limit_range(new: &At) {
    let limits = new.at("spec.limits");
    let mut types = std::collections::BTreeSet::new();
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
        limit_amounts(&limit);
    }
}

fn limit_amounts(limit: &At) {
    let (least, most) = (limit.at("min"), limit.at("max"));
    let (given, asked) = (limit.at("default"), limit.at("defaultRequest"));
    let text = |map: &At, name: &str| {
        map.value().get(name).and_then(Value::as_str).and_then(|t| Some((amount(name, t)?, t.to_string())))
    };
    // Each pair: what must not be above what, and the words for both.
    let pairs = [
        (&least, "min", &most, "max", &least),
        (&least, "min", &asked, "default request", &asked),
        (&asked, "default request", &most, "max", &asked),
        (&asked, "default request", &given, "default limit", &asked),
        (&least, "min", &given, "default", &given),
        (&given, "default", &most, "max", &given),
    ];
    for (low, low_name, high, high_name, blamed) in pairs {
        for (name, _) in low.entries() {
            let (Some(a), Some(b)) = (text(low, name), text(high, name)) else { continue };
            if a.0 > b.0 {
                let why = format!("{low_name} value {} is greater than {high_name} value {}", a.1, b.1);
                blamed.key(name).invalid(&why);
            }
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

/// Names a quota may bound without a domain.
const QUOTA_NAMES: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
    "storage",
];
/// Of those, what is counted and not measured.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
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
    if !QUOTA_NAMES.contains(&name) && !name.contains("hugepages-") {
        return true;
    }
    match scope {
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => name == "pods" || COMPUTE.contains(&name),
    }
}

/// Checks a ResourceQuota.
pub fn resource_quota(new: &At, old: Option<&At>) {
    let spec = new.at("spec");
    let hard = spec.at("hard");
    for (name, bound) in hard.entries() {
        bound.quantity();
        let known = QUOTA_NAMES.contains(&name) || name.contains("hugepages-") || name.contains('/');
        if !validate::is_qualified(name.strip_prefix("requests.").filter(|n| n.contains('/')).unwrap_or(name))
        {
            bound.note(Cause::invalid(bound.path(), &json!(name), validate::QUALIFIED));
        } else if !known {
            bound.note(Cause::invalid(bound.path(), &json!(name), "must be a standard resource for quota"));
        }
        let whole = COUNTED.contains(&name) || name.starts_with("count/");
        if whole && amount("cpu", bound.text()).is_some_and(|milli| milli % 1000 != 0) {
            bound.invalid("must be an integer");
        }
    }
    let scopes = spec.at("scopes");
    let chosen: Vec<&str> = scopes.items().map(|s| s.text()).collect();
    if chosen.iter().any(|s| !SCOPES.contains(s)) {
        scopes.invalid("unsupported scope");
    }
    let both = |a: &str, b: &str| chosen.contains(&a) && chosen.contains(&b);
    if both("BestEffort", "NotBestEffort") || both("Terminating", "NotTerminating") {
        scopes.invalid("conflicting scopes");
    }
    if chosen.iter().any(|scope| hard.entries().any(|(name, _)| !scope_fits(scope, name))) {
        scopes.invalid("unsupported scope applied to resource");
    }
    let selected = spec.at("scopeSelector.matchExpressions");
    for e in selected.items() {
        let (scope, operator, values) = (e.at("scopeName"), e.at("operator"), e.at("values"));
        if !SCOPES.contains(&scope.text()) {
            scope.invalid("unsupported scope");
        } else if hard.entries().any(|(name, _)| !scope_fits(scope.text(), name)) {
            selected.invalid("unsupported scope applied to resource");
        }
        let priority = matches!(scope.text(), "PriorityClass" | "VolumeAttributesClass");
        match operator.text() {
            "In" | "NotIn" if !priority => {
                operator.invalid("must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
            }
            "In" | "NotIn" if values.is_empty() => {
                // Told without the number of the expression.
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                selected.beside("values", None).required(why);
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
    if let Some(old) = old {
        let before: std::collections::BTreeSet<&str> =
            old.at("spec.scopes").items().map(|s| s.text()).collect();
        if chosen.iter().copied().collect::<std::collections::BTreeSet<_>>() != before {
            scopes.invalid("field is immutable");
        }
    }
}

/// More of the same, seen again.
fn series(new: &At) {
    let series = new.at("series");
    if series.is_set() {
        if series.at("count").number().unwrap_or(0) < 2 {
            series.at("count").invalid("should be at least 2");
        }
        series.at("lastObservedTime").need();
    }
}

/// What only the older group has is not set through the newer one.
fn outdated(new: &At) {
    for (field, shown) in [
        ("count", "deprecatedCount"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
    ] {
        let found = new.at(field);
        if found.is_set() && *found.value() != json!(0) {
            new.note(Cause::invalid(shown, found.value(), "needs to be unset"));
        }
    }
    let source = new.at("source");
    if !source.at("component").text().is_empty() || !source.at("host").text().is_empty() {
        new.note(Cause::invalid("deprecatedSource", source.value(), "needs to be unset"));
    }
}

/// Checks an Event; `modern`: it came by the newer group.
pub fn event(new: &At, old: Option<&At>, modern: bool) {
    // Stored in the core form, whichever group it came by.
    let of = new.at("involvedObject.namespace").text();
    let namespace = new.at("metadata.namespace").text();
    let right = if of.is_empty() { matches!(namespace, "default" | "kube-system") } else { of == namespace };
    // The newer group does not ask.
    if !right && !modern {
        new.note(Cause::invalid("involvedObject.namespace", &json!(of), "does not match event.namespace"));
    }
    if !modern {
        return;
    }
    let (reason, action, note) = (new.at("reason"), new.at("action"), new.at("message"));
    series(new);
    if note.text().len() > 1024 {
        new.note(Cause::invalid("note", &json!(""), "can have at most 1024 characters"));
    }
    let Some(old) = old else {
        new.at("eventTime").need();
        outdated(new);
        let controller = new.at("reportingComponent");
        if controller.text().is_empty() {
            new.note(Cause::required("reportingController", ""));
        } else if !validate::is_qualified(controller.text()) {
            new.note(Cause::invalid("reportingController", controller.value(), validate::QUALIFIED));
        }
        let instance = new.at("reportingInstance");
        instance.need();
        if instance.text().len() > 128 {
            instance.invalid("can have at most 128 characters");
        }
        for text in [&action, &reason] {
            text.need();
            if text.text().len() > 128 {
                text.invalid("can have at most 128 characters");
            }
        }
        let kind = new.at("type");
        if !matches!(kind.text(), "Normal" | "Warning") {
            let why = format!("has invalid value: {}", kind.text());
            kind.note(Cause::invalid(kind.path(), &json!(""), &why));
        }
        return;
    };
    for field in [
        "involvedObject",
        "reason",
        "action",
        "message",
        "type",
        "eventTime",
        "reportingComponent",
        "reportingInstance",
    ] {
        let shown = match field {
            "involvedObject" => "regarding",
            "message" => "note",
            "reportingComponent" => "reportingController",
            other => other,
        };
        if !same(new.at(field).value(), old.at(field).value()) {
            new.note(Cause::invalid(shown, new.at(field).value(), "field is immutable"));
        }
    }
}
