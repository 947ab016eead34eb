//! Schema nodes: what is known of the fields of a kind.

use crate::pattern::Pattern;
use crate::presence::Presence;
use flate2::read::GzDecoder;
use fleet_apiserver_ground::named::Named;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::io::Read;
use std::sync::OnceLock;

static ARTEFACT: &[u8] = include_bytes!("../data/builtin.json.gz");

/// JSON type of a schema node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Type {
    /// Anything goes; nothing is known about the inside.
    #[default]
    Any,
    /// A struct (properties) or a map (additional).
    Object,
    /// A list.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// true or false.
    Boolean,
    /// A whole number or a string.
    IntOrString,
    /// A resource quantity: a string or a number.
    Quantity,
}

/// How the items of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListKind {
    /// The list is one value.
    #[default]
    Atomic,
    /// Items are their own keys.
    Set,
    /// Items are objects told apart by these fields.
    Map(Box<[Box<str>]>),
}

/// Value rules that only a few nodes have.
#[derive(Debug, Default)]
pub struct Rules {
    /// Default value.
    pub default: Option<Value>,
    /// Allowed values.
    pub enumeration: Vec<Value>,
    /// `minimum` and whether it is exclusive.
    pub minimum: Option<(f64, bool)>,
    /// `maximum` and whether it is exclusive.
    pub maximum: Option<(f64, bool)>,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// Length bounds of strings.
    pub length: (Option<u64>, Option<u64>),
    /// Item bounds of lists.
    pub items: (Option<u64>, Option<u64>),
    /// Property bounds of maps.
    pub properties: (Option<u64>, Option<u64>),
    /// Regular expression.
    pub pattern: Option<Pattern>,
    /// `format`.
    pub format: Option<String>,
    /// `allOf`, `anyOf`, `oneOf`, `not`: value validations only.
    pub all_of: Vec<Schema>,
    /// At least one must hold.
    pub any_of: Vec<Schema>,
    /// Exactly one must hold.
    pub one_of: Vec<Schema>,
    /// Must not hold.
    pub not: Option<Box<Schema>>,
}

/// One node of a schema.
#[derive(Debug, Default)]
pub struct Schema {
    /// Some: everything is in the table of built-in definitions at this place.
    def: Option<u32>,
    /// JSON type.
    pub ty: Type,
    /// Known fields.
    props: Named<Schema>,
    /// Values of a map.
    pub additional: Option<Box<Schema>>,
    /// Items of a list.
    pub items: Option<Box<Schema>>,
    /// Fields that must be there.
    pub required: Box<[Box<str>]>,
    /// How list items are told apart.
    pub list: ListKind,
    /// The map is one value for apply.
    pub atomic_map: bool,
    /// Key of strategic merge.
    pub merge_key: Option<Box<str>>,
    /// Strategic merge merges this list or map.
    pub merge: bool,
    /// Strategic merge replaces this map.
    pub replace: bool,
    /// Unknown fields stay.
    pub preserve: bool,
    /// A whole Kubernetes object is embedded here.
    pub embedded: bool,
    /// null is a value.
    pub nullable: bool,
    /// A default is set somewhere below.
    pub has_defaults: bool,
    /// Here or somewhere below is an embedded object, or a list whose items are told apart.
    pub keyed: bool,
    /// Value rules.
    pub rules: Option<Box<Rules>>,
    /// What the root of a custom resource says of the name in its metadata, besides what all metadata is.
    pub naming: Option<Box<Schema>>,
    /// Fields of a built-in definition that are not simply there or not, sorted by name.
    pub presence: Box<[(Box<str>, Presence)]>,
    /// Of these, those of the known fields, in their order.
    presence_of_props: Box<[Option<Presence>]>,
    /// Of these, those that are always there.
    pub always: Box<[(Box<str>, Presence)]>,
}

impl Schema {
    /// When a field of a built-in definition is written; None for one that is there or not.
    pub fn presence(&self, name: &str) -> Option<Presence> {
        let list = &self.get().presence;
        list.binary_search_by(|(k, _)| (**k).cmp(name)).ok().map(|i| list[i].1)
    }

    /// Schema of one field, and when it is written.
    pub fn field_and_presence(&self, name: &str) -> (Option<&Schema>, Option<Presence>) {
        let node = self.get();
        match node.props.find(name) {
            Some((i, schema)) => (Some(schema), node.presence_of_props.get(i).copied().flatten()),
            None => (node.additional.as_deref(), node.presence(name)),
        }
    }

