//! Cells of autoscalers.

use super::text::{age, few, or};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::convert;
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

/// More would fill the line.
const METRICS: usize = 2;
const UNKNOWN: &str = "<unknown>";
/// How Go prints an amount that is not there.
const NIL: &str = "<nil>";

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    // The older version has one metric in a field, and the others in an annotation.
    let mut stored = Value::Null;
    let v = if r.converts() {
        stored.clone_from(v);
        convert::to_stored(r, &mut stored);
        &stored
    } else {
        v
    };
    let least = at(v, &["spec", "minReplicas"]);
    out.extend([
        json!(format!(
            "{}/{}",
            text(v, &["spec", "scaleTargetRef", "kind"]),
            text(v, &["spec", "scaleTargetRef", "name"])
        )),
        or(&targets(v), "<none>"),
        json!(least.map_or("<unset>".into(), Value::to_string)),
        json!(number(v, &["spec", "maxReplicas"])),
        json!(number(v, &["status", "currentReplicas"])),
        json!(age(meta_text(v, "creationTimestamp"), now)),
    ]);
}

/// What an autoscaler sees and wants, metric by metric.
fn targets(v: &Value) -> String {
    let seen = list(v, &["status", "currentMetrics"]);
    let metrics = list(v, &["spec", "metrics"]).iter().enumerate();
    let all: Vec<String> = metrics.map(|(i, m)| metric(m, seen.get(i).unwrap_or(&Value::Null))).collect();
    few(&all, METRICS, ", ")
}

fn metric(spec: &Value, seen: &Value) -> String {
    let source = match text(spec, &["type"]) {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return "<unknown type>".into(),
    };
    let target = |field: &str| amount(at(spec, &[source, "target", field]));
    let current = |field: &str| amount(at(seen, &[source, "current", field]));
    let missing = if at(seen, &[source]).is_some() { NIL } else { UNKNOWN };
    let shown = |amount: Option<String>, missing: &str| amount.unwrap_or_else(|| missing.into());
    let share = |amount: Option<String>| amount.map(|n| format!("{n}%"));
    let name = text(spec, &[source, "name"]);
    match (source, target("averageValue")) {
        ("resource" | "containerResource", Some(wanted)) => {
            format!("{name}: {}/{wanted}", shown(current("averageValue"), missing))
        }
        ("resource" | "containerResource", None) => {
            let found = shown(share(current("averageUtilization")), UNKNOWN);
            format!("{name}: {found}/{}", shown(share(target("averageUtilization")), "<auto>"))
        }
        ("pods", wanted) => format!("{}/{}", shown(current("averageValue"), missing), shown(wanted, NIL)),
        (_, Some(wanted)) => format!("{}/{wanted} (avg)", shown(current("averageValue"), UNKNOWN)),
        (_, None) => format!("{}/{}", shown(current("value"), missing), shown(target("value"), NIL)),
    }
}

fn amount(v: Option<&Value>) -> Option<String> {
    v.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_string))
}
