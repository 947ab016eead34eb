//! The scale subresource: `autoscaling/v1` Scale, mapped to an object's own fields.
//!
//! Inputs: an object and the paths of its resource. Absent on purpose: autoscaling itself.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, k| v.get(k.as_str()))
}

/// The Scale of an object.
pub fn of(r: &Resource, value: &Value) -> ApiResult<Value> {
    let paths = r.scale.as_ref().ok_or_else(ApiError::no_such_resource)?;
    let Some(spec) = at(value, &paths.spec).and_then(Value::as_i64) else {
        let message = format!("the spec replicas field \".{}\" does not exist", paths.spec.join("."));
        return Err(ApiError::internal("InternalError", message));
    };
    let status = at(value, &paths.status).and_then(Value::as_i64).unwrap_or(0);
    let selector = if r.custom {
        at(value, &paths.selector).and_then(Value::as_str).unwrap_or_default().to_string()
    } else {
        selector_text(tree::at(value, &["spec", "selector"]).unwrap_or(&Value::Null))
    };
    let mut meta = json!({"name": tree::meta_text(value, "name")});
    for key in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(v) = tree::at(value, &["metadata", key]) {
            meta[key] = v.clone();
        }
    }
    let mut status = json!({"replicas": status});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    Ok(json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": {"replicas": spec},
        "status": status}))
}

/// A selector as text: its requirements by their keys, the values of each sorted.
fn selector_text(selector: &Value) -> String {
    let expressions = tree::list(selector, &["matchExpressions"]);
    let labels = match selector.get("matchLabels") {
        None if expressions.is_empty() => selector,
        found => found.unwrap_or(&Value::Null),
    };
    let mut parts: Vec<(&str, String)> = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Some(value) = value.as_str() {
            parts.push((key.as_str(), format!("{key}={value}")));
        }
    }
    for expression in expressions {
        let key = tree::text(expression, &["key"]);
        let mut values: Vec<&str> =
            tree::list(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        parts.push((
            key,
            match tree::text(expression, &["operator"]) {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_string(),
                _ => format!("!{key}"),
            },
        ));
    }
    parts.sort_by_key(|(key, _)| *key);
    parts.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

/// The object with the replicas of a Scale.
pub fn set(r: &Resource, old: &Value, scale: &Value) -> ApiResult<Value> {
    let paths = r.scale.as_ref().ok_or_else(ApiError::no_such_resource)?;
    let replicas = match tree::at(scale, &["spec", "replicas"]).filter(|v| !v.is_null()) {
        None => 0,
        Some(found) => found.as_i64().filter(|n| i32::try_from(*n).is_ok()).ok_or_else(|| {
            ApiError::bad_request(format!(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal {found} into Go struct field ScaleSpec.spec.replicas of type int32"
            ))
        })?,
    };
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
        return Err(ApiError::invalid("autoscaling", "Scale", tree::meta_text(old, "name"), vec![cause]));
    }
    let mut new = old.clone();
    let mut slot = &mut new;
    for key in &paths.spec {
        slot = tree::object(slot).entry(key.clone()).or_insert(Value::Null);
    }
    *slot = json!(replicas);
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_told_with_all_they_require() {
        assert_eq!(selector_text(&json!({"b": "1", "a": "2"})), "a=2,b=1");
        assert_eq!(selector_text(&json!(null)), "");
        let expression =
            |key: &str, operator: &str| json!({"key": key, "operator": operator, "values": ["y", "x"]});
        let list = [
            expression("c", "NotIn"),
            expression("a", "In"),
            json!({"key": "d", "operator": "DoesNotExist"}),
        ];
        let selector = json!({"matchLabels": {"b": "1"}, "matchExpressions": list});
        assert_eq!(selector_text(&selector), "a in (x,y),b=1,c notin (x,y),!d");
    }
}