    /// The name of the built-in definition this refers to. Searched for, as only errors ask for it.
    pub fn name(&self) -> Option<&'static str> {
        let def = self.def?;
        builtin().index.iter().find(|(_, i)| **i == def).map(|(name, _)| &**name)
    }

    /// The node itself, following a reference to a built-in definition.
    #[inline]
    pub fn get(&self) -> &Schema {
        match self.def {
            Some(i) => &builtin().defs[i as usize],
            None => self,
        }
    }

    /// Schema of one field of an object: a known property or the map's value.
    #[inline]
    pub fn field(&self, name: &str) -> Option<&Schema> {
        let node = self.get();
        node.props.get(name).or(node.additional.as_deref())
    }

    /// Known fields.
    #[inline]
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.get().props.iter()
    }

    /// True for an object with neither known fields nor a value schema.
    #[inline]
    pub fn is_opaque(&self) -> bool {
        let node = self.get();
        node.props.is_empty() && node.additional.is_none()
    }

    /// How list items are identified. It belongs to the wrapping node, because one definition serves many lists.
    #[inline]
    pub fn list_kind(&self) -> &ListKind {
        &self.get().list
    }

    /// A built-in definition by its short name, such as `api.core.v1.Pod`.
    pub fn builtin(name: &str) -> Schema {
        match builtin().index.get(name) {
            Some(i) => Schema { def: Some(*i), ..Schema::default() },
            None => Schema { preserve: true, ..Schema::default() },
        }
    }

    /// Compiles an OpenAPI v3 structural schema.
    pub fn compile(node: &Value) -> Schema {
        parse(node, &HashMap::new(), 0)
    }

    /// Compiles the root schema of a custom resource: apiVersion, kind and metadata are always known.
    pub fn compile_root(node: &Value) -> Schema {
        let mut schema = Schema::compile(node);
        schema.ty = Type::Object;
        let declared = node.get("properties").and_then(|p| p.get("metadata")).filter(|m| m.is_object());
        schema.naming = declared.map(|m| Box::new(Schema::compile(m)));
        for (name, sub) in [
            ("apiVersion", Schema { ty: Type::String, ..Schema::default() }),
            ("kind", Schema { ty: Type::String, ..Schema::default() }),
            ("metadata", Schema::builtin(OBJECT_META)),
        ] {
            schema.props.put(name, sub);
        }
        schema
    }

    fn set_presence(&mut self, presence: Box<[(Box<str>, Presence)]>) {
        self.presence = presence;
        self.presence_of_props = self.props.iter().map(|(name, _)| self.presence(name)).collect();
        let stays = |presence: &Presence| matches!(presence, Presence::Struct | Presence::Always(_));
        self.always = self.presence.iter().filter(|(_, presence)| stays(presence)).cloned().collect();
    }
}

/// Format of times to the microsecond.
pub const MICRO_TIME: &str = "micro-time";

/// Short name of the definition of object metadata.
pub const OBJECT_META: &str = "apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Nesting allowed in a schema; the JSON reader already refuses deeper documents.
const MAX_DEPTH: usize = 100;

fn parse(node: &Value, index: &HashMap<Box<str>, u32>, depth: usize) -> Schema {
    let Some(map) = node.as_object() else { return Schema { preserve: true, ..Schema::default() } };
    if depth > MAX_DEPTH {
        return Schema { preserve: true, ..Schema::default() };
    }
    let text = |k: &str| map.get(k).and_then(Value::as_str);
    let flag = |k: &str| map.get(k).and_then(Value::as_bool).unwrap_or(false);
    let mut s = Schema::default();
    if let Some(target) = text("$ref") {
        s.def = index.get(target).copied();
    }
    s.ty = match text("type") {
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        Some("quantity") => Type::Quantity,
        _ => Type::Any,
    };
    if flag("x-kubernetes-int-or-string") {
        s.ty = Type::IntOrString;
    }
    s.preserve = flag("x-kubernetes-preserve-unknown-fields");
    s.embedded = flag("x-kubernetes-embedded-resource");
    s.nullable = flag("nullable");
    if let Some(Value::Object(props)) = map.get("properties") {
        s.props = props.iter().map(|(k, v)| (k.as_str().into(), parse(v, index, depth + 1))).collect();
    }
    match map.get("additionalProperties") {
        Some(Value::Bool(true)) => {
            s.additional = Some(Box::new(Schema { preserve: true, ..Schema::default() }));
        }
        Some(v @ Value::Object(_)) => s.additional = Some(Box::new(parse(v, index, depth + 1))),
        _ => {}
    }
    if let Some(v) = map.get("items") {
        s.items = Some(Box::new(parse(v, index, depth + 1)));
    }
    s.required = strings(map.get("required"));
    s.list = match text("x-kubernetes-list-type") {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Map(strings(map.get("x-kubernetes-list-map-keys"))),
        _ => ListKind::Atomic,
    };
    s.atomic_map = text("x-kubernetes-map-type") == Some("atomic");
    s.merge_key = text("x-kubernetes-patch-merge-key").map(Into::into);
    if let Some(strategy) = text("x-kubernetes-patch-strategy") {
        s.merge = strategy.contains("merge");
        s.replace = strategy.contains("replace");
    }
    s.rules = value_rules(map, index, depth);
    s.has_defaults = s.rules.as_ref().is_some_and(|r| r.default.is_some())
        || s.props.iter().any(|(_, p)| p.has_defaults)
        || s.items.as_ref().is_some_and(|p| p.has_defaults)
        || s.additional.as_ref().is_some_and(|p| p.has_defaults);
    s.keyed = s.embedded
        || s.list != ListKind::Atomic
        || s.props.iter().any(|(_, p)| p.keyed)
        || s.items.as_ref().is_some_and(|p| p.keyed)
        || s.additional.as_ref().is_some_and(|p| p.keyed);
    s
}

