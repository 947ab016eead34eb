//! Named formats: `format.dns1123Label().validate(text)` says what is wrong with a text.

use super::convert::parse_time;
use super::outcome::Outcome;
use super::texts;
use super::url::Url;
use super::value::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::objects::Opaque;
use std::sync::Arc;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const OLD_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// A format by its name.
#[derive(Debug, PartialEq, Eq)]
struct Format(&'static str);

impl Opaque for Format {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.NamedFormat"
    }
}

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "qualifiedName",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

pub fn call(name: &str, values: &[Value]) -> Option<Outcome> {
    let named = |name: &str| {
        let known = NAMES.into_iter().find(|known| *known == name)?;
        Some(Value::Library(Arc::new(Format(known))))
    };
    match (name, values) {
        ("format.named", [Value::Text(name)]) => Some(Ok(Value::Optional(named(name).map(Arc::new)))),
        ("validate", [Value::Library(format), Value::Text(text)]) => {
            let Format(name) = format.downcast_ref::<Format>()?;
            let wrong = problems(name, text);
            let list = (!wrong.is_empty()).then(|| Value::list(wrong.into_iter().map(Value::text).collect()));
            Some(Ok(Value::Optional(list.map(Arc::new))))
        }
        (name, []) => named(name.strip_prefix("format.")?).map(Ok),
        _ => None,
    }
}

fn problems(format: &str, text: &str) -> Vec<String> {
    let one = |wrong: bool, why: &str| if wrong { vec![why.to_string()] } else { Vec::new() };
    match format {
        "dns1123Label" => label(text),
        "dns1123Subdomain" => subdomain(text),
        "dns1035Label" => old_label(text),
        "dns1123LabelPrefix" => label(&whole(text)),
        "dns1123SubdomainPrefix" => subdomain(&whole(text)),
        "dns1035LabelPrefix" => old_label(&whole(text)),
        "qualifiedName" => qualified_name(text),
        "labelValue" => {
            let mut found = bounded(text, 63, "bytes");
            found.extend(unlike(text, "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", LABEL_VALUE));
            found
        }
        "uri" => Url::parse(text).err().map(|why| format!("parse {text:?}: {why}")).into_iter().collect(),
        "uuid" => {
            let pattern = "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}";
            unlike(text, pattern, "does not match the UUID format").into_iter().collect()
        }
        "byte" => one(text.is_empty() || STANDARD.decode(text).is_err(), "invalid base64"),
        "date" => one(text.len() != 10 || parse_time(&format!("{text}T00:00:00Z")).is_none(), "invalid date"),
        _ => one(parse_time(text).is_none(), "invalid datetime"),
    }
}

/// A name that a prefix can become, as the real server makes one up.
fn whole(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut chars = rest.chars();
            chars.next_back();
            format!("{}a", chars.as_str())
        }
        _ => prefix.to_string(),
    }
}

fn bound(text: &str, most: usize, unit: &str) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} {unit}"))
}

fn bounded(text: &str, most: usize, unit: &str) -> Vec<String> {
    bound(text, most, unit).into_iter().collect()
}

/// What is said of a text that a pattern does not match whole.
fn unlike(text: &str, pattern: &str, why: &str) -> Option<String> {
    let matches = texts::compile(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(text));
    (!matches).then(|| why.to_string())
}

fn label(text: &str) -> Vec<String> {
    let mut found = bounded(text, 63, "characters");
    found.extend(unlike(text, "[a-z0-9]([-a-z0-9]*[a-z0-9])?", LABEL));
    found
}

fn subdomain(text: &str) -> Vec<String> {
    let mut found = bounded(text, 253, "characters");
    found.extend(unlike(text, r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", SUBDOMAIN));
    found
}

fn old_label(text: &str) -> Vec<String> {
    let mut found = bounded(text, 63, "characters");
    found.extend(unlike(text, "[a-z]([-a-z0-9]*[a-z0-9])?", OLD_LABEL));
    found
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if name.contains('/') {
        let with = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
        return vec![format!("a valid label key {NAME} {with}")];
    }
    match prefix {
        Some("") => found.push("prefix part must be non-empty".to_string()),
        Some(prefix) => found.extend(subdomain(prefix).into_iter().map(|why| format!("prefix part {why}"))),
        None => {}
    }
    if name.is_empty() {
        found.push("name part must be non-empty".to_string());
    }
    found.extend(bound(name, 63, "bytes").map(|why| format!("name part {why}")));
    let wrong = unlike(name, "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", NAME);
    found.extend(wrong.map(|why| format!("name part {why}")));
    found
}
