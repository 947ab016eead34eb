//! Functions of texts. Places and lengths count characters.

use super::outcome::{Failure, Outcome, failed};
use super::value::Value;
use crate::go_text::short_escape;
use regex::Regex;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Compiled patterns that a thread keeps.
const KEPT: usize = 256;

thread_local! {
    static PATTERNS: RefCell<BTreeMap<String, Rc<Regex>>> = const { RefCell::new(BTreeMap::new()) };
}

pub fn call(name: &str, values: &[Value]) -> Option<Outcome> {
    let [Value::Text(text), args @ ..] = values else { return None };
    let truth = |b: bool| Some(Ok(Value::Bool(b)));
    match (name, args) {
        ("contains", [Value::Text(part)]) => truth(text.contains(&**part)),
        ("startsWith", [Value::Text(part)]) => truth(text.starts_with(&**part)),
        ("endsWith", [Value::Text(part)]) => truth(text.ends_with(&**part)),
        ("matches", [Value::Text(pattern)]) => {
            Some(with_pattern(pattern, |regex| Value::Bool(regex.is_match(text))))
        }
        ("find", [Value::Text(pattern)]) => Some(with_pattern(pattern, |regex| {
            Value::text(regex.find(text).map(|found| found.as_str()).unwrap_or_default())
        })),
        ("findAll", [Value::Text(pattern), rest @ ..]) => {
            let most = match rest {
                [] => usize::MAX,
                // A negative number is no limit.
                [Value::Int(most)] => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => return None,
            };
            Some(with_pattern(pattern, |regex| {
                let found = regex.find_iter(text).take(most);
                Value::list(found.map(|found| Value::text(found.as_str())).collect())
            }))
        }
        ("charAt", [Value::Int(at)]) => Some(char_at(text, *at)),
        ("indexOf", [Value::Text(part)]) => Some(index_of(text, part, 0)),
        ("indexOf", [Value::Text(part), Value::Int(from)]) => Some(index_of(text, part, *from)),
        ("lastIndexOf", [Value::Text(part), rest @ ..]) => match rest {
            [] => Some(last_index_of(text, part, None)),
            [Value::Int(from)] => Some(last_index_of(text, part, Some(*from))),
            _ => None,
        },
        ("lowerAscii", []) => Some(Ok(Value::text(text.to_ascii_lowercase()))),
        ("upperAscii", []) => Some(Ok(Value::text(text.to_ascii_uppercase()))),
        ("trim", []) => Some(Ok(Value::text(text.trim()))),
        ("replace", [Value::Text(old), Value::Text(new), rest @ ..]) => {
            let most = match rest {
                [] => usize::MAX,
                [Value::Int(most)] => usize::try_from(*most).unwrap_or(usize::MAX),
                _ => return None,
            };
            Some(Ok(Value::text(text.replacen(&**old, new, most))))
        }
        ("split", [Value::Text(separator), rest @ ..]) => match rest {
            [] => Some(Ok(split(text, separator, -1))),
            [Value::Int(most)] => Some(Ok(split(text, separator, *most))),
            _ => None,
        },
        ("substring", [Value::Int(from)]) => Some(substring(text, *from, None)),
        ("substring", [Value::Int(from), Value::Int(to)]) => Some(substring(text, *from, Some(*to))),
        ("strings.quote", []) => Some(Ok(Value::text(quote(text)))),
        _ => None,
    }
}

/// Patterns are those of RE2: classes such as `\w` are of ASCII.
fn with_pattern(pattern: &str, then: impl FnOnce(&Regex) -> Value) -> Outcome {
    shared(pattern).map(|regex| then(&regex))
}

/// Compiles a pattern, or takes it from those compiled last: definitions repeat theirs, such as that of quantities.
///
/// # Errors
/// It is none, in the words of the real server.
pub fn compile(pattern: &str) -> Result<Regex, Failure> {
    shared(pattern).map(|regex| Regex::clone(&regex))
}

/// Not a clone, which would have to warm up a cache of its own.
fn shared(pattern: &str) -> Result<Rc<Regex>, Failure> {
    if let Some(regex) = PATTERNS.with_borrow(|kept| kept.get(pattern).cloned()) {
        return Ok(regex);
    }
    let regex = Rc::new(compiled(pattern)?);
    PATTERNS.with_borrow_mut(|kept| {
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(pattern.to_string(), regex.clone());
    });
    Ok(regex)
}

