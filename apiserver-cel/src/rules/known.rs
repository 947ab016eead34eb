//! Expressions of registrations and of selectors of devices: the variables they know, with their types, and whether one
//! is acceptable.
//!
//! Inputs: expressions as written. Source: Kubernetes 1.36. Absent on purpose: rules of custom resources (see `admit`), and
//! values (see `expression`).

use super::check::Objects;
use super::decl::{Decl, Kind, known};
use super::types::Type;
use super::{check, cost, literals};
use crate::made;
use crate::parse::parse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an expression may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A boolean.
    Bool,
    /// A text.
    Text,
    /// A text or null.
    TextOrNull,
    /// A part of the object that is changed, as it is applied.
    Object,
    /// A list of operations of a JSON patch.
    Patches,
    /// Anything.
    Any,
}

impl Wanted {
    /// Why a type is another one than this; None where it fits. What is only known later fits nothing but `Any`.
    fn refuses(self, found: &Type) -> Option<String> {
        let is_made = |t: &Type, name: &str| matches!(t, Type::Made(found) if &**found == name);
        let (fits, must) = match self {
            Wanted::Any => return None,
            Wanted::Bool => (matches!(found, Type::Bool), "bool"),
            Wanted::Text => (matches!(found, Type::String), "string"),
            Wanted::TextOrNull => (matches!(found, Type::String | Type::Null), "one of [string null_type]"),
            Wanted::Object => (is_made(found, made::OBJECT), "Object"),
            Wanted::Patches => {
                let fits = matches!(found, Type::List(item) if is_made(item, made::PATCH));
                (fits, "list(JSONPatch)")
            }
        };
        (!fits).then(|| format!("must evaluate to {must} but got {}", settled(found)))
    }
}

/// A type with all its parts: an empty list is one of anything.
fn settled(found: &Type) -> Type {
    match found {
        Type::Free => Type::Dyn,
        Type::List(items) => Type::list(settled(items)),
        Type::Map(key, value) => Type::Map(Box::new(settled(key)), Box::new(settled(value))),
        other => other.clone(),
    }
}

/// Lists and maps within each other of which other expressions know: variables can be built upon each other without an end.
const MOST_LEVELS: usize = 20;

/// What other expressions know of the type of a computed value: plain values, and lists and maps of them.
fn plain(found: &Type, levels: usize) -> Type {
    use Type::{Bool, Bytes, Double, Duration, Int, List, Map, Null, String, Timestamp, Uint};
    match (found, levels.checked_sub(1)) {
        (List(items), Some(below)) => Type::list(plain(items, below)),
        (Map(key, value), Some(below)) => Map(Box::new(plain(key, below)), Box::new(plain(value, below))),
        (Bool | Bytes | Double | Duration | Int | Null | String | Timestamp | Uint, _) => found.clone(),
        _ => Type::Dyn,
    }
}

/// The variables that an expression of a registration knows.
#[derive(Debug, Clone)]
pub struct Known {
    variables: Vec<(&'static str, Type)>,
    /// The declared fields of `variables`, where a policy has some.
    computed: Option<Arc<Decl>>,
}

impl Known {
    /// What is known of every write: `object`, `oldObject`, `request` and `namespaceObject`.
    pub fn of_write() -> Known {
        let variables = vec![
            ("object", Type::Dyn),
            ("oldObject", Type::Dyn),
            ("request", Type::of(&request())),
            ("namespaceObject", Type::of(&namespace())),
        ];
        Known { variables, computed: None }
    }

    /// Adds the parameters of a policy.
    pub fn with_params(mut self) -> Known {
        self.variables.push(("params", Type::Dyn));
        self
    }

    /// Adds `authorizer`.
    pub fn with_authorizer(mut self) -> Known {
        self.variables.push(("authorizer", Type::named("Authorizer")));
        self.variables.push(("authorizer.requestResource", Type::named("ResourceCheck")));
        self
    }

    /// The same without `authorizer`.
    pub fn without_authorizer(&self) -> Known {
        let mut left = self.clone();
        left.variables.retain(|(name, _)| !name.starts_with("authorizer"));
        left
    }

    /// Adds `variables`, which has no field yet.
    pub fn with_variables(mut self) -> Known {
        self.computed.get_or_insert_with(|| known(Kind::Object(BTreeMap::new()), 0));
        self
    }

    /// Adds what an expression computes to the fields of `variables`. A later one of the same name takes its place.
    pub fn declare(&mut self, name: &str, text: &str) {
        let found = plain(&self.type_of(text, Objects::None).unwrap_or(Type::Dyn), MOST_LEVELS);
        // Nobody else has the fields by now, so that they are not copied for each new one.
        if let Some(computed) = &mut self.computed
            && let Kind::Object(fields) = &mut Arc::make_mut(computed).kind
        {
            fields.insert(name.to_string(), known(Kind::Of(found), 0));
        }
    }

