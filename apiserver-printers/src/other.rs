//! Cells of the built-in kinds beside the core, workloads, network and storage.

use super::autoscaler;
use super::text::{age, containers, duration, labels, or, texts};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    let n = |path: &[&str]| json!(number(v, path));
    match r.plural.as_str() {
        "leases" => out.extend([json!(text(v, &["spec", "holderIdentity"])), old()]),
        "componentstatuses" => out.extend(component(v)),
        "apiservices" => {
            out.extend(api_service(v));
            out.push(old());
        }
        "priorityclasses" => out.extend([
            n(&["value"]),
            at(v, &["globalDefault"]).cloned().unwrap_or(json!(false)),
            old(),
            json!(text(v, &["preemptionPolicy"])),
        ]),
        "poddisruptionbudgets" => {
            let bound = |k: &str| match at(v, &["spec", k]) {
                Some(Value::String(s)) => json!(s),
                Some(other) => json!(other.to_string()),
                None => json!("N/A"),
            };
            out.extend([
                bound("minAvailable"),
                bound("maxUnavailable"),
                n(&["status", "disruptionsAllowed"]),
                old(),
            ]);
        }
        "rolebindings" | "clusterrolebindings" => {
            let of = |kind: &str| {
                let mine = list(v, &["subjects"]).iter().filter(|s| text(s, &["kind"]) == kind);
                let names = mine.map(|s| match (kind, text(s, &["name"])) {
                    ("ServiceAccount", name) => format!("{}/{name}", text(s, &["namespace"])),
                    (_, name) => name.to_string(),
                });
                json!(names.collect::<Vec<_>>().join(", "))
            };
            let role = format!("{}/{}", text(v, &["roleRef", "kind"]), text(v, &["roleRef", "name"]));
            out.extend([json!(role), old(), of("User"), of("Group"), of("ServiceAccount")]);
        }
        "horizontalpodautoscalers" => autoscaler::fill(r, v, now, out),
        "runtimeclasses" => out.extend([json!(text(v, &["handler"])), old()]),
        "podtemplates" => out.extend([
            containers(v, &["template", "spec", "containers"], "name"),
            containers(v, &["template", "spec", "containers"], "image"),
            labels(at(v, &["template", "metadata", "labels"])),
        ]),
        _ => registered(r, v, now, out),
    }
}

fn registered(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    match r.plural.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => {
            let kind = at(v, &["spec", "paramKind"]);
            let kind = kind.map(|k| format!("{}/{}", text(k, &["apiVersion"]), text(k, &["kind"])));
            let count = list(v, &["spec", "validations"]).len() + list(v, &["spec", "mutations"]).len();
            out.extend([json!(count), or(&kind.unwrap_or_default(), "<unset>"), old()]);
        }
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => {
            out.extend([json!(text(v, &["spec", "policyName"])), or(&parameter(v), "<unset>"), old()]);
        }
        "flowschemas" => {
            let dangling =
                list(v, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "Dangling");
            out.extend([
                json!(text(v, &["spec", "priorityLevelConfiguration", "name"])),
                json!(number(v, &["spec", "matchingPrecedence"])),
                or(text(v, &["spec", "distinguisherMethod", "type"]), "<none>"),
                old(),
                json!(dangling.map_or("?", |c| text(c, &["status"]))),
            ]);
        }
        "prioritylevelconfigurations" => {
            let limited = at(v, &["spec", "limited"]);
            let queuing = limited.and_then(|l| at(l, &["limitResponse", "queuing"]));
            let part = |of: Option<&Value>, k: &str| of.map_or(json!("<none>"), |of| json!(number(of, &[k])));
            out.extend([
                json!(text(v, &["spec", "type"])),
                part(limited, "nominalConcurrencyShares"),
                part(queuing, "queues"),
                part(queuing, "handSize"),
                part(queuing, "queueLengthLimit"),
                old(),
            ]);
        }
        "resourceclaims" => out.extend([json!(claim(v)), old()]),
        "resourceslices" => out.extend([
            json!(text(v, &["spec", "nodeName"])),
            json!(text(v, &["spec", "driver"])),
            json!(text(v, &["spec", "pool", "name"])),
            old(),
        ]),
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            out.extend([json!(list(v, &["webhooks"]).len()), old()]);
        }
        "certificatesigningrequests" => {
            let wanted = at(v, &["spec", "expirationSeconds"]).and_then(Value::as_i64);
            out.extend([
                old(),
                or(text(v, &["spec", "signerName"]), "<none>"),
                json!(text(v, &["spec", "username"])),
                json!(wanted.map_or("<none>".to_string(), duration)),
                json!(request(v)),
            ]);
        }
        _ => out.push(old()),
    }
}

/// What a binding of a policy gives it: `namespace/name`, or a selector as Go prints it.
fn parameter(v: &Value) -> String {
    let Some(param) = at(v, &["spec", "paramRef"]) else { return String::new() };
    let Some(selector) = at(param, &["selector"]).filter(|_| text(param, &["name"]).is_empty()) else {
        return match (text(param, &["namespace"]), text(param, &["name"])) {
            (_, "") => String::new(),
            ("", name) => format!("*/{name}"),
            (namespace, name) => format!("{namespace}/{name}"),
        };
    };
    let labels = at(selector, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten();
    let labels = labels.map(|(k, v)| format!("{k}: {},", v.as_str().unwrap_or_default()));
    let expressions = list(selector, &["matchExpressions"]).iter().map(|e| {
        let (key, operator) = (text(e, &["key"]), text(e, &["operator"]));
        let values = texts(e, &["values"]).join(" ");
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        expressions.collect::<String>()
    )
}

/// What has become of a claim.
fn claim(v: &Value) -> String {
    let is_deleted = at(v, &["metadata", "deletionTimestamp"]).is_some();
    let is_allocated = at(v, &["status", "allocation"]).is_some();
    let is_reserved = is_allocated && !list(v, &["status", "reservedFor"]).is_empty();
    let states = [
        (is_deleted, "deleted"),
        (!is_deleted && !is_allocated, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    states.into_iter().filter(|(holds, _)| *holds).map(|(_, state)| state).collect::<Vec<_>>().join(",")
}

/// What has become of a request for a certificate.
fn request(v: &Value) -> String {
    let has = |kind: &str| list(v, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == kind);
    let decided = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if text(v, &["status", "certificate"]).is_empty() { "" } else { ",Issued" };
    format!("{decided}{failed}{issued}")
}

fn component(v: &Value) -> [Value; 3] {
    let Some(said) = list(v, &["conditions"]).iter().find(|c| text(c, &["type"]) == "Healthy") else {
        return [json!("Unknown"), json!(""), json!("")];
    };
    let status = if text(said, &["status"]) == "True" { "Healthy" } else { "Unhealthy" };
    [json!(status), json!(text(said, &["message"])), json!(text(said, &["error"]))]
}

fn api_service(v: &Value) -> [Value; 2] {
    let service = match at(v, &["spec", "service"]).filter(|service| service.is_object()) {
        Some(service) => format!("{}/{}", text(service, &["namespace"]), text(service, &["name"])),
        None => "Local".to_string(),
    };
    let conditions = list(v, &["status", "conditions"]);
    let available = match conditions.iter().find(|c| text(c, &["type"]) == "Available") {
        None => "Unknown".to_string(),
        Some(c) => match (text(c, &["status"]), text(c, &["reason"])) {
            (status @ "True", _) | (status, "") => status.to_string(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    [json!(service), json!(available)]
}
