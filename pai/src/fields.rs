//! Typed fields of a document. Mistakes are collected, so that all of them are reported at once.

pub(crate) use crate::problem::Sink;
use crate::{Doc, Node, Problem, problem::TOLD};

/// Longest part of a path for one name, in characters. All below it have the path, so a longer name would be there as often.
const NAME_SHOWN: usize = 255;

/// One value of the document and its path.
#[derive(Clone, Debug)]
pub(crate) struct Field<'d> {
    pub path: String,
    pub doc: &'d Doc,
}

/// The entries of a map, taken one by one; any left at the end are unknown fields.
pub(crate) struct Fields<'d> {
    own: Field<'d>,
    left: Vec<(&'d str, &'d Doc)>,
    known: Vec<&'static str>,
}

impl<'d> Field<'d> {
    pub fn top(doc: &'d Doc) -> Self {
        Self { path: String::new(), doc }
    }

    pub fn child(&self, name: &str, doc: &'d Doc) -> Self {
        let shown = name.char_indices().nth(NAME_SHOWN).map(|(end, _)| format!("{}...", &name[..end]));
        let shown = shown.as_deref().unwrap_or(name);
        let path = if self.path.is_empty() { shown.to_owned() } else { format!("{}.{shown}", self.path) };
        Self { path, doc }
    }

    pub fn problem(&self, found: impl Into<String>, allowed: impl Into<String>) -> Problem {
        let path = if self.path.is_empty() { "the document" } else { self.path.as_str() };
        Problem::new(path, found, allowed).at(self.doc.line)
    }

    pub fn refuse(&self, sink: &mut Sink, allowed: impl Into<String>) {
        sink.push(self.problem(self.shown(), allowed));
    }

    fn shown(&self) -> String {
        match &self.doc.node {
            Node::Null => "nothing".to_owned(),
            Node::Bool(value) => value.to_string(),
            Node::Number(number) => number.to_string(),
            Node::Text(text) => format!("{text:?}"),
            Node::List(items) => format!("a list of {}", items.len()),
            Node::Map(entries) if entries.is_empty() => "an empty map".to_owned(),
            Node::Map(entries) => {
                let names: Vec<&str> = entries.iter().map(|(name, _)| name.as_str()).collect();
                format!("a map with {}", names.join(", "))
            }
        }
    }

    pub fn fields(&self, sink: &mut Sink, allowed: &str) -> Option<Fields<'d>> {
        let Node::Map(entries) = &self.doc.node else {
            self.refuse(sink, allowed);
            return None;
        };
        let left = entries.iter().map(|(name, doc)| (name.as_str(), doc)).collect();
        Some(Fields { own: self.clone(), left, known: Vec::new() })
    }

    /// Names and values of a map, in the order of the file.
    pub fn entries(&self, sink: &mut Sink, allowed: &str) -> Vec<(&'d str, Self)> {
        let Node::Map(entries) = &self.doc.node else {
            self.refuse(sink, allowed);
            return Vec::new();
        };
        entries.iter().map(|(name, doc)| (name.as_str(), self.child(name, doc))).collect()
    }

    pub fn items(&self, sink: &mut Sink, allowed: &str) -> Vec<Self> {
        let Node::List(items) = &self.doc.node else {
            self.refuse(sink, allowed);
            return Vec::new();
        };
        let item = |(i, doc)| Self { path: format!("{}[{i}]", self.path), doc };
        items.iter().enumerate().map(item).collect()
    }

    /// A list of one item or more.
    pub fn some_items(&self, sink: &mut Sink, allowed: &str) -> Vec<Self> {
        let items = self.items(sink, allowed);
        if matches!(&self.doc.node, Node::List(items) if items.is_empty()) {
            self.refuse(sink, allowed);
        }
        items
    }

    pub fn text(&self, sink: &mut Sink, allowed: &str) -> Option<String> {
        match &self.doc.node {
            Node::Text(text) => Some(text.clone()),
            _ => {
                self.refuse(sink, allowed);
                None
            }
        }
    }

    /// A text of which each character is allowed, of 1 to `most` characters.
    pub fn name(
        &self,
        sink: &mut Sink,
        most: usize,
        fits: impl Fn(char) -> bool,
        allowed: &str,
    ) -> Option<String> {
        match &self.doc.node {
            Node::Text(text) if is_name(text, most, fits) => Some(text.clone()),
            _ => {
                self.refuse(sink, allowed);
                None
            }
        }
    }

    pub fn texts(&self, sink: &mut Sink, allowed: &str) -> Vec<String> {
        let items = self.some_items(sink, allowed);
        items.iter().filter_map(|item| item.text(sink, "a text")).collect()
    }

    pub fn truth(&self, sink: &mut Sink) -> Option<bool> {
        match &self.doc.node {
            Node::Bool(value) => Some(*value),
            _ => {
                self.refuse(sink, "true or false");
                None
            }
        }
    }

    pub fn whole(&self, sink: &mut Sink, from: i64, to: i64) -> Option<i64> {
        let number = match &self.doc.node {
            Node::Number(number) => number.as_i64().filter(|n| (from..=to).contains(n)),
            _ => None,
        };
        if number.is_none() {
            self.refuse(sink, format!("a whole number from {from} to {to}"));
        }
        number
    }
}

pub(crate) fn is_name(text: &str, most: usize, fits: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().count() <= most && text.chars().all(fits)
}

impl<'d> Fields<'d> {
    /// The entry with that name. An entry without a value counts as absent.
    pub fn take(&mut self, name: &'static str) -> Option<Field<'d>> {
        self.known.push(name);
        let place = self.left.iter().position(|(found, _)| *found == name)?;
        let (_, doc) = self.left.remove(place);
        (doc.node != Node::Null).then(|| self.own.child(name, doc))
    }

    pub fn need(&mut self, sink: &mut Sink, name: &'static str, allowed: &str) -> Option<Field<'d>> {
        let found = self.take(name);
        if found.is_none() {
            sink.push(self.own.child(name, self.own.doc).problem("nothing", allowed));
        }
        found
    }

    /// Refuses the entries that were not taken.
    pub fn end(self, sink: &mut Sink) {
        for (name, doc) in self.left.iter().take(TOLD) {
            let allowed = format!("only {}", self.known.join(", "));
            sink.push(self.own.child(name, doc).problem("an unknown field", allowed));
        }
    }
}
