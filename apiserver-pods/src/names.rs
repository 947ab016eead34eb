//! Names, labels and selectors, with all that is wrong with them.
//!
//! Inputs: fields of a pod's spec. A text may break several rules at once; each is told. Source: Kubernetes 1.36.

use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::At;
pub(crate) use fleet_apiserver_schema::names::{label, label_value, qualified, subdomain};
use serde_json::Value;

const DNS_SEARCH: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// Longest domain name, in bytes.
const LONGEST_NAME: usize = 253;

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

/// What is wrong with a domain to search names in, which may have underscores.
pub(crate) fn search(text: &str) -> Vec<String> {
    let part = |part: &str| {
        let b = part.strip_prefix('_').unwrap_or(part).as_bytes();
        b.first().is_some_and(|c| lower(*c))
            && b.last().is_some_and(|c| lower(*c))
            && b.iter().all(|c| lower(*c) || matches!(*c, b'-' | b'_'))
    };
    let mut whys = Vec::new();
    if text.len() > LONGEST_NAME {
        whys.push(format!("must be no more than {LONGEST_NAME} characters"));
    }
    if !text.split('.').all(part) {
        whys.push(DNS_SEARCH.to_string());
    }
    whys
}

/// What is wrong with a key of a ConfigMap or Secret.
pub(crate) fn config_key(text: &str) -> Vec<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let mut whys = Vec::new();
    if text.len() > LONGEST_NAME {
        whys.push(format!("must be no more than {LONGEST_NAME} characters"));
    }
    if text.is_empty() || !text.bytes().all(plain) {
        whys.push(CONFIG_KEY.to_string());
    }
    match text {
        "." => whys.push("must not be '.'".to_string()),
        ".." => whys.push("must not be '..'".to_string()),
        _ if text.starts_with("..") => whys.push("must not start with '..'".to_string()),
        _ => {}
    }
    whys
}

/// What is wrong with the name of a port; every port that is named has one.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut whys = Vec::new();
    let mut say = |why: &str| whys.push(why.to_string());
    if text.len() > 15 {
        say("must be no more than 15 characters");
    }
    if text.is_empty() || !text.bytes().all(|b| lower(b) || b == b'-') {
        say("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        say("must contain at least one letter (a-z)");
    }
    if text.contains("--") {
        say("must not contain consecutive hyphens");
    }
    if text.starts_with('-') || text.ends_with('-') {
        say("must not begin or end with a hyphen");
    }
    whys
}

/// Notes each thing that is wrong with a text at a place; the text is shown.
pub(crate) fn tell(at: &At, text: &str, whys: Vec<String>) {
    for why in whys {
        at.note(Cause::invalid(at.path(), &Value::from(text), &why));
    }
}

/// Notes one thing that is wrong with a text at a place; the text is shown.
pub(crate) fn tell_one(at: &At, text: &str, why: &str) {
    at.note(Cause::invalid(at.path(), &Value::from(text), why));
}

/// Notes that a text is there before.
pub(crate) fn duplicate(at: &At, text: &str) {
    let message = format!("Duplicate value: {}", Value::from(text));
    at.note(Cause::new("FieldValueDuplicate", at.path(), message));
}

/// The text of this field is a label of a domain name.
pub(crate) fn must_be_label(at: &At) {
    tell(at, at.text(), label(at.text()));
}

/// The text of this field is a domain name.
pub(crate) fn must_be_subdomain(at: &At) {
    tell(at, at.text(), subdomain(at.text()));
}

/// The text of this field is a key as labels have it.
pub(crate) fn must_be_qualified(at: &At) {
    tell(at, at.text(), qualified(at.text()));
}

/// A domain name, if one is there.
pub(crate) fn may_be_subdomain(at: &At) {
    if !at.text().is_empty() {
        must_be_subdomain(at);
    }
}

/// A map of labels. What is wrong is told at the map.
pub(crate) fn labels(at: &At) {
    for (key, value) in at.entries() {
        tell(at, key, qualified(key));
        tell(at, value.text(), label_value(value.text()));
    }
}

/// A map of annotations. Capitals in their keys do not matter, their size together does.
pub(crate) fn annotations(at: &At) {
    const MOST: usize = 256 * 1024;
    let mut size = 0;
    for (key, value) in at.entries() {
        size += key.len() + value.text().len();
        if key.bytes().any(|b| b.is_ascii_uppercase()) {
            tell(at, key, qualified(&key.to_lowercase()));
        } else {
            tell(at, key, qualified(key));
        }
    }
    if size > MOST {
        at.too_long(MOST);
    }
}

/// A selector of labels, if one is there.
pub(crate) fn selector(at: &At) {
    labels(&at.at("matchLabels"));
    for e in at.at("matchExpressions").items() {
        operator_and_key(&e, false);
        for value in e.at("values").items() {
            tell(&value, value.text(), label_value(value.text()));
        }
    }
}

/// Operator and key of an expression about labels, and how many values it has. `compares`: numbers may be compared.
pub(crate) fn operator_and_key(expression: &At, compares: bool) {
    let (operator, values) = (expression.at("operator"), expression.at("values"));
    match operator.text() {
        "In" | "NotIn" if values.is_empty() => {
            values.required("must be specified when `operator` is 'In' or 'NotIn'");
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Gt" | "Lt" if compares && values.len() != 1 => {
            values.required("must be specified single value when `operator` is 'Lt' or 'Gt'");
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        "Gt" | "Lt" if compares => {}
        other => tell_one(&operator, other, "not a valid selector operator"),
    }
    must_be_qualified(&expression.at("key"));
}

/// Texts, or lists, that something cannot be without.
pub(crate) fn need(at: &At, fields: &[&str]) {
    for name in fields {
        let field = at.at(name);
        if field.is_empty() {
            field.required("");
        }
    }
}

/// One of a few words, which has to be there.
pub(crate) fn need_one_of(at: &At, allowed: &[&str]) {
    match at.text() {
        "" => at.required(""),
        text if allowed.contains(&text) => {}
        _ => at.unsupported(allowed),
    }
}

/// One of a few words, if the field is there at all.
pub(crate) fn if_set_one_of(at: &At, allowed: &[&str]) {
    if at.is_set() && !allowed.contains(&at.text()) {
        at.unsupported(allowed);
    }
}

/// A number within bounds, if one is there.
pub(crate) fn within(at: &At, least: i64, most: i64) {
    if at.number().is_some_and(|n| n < least || n > most) {
        at.invalid(&format!("must be between {least} and {most}, inclusive"));
    }
}

/// The number of a port.
pub(crate) fn port_number(at: &At, port: i64) {
    if !(1..=65_535).contains(&port) {
        let why = "must be between 1 and 65535, inclusive";
        at.note(Cause::invalid(at.path(), &Value::from(port), why));
    }
}

/// The number or the name of a port; where nothing is written it is 0.
pub(crate) fn port(at: &At) {
    match at.value() {
        Value::String(name) => tell(at, name, port_name(name)),
        value => port_number(at, value.as_i64().unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_broken_rule_is_told() {
        assert_eq!(search("_a._b_c"), Vec::<String>::new());
        assert_eq!(search("a_."), [DNS_SEARCH]);
        assert_eq!(config_key("..a"), ["must not start with '..'"]);
        assert_eq!(
            port_name("80--"),
            [
                "must contain at least one letter (a-z)",
                "must not contain consecutive hyphens",
                "must not begin or end with a hyphen"
            ]
        );
    }
}
