//! A field under validation: its value, its path, and the list of errors.
//!
//! Inputs: a tree and a list of causes. A path is built only for an error, so validating a correct object makes no
//! strings. Absent on purpose: what the fields of a kind mean.

use crate::names;
use crate::validate::{self, NameRule};
use fleet_apiserver_cel::cause::Cause;
use fleet_apiserver_cel::go_text;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Where causes are noted.
pub type Causes = RefCell<Vec<Cause>>;

static NOTHING: Value = Value::Null;

/// Causes noted at most. A body of 3 MB has room for a million wrong fields, and each could repeat a long path.
const MOST_CAUSES: usize = 1_000;
/// So much of a key that a user chose is shown, and of a value, in bytes. A real server shows all.
const MOST_SHOWN: usize = 4_096;

/// Smallest to largest port.
const PORTS: std::ops::RangeInclusive<i64> = 1..=65_535;

#[derive(Clone, Copy)]
enum Step<'a> {
    /// A field, or several with dots between.
    Field(&'a str),
    Item(usize),
    /// A key that users choose, shown in brackets.
    Key(&'a str),
}

/// One field of an object: `'v` is the tree, `'p` the way to this field.
#[derive(Clone)]
pub struct At<'v, 'p> {
    value: &'v Value,
    parent: Option<&'p At<'v, 'p>>,
    step: Step<'p>,
    causes: &'v Causes,
    /// Marks of the fields that are there, once one was asked for.
    fields: Cell<u64>,
}

/// Set once the marks are known.
const MARKED: u64 = 1 << 63;
/// Fields of an object that is marked at most.
const MOST_MARKED: usize = 48;

/// The mark of a name. Most names of fields that are looked for in vain have another one than those that are there.
fn mark(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let (first, last) = (bytes.first().copied().unwrap_or(0), bytes.last().copied().unwrap_or(0));
    1 << ((bytes.len() * 37 + usize::from(first) * 11 + usize::from(last) * 5) % 63)
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_SHOWN)]
}

impl<'v, 'p> At<'v, 'p> {
    /// The whole object.
    pub fn root(value: &'v Value, causes: &'v Causes) -> At<'v, 'p> {
        At { value, parent: None, step: Step::Field(""), causes, fields: Cell::new(0) }
    }

