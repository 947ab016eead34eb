//! Names, keys and values of labels: all that is wrong with one.
//!
//! Inputs: texts. A text may break several rules at once; each is told. Source: Kubernetes 1.36. Absent on purpose: which
//! field has which form.

/// What a valid name of a kind looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    /// DNS-1123 subdomain.
    Subdomain,
    /// DNS-1123 label.
    Label,
    /// Any path segment.
    Path,
}

const DNS_LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const DNS_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
    must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
    character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
    '[a-z]([-a-z0-9]*[a-z0-9])?')";

const KEY: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
    character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Message for a value that labels cannot have.
pub const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Longest label of a domain name, and longest part of a label's key, in bytes.
const LONGEST_LABEL: usize = 63;
/// Longest domain name, in bytes.
const LONGEST_NAME: usize = 253;

fn lower(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let b = text.as_bytes();
    b.first().is_some_and(|c| lower(*c))
        && b.last().is_some_and(|c| lower(*c))
        && b.iter().all(|c| lower(*c) || *c == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key_part(text: &str) -> bool {
    let edge = |c: &u8| c.is_ascii_alphanumeric();
    let b = text.as_bytes();
    b.first().is_some_and(edge)
        && b.last().is_some_and(edge)
        && b.iter().all(|c| edge(c) || matches!(*c, b'-' | b'_' | b'.'))
}

/// What is wrong with a name of this form.
pub fn of(rule: NameRule, text: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => subdomain(text),
        NameRule::Label => label(text),
        NameRule::Path => match text {
            "." | ".." => vec![format!("may not be '{text}'")],
            _ => path_start(text),
        },
    }
}

/// What is wrong with a text that generated names of this form begin with.
pub fn base(rule: NameRule, text: &str) -> Vec<String> {
    if rule == NameRule::Path {
        return path_start(text);
    }
    // A dash at the end is followed by something; with it goes the character before.
    match text.len().checked_sub(2) {
        Some(end) if text.ends_with('-') => of(rule, &format!("{}a", text.get(..end).unwrap_or(text))),
        _ => of(rule, text),
    }
}

/// What a name that is a segment of a path may not have.
fn path_start(text: &str) -> Vec<String> {
    let without = |c: char| text.contains(c).then(|| format!("may not contain '{c}'"));
    ['/', '%'].into_iter().filter_map(without).collect()
}

/// What is wrong with a label of a domain name.
pub fn label(text: &str) -> Vec<String> {
    let mut whys = too_long(text, LONGEST_LABEL);
    if !is_label(text) {
        whys.push(if is_subdomain(text) { "must not contain dots" } else { DNS_LABEL }.to_string());
    }
    whys
}

/// What is wrong with a domain name.
pub fn subdomain(text: &str) -> Vec<String> {
    let mut whys = too_long(text, LONGEST_NAME);
    if !is_subdomain(text) {
        whys.push(DNS_SUBDOMAIN.to_string());
    }
    whys
}

/// What is wrong with a label that begins with a letter (RFC 1035).
pub fn label_1035(text: &str) -> Vec<&'static str> {
    let fits = is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    let long = (text.len() > LONGEST_LABEL).then_some("must be no more than 63 characters");
    long.into_iter().chain((!fits).then_some(LABEL_1035)).collect()
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    let why = (text.len() > most).then(|| format!("must be no more than {most} characters"));
    why.into_iter().collect()
}

/// What is wrong with a key as labels have it: an optional prefix and a name.
pub fn qualified(text: &str) -> Vec<String> {
    let mut whys = Vec::new();
    let mut parts = text.split('/');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if third.is_some() {
        whys.push(format!(
            "a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ));
        return whys;
    }
    let name = second.unwrap_or(first);
    if second.is_some() {
        if first.is_empty() {
            whys.push("prefix part must be non-empty".to_string());
        } else {
            if first.len() > LONGEST_NAME {
                whys.push(format!("prefix part must be no more than {LONGEST_NAME} bytes"));
            }
            if !is_subdomain(first) {
                whys.push(format!("prefix part {DNS_SUBDOMAIN}"));
            }
        }
    }
    if name.is_empty() {
        whys.push("name part must be non-empty".to_string());
    } else if name.len() > LONGEST_LABEL {
        whys.push(format!("name part must be no more than {LONGEST_LABEL} bytes"));
    }
    if !is_key_part(name) {
        whys.push(format!("name part {KEY}"));
    }
    whys
}

/// What is wrong with a value as labels have it.
pub fn label_value(text: &str) -> Vec<String> {
    let mut whys = Vec::new();
    if text.len() > LONGEST_LABEL {
        whys.push(format!("must be no more than {LONGEST_LABEL} bytes"));
    }
    if !text.is_empty() && !is_key_part(text) {
        whys.push(LABEL_VALUE.to_string());
    }
    whys
}

#[cfg(test)]
mod tests;