fn strings(v: Option<&Value>) -> Box<[Box<str>]> {
    let list = v.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|x| x.as_str().map(Into::into)).collect()
}

fn value_rules(map: &Map<String, Value>, index: &HashMap<Box<str>, u32>, depth: usize) -> Option<Box<Rules>> {
    const KEYS: [&str; 18] = [
        "default",
        "enum",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "pattern",
        "format",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "uniqueItems",
    ];
    if !KEYS.iter().any(|k| map.contains_key(*k)) {
        return None;
    }
    let number = |k: &str| map.get(k).and_then(Value::as_f64);
    let count = |k: &str| map.get(k).and_then(Value::as_u64);
    let flag = |k: &str| map.get(k).and_then(Value::as_bool).unwrap_or(false);
    let list = |k: &str| -> Vec<Schema> {
        let items = map.get(k).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        items.iter().map(|v| parse(v, index, depth + 1)).collect()
    };
    Some(Box::new(Rules {
        default: map.get("default").cloned(),
        enumeration: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        minimum: number("minimum").map(|n| (n, flag("exclusiveMinimum"))),
        maximum: number("maximum").map(|n| (n, flag("exclusiveMaximum"))),
        multiple_of: number("multipleOf"),
        length: (count("minLength"), count("maxLength")),
        items: (count("minItems"), count("maxItems")),
        properties: (count("minProperties"), count("maxProperties")),
        pattern: map.get("pattern").and_then(Value::as_str).map(Pattern::new),
        format: map.get("format").and_then(Value::as_str).map(str::to_string),
        all_of: list("allOf"),
        any_of: list("anyOf"),
        one_of: list("oneOf"),
        not: map.get("not").map(|v| Box::new(parse(v, index, depth + 1))),
    }))
}

/// The shared table of built-in definitions.
struct Builtin {
    defs: Vec<Schema>,
    index: HashMap<Box<str>, u32>,
}

/// The artefact as JSON; parsed anew at each call, for the few rare readers.
pub fn artefact() -> Value {
    let mut text = String::new();
    // The artefact is part of the binary; a test parses it, so failure here means a broken build.
    if GzDecoder::new(ARTEFACT).read_to_string(&mut text).is_err() {
        return Value::Null;
    }
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn presence(codes: Option<&Value>) -> Box<[(Box<str>, Presence)]> {
    let codes = codes.and_then(Value::as_object);
    let one = |(field, code): (&String, &Value)| {
        Some((field.as_str().into(), Presence::of(code.as_str().unwrap_or_default())?))
    };
    let mut list: Vec<_> = codes.into_iter().flatten().filter_map(one).collect();
    list.sort_by(|a: &(Box<str>, Presence), b| a.0.cmp(&b.0));
    list.into()
}

fn builtin() -> &'static Builtin {
    static TABLE: OnceLock<Builtin> = OnceLock::new();
    TABLE.get_or_init(|| {
        let artefact = artefact();
        let empty = Map::new();
        let defs = artefact.get("defs").and_then(Value::as_object).unwrap_or(&empty);
        let index: HashMap<Box<str>, u32> =
            defs.keys().enumerate().map(|(i, k)| (k.as_str().into(), i as u32)).collect();
        let one = |(name, v): (&String, &Value)| {
            let mut schema = parse(v, &index, 0);
            // Both kinds of times have the same format in the published schema.
            if name.ends_with(".MicroTime")
                && let Some(rules) = &mut schema.rules
            {
                rules.format = Some(MICRO_TIME.into());
            }
            schema.set_presence(presence(artefact.get("go").and_then(|go| go.get(name))));
            schema
        };
        Builtin { defs: defs.iter().map(one).collect(), index }
    })
}

#[cfg(test)]
mod tests;
