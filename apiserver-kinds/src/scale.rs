//! The scale subresource: `autoscaling/v1` Scale, mapped to an object's own fields.
//!
//! Inputs: an object and the paths of its resource. Absent on purpose: autoscaling itself.

use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::custom;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::resource::{Resource, ScalePaths};
use serde_json::{Value, json};

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, k| v.get(k.as_str()))
}

/// Replicas of an object that does not say how many it wants, while a patch is applied to its Scale.
const UNSAID: i64 = i32::MIN as i64;

/// What an object says of its scale.
struct Numbers {
    wanted: Option<i64>,
    seen: i64,
    selector: String,
}

/// Reads what an object says of its scale.
///
/// # Errors
/// 500 for a custom resource that has something else at one of the paths, as in the real server.
fn numbers(r: &Resource, paths: &ScalePaths, value: &Value) -> ApiResult<Numbers> {
    if !r.custom {
        let selector = selector_text(tree::at(value, &["spec", "selector"]).unwrap_or(&Value::Null));
        let seen = at(value, &paths.status).and_then(Value::as_i64).unwrap_or(0);
        return Ok(Numbers { wanted: at(value, &paths.spec).and_then(Value::as_i64), seen, selector });
    }
    let unreadable = |why: String| ApiError::internal("", why);
    let wanted = custom::count_at(value, &paths.spec).map_err(unreadable)?;
    let seen = custom::count_at(value, &paths.status).map_err(unreadable)?.unwrap_or(0);
    let selector = match paths.selector.as_slice() {
        [] => "",
        path => custom::text_at(value, path).map_err(unreadable)?,
    };
    // A Scale has 32 bits for them.
    let narrow = |n: i64| i64::from(n as i32);
    Ok(Numbers { wanted: wanted.map(narrow), seen: narrow(seen), selector: selector.to_string() })
}

fn place(paths: &ScalePaths) -> String {
    format!("the spec replicas field \".{}\"", paths.spec.join("."))
}

/// The Scale of an object.
pub fn of(r: &Resource, value: &Value) -> ApiResult<Value> {
    let paths = r.scale.as_ref().ok_or_else(ApiError::no_such_resource)?;
    let numbers = numbers(r, paths, value)?;
    let Some(wanted) = numbers.wanted else {
        let why = format!("{} does not exist", place(paths));
        let message = format!("Internal error occurred: {why}");
        return Err(ApiError::internal("InternalError", message).with_cause(Cause::new("", "", why)));
    };
    Ok(shown(value, wanted, &numbers))
}

/// The Scale of an object that is about to be patched. It may not say yet how many replicas it wants.
pub fn to_patch(r: &Resource, value: &Value) -> ApiResult<Value> {
    let paths = r.scale.as_ref().ok_or_else(ApiError::no_such_resource)?;
    let numbers = numbers(r, paths, value)?;
    Ok(shown(value, numbers.wanted.unwrap_or(UNSAID), &numbers))
}

fn shown(value: &Value, wanted: i64, numbers: &Numbers) -> Value {
    let mut meta = json!({"name": tree::meta_text(value, "name")});
    for key in ["namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(v) = tree::at(value, &["metadata", key]) {
            meta[key] = v.clone();
        }
    }
    let mut status = json!({"replicas": numbers.seen});
    if !numbers.selector.is_empty() {
        status["selector"] = json!(numbers.selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": {"replicas": wanted},
        "status": status})
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

/// The object with the replicas of a Scale. Too few of a custom resource are told where the object has them.
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
    if r.custom {
        numbers(r, paths, old)?;
        if replicas == UNSAID {
            return Err(ApiError::bad_request(format!("{} cannot be empty", place(paths))));
        }
    } else if replicas < 0 {
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
