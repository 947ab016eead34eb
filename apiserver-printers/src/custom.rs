//! Cells of custom resources.
//!
//! Inputs: a printer column and an object. Values of another type than the column's have no cell, as in the real server.

use crate::text::duration;
use fleet_apiserver_schema::resource::Column;
use fleet_apiserver_schema::{go_text, times};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The cell of a column; null if the object has nothing for it.
pub fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    let Some(found) = column.path.first(object) else { return Value::Null };
    match (column.ty.as_str(), &*found) {
        ("string", Value::Null) => json!("<no value>"),
        ("string", part @ (Value::Object(_) | Value::Array(_))) => json!(go_text::json(part)),
        ("string", single) => json!(go_text::printed(single)),
        ("integer", Value::Number(n)) => {
            n.as_i64().or_else(|| n.as_f64().map(|f| f as i64)).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(n)) => number(n),
        ("boolean", Value::Bool(is)) => json!(is),
        ("date", Value::String(text)) => json!(age(text, now)),
        _ => Value::Null,
    }
}

/// A number without the zero that a whole float would get.
fn number(n: &serde_json::Number) -> Value {
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    match n.as_f64() {
        Some(f) if n.is_f64() && f.fract() == 0.0 && f.abs() <= WHOLE => Value::from(f as i64),
        _ => Value::Number(n.clone()),
    }
}

fn age(text: &str, now: Timestamp) -> String {
    match (text, times::read(text)) {
        ("" | "null", _) => "<unknown>".into(),
        (_, Some(then)) => duration(now.as_second() - then.as_second()),
        (_, None) => "<invalid>".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet_apiserver_schema::jsonpath::JsonPath;

    fn shown(ty: &str, value: Value) -> Value {
        let column = Column {
            name: "C".into(),
            ty: ty.into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            path: JsonPath::new(".v").expect("a path"),
        };
        let now = "2026-01-02T03:04:05Z".parse().expect("a time");
        cell(&column, &json!({"v": value}), now)
    }

    #[test]
    fn cells_have_the_type_of_their_column() {
        for (ty, value, want) in [
            ("string", json!("a"), json!("a")),
            ("string", json!(5), json!("5")),
            ("string", json!(2.0), json!("2")),
            ("string", json!(true), json!("true")),
            ("string", json!(null), json!("<no value>")),
            ("string", json!(["<a>", 1]), json!(r#"["\u003ca\u003e",1]"#)),
            ("integer", json!(7), json!(7)),
            ("integer", json!(7.9), json!(7)),
            ("integer", json!("7"), json!(null)),
            ("number", json!(1.5), json!(1.5)),
            ("number", json!(2.0), json!(2)),
            ("number", json!("1.5"), json!(null)),
            ("boolean", json!(false), json!(false)),
            ("boolean", json!("false"), json!(null)),
            ("date", json!("2026-01-02T03:03:00Z"), json!("65s")),
            ("date", json!("yesterday"), json!("<invalid>")),
            ("date", json!(""), json!("<unknown>")),
            ("date", json!(5), json!(null)),
        ] {
            let cell = shown(ty, value.clone());
            assert_eq!(cell.to_string(), want.to_string(), "{ty} {value}");
        }
    }
}
