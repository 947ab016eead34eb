//! What of an object stays an object or a list, whatever overrides make of it.
//!
//! All that is done with a manifest later reads and writes fields of these. Objects without pods, such as those of custom
//! resources, may have fields of several forms; only what every object has is checked of them.

use serde_json::Value;

use super::path::{Path, Step};
use super::problem::Problem;
use crate::pod_security;

/// What every object has, if it has it at all, as an object; of the first two, each value is a text.
const MAPS: [&str; 2] = ["/metadata/labels", "/metadata/annotations"];
const OBJECTS: [&str; 2] = ["/metadata", "/spec"];

/// Compares an object with the result of the overriders.
pub(super) fn check(before: &Value, after: &Value) -> Result<(), Problem> {
    for pointer in OBJECTS {
        let found = after.pointer(pointer).filter(|found| !found.is_null() && !found.is_object());
        if let Some(found) = found.filter(|_| before.pointer(pointer).is_none_or(Value::is_object)) {
            return Err(Problem::new(pointer, found, "an object"));
        }
    }
    for pointer in MAPS {
        let Some(found) = after.pointer(pointer).filter(|found| !found.is_null()) else { continue };
        if !found.as_object().is_some_and(|map| map.values().all(Value::is_string)) {
            return Err(Problem::new(pointer, found, "an object whose values are texts"));
        }
    }
    match pod_security::has_pods(before) {
        true => same_form(before, after, &mut Path::default()),
        false => Ok(()),
    }
}

/// Objects stay objects, and lists stay lists; a value may go.
fn same_form<'v>(before: &'v Value, after: &Value, path: &mut Path<'v>) -> Result<(), Problem> {
    match (before, after) {
        (Value::Object(known), Value::Object(found)) => {
            for (name, known) in known {
                let Some(found) = found.get(name) else { continue };
                path.push(Step::Field(name));
                same_form(known, found, path)?;
                path.pop();
            }
            Ok(())
        }
        (_, Value::Null) => Ok(()),
        (Value::Object(_), found) => Err(Problem::new(&path.pointer(), found, "an object, as on the hub")),
        (Value::Array(_), found) if !found.is_array() => {
            Err(Problem::new(&path.pointer(), found, "a list, as on the hub"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_stay_objects_and_lists_stay_lists() {
        let job = || {
            json!({"metadata": {"name": "a"}, "spec": {"runPolicy": {"suspend": false}, "tasks": [{"name": "t"}],
                "parallelism": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}})
        };
        let check = |change: &dyn Fn(&mut Value)| {
            let mut after = job();
            change(&mut after);
            check(&job(), &after).map_err(|problem| (problem.field, problem.allowed))
        };
        assert_eq!(check(&|_| {}), Ok(()));
        assert_eq!(check(&|job| job["spec"]["parallelism"] = json!({"any": 1})), Ok(()));
        assert_eq!(check(&|job| job["spec"]["runPolicy"] = Value::Null), Ok(()));
        assert_eq!(check(&|job| job["spec"]["tasks"] = json!([])), Ok(()));
        assert_eq!(check(&|job| job["metadata"]["labels"] = json!({"a": "b"})), Ok(()));
        let refused = |field: &str, allowed: &'static str| Err((field.to_owned(), allowed));
        for value in [json!("x"), json!(["x"]), json!(1), json!(true)] {
            assert_eq!(check(&|job| job["spec"] = value.clone()), refused("/spec", "an object"));
            assert_eq!(
                check(&|job| job["spec"]["runPolicy"] = value.clone()),
                refused("/spec/runPolicy", "an object, as on the hub")
            );
            let texts = "an object whose values are texts";
            assert_eq!(
                check(&|job| job["metadata"]["labels"] = value.clone()),
                refused("/metadata/labels", texts)
            );
            assert_eq!(
                check(&|job| job["metadata"]["annotations"] = json!({"a": value.clone()}))
                    .err()
                    .filter(|_| !value.is_string()),
                refused("/metadata/annotations", texts).err().filter(|_| !value.is_string())
            );
        }
        // A field of a custom resource may have two forms.
        let (schema, any) = (json!({"spec": {"items": {"type": "x"}}}), json!({"spec": {"items": true}}));
        assert!(super::check(&schema, &any).is_ok());
        assert!(super::check(&schema, &json!({"spec": true})).is_err());
        assert_eq!(
            check(&|job| job["spec"]["tasks"] = json!({"0": {}})),
            refused("/spec/tasks", "a list, as on the hub")
        );
    }
}