    fn type_of(&self, text: &str, objects: Objects) -> Result<Type, String> {
        let failed = |why: String| format!("compilation failed: {why}");
        let parsed = parse(text).map_err(failed)?;
        let mut variables = self.variables.clone();
        if let Some(computed) = &self.computed {
            variables.push(("variables", Type::of(computed)));
        }
        let (found, _) = check::check(&parsed, &variables, objects).map_err(failed)?;
        literals::hopeless(&parsed.root).map_or(Ok(found), Err)
    }

    /// Why an expression is not acceptable, if it is not.
    pub fn problem(&self, text: &str, wanted: Wanted) -> Option<String> {
        let objects = match wanted {
            Wanted::Object | Wanted::Patches => Objects::Patches,
            _ => Objects::None,
        };
        match self.type_of(text, objects) {
            Ok(found) => wanted.refuses(&found),
            Err(why) => Some(why),
        }
    }
}

fn object(fields: &[(&str, &Arc<Decl>)]) -> Arc<Decl> {
    let fields = fields.iter().map(|(name, of)| (name.to_string(), Arc::clone(of))).collect();
    known(Kind::Object(fields), 0)
}

/// The request that a write came by.
fn request() -> Arc<Decl> {
    let text = known(Kind::String, 0);
    let texts = known(Kind::List(text.clone()), 0);
    let extra = known(Kind::Map(texts.clone()), 0);
    let kind = object(&[("group", &text), ("version", &text), ("kind", &text)]);
    let resource = object(&[("group", &text), ("version", &text), ("resource", &text)]);
    let user = object(&[("username", &text), ("uid", &text), ("groups", &texts), ("extra", &extra)]);
    object(&[
        ("kind", &kind),
        ("resource", &resource),
        ("subResource", &text),
        ("requestKind", &kind),
        ("requestResource", &resource),
        ("requestSubResource", &text),
        ("name", &text),
        ("namespace", &text),
        ("operation", &text),
        ("userInfo", &user),
        ("dryRun", &known(Kind::Bool, 0)),
        ("options", &known(Kind::Dyn, 0)),
    ])
}

/// The namespace of a write.
fn namespace() -> Arc<Decl> {
    let (text, time, number) = (known(Kind::String, 0), known(Kind::Timestamp, 0), known(Kind::Int, 0));
    let (texts, notes) = (known(Kind::List(text.clone()), 0), known(Kind::Map(text.clone()), 0));
    let meta = object(&[
        ("name", &text),
        ("generateName", &text),
        ("namespace", &text),
        ("labels", &notes),
        ("annotations", &notes),
        ("UID", &text),
        ("creationTimestamp", &time),
        ("deletionGracePeriodSeconds", &number),
        ("deletionTimestamp", &time),
        ("generation", &number),
        ("resourceVersion", &text),
        ("finalizers", &texts),
    ]);
    let condition = object(&[
        ("status", &text),
        ("type", &text),
        ("lastTransitionTime", &time),
        ("message", &text),
        ("reason", &text),
    ]);
    let conditions = known(Kind::List(condition), 0);
    object(&[
        ("metadata", &meta),
        ("spec", &object(&[("finalizers", &texts)])),
        ("status", &object(&[("conditions", &conditions), ("phase", &text)])),
    ])
}

/// Most that a selector of devices may cost, in units of the cost model.
const DEVICE_LIMIT: u64 = 1_000_000;
/// Most attributes or capacities of a device.
const MOST_ATTRIBUTES: u64 = 32;
/// Longest name of a driver, and longest value of an attribute, in characters.
const LONGEST_DRIVER: u64 = 63;
const LONGEST_ATTRIBUTE: u64 = 64;

/// A device that is asked for.
fn device() -> Arc<Decl> {
    let by_domain = |of: Arc<Decl>| {
        let by_name = known(Kind::Map(of), MOST_ATTRIBUTES);
        known(Kind::Map(by_name), MOST_ATTRIBUTES)
    };
    object(&[
        ("driver", &known(Kind::String, LONGEST_DRIVER)),
        ("allowMultipleAllocations", &known(Kind::Bool, 1)),
        ("attributes", &by_domain(known(Kind::Of(Type::Dyn), LONGEST_ATTRIBUTE))),
        ("capacity", &by_domain(known(Kind::Of(Type::named("Quantity")), 0))),
    ])
}

/// Why a selector of devices is not acceptable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// It is no expression, or one of another type; says why.
    Wrong(String),
    /// It can cost more than is allowed.
    TooComplex,
}