fn compiled(pattern: &str) -> Result<Regex, Failure> {
    let ascii = super::re2::translate(pattern);
    let why = match Regex::new(&ascii) {
        Ok(regex) => return Ok(regex),
        Err(why) => why,
    };
    let why = match &why {
        regex::Error::Syntax(_) if unclosed(pattern) => "missing closing )".to_string(),
        regex::Error::CompiledTooBig(_) => "expression too large".to_string(),
        other => {
            other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_string()
        }
    };
    failed(format!("error parsing regexp: {why}: `{pattern}`"))
}

fn unclosed(pattern: &str) -> bool {
    pattern.matches('(').count() > pattern.matches(')').count()
}

fn char_at(text: &str, at: i64) -> Outcome {
    let found = usize::try_from(at).ok().and_then(|i| {
        let length = text.chars().count();
        (i <= length).then(|| text.chars().nth(i).map(String::from).unwrap_or_default())
    });
    found.map_or_else(|| failed(format!("index out of range: {at}")), |c| Ok(Value::text(c)))
}

/// The byte where a character starts; `None` beyond the end.
fn byte_of(text: &str, at: usize) -> Option<usize> {
    text.char_indices().map(|(i, _)| i).chain([text.len()]).nth(at)
}

fn chars_before(text: &str, byte: usize) -> i64 {
    text[..byte].chars().count() as i64
}

fn index_of(text: &str, part: &str, from: i64) -> Outcome {
    let Ok(place) = usize::try_from(from) else { return failed(format!("index out of range: {from}")) };
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let found = byte_of(text, place).and_then(|start| text[start..].find(part).map(|i| start + i));
    Ok(Value::Int(found.map_or(-1, |byte| chars_before(text, byte))))
}

fn last_index_of(text: &str, part: &str, from: Option<i64>) -> Outcome {
    let length = text.chars().count() as i64;
    let from = from.unwrap_or(length);
    if from < 0 {
        return failed(format!("index out of range: {from}"));
    }
    if part.is_empty() {
        return Ok(Value::Int(from.min(length)));
    }
    if from > length {
        return Ok(Value::Int(-1));
    }
    let found = text.match_indices_overlapping(part).filter(|byte| chars_before(text, *byte) <= from).last();
    Ok(Value::Int(found.map_or(-1, |byte| chars_before(text, byte))))
}

/// All places of a part, also those that overlap.
trait Overlapping {
    fn match_indices_overlapping(&self, part: &str) -> impl Iterator<Item = usize>;
}

impl Overlapping for str {
    fn match_indices_overlapping(&self, part: &str) -> impl Iterator<Item = usize> {
        self.char_indices().map(|(i, _)| i).filter(move |i| self[*i..].starts_with(part))
    }
}

fn split(text: &str, separator: &str, most: i64) -> Value {
    let parts: Vec<Value> = match (most, separator) {
        (0, _) => Vec::new(),
        (most, "") => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let mut parts: Vec<String> = text.chars().map(String::from).collect();
            if parts.len() > most {
                let rest = parts.split_off(most - 1).concat();
                parts.push(rest);
            }
            parts.into_iter().map(Value::text).collect()
        }
        (most, separator) => match usize::try_from(most) {
            Ok(most) => text.splitn(most, separator).map(Value::text).collect(),
            Err(_) => text.split(separator).map(Value::text).collect(),
        },
    };
    Value::list(parts)
}

fn substring(text: &str, from: i64, to: Option<i64>) -> Outcome {
    let length = text.chars().count() as i64;
    let end = to.unwrap_or(length);
    if to.is_some() && from > end {
        return failed(format!("invalid substring range. start: {from}, end: {end}"));
    }
    for at in [from, end] {
        if !(0..=length).contains(&at) {
            return failed(format!("index out of range: {at}"));
        }
    }
    Ok(Value::text(text.chars().skip(from as usize).take((end - from) as usize).collect::<String>()))
}

fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match short_escape(c) {
            Some(escape) => out.push_str(escape),
            None => out.push(c),
        }
    }
    out.push('"');
    out
}
