//! Whether the rules of a CRD are accepted: their syntax, their types, and their cost.
//!
//! Inputs: `openAPIV3Schema` of one version. Limits and messages are those of the real server.

use super::check::Objects;
use super::decl::{self, Decl};
use super::types::Type;
use super::{KEY, check, cost, has_rules, literals};
use crate::cause::Cause;
use crate::parse::parse;
use fleet_apiserver_ground::tree;
use serde_json::Value;

/// Most one expression may cost, for all places it is judged at.
const EXPRESSION_LIMIT: u64 = 10_000_000;
/// Most all expressions of a schema may cost.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// Expressions that are named when a schema is over its limit.
const NAMED: usize = 4;
/// Longest message.
const MAX_MESSAGE: usize = 2048;
/// Causes collected at most.
const MAX_CAUSES: usize = 50;
const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

struct Walk {
    causes: Vec<Cause>,
    total: u64,
    /// Paths of the dearest expressions, and what each can cost.
    dearest: Vec<(String, u64)>,
}

/// What a place in the schema inherits from those above it.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// How often it can be there; None without a bound.
    times: Option<u64>,
    /// The list above it whose items have no identity over a change.
    uncorrelated: Option<&'a str>,
    root: bool,
}

/// What is wrong with the rules of a schema, each cause with its path below `field`.
pub fn problems(openapi: &Value, field: &str) -> Vec<Cause> {
    if !has_rules(openapi) {
        return Vec::new();
    }
    let mut walk = Walk { causes: Vec::new(), total: 0, dearest: Vec::new() };
    walk.node(openapi, field, Place { times: Some(1), uncorrelated: None, root: true });
    if walk.total > SCHEMA_LIMIT {
        let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        walk.causes.extend(walk.dearest.iter().map(|(path, _)| Cause::forbidden(path, why)));
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        walk.causes.push(Cause::forbidden(field, &exceeds(what, walk.total, SCHEMA_LIMIT)));
    }
    walk.causes.truncate(MAX_CAUSES);
    walk.causes
}