/// Why an expression selects no devices, if it does not.
pub fn device_problem(text: &str) -> Option<Unfit> {
    let failed = |why: String| Some(Unfit::Wrong(format!("compilation failed: {why}")));
    let parsed = match parse(text) {
        Ok(parsed) => parsed,
        Err(why) => return failed(why),
    };
    let device = device();
    let (found, checked) = match check::check(&parsed, &[("device", Type::of(&device))], Objects::Bound) {
        Ok(found) => found,
        Err(why) => return failed(why),
    };
    if !matches!(found, Type::Bool | Type::Dyn) {
        let found = match found {
            Type::Object(_) => "kubernetes.DRADevice".to_string(),
            found => settled(&found).to_string(),
        };
        return Some(Unfit::Wrong(format!("must evaluate to bool or the unknown type, not {found}")));
    }
    if let Some(why) = literals::hopeless(&parsed.root) {
        return Some(Unfit::Wrong(why));
    }
    (cost::estimate(&parsed.root, &checked, &device) > DEVICE_LIMIT).then_some(Unfit::TooComplex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str, wanted: Wanted) -> String {
        Known::of_write().with_variables().problem(text, wanted).unwrap_or_default()
    }

    #[test]
    fn patches_have_types() {
        assert_eq!(why("Object{spec: Object.spec{replicas: object.spec.n}}", Wanted::Object), "");
        assert_eq!(why("object.a ? Object{} : Object{spec: Object.spec{}}", Wanted::Object), "");
        assert_eq!(why("Object.spec{}", Wanted::Object), "must evaluate to Object but got Object.spec");
        assert_eq!(why("object", Wanted::Object), "must evaluate to Object but got dyn");
        assert_eq!(
            why("[JSONPatch{op: 'add', path: jsonpatch.escapeKey('x'), value: 1}]", Wanted::Patches),
            ""
        );
        assert_eq!(why("object.a ? [JSONPatch{op: 'add'}] : []", Wanted::Patches), "");
        assert_eq!(why("object.l.map(x, JSONPatch{op: 'add', path: x})", Wanted::Patches), "");
        assert!(why("[Object{}]", Wanted::Patches).starts_with("must evaluate to list(JSONPatch)"));
        assert_eq!(why("[]", Wanted::Patches), "must evaluate to list(JSONPatch) but got list(dyn)");
        assert!(
            why("[JSONPatch{op: 1}]", Wanted::Patches).contains("expected type of field 'op' is 'string'")
        );
        assert!(why("[JSONPatch{of: 'a'}]", Wanted::Patches).contains("undefined field 'of'"));
        assert!(why("[Patch{}]", Wanted::Patches).contains("undeclared reference to 'Patch'"));
        assert!(why("Object{} == Object{}", Wanted::Bool).contains("undeclared reference to 'Object'"));
        assert!(
            why("jsonpatch.escapeKey('a')", Wanted::Text).contains("undeclared reference to 'jsonpatch'")
        );
    }

    #[test]
    fn what_an_expression_comes_to_is_known_when_it_is_written() {
        for (text, wanted, says) in [
            ("object.x", Wanted::Bool, "must evaluate to bool but got dyn"),
            ("1", Wanted::Bool, "must evaluate to bool but got int"),
            ("object.x", Wanted::Text, "must evaluate to string but got dyn"),
            ("1", Wanted::TextOrNull, "must evaluate to one of [string null_type] but got int"),
            ("null", Wanted::TextOrNull, ""),
            ("object.x == 1", Wanted::Bool, ""),
            ("has(object.x) ? object.x : 'a'", Wanted::Text, "must evaluate to string but got dyn"),
            ("([object.x] + ['a'])[0]", Wanted::Text, "must evaluate to string but got dyn"),
            (
                "(has(object.x) ? {'a': object.y} : {'a': 'b'})['a']",
                Wanted::Text,
                "must evaluate to string but got dyn",
            ),
            ("(has(object.x) ? [] : ['a'])[0]", Wanted::Text, ""),
            ("(['a'] + object.x)[0]", Wanted::Text, ""),
            ("object.x + 'a'", Wanted::Text, ""),
            ("object.x + object.y", Wanted::Text, "must evaluate to string but got dyn"),
        ] {
            assert_eq!(why(text, wanted), says, "{text}");
        }
    }

    #[test]
    fn requests_and_namespaces_have_fields() {
        let at = |text: &str| why(text, Wanted::Bool);
        assert_eq!(
            at("request.userInfo.groups.exists(g, g == 'a') && request.kind == request.requestKind"),
            ""
        );
        assert_eq!(at("namespaceObject.metadata.labels['a'] == request.namespace"), "");
        let want = "compilation failed: ERROR: <input>:1:8: undefined field 'userinfo'\n | request.userinfo == 1\n | .......^";
        assert_eq!(at("request.userinfo == 1"), want);
        assert!(at("namespaceObject.metadata.nope == ''").contains("1:25: undefined field 'nope'"));
        assert!(at("request.name == 1").contains("'_==_' applied to '(string, int)'"));
    }

    #[test]
    fn variables_have_the_types_of_their_expressions() {
        let plain = Known::of_write().with_authorizer();
        let found = plain.problem("variables.a", Wanted::Any).unwrap();
        assert!(found.contains("undeclared reference to 'variables' (in container '')"), "{found}");
        let mut known = plain.with_variables();
        known.declare("a", "1");
        known.declare("b", "x +");
        known.declare("c", "has(object.c) ? object.c : 'a'");
        let problem = |text: &str| known.problem(text, Wanted::Bool).unwrap_or_default();
        assert!(problem("variables.a == 'x'").contains("1:13: found no matching overload for '_==_'"));
        assert!(problem("variables.zz == 1").contains("1:10: undefined field 'zz'"));
        assert_eq!(problem("variables.a == 1 && variables.b && variables.c == 1"), "");
        let said =
            known.without_authorizer().problem("authorizer.path('/').check('get').allowed()", Wanted::Bool);
        assert!(said.unwrap().contains("undeclared reference to 'authorizer'"));
    }

    /// With the fields copied for each of them, or with types that grow with each, it takes all time or memory.
    #[test]
    fn many_variables_and_deep_types_are_read_in_little_time() {
        const MANY: usize = 30_000;
        let mut known = Known::of_write().with_variables();
        known.declare("v0", "1");
        for i in 1..MANY {
            known.declare(&format!("v{i}"), &format!("variables.v{}", i - 1));
        }
        let last = format!("variables.v{} == 1", MANY - 1);
        assert_eq!(known.problem(&last, Wanted::Bool), None);
        let found = known.problem(&last.replace('1', "'x'"), Wanted::Bool).unwrap_or_default();
        assert!(found.contains("found no matching overload"), "{found}");
        for _ in 0..MANY {
            known.declare("v0", "[[[[variables.v0]]]]");
        }
        assert_eq!(known.problem("size(variables.v0[0]) == 1", Wanted::Bool), None);
        let doubled = format!("[1]{}.size() == 1", ".map(a, {a: a})".repeat(90));
        assert_eq!(known.problem(&doubled, Wanted::Bool), None);
    }

    #[test]
    fn devices_are_selected_by_what_they_have() {
        for fine in [
            "device.attributes['a'].b",
            "device.attributes['a']['b'] == 'c'",
            "device.capacity['a'].mem.compareTo(quantity('1Gi')) > 0",
            "device.allowMultipleAllocations",
            "device.attributes['a'].s.matches('^a.*')",
            "cel.bind(d, device.attributes['a.b'], d.one && d.two)",
            "device.attributes['a'].ver.isGreaterThan(semver('1.2.3'))",
            "'x' in device.attributes['a']",
            "device.attributes['a'].?b.orValue(1) == 1",
        ] {
            assert_eq!(device_problem(fine), None, "{fine}");
        }
        let all = "device.attributes.exists(d, device.attributes[d].exists(a, device.attributes[d].exists(b, device.attributes[d].exists(c, true))))";
        assert_eq!(device_problem(all), Some(Unfit::TooComplex));
        for (text, says) in [
            ("1", "must evaluate to bool or the unknown type, not int"),
            ("device.driver", "must evaluate to bool or the unknown type, not string"),
            ("device", "must evaluate to bool or the unknown type, not kubernetes.DRADevice"),
            (
                "device.capacity['a'].mem",
                "must evaluate to bool or the unknown type, not kubernetes.Quantity",
            ),
            ("[device.driver]", "must evaluate to bool or the unknown type, not list(string)"),
            (
                "device.nope == 1",
                "compilation failed: ERROR: <input>:1:7: undefined field 'nope'\n | device.nope == 1\n | ......^",
            ),
            (
                "self.x",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'self' (in container '')\n | self.x\n | ^",
            ),
        ] {
            assert_eq!(device_problem(text), Some(Unfit::Wrong(says.into())), "{text}");
        }
        let of_empty =
            "compilation failed: ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {";
        let of_list = "1:23: expression of type 'any' cannot be range of a comprehension";
        for (text, says) in [("", of_empty), ("device.attributes['a'].b.exists(x, x == 1)", of_list)] {
            let Some(Unfit::Wrong(why)) = device_problem(text) else { panic!("{text} is fine") };
            assert!(why.contains(says), "{why}");
        }
    }
}
