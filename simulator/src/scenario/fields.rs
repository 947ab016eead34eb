//! Typed fields of a document. Every error has file, line, field, the value found and the values allowed.

use std::{collections::BTreeMap, time::Duration};

use fleet_api::yaml::{Located, Node};
use serde_json::Value;

use super::{error::ScenarioError, model::duration};

/// Longest piece of a found value that an error repeats.
const SHOWN: usize = 480;

/// One value of the document and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Field<'d> {
    file: &'d str,
    pub path: String,
    pub at: &'d Located,
}

/// The entries of a map, taken one by one; what is left at the end is unknown.
#[derive(Debug)]
pub(crate) struct Fields<'d> {
    own: Field<'d>,
    left: Vec<(&'d str, &'d Located)>,
    known: Vec<&'static str>,
}

pub(crate) type Read<T> = Result<T, ScenarioError>;

impl<'d> Field<'d> {
    pub fn top(file: &'d str, at: &'d Located) -> Self {
        Self { file, path: String::new(), at }
    }

    pub fn wrong(&self, found: impl Into<String>, allowed: impl Into<String>) -> ScenarioError {
        ScenarioError {
            file: self.file.to_string(),
            line: self.at.line,
            field: if self.path.is_empty() { "the document".to_string() } else { self.path.clone() },
            found: one_line(found.into()),
            allowed: one_line(allowed.into()),
        }
    }

    /// The value is not what is allowed here.
    pub fn refuse<T>(&self, allowed: impl Into<String>) -> Read<T> {
        Err(self.wrong(self.shown(), allowed))
    }

    fn shown(&self) -> String {
        match &self.at.node {
            Node::Null => "nothing".to_string(),
            Node::Bool(value) => value.to_string(),
            Node::Number(value) => value.to_string(),
            Node::Text(value) => format!("{value:?}"),
            Node::List(items) => format!("a list of {}", items.len()),
            Node::Map(entries) => {
                let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
                format!(
                    "a map with {}",
                    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
                )
            }
        }
    }

    fn child(&self, name: &str, at: &'d Located) -> Self {
        let path = if self.path.is_empty() { name.to_string() } else { format!("{}.{name}", self.path) };
        Self { file: self.file, path, at }
    }