/// As the real server says it.
fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        f if f > 100.0 => "more than 100x".to_string(),
        f if f < 1.5 => format!("{f:.6}x"),
        f => format!("{f:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

/// True for a path, such as `.a['b.c']`, that leads to a field of a schema or to a value of a map.
fn names_a_field(schema: &Value, path: &str) -> bool {
    let (mut at, mut rest) = (schema, path);
    while !rest.is_empty() {
        let name;
        (name, rest) = match rest.strip_prefix("['").and_then(|inner| inner.split_once("']")) {
            Some(found) => found,
            None => {
                let Some(plain) = rest.strip_prefix('.') else { return false };
                plain.split_at(plain.find(['.', '[']).unwrap_or(plain.len()))
            }
        };
        let field = at.get("properties").and_then(|p| p.get(name));
        let Some(next) = field.or_else(|| at.get("additionalProperties").filter(|v| v.is_object())) else {
            return false;
        };
        at = next;
    }
    true
}

impl Walk {
    fn node(&mut self, schema: &Value, at: &str, place: Place<'_>) {
        let kind = tree::text(schema, &["type"]);
        let bound =
            |key: &str| schema.get(key).and_then(Value::as_i64).map(|n| u64::try_from(n).unwrap_or(0));
        let additional = schema.get("additionalProperties").filter(|v| !v.is_null());
        let factor = match kind {
            "object" if additional.is_some() => bound("maxProperties"),
            "array" => bound("maxItems"),
            _ => Some(1),
        };
        let times = place.times.zip(factor).map(|(a, b)| a.saturating_mul(b));
        let atomic = tree::text(schema, &["x-kubernetes-map-type"]) == "atomic";
        let listed = kind == "array" && tree::text(schema, &["x-kubernetes-list-type"]) != "map";
        let uncorrelated = place.uncorrelated.or((atomic || listed).then_some(at));
        let below = |child: &Value| Place {
            times,
            uncorrelated,
            root: child.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)),
        };
        if let Some(values @ Value::Object(_)) = additional {
            self.node(values, &format!("{at}.additionalProperties"), below(values));
        }
        for (name, child) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.node(child, &format!("{at}.properties[{name}]"), below(child));
        }
        if let Some(items @ Value::Object(_)) = schema.get("items") {
            self.node(items, &format!("{at}.items"), below(items));
        }
        let rules = tree::list(schema, &[KEY]);
        if rules.is_empty() {
            return;
        }
        let Some(decl) = decl::declare(schema, place.root) else {
            let why = "may not be set on a schema that expressions cannot see: found no declared type";
            self.causes.push(Cause::forbidden(format!("{at}.{KEY}"), why));
            return;
        };
        for (i, rule) in rules.iter().enumerate() {
            let at = format!("{at}.{KEY}[{i}]");
            let path = tree::text(rule, &["fieldPath"]);
            if !path.is_empty() && !names_a_field(schema, path) {
                let why = "fieldPath must be a valid path";
                self.causes.push(Cause::invalid(format!("{at}.fieldPath"), &rule["fieldPath"], why));
            }
            if self.worded(rule, &at) {
                self.judged(rule, &at, &decl, place);
            }
        }
    }

    /// Checks the texts of a rule.
    fn worded(&mut self, rule: &Value, at: &str) -> bool {
        let before = self.causes.len();
        let text = |key: &str| rule.get(key).and_then(Value::as_str);
        let (expression, message) = (text("rule").unwrap_or_default().trim(), text("message"));
        let blank = |found: Option<&str>| found.is_some_and(|t| !t.is_empty() && t.trim().is_empty());
        let broken = |t: &str| t.contains(['\n', '\r']);
        let invalid = |key: &str, why: &str| {
            let found = rule.get(key).cloned().unwrap_or_default();
            Cause::invalid(format!("{at}.{key}"), &found, why)
        };
        if expression.is_empty() {
            self.causes.push(Cause::required(format!("{at}.rule"), "rule is not specified"));
        } else if blank(message) {
            self.causes.push(invalid("message", "message must be non-empty if specified"));
        } else if message.is_some_and(|m| m.len() > MAX_MESSAGE) {
            let why = "message must have a maximum length of 2048 characters";
            self.causes.push(invalid("message", why));
        } else if message.is_some_and(|m| broken(m.trim())) {
            self.causes.push(invalid("message", "message must not contain line breaks"));
        } else if broken(expression) && message.unwrap_or_default().trim().is_empty() {
            let why = "message must be specified if rule contains line breaks";
            self.causes.push(Cause::required(format!("{at}.message"), why));
        }
        if blank(text("messageExpression")) {
            let why = "messageExpression must be non-empty if specified";
            self.causes.push(Cause::required(format!("{at}.messageExpression"), why));
        }
        if let Some(reason) = text("reason").filter(|r| !REASONS.contains(r)) {
            let allowed: Vec<String> = REASONS.iter().map(|r| format!("{r:?}")).collect();
            let message = format!("Unsupported value: {reason:?}: supported values: {}", allowed.join(", "));
            self.causes.push(Cause::new("FieldValueNotSupported", format!("{at}.reason"), message));
        }
        before == self.causes.len()
    }

    /// Checks the types of a rule's expressions, and adds up what they can cost.
    fn judged(&mut self, rule: &Value, at: &str, decl: &std::sync::Arc<Decl>, place: Place<'_>) {
        let own = Type::of(decl);
        let optional = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
        let old = if optional { Type::Optional(Box::new(own.clone())) } else { own.clone() };
        let variables = [("self", own), ("oldSelf", old)];
        let text = |key: &str| rule.get(key).and_then(Value::as_str).unwrap_or_default();
        let times = place.times.unwrap_or_else(|| decl::most_occurrences(decl));
        match estimate(text("rule"), &variables, decl, &Type::Bool, "cel expression must evaluate to a bool")
        {
            Err(why) => self.refuse(rule, &format!("{at}.rule"), &why),
            Ok((cost, transition)) => {
                self.observe("estimated rule cost", format!("{at}.rule"), cost.saturating_mul(times));
                if !transition && rule.get("optionalOldSelf").is_some_and(|o| !o.is_null()) {
                    let why = "may not be set if oldSelf is not used in rule";
                    let field = format!("{at}.optionalOldSelf");
                    self.causes.push(Cause::invalid(field, &rule["optionalOldSelf"], why));
                }
                if let Some(list) = place.uncorrelated.filter(|_| transition) {
                    let why = format!(
                        "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                    );
                    self.causes.push(Cause::invalid(format!("{at}.rule"), &rule["rule"], &why));
                }
            }
        }
        if text("messageExpression").is_empty() {
            return;
        }
        let must = "messageExpression must evaluate to a string";
        match estimate(text("messageExpression"), &variables, decl, &Type::String, must) {
            Err(why) => {
                let why = if why == must { why } else { format!("messageExpression {why}") };
                self.refuse(rule, &format!("{at}.messageExpression"), &why);
            }
            Ok((cost, _)) => {
                self.observe("estimated messageExpression cost", format!("{at}.messageExpression"), cost);
            }
        }
    }

    fn refuse(&mut self, rule: &Value, at: &str, why: &str) {
        self.causes.push(Cause::new("FieldValueInvalid", at, format!("Invalid value: {rule}: {why}")));
    }

    fn observe(&mut self, what: &str, at: String, cost: u64) {
        if cost > EXPRESSION_LIMIT {
            self.causes.push(Cause::forbidden(&at, &exceeds(what, cost, EXPRESSION_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.dearest.push((at, cost));
            self.dearest.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.dearest.truncate(NAMED);
        }
    }
}

/// What an expression can cost, and whether it compares with the state before.
fn estimate(
    text: &str,
    variables: &[(&str, Type)],
    root: &Decl,
    want: &Type,
    must: &str,
) -> Result<(u64, bool), String> {
    let parsed = parse(text).map_err(|why| format!("compilation failed: {why}"))?;
    let (found, checked) = check::check(&parsed, variables, Objects::None)
        .map_err(|why| format!("compilation failed: {why}"))?;
    if std::mem::discriminant(&found) != std::mem::discriminant(want) {
        return Err(must.to_string());
    }
    if let Some(why) = literals::hopeless(&parsed.root) {
        return Err(why);
    }
    Ok((cost::estimate(&parsed.root, &checked, root), parsed.reads("oldSelf")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A definition of a list of names, with one rule at the list.
    fn names(items: Value, most: Option<u64>, rule: &str) -> Value {
        let mut list = json!({"type": "array", "items": items, KEY: [{"rule": rule}]});
        if let Some(most) = most {
            list["maxItems"] = json!(most);
        }
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"names": list}}}})
    }

    fn said(schema: &Value) -> Vec<String> {
        problems(schema, "s").into_iter().map(|c| format!("{}: {}", c.field, c.message)).collect()
    }

    const AT: &str = "s.properties[spec].properties[names].x-kubernetes-validations[0].rule";

    #[test]
    fn a_rule_that_can_cost_too_much_is_refused_with_the_factor() {
        let text = json!({"type": "string"});
        let rule = "self.all(x, self.exists_one(y, x == y))";
        let found = said(&names(text.clone(), None, rule));
        let tail = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                    strings are declared)";
        assert_eq!(
            found,
            [
                format!(
                    "{AT}: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {tail}"
                ),
                format!(
                    "{AT}: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
                ),
                format!(
                    "s: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {tail}"
                ),
            ]
        );
        let short = json!({"type": "string", "maxLength": 20});
        assert_eq!(said(&names(short, Some(100), rule)), Vec::<String>::new());
    }

    #[test]
    fn costs_are_those_of_the_model() {
        let cost = |schema: Value, rule: &str| {
            let decl = decl::declare(&schema, false).unwrap();
            estimate(rule, &[("self", Type::of(&decl))], &decl, &Type::Bool, "bool").unwrap().0
        };
        let list = |most: u64| json!({"type": "array", "maxItems": most, "items": {"type": "string", "maxLength": 10}});
        // self; for each of five: the condition (2), what is gathered (1), x (1), 'a' (0), equality of 1 character (1).
        assert_eq!(cost(list(5), "self.all(x, x == 'a')"), 1 + 5 * (2 + 1 + 1 + 1) + 1);
        // 40 bytes of text by a pattern of 4: ceil(41 / 10) * ceil(4 / 4), and self.
        assert_eq!(cost(json!({"type": "string", "maxLength": 10}), "self.matches('^a.$')"), 5 + 1);
        let object = json!({"type": "object", "properties": {"a": {"type": "string", "maxLength": 10}}});
        assert_eq!(cost(object.clone(), "has(self.a)"), 1, "presence is free");
        assert_eq!(cost(object.clone(), "self.a == self.a"), 2 + 2 + 4);
        assert_eq!(cost(object, "self.a + 'xy' == 'b'"), 2 + 5 + 1);
        assert_eq!(cost(list(5), "size(self) > 3 || 'a' in self"), (1 + 1 + 1) + (1 + 5));
    }

    /// Rules over a map of so many quantities, and by what factor a kube-apiserver 1.36 finds them too expensive.
    const FACTORS: &[(&str, u64, &str)] = &[
        (
            "self.all(name, isQuantity(string(self[name])) && !quantity(string(self[name])).isLessThan(quantity('0')))",
            64,
            "8.1x",
        ),
        (
            "self.all(name, type(self[name]) == int || !quantity(self[name]).isLessThan(quantity('0')))",
            15,
            "",
        ),
        ("self.all(name, isIP(name))", 8, ""),
        ("self.all(name, isSemver(string(self[name]), true))", 8, ""),
        ("self.all(name, '%s'.format([name]) + 'x' == 'y')", 1, "more than 100x"),
        ("self.all(name, quantity(self[name]) == quantity('1'))", 40, "1.258324x"),
        ("self.all(name, quantity(self[name]) != quantity('1'))", 4, "more than 100x"),
        ("self.all(name, strings.quote(string(self[name])) == 'a')", 20, "1.258306x"),
        ("self.all(name, string(self[name]).split(',', 5).all(x, x == 'a'))", 4, ""),
        ("self.all(name, bytes(self[name]) == b'abc')", 40, "1.258320x"),
        ("self.all(name, self[name] == 'abc')", 40, ""),
        ("self.all(name, self[name] in ['abc','d'])", 40, ""),
        ("self.all(name, self[name] < 'abc')", 40, ""),
        (
            "self.all(name, format.dns1123Label().validate(string(self[name])) == optional.none())",
            4,
            "more than 100x",
        ),
        ("self.all(name, !format.dns1123Label().validate(name).hasValue())", 4, ""),
        ("self.all(name, ip(string(self[name])) == ip('::1'))", 20, "1.258308x"),
        ("self.all(name, cidr(string(self[name])).containsIP(name))", 20, "1.258314x"),
        ("self.all(name, url(string(self[name])).getHost() == 'a')", 20, "1.258308x"),
        ("self.all(name, ip.isCanonical(string(self[name])))", 20, "1.9x"),
        ("self.all(name, name.matches('^[a-z]+$'))", 20, ""),
        ("self.map(name, string(self[name])).join(',') == 'a'", 4, "more than 100x"),
    ];

    #[test]
    fn what_libraries_read_costs_as_much_as_it_can_be_long() {
        for (rule, most, factor) in FACTORS {
            let map = json!({"type": "object", "maxProperties": most, KEY: [{"rule": rule}],
                "additionalProperties": {"x-kubernetes-int-or-string": true}});
            let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"m": map}}}});
            let found = said(&schema);
            let told = found.first().and_then(|said| said.split("factor of ").nth(1)).unwrap_or_default();
            let told = told.split(" (").next().unwrap_or_default();
            assert_eq!(told, *factor, "{rule}: {found:?}");
        }
    }

    #[test]
    fn costs_count_how_often_a_rule_is_judged() {
        let item = |rule: &str| {
            json!({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "object", "required": ["n"],
                "properties": {"n": {"type": "string"}}, KEY: [{"rule": rule}]}}}})
        };
        // As often as {"n":""} fits into a request, and each text can fill one.
        assert!(said(&item("self.n == self.n")).iter().any(|m| m.contains("more than 100x")));
        assert_eq!(said(&item("has(self.n)")), Vec::<String>::new());
        let found = said(&item("self.n == oldSelf.n || true"));
        assert!(
            found.iter().any(|m| m.contains("oldSelf cannot be used on the uncorrelatable portion")),
            "{found:?}"
        );
    }

    #[test]
    fn types_are_checked() {
        let schema = |rule: &str| {
            json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "n": {"type": "integer"}, "s": {"type": "string", "maxLength": 9}, "b": {"type": "boolean"},
                "m": {"type": "object", "maxProperties": 9, "additionalProperties": {"type": "integer"}},
                "l": {"type": "array", "maxItems": 9, "items": {"type": "string", "maxLength": 9}},
                "q": {"x-kubernetes-int-or-string": true}, "namespace": {"type": "string"},
                "when": {"type": "string", "format": "date-time"}, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                KEY: [{"rule": rule}]}}})
        };
        for good in [
            "self.n > 1 && self.s.startsWith('a') || !self.b",
            "self.m.all(k, self.m[k] > 0) && 'a' in self.m",
            "self.l.map(x, size(x)).sum() < 10 && self.l.filter(x, x != '').size() > 0",
            "quantity(string(self.q)).isGreaterThan(quantity('1')) || isQuantity(string(self.q))",
            "self.q == 1 || self.q == 'a' || type(self.q) == int",
            "self.__namespace__ == 'a' || self.namespace == 'b'",
            "self.when > timestamp('2020-01-01T00:00:00Z') && self.when - self.when < duration('1h')",
            "self.n > 1.5 && double(self.n) == 1.0 && self.n % 2 == 0",
            "(has(self.s) ? self.s : 'x').lowerAscii() in ['a', 'b']",
            "self.l.exists(x, x.matches('^a')) && self.l.exists_one(x, x == 'a')",
            "oldSelf.n <= self.n && optional.of(self.n).optMap(x, x > 1).orValue(false)",
            "!has(self.free) || ip.isCanonical('::1')",
        ] {
            assert_eq!(said(&schema(good)), Vec::<String>::new(), "{good}");
        }
        for (bad, why) in [
            ("self.n == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
            ("self.s > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
            ("self.missing == 1", "undefined field 'missing'"),
            ("self.s.missing", "type 'string' does not support field selection"),
            ("self.n && self.b", "expected type 'bool' but found 'int'"),
            ("other == 1", "undeclared reference to 'other' (in container '')"),
            ("nothing(self.n)", "undeclared reference to 'nothing' (in container '')"),
            (
                "self.n.startsWith('a')",
                "found no matching overload for 'startsWith' applied to 'int.(string)'",
            ),
            ("self.s.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
            ("self.n.all(x, true)", "expression of type 'int' cannot be range of a comprehension"),
            ("size(self.n) > 1", "found no matching overload for 'size' applied to '(int)'"),
            ("self.m[1] == 1", "found no matching overload for '_[_]' applied to '(map(string, int), int)'"),
            ("self.s in [1, 2]", "found no matching overload for '@in' applied to '(string, list(int))'"),
            ("self.s in ['a', 2]", "expected type 'string' but found 'int'"),
            ("self.n == null", "found no matching overload for '_==_' applied to '(int, null)'"),
            ("self.n", "cel expression must evaluate to a bool"),
            ("self.free.x == 1", "undefined field 'x'"),
            ("cel.bind(x, self.n, x > 1)", "undeclared reference to 'cel' (in container '')"),
            ("math.abs(self.n) == 1", "undeclared reference to 'math' (in container '')"),
            ("base64.encode(b'a') == ''", "undeclared reference to 'base64' (in container '')"),
            ("self.n == 1 && int('x') == 1", "program instantiation failed: type conversion error"),
            ("duration('1 day') == duration('1s')", "invalid duration argument"),
            ("type(self.q) in [int, string]", "expected type 'type(int)' but found 'type(string)'"),
            (
                "self.l.all(i, v, i == 'a')",
                "found no matching overload for '_==_' applied to '(int, string)'",
            ),
            ("Object{a: 1} == self.free", "undeclared reference to 'Object' (in container '')"),
            ("has(self.b", "compilation failed"),
        ] {
            let found = said(&schema(bad));
            assert!(found.len() == 1 && found[0].contains(why), "{bad}: {found:?}");
        }
    }

    #[test]
    fn texts_of_rules_are_checked() {
        let with =
            |rule: Value| json!({"type": "object", "properties": {"a": {"type": "integer"}}, KEY: [rule]});
        for (rule, field) in [
            (json!({"rule": " "}), "rule"),
            (json!({"rule": "true", "message": " "}), "message"),
            (json!({"rule": "true", "message": "a\nb"}), "message"),
            (json!({"rule": "true\n&& true"}), "message"),
            (json!({"rule": "true", "reason": "Because"}), "reason"),
            (json!({"rule": "true", "messageExpression": "1"}), "messageExpression"),
        ] {
            let found = problems(&with(rule.clone()), "s");
            assert_eq!(found.len(), 1, "{rule}: {found:?}");
            assert_eq!(found[0].field, format!("s.x-kubernetes-validations[0].{field}"), "{rule}");
        }
    }
}
