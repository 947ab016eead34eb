//! JSONPath as printer columns use it.
//!
//! Inputs: paths such as `.status.conditions[?(@.type=="Ready")].status` or `.items[-1:].name`.
//! Absent on purpose: recursive descent, unions of names, script expressions.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>),
    Wildcard,
    Filter(Vec<String>, Op, Value),
    Exists(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Op {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A compiled path.
#[derive(Debug, Clone, Default)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Compiles a path, with or without braces and leading `$`.
    pub fn new(text: &str) -> Option<JsonPath> {
        let text = text.trim();
        let text = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
        let chars: Vec<char> = text.chars().collect();
        let mut at = usize::from(chars.first() == Some(&'$'));
        let mut steps = Vec::new();
        while at < chars.len() {
            match chars[at] {
                '.' => {
                    at += 1;
                    if chars.get(at) == Some(&'*') {
                        at += 1;
                        steps.push(Step::Wildcard);
                        continue;
                    }
                    let name = name(&chars, &mut at);
                    if !name.is_empty() {
                        steps.push(Step::Field(name));
                    } else if at < chars.len() && chars[at] != '[' {
                        return None;
                    }
                }
                '[' => {
                    let end = close(&chars, at)?;
                    let body: String = chars[at + 1..end].iter().collect();
                    steps.push(bracket(body.trim())?);
                    at = end + 1;
                }
                _ if steps.is_empty() => {
                    let name = name(&chars, &mut at);
                    if name.is_empty() {
                        return None;
                    }
                    steps.push(Step::Field(name));
                }
                _ => return None,
            }
        }
        Some(JsonPath(steps))
    }

    /// All values the path leads to.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut current = vec![value];
        for step in &self.0 {
            let mut next = Vec::new();
            for v in current {
                match (step, v) {
                    (Step::Field(name), Value::Object(m)) => next.extend(m.get(name)),
                    (Step::Index(i), Value::Array(a)) => {
                        let i = if *i < 0 { *i + a.len() as i64 } else { *i };
                        next.extend(usize::try_from(i).ok().and_then(|i| a.get(i)));
                    }
                    (Step::Slice(from, to), Value::Array(a)) => {
                        let n = a.len() as i64;
                        let clamp = |i: i64| (if i < 0 { i + n } else { i }).clamp(0, n) as usize;
                        let (from, to) = (clamp(from.unwrap_or(0)), clamp(to.unwrap_or(n)));
                        next.extend(a.get(from..to).unwrap_or_default());
                    }
                    (Step::Wildcard, Value::Array(a)) => next.extend(a),
                    (Step::Wildcard, Value::Object(m)) => next.extend(m.values()),
                    (Step::Filter(path, op, want), Value::Array(a)) => {
                        next.extend(
                            a.iter().filter(|x| walk(x, path).is_some_and(|got| holds(got, *op, want))),
                        );
                    }
                    (Step::Exists(path), Value::Array(a)) => {
                        next.extend(a.iter().filter(|x| walk(x, path).is_some()));
                    }
                    _ => {}
                }
            }
            current = next;
        }
        current
    }

    /// Field names when the path is a plain chain of fields.
    pub fn fields(&self) -> Option<Vec<String>> {
        self.0.iter().map(|s| if let Step::Field(f) = s { Some(f.clone()) } else { None }).collect()
    }
}

fn name(chars: &[char], at: &mut usize) -> String {
    let mut out = String::new();
    while let Some(&c) = chars.get(*at) {
        if c == '\\' {
            *at += 1;
            out.extend(chars.get(*at));
        } else if c == '.' || c == '[' {
            break;
        } else {
            out.push(c);
        }
        *at += 1;
    }
    out
}

fn close(chars: &[char], open: usize) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (i, &c) in chars.iter().enumerate().skip(open) {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

fn bracket(body: &str) -> Option<Step> {
    if body == "*" {
        return Some(Step::Wildcard);
    }
    if let Some(inner) = body.strip_prefix("?(").and_then(|b| b.strip_suffix(')')) {
        return filter(inner.trim());
    }
    for q in ['\'', '"'] {
        if let Some(inner) = body.strip_prefix(q).and_then(|b| b.strip_suffix(q)) {
            return Some(Step::Field(inner.to_string()));
        }
    }
    if let Some((from, to)) = body.split_once(':') {
        let parse = |s: &str| if s.is_empty() { Some(None) } else { s.parse().ok().map(Some) };
        return Some(Step::Slice(parse(from.trim())?, parse(to.trim())?));
    }
    body.parse().ok().map(Step::Index)
}

fn filter(inner: &str) -> Option<Step> {
    for (text, op) in
        [("==", Op::Eq), ("!=", Op::Ne), ("<=", Op::Le), (">=", Op::Ge), ("<", Op::Lt), (">", Op::Gt)]
    {
        if let Some((left, right)) = inner.split_once(text) {
            let path = JsonPath::new(left.trim().strip_prefix('@')?)?.fields()?;
            let right = right.trim();
            let want = match right.strip_prefix('\'').and_then(|r| r.strip_suffix('\'')) {
                Some(s) => Value::String(s.to_string()),
                None => serde_json::from_str(right).ok()?,
            };
            return Some(Step::Filter(path, op, want));
        }
    }
    Some(Step::Exists(JsonPath::new(inner.strip_prefix('@')?)?.fields()?))
}

fn walk<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |v, k| v.get(k.as_str()))
}

fn holds(got: &Value, op: Op, want: &Value) -> bool {
    let order = match (got, want) {
        (Value::String(a), Value::String(b)) => a.partial_cmp(b),
        (a, b) if a == b => Some(std::cmp::Ordering::Equal),
        (a, b) => a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b)),
    };
    use std::cmp::Ordering::{Equal, Greater, Less};
    match op {
        Op::Eq => order == Some(Equal),
        Op::Ne => order != Some(Equal),
        Op::Lt => order == Some(Less),
        Op::Le => matches!(order, Some(Less | Equal)),
        Op::Gt => order == Some(Greater),
        Op::Ge => matches!(order, Some(Greater | Equal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn column_paths() {
        let v = json!({"a": {"b.c": 1}, "status": {"conditions": [
            {"type": "Created", "status": "True"}, {"type": "Ready", "status": "False"}]}});
        let get = |p: &str| JsonPath::new(p).unwrap().find(&v).first().map(|v| v.to_string());
        assert_eq!(get(r#".status.conditions[?(@.type=="Ready")].status"#).unwrap(), "\"False\"");
        assert_eq!(get(".status.conditions[-1:].type").unwrap(), "\"Ready\"");
        assert_eq!(get(".status.conditions[0].type").unwrap(), "\"Created\"");
        assert_eq!(get(r"{.a.b\.c}").unwrap(), "1");
        assert_eq!(get(".a['b.c']").unwrap(), "1");
        assert_eq!(get(".nope.x"), None);
        assert!(JsonPath::new(".a[").is_none());
    }
}