    /// A field below this one; a dotted path goes further down. A missing field is null.
    pub fn at<'b>(&'b self, field: &'b str) -> At<'v, 'b> {
        let value = match field.bytes().position(|letter| letter == b'.') {
            None => self.field(field),
            Some(dot) => {
                let mut below = field[dot + 1..].split('.');
                self.field(&field[..dot])
                    .and_then(|value| below.try_fold(value, |value, key| value.as_object()?.get(key)))
            }
        };
        self.below(value.unwrap_or(&NOTHING), Step::Field(field))
    }

    /// What is at a field, found by looking at the names that are there once.
    fn field(&self, name: &str) -> Option<&'v Value> {
        let map = self.value.as_object()?;
        if map.len() <= MOST_MARKED {
            if self.fields.get() == 0 {
                self.fields.set(map.keys().fold(MARKED, |all, key| all | mark(key)));
            }
            if self.fields.get() & mark(name) == 0 {
                return None;
            }
        }
        map.get(name)
    }

    fn below<'b>(&'b self, value: &'v Value, step: Step<'b>) -> At<'v, 'b> {
        At { value, parent: Some(self), step, causes: self.causes, fields: Cell::new(0) }
    }

    /// A field of this name with a value from elsewhere.
    pub fn beside<'b>(&'b self, field: &'b str, value: Option<&'v Value>) -> At<'v, 'b> {
        self.below(value.unwrap_or(&NOTHING), Step::Field(field))
    }

    /// The items of a list.
    pub fn items<'b>(&'b self) -> impl Iterator<Item = At<'v, 'b>> {
        let list = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().enumerate().map(|(i, value)| self.below(value, Step::Item(i)))
    }

    /// The entries of a map that users choose the keys of.
    pub fn entries<'b>(&'b self) -> impl Iterator<Item = (&'v str, At<'v, 'b>)> {
        let map = self.value.as_object().into_iter().flatten();
        map.map(move |(key, value)| (key.as_str(), self.entry(key, value)))
    }

    /// The value of an entry, at a place that is shown under this key.
    pub fn entry<'b>(&'b self, shown: &'b str, value: &'v Value) -> At<'v, 'b> {
        self.below(value, Step::Key(shown))
    }

    /// A place in this list or map that is not there to be looked at.
    pub fn key<'b>(&'b self, key: &'b str) -> At<'v, 'b> {
        self.entry(key, self.value.get(key).unwrap_or(&NOTHING))
    }

    /// The value, or null.
    pub fn value(&self) -> &'v Value {
        self.value
    }

    /// True when something is there.
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// The text, or "".
    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    /// The whole number, if one is there.
    pub fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// True when `true` is there.
    pub fn is_true(&self) -> bool {
        *self.value == Value::Bool(true)
    }

    /// Items of a list or entries of a map.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        }
    }

    /// True when nothing is there, or something empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.text().is_empty()
    }

    /// The path, as causes name it. Empty once no more causes are noted.
    pub fn path(&self) -> String {
        if self.is_full() {
            return String::new();
        }
        let mut path = self.parent.map(At::path).unwrap_or_default();
        match self.step {
            Step::Field("") => {}
            Step::Field(name) if path.is_empty() => path.push_str(name),
            Step::Field(name) => {
                path.push('.');
                path.push_str(name);
            }
            Step::Item(i) => path.push_str(&format!("[{i}]")),
            Step::Key(key) => path.push_str(&format!("[{}]", cut(key))),
        }
        path
    }

    /// Notes a cause, unless there are too many already.
    pub fn note(&self, cause: Cause) {
        if !self.is_full() {
            self.causes.borrow_mut().push(cause);
        }
    }

    fn is_full(&self) -> bool {
        self.causes.borrow().len() >= MOST_CAUSES
    }

    /// It has to be there.
    pub fn required(&self, why: &str) {
        self.note(Cause::required(self.path(), why));
    }

    /// It cannot be what it is.
    pub fn invalid(&self, why: &str) {
        self.note(Cause::invalid(self.path(), self.value, why));
    }

    /// It cannot be what it is, which is too much to show.
    pub fn wrong(&self, why: &str) {
        self.note(Cause::new("FieldValueInvalid", self.path(), format!("Invalid value: {why}")));
    }

    /// What is wrong with this value is told at another path.
    pub fn invalid_as(&self, path: String, why: &str) {
        self.note(Cause::invalid(path, self.value, why));
    }

    /// It cannot be there, or be changed.
    pub fn forbidden(&self, why: &str) {
        self.note(Cause::forbidden(self.path(), why));
    }

    /// The value as a message shows it.
    fn shown(&self) -> String {
        match self.value {
            _ if self.is_full() => String::new(),
            Value::String(text) => go_text::quoted(cut(text)),
            other => cut(&other.to_string()).to_owned(),
        }
    }

    /// It is there before.
    pub fn duplicate(&self) {
        let message = format!("Duplicate value: {}", self.shown());
        self.note(Cause::new("FieldValueDuplicate", self.path(), message));
    }

    /// It names something that is not there.
    pub fn not_found(&self) {
        self.note(Cause::new("FieldValueNotFound", self.path(), format!("Not found: {}", self.shown())));
    }

    /// It is none of what is allowed.
    pub fn unsupported(&self, allowed: &[&str]) {
        let list: Vec<String> = allowed.iter().map(|a| go_text::quoted(a)).collect();
        let found = if self.value.is_null() { "\"\"".to_string() } else { self.shown() };
        let message = format!("Unsupported value: {found}: supported values: {}", list.join(", "));
        self.note(Cause::new("FieldValueNotSupported", self.path(), message));
    }

    /// It has more bytes than allowed.
    pub fn too_long(&self, most: usize) {
        let message = format!("Too long: may not be more than {most} bytes");
        self.note(Cause::new("FieldValueTooLong", self.path(), message));
    }

    /// It has more items than allowed.
    pub fn too_many(&self, most: usize) {
        let message = format!("Too many: {}: must have at most {most} items", self.len());
        self.note(Cause::new("FieldValueTooMany", self.path(), message));
    }

    /// Requires a text or a list that is not empty. True when it is there.
    pub fn need(&self) -> bool {
        let there =
            self.is_set() && !(matches!(self.value, Value::String(_) | Value::Array(_)) && self.is_empty());
        if !there {
            self.required("");
        }
        there
    }

    /// One of a few words, if present.
    pub fn one_of(&self, allowed: &[&str]) {
        if self.is_set() && !self.text().is_empty() && !allowed.contains(&self.text()) {
            self.unsupported(allowed);
        }
    }

    /// One of a few words, if anything is written, an empty text too.
    pub fn if_set_one_of(&self, allowed: &[&str]) {
        if self.is_set() && !allowed.contains(&self.text()) {
            self.unsupported(allowed);
        }
    }

    /// One of a few words; required.
    pub fn need_one_of(&self, allowed: &[&str]) {
        if self.text().is_empty() {
            self.required("");
        } else {
            self.one_of(allowed);
        }
    }

    /// A number that is not negative, if one is there.
    pub fn non_negative(&self) {
        if self.number().is_some_and(|n| n < 0) {
            self.invalid("must be greater than or equal to 0");
        }
    }

    /// A number above zero, if one is there.
    pub fn positive(&self) {
        if self.number().is_some_and(|n| n <= 0) {
            self.invalid("must be greater than 0");
        }
    }

    /// A number within bounds, if one is there.
    pub fn within(&self, range: std::ops::RangeInclusive<i64>) {
        if self.number().is_some_and(|n| !range.contains(&n)) {
            self.invalid(&format!("must be between {} and {}, inclusive", range.start(), range.end()));
        }
    }

    /// A port number, if one is there.
    pub fn port(&self) {
        self.within(PORTS);
    }

    /// A port's number or name.
    pub fn port_or_name(&self) {
        match self.value {
            Value::String(name) => self.port_name_of(name),
            Value::Null => self.invalid("must be between 1 and 65535, inclusive"),
            _ => self.port(),
        }
    }

    /// The name of a port, if one is there.
    pub fn port_name(&self) {
        if !self.text().is_empty() {
            self.port_name_of(self.text());
        }
    }

    fn port_name_of(&self, name: &str) {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let edge = name.starts_with('-') || name.ends_with('-');
        for (wrong, why) in [
            (name.len() > 15, "must be no more than 15 characters"),
            (
                name.is_empty() || !name.bytes().all(plain),
                "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            ),
            (!name.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)"),
            (name.contains("--"), "must not contain consecutive hyphens"),
            (edge, "must not begin or end with a hyphen"),
        ] {
            if wrong {
                self.invalid(why);
            }
        }
    }

    /// A name of this form, if one is there.
    pub fn name(&self, rule: NameRule) {
        if !self.text().is_empty() {
            self.any_name(rule);
        }
    }

    /// A name of this form; an empty text is none.
    pub fn any_name(&self, rule: NameRule) {
        self.tell(self.text(), &names::of(rule, self.text()));
    }

    /// A name of this form, which has to be there.
    pub fn need_name(&self, rule: NameRule) {
        if self.text().is_empty() { self.required("") } else { self.name(rule) }
    }

    /// A key as labels have it: an optional prefix and a name.
    pub fn qualified(&self) {
        self.qualified_as(self.text());
    }

    /// This text, at this path, must be a qualified name, as label keys are.
    pub fn qualified_as(&self, text: &str) {
        self.tell(text, &names::qualified(text));
    }

    /// Notes each thing that is wrong with a text, which is shown.
    pub fn tell(&self, text: &str, whys: &[impl AsRef<str>]) {
        for why in whys {
            self.note(Cause::invalid(self.path(), &Value::from(text), why.as_ref()));
        }
    }

    /// The name of a driver, which may have capital letters.
    pub fn driver_name(&self) {
        if self.text().is_empty() { self.required("") } else { self.driver_name_as(self.text()) }
    }

    /// This text, at this path, must be the name of a driver.
    pub fn driver_name_as(&self, text: &str) {
        const LONGEST: usize = 63;
        if text.len() > LONGEST {
            self.too_long(LONGEST);
        }
        self.tell(text, &names::subdomain(&text.to_lowercase()));
    }

    /// A map of labels.
    pub fn labels(&self) {
        if self.is_set() {
            validate::labels(Some(self.value), &self.path(), &mut self.causes.borrow_mut());
        }
    }

    /// A quantity that is not negative, if one is there.
    pub fn quantity(&self) {
        if self.text().starts_with('-') && self.text().bytes().any(|b| (b'1'..=b'9').contains(&b)) {
            self.invalid("must be greater than or equal to 0");
        }
    }

    /// A whole number or a percentage that is not negative, if one is there.
    pub fn count_or_percent(&self) {
        match self.value {
            Value::String(text) => {
                let digits = text.strip_suffix('%').unwrap_or("");
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    self.invalid(
                        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
                    );
                }
            }
            _ => self.non_negative(),
        }
    }

    /// Notes every item whose value at `key` an earlier one has; items without one do not count.
    pub fn unique(&self, key: &str) {
        let mut seen = BTreeSet::new();
        for item in self.items() {
            let field = item.at(key);
            if !field.text().is_empty() && !seen.insert(field.text()) {
                field.duplicate();
            }
        }
    }

    /// It is what it was, if this is an update.
    pub fn same_as(&self, old: &At) {
        if !same(self.value, old.value) {
            self.invalid("field is immutable");
        }
    }

    /// A selector of labels.
    pub fn label_selector(&self) {
        self.at("matchLabels").labels();
        let expressions = self.at("matchExpressions");
        for e in expressions.items() {
            let (values, operator) = (e.at("values"), e.at("operator"));
            match operator.text() {
                "In" | "NotIn" if values.is_empty() => {
                    values.required("must be specified when `operator` is 'In' or 'NotIn'");
                }
                "In" | "NotIn" => {
                    for value in values.items() {
                        value.tell(value.text(), &names::label_value(value.text()));
                    }
                }
                "Exists" | "DoesNotExist" if !values.is_empty() => {
                    values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
                }
                "Exists" | "DoesNotExist" => {}
                _ => operator.invalid("not a valid selector operator"),
            }
            e.at("key").qualified();
        }
    }
}

/// Equal, where nothing and something empty are the same.
pub fn same(a: &Value, b: &Value) -> bool {
    let empty = |v: &Value| match v {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    a == b || (empty(a) && empty(b))
}

/// True when nothing but some fields of two maps differs.
pub fn same_but(a: &Value, b: &Value, fields: &[&str]) -> bool {
    let none = serde_json::Map::new();
    let (a, b) = (a.as_object().unwrap_or(&none), b.as_object().unwrap_or(&none));
    let keys = a.keys().chain(b.keys()).filter(|k| !fields.contains(&k.as_str()));
    let at = |map: &serde_json::Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
    keys.into_iter().all(|k| same(&at(a, k), &at(b, k)))
}

#[cfg(test)]
mod tests;