    pub fn map(&self, allowed: &str) -> Read<Fields<'d>> {
        let Node::Map(entries) = &self.at.node else { return self.refuse(allowed) };
        let left = entries.iter().map(|(name, value)| (name.as_str(), value)).collect();
        Ok(Fields { own: self.clone(), left, known: Vec::new() })
    }

    /// All entries of a map, with or without a value.
    pub fn entries(&self, allowed: &str) -> Read<Vec<(&'d str, Self)>> {
        let Node::Map(entries) = &self.at.node else { return self.refuse(allowed) };
        Ok(entries.iter().map(|(name, at)| (name.as_str(), self.child(name, at))).collect())
    }

    /// Written without a value.
    pub fn is_empty(&self) -> bool {
        self.at.node == Node::Null
    }

    pub fn list(&self, allowed: &str) -> Read<Vec<Self>> {
        let Node::List(items) = &self.at.node else { return self.refuse(allowed) };
        let item = |(i, at)| Self { file: self.file, path: format!("{}[{i}]", self.path), at };
        Ok(items.iter().enumerate().map(item).collect())
    }

    pub fn text(&self, allowed: &str) -> Read<String> {
        match &self.at.node {
            Node::Text(text) if !text.is_empty() => Ok(text.clone()),
            _ => self.refuse(allowed),
        }
    }

    pub fn truth(&self) -> Read<bool> {
        match &self.at.node {
            Node::Bool(value) => Ok(*value),
            _ => self.refuse("true or false"),
        }
    }

    pub fn whole(&self, from: i64, to: i64) -> Read<i64> {
        let allowed = || format!("a whole number from {from} to {to}");
        match &self.at.node {
            Node::Number(number) => match number.as_i64().filter(|n| (from..=to).contains(n)) {
                Some(number) => Ok(number),
                None => self.refuse(allowed()),
            },
            _ => self.refuse(allowed()),
        }
    }

    pub fn duration(&self) -> Read<Duration> {
        const ALLOWED: &str =
            "0, or numbers with units h, m, s, ms, such as 90s, 1h30m, 500ms; at most 100 years";
        let found = match &self.at.node {
            Node::Text(text) => duration(text),
            Node::Number(number) if number.as_i64() == Some(0) => Some(Duration::ZERO),
            _ => None,
        };
        found.map_or_else(|| self.refuse(ALLOWED), Ok)
    }

    /// A text or a number, as text: quantities, label values.
    pub fn scalar(&self, allowed: &str) -> Read<String> {
        match &self.at.node {
            Node::Text(text) => Ok(text.clone()),
            Node::Number(number) => Ok(number.to_string()),
            Node::Bool(value) => Ok(value.to_string()),
            _ => self.refuse(allowed),
        }
    }

    /// A text, also an empty one.
    pub fn quoted(&self, allowed: &str) -> Read<()> {
        if matches!(&self.at.node, Node::Text(_)) { Ok(()) } else { self.refuse(allowed) }
    }

    /// A text or a number.
    pub fn amount(&self, allowed: &str) -> Read<()> {
        if matches!(&self.at.node, Node::Text(_) | Node::Number(_)) { Ok(()) } else { self.refuse(allowed) }
    }

    pub fn texts(&self, allowed: &str) -> Read<BTreeMap<String, String>> {
        let Node::Map(entries) = &self.at.node else { return self.refuse(allowed) };
        entries
            .iter()
            .map(|(name, value)| Ok((name.clone(), self.child(name, value).scalar("a text")?)))
            .collect()
    }

    /// A list of resources: name to quantity, each readable and not negative.
    pub fn quantities(&self) -> Read<BTreeMap<String, String>> {
        let Node::Map(entries) = &self.at.node else {
            return self.refuse("a map of resource names to quantities, such as {cpu: 4, nvidia.com/gpu: 8}");
        };
        let mut read = BTreeMap::new();
        for (name, value) in entries {
            let field = self.child(name, value);
            let text = field.scalar("a quantity such as 4, 500m or 16Gi")?;
            match fleet_resources::quantity::parse(name, &text) {
                Ok(amount) if amount >= 0 => {
                    read.insert(name.clone(), text);
                }
                _ => return field.refuse("a quantity of 0 or more, such as 4, 500m or 16Gi"),
            }
        }
        Ok(read)
    }

    /// A name as Kubernetes takes it for objects that become part of host names.
    pub fn name(&self) -> Read<String> {
        const ALLOWED: &str =
            "a name of 1 to 63 small letters, digits and \"-\", which begins and ends with a letter or digit";
        let text = match &self.at.node {
            Node::Text(text) => text.clone(),
            Node::Number(number) => number.to_string(),
            _ => return self.refuse(ALLOWED),
        };
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let fine = (1..=63).contains(&text.len())
            && text.chars().all(|c| plain(c) || c == '-')
            && text.starts_with(plain)
            && text.ends_with(plain);
        if fine { Ok(text) } else { self.refuse(ALLOWED) }
    }

    pub fn json(&self) -> Value {
        self.at.to_json()
    }
}

impl<'d> Fields<'d> {
    /// The entry of that name. Written without a value it counts as absent.
    pub fn take(&mut self, name: &'static str) -> Option<Field<'d>> {
        self.known.push(name);
        let place = self.left.iter().position(|(found, _)| *found == name)?;
        let (_, at) = self.left.remove(place);
        (at.node != Node::Null).then(|| self.own.child(name, at))
    }

    pub fn need(&mut self, name: &'static str, allowed: &str) -> Read<Field<'d>> {
        match self.take(name) {
            Some(field) => Ok(field),
            None => Err(self.missing(name, allowed)),
        }
    }

    pub fn missing(&self, name: &str, allowed: &str) -> ScenarioError {
        self.own.child(name, self.own.at).wrong("nothing", allowed)
    }

    /// Refuses fields that were not read.
    pub fn end(self) -> Read<()> {
        match self.left.first() {
            None => Ok(()),
            Some((name, at)) => {
                Err(self.own.child(name, at).wrong("an unknown field", self.known.join(", ")))
            }
        }
    }
}

fn one_line(text: String) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= SHOWN {
        return text;
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}...")
}
