//! The highest cost of evaluating an expression, in the units of Kubernetes.
//!
//! Inputs: an expression with its types, and the declared sizes of what it reads. Source: the cost model of the
//! Common Expression Language, and the costs that the libraries of Kubernetes declare. Costs and sizes are upper
//! bounds; they saturate.

use super::check::Checker;
use super::decl::{Decl, Kind};
use super::types::Type;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators as op,
};
use std::collections::HashMap;

/// Tenths of a unit for each character that is looked at.
const TRAVERSAL: f64 = 0.1;
/// For each character of a pattern.
const PATTERN: f64 = 0.25;
const LIST: u64 = 10;
const MAP: u64 = 30;
const STRUCT: u64 = 40;
/// An authorization check; two of them fit into the budget of a rule.
const AUTHORIZATION: u64 = 350_000;
/// Characters of the longest named format, and of its pattern.
const FORMAT: u64 = 64;
const NAME_PATTERN: u64 = 128;
/// A selector is a list of requirements, each of at least two characters, and each a list and a struct.
const SELECTOR: u64 = LIST;
const REQUIREMENTS: f64 = 0.5;
const REQUIREMENT: f64 = (LIST + STRUCT) as f64;

const ITEMS: &str = "@items";
const VALUES: &str = "@values";
const KEYS: &str = "@keys";

/// Fewest and most characters, items or entries.
#[derive(Debug, Clone, Copy)]
struct Size {
    min: u64,
    max: u64,
}

const UNKNOWN: Size = Size { min: 0, max: u64::MAX };

impl Size {
    fn fixed(n: u64) -> Size {
        Size { min: n, max: n }
    }

    fn add(self, other: Size) -> Size {
        Size { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn union(self, other: Size) -> Size {
        Size { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Whether a value is looked at as one.
fn scalar(kind: &Type) -> bool {
    match kind {
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp => true,
        Type::Optional(inner) => scalar(inner),
        _ => false,
    }
}

fn scaled(n: u64, factor: f64) -> u64 {
    // A float above what fits becomes the largest number.
    (n as f64 * factor).ceil() as u64
}

/// A value as the estimate knows it.
#[derive(Debug, Clone, Default)]
struct Local {
    path: Vec<String>,
    size: Option<Size>,
    /// Of its items.
    item: Option<Size>,
}

struct Coster<'a> {
    types: &'a HashMap<u64, Type>,
    root: &'a Decl,
    paths: HashMap<u64, Vec<String>>,
    sizes: HashMap<u64, Size>,
    items: HashMap<u64, Size>,
    locals: Vec<(String, Local)>,
}

/// The most an expression over `root` can cost.
pub fn estimate(expression: &IdedExpr, checked: &Checker, root: &Decl) -> u64 {
    let mut coster = Coster {
        types: &checked.types,
        root,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        items: HashMap::new(),
        locals: Vec::new(),
    };
    coster.cost(expression)
}

impl Coster<'_> {
    fn kind(&self, e: &IdedExpr) -> &Type {
        self.types.get(&e.id).unwrap_or(&Type::Dyn)
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|(known, _)| known == name).map(|(_, local)| local)
    }

    fn path(&self, e: &IdedExpr) -> Vec<String> {
        if let Expr::Ident(name) = &e.expr
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&e.id).cloned().unwrap_or_default()
    }

    fn below(&self, e: &IdedExpr, step: &str) -> Vec<String> {
        let mut path = self.path(e);
        path.push(step.to_string());
        path
    }

    /// The declared size of what is at a path.
    fn declared(&self, path: &[String]) -> Option<Size> {
        let (_, steps) = path.split_first()?;
        let mut node = self.root;
        for step in steps {
            node = match (&node.kind, step.as_str()) {
                (Kind::List(inner), ITEMS | VALUES) | (Kind::Map(inner), ITEMS | VALUES) => inner,
                // Keys are texts without a bound of their own.
                (Kind::Map(_), KEYS) => return Some(Size { min: 0, max: 0 }),
                // Whatever its name is: an attribute of a device.
                (Kind::Map(inner), _) if matches!(inner.kind, Kind::Of(Type::Dyn)) => inner,
                (Kind::Object(fields), name) => fields.get(name)?,
                _ => return None,
            };
        }
        Some(Size { min: 0, max: node.most })
    }

    fn size(&mut self, e: &IdedExpr) -> Option<Size> {
        if let Some(size) = self.sizes.get(&e.id) {
            return Some(*size);
        }
        match &e.expr {
            Expr::Literal(LiteralValue::String(s)) => {
                return Some(Size::fixed(s.inner().chars().count() as u64));
            }
            Expr::Literal(LiteralValue::Bytes(b)) => return Some(Size::fixed(b.inner().len() as u64)),
            Expr::Literal(_) => return Some(Size::fixed(1)),
            Expr::List(list) => return Some(Size::fixed(list.elements.len() as u64)),
            Expr::Map(map) => return Some(Size::fixed(map.entries.len() as u64)),
            _ => {}
        }
        if let Some(size) = self.declared(&self.path(e)) {
            self.sizes.insert(e.id, size);
            return Some(size);
        }
        if scalar(self.kind(e)) {
            return Some(Size::fixed(1));
        }
        match &e.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn sized(&mut self, e: &IdedExpr) -> Size {
        self.size(e).unwrap_or(UNKNOWN)
    }

    fn item(&self, e: &IdedExpr) -> Option<Size> {
        if let Some(size) = self.items.get(&e.id) {
            return Some(*size);
        }
        match &e.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.item),
            _ => None,
        }
    }

    /// The items of a list that the schema declares. The libraries do not know the size of computed lists.
    fn declared_item(&self, list: &IdedExpr) -> Size {
        let known = !self.path(list).is_empty();
        known.then(|| self.declared(&self.below(list, ITEMS))).flatten().unwrap_or(UNKNOWN)
    }

    fn cost(&mut self, e: &IdedExpr) -> u64 {
        match &e.expr {
            Expr::Unspecified | Expr::Literal(_) => 0,
            Expr::Ident(name) => {
                let path = self.local(name).map_or_else(|| vec![name.clone()], |local| local.path.clone());
                self.paths.insert(e.id, path);
                1
            }
            Expr::Select(select) => self.select(e, select),
            Expr::Call(call) => self.call(e, call),
            Expr::List(list) => {
                let (mut sum, mut item) = (LIST, None::<Size>);
                for element in &list.elements {
                    sum = sum.saturating_add(self.cost(element));
                    let size = self.sized(element);
                    item = Some(item.map_or(size, |known| known.union(size)));
                }
                self.items.insert(e.id, item.unwrap_or(Size::fixed(0)));
                sum
            }
            Expr::Map(map) => {
                let mut sum = MAP;
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    sum = sum.saturating_add(self.cost(&entry.key)).saturating_add(self.cost(&entry.value));
                }
                sum
            }
            Expr::Struct(made) => {
                let mut sum = STRUCT;
                for entry in &made.entries {
                    let EntryExpr::StructField(field) = &entry.expr else { continue };
                    sum = sum.saturating_add(self.cost(&field.value));
                }
                sum
            }
            Expr::Comprehension(c) => self.comprehension(e, c),
        }
    }

    fn select(&mut self, e: &IdedExpr, select: &SelectExpr) -> u64 {
        if !self.types.contains_key(&select.operand.id) {
            // A dotted name is one name.
            self.paths.insert(e.id, vec![select.field.clone()]);
            return 1;
        }
        let sum = self.cost(&select.operand);
        if select.test {
            // A test of presence is free, but for what leads to it.
            return sum;
        }
        let path = self.below(&select.operand, &select.field);
        self.paths.insert(e.id, path);
        match self.kind(&select.operand) {
            Type::Map(..) | Type::Object(_) => sum.saturating_add(1),
            _ => sum,
        }
    }

    fn comprehension(&mut self, e: &IdedExpr, c: &ComprehensionExpr) -> u64 {
        let mut sum = self.cost(&c.iter_range).saturating_add(self.cost(&c.accu_init));
        let depth = self.locals.len();
        let accu = Local {
            path: self.path(&c.accu_init),
            size: self.size(&c.accu_init),
            item: self.item(&c.accu_init),
        };
        self.locals.push((c.accu_var.clone(), accu));
        let map = matches!(self.kind(&c.iter_range), Type::Map(..));
        let item = self.item(&c.iter_range);
        let variable = |path: Vec<String>, size| Local { path, size, item: None };
        match &c.iter_var2 {
            Some(second) => {
                let (first_step, second_step) = if map { (KEYS, VALUES) } else { ("@indices", ITEMS) };
                let first = variable(self.below(&c.iter_range, first_step), None);
                let second_local = variable(self.below(&c.iter_range, second_step), item);
                self.locals.push((c.iter_var.clone(), first));
                self.locals.push((second.clone(), second_local));
            }
            None => {
                let step = if map { KEYS } else { ITEMS };
                let local = variable(self.below(&c.iter_range, step), item);
                self.locals.push((c.iter_var.clone(), local));
            }
        }
        let round = self.cost(&c.loop_cond).saturating_add(self.cost(&c.loop_step));
        self.locals.truncate(depth + 1);
        sum = sum.saturating_add(self.cost(&c.result));
        self.locals.truncate(depth);
        let rounds = self.sized(&c.iter_range);
        match &c.accu_init.expr {
            Expr::Literal(_) => {
                if let Some(size) = self.size(&c.accu_init) {
                    self.sizes.insert(e.id, size);
                }
            }
            Expr::List(_) | Expr::Map(_) => {
                self.sizes.insert(e.id, rounds);
                if let Some(item) = self.item(&c.loop_step) {
                    self.items.insert(e.id, item);
                }
            }
            _ => {}
        }
        sum.saturating_add(rounds.max.saturating_mul(round))
    }

    fn call(&mut self, e: &IdedExpr, call: &CallExpr) -> u64 {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target
            && matches!(&target.expr, Expr::Ident(space) if !self.types.contains_key(&target.id) && self.local(space).is_none())
        {
            return self.namespaced(e, name, &call.args);
        }
        let mut costs = Vec::with_capacity(call.args.len());
        for arg in &call.args {
            costs.push(self.cost(arg));
        }
        let args = costs.iter().fold(0_u64, |sum, c| sum.saturating_add(*c));
        if let Some(target) = &call.target {
            let reach = self.cost(target);
            let own = self.method(e, name, target, &call.args);
            return reach.saturating_add(own).saturating_add(args);
        }
        match (name, call.args.as_slice()) {
            (op::LOGICAL_AND | op::LOGICAL_OR, _) => args,
            (op::CONDITIONAL, [_, yes, no]) => {
                let size = self.sized(yes).union(self.sized(no));
                self.sizes.insert(e.id, size);
                if let (Some(a), Some(b)) = (self.item(yes), self.item(no)) {
                    self.items.insert(e.id, a.union(b));
                }
                costs[0].saturating_add(costs[1].max(costs[2]))
            }
            (
                "quantity" | "isQuantity" | "semver" | "isSemver" | "ip" | "isIP" | "cidr" | "isCIDR" | "url",
                [a, ..],
            ) => scaled(self.sized(a).max, TRAVERSAL).saturating_add(args),
            (_, [a, b]) => self.binary(e, name, a, b).saturating_add(args),
            ("dyn", [a]) => {
                if let Some(size) = self.size(a) {
                    self.sizes.insert(e.id, size);
                }
                args.saturating_add(1)
            }
            // A value of any type may be the most expensive one that the conversion takes.
            ("bytes", [a]) if matches!(self.kind(a), Type::String | Type::Dyn) => {
                let size = self.sized(a);
                self.sizes.insert(e.id, Size { min: size.min, max: size.max.saturating_mul(4) });
                scaled(size.max, TRAVERSAL).saturating_add(args)
            }
            ("string", [a]) if matches!(self.kind(a), Type::Bytes | Type::Dyn) => {
                let size = self.sized(a);
                self.sizes.insert(e.id, Size { min: size.min / 4, max: size.max });
                scaled(size.max, TRAVERSAL).saturating_add(args)
            }
            _ => args.saturating_add(1),
        }
    }

    /// A function with the prefix of a library. `cel.bind` names a value.
    fn namespaced(&mut self, e: &IdedExpr, name: &str, args: &[IdedExpr]) -> u64 {
        if name == "bind"
            && let [variable, value, result] = args
            && let Expr::Ident(variable) = &variable.expr
        {
            let sum = LIST.saturating_add(self.cost(value));
            let local = Local { path: self.path(value), size: self.size(value), item: self.item(value) };
            self.locals.push((variable.clone(), local));
            let sum = sum.saturating_add(self.cost(result));
            self.locals.pop();
            if let Some(size) = self.size(result) {
                self.sizes.insert(e.id, size);
            }
            return sum;
        }
        let reached = args.iter().fold(0_u64, |sum, arg| sum.saturating_add(self.cost(arg)));
        let text = args.first().map_or(Size::fixed(0), |arg| self.sized(arg));
        let own = match name {
            "isCanonical" => scaled(text.max, 2.0 * TRAVERSAL),
            "escapeKey" => {
                self.sizes.insert(e.id, text);
                scaled(text.max, TRAVERSAL)
            }
            "quote" => {
                let quoted = Size {
                    min: text.min.saturating_add(2),
                    max: text.max.saturating_mul(2).saturating_add(2),
                };
                self.sizes.insert(e.id, quoted);
                scaled(text.max, TRAVERSAL)
            }
            _ => 1,
        };
        reached.saturating_add(own)
    }

    fn binary(&mut self, e: &IdedExpr, name: &str, a: &IdedExpr, b: &IdedExpr) -> u64 {
        let textual = |t: &Type| matches!(t, Type::String | Type::Bytes | Type::Dyn);
        let either = textual(self.kind(a)) && textual(self.kind(b));
        match name {
            op::INDEX | op::OPT_INDEX => {
                let step = if matches!(self.kind(a), Type::List(_)) { ITEMS } else { VALUES };
                let path = self.below(a, step);
                self.paths.insert(e.id, path);
                if let Some(size) = self.item(a) {
                    self.sizes.insert(e.id, size);
                }
                1
            }
            // Only equality has a cost of its own for values of the libraries.
            op::EQUALS if matches!((self.kind(a), self.kind(b)), (Type::Opaque(x), Type::Opaque(y)) if x == y) => {
                match self.kind(a) {
                    Type::Opaque(name) if name.ends_with("URL") => {
                        scaled(self.size(b).map_or(1, |size| size.max), TRAVERSAL)
                    }
                    Type::Opaque(name) if name.ends_with("NamedFormat") => scaled(FORMAT, TRAVERSAL),
                    _ => 1,
                }
            }
            op::EQUALS | op::NOT_EQUALS => scaled(self.sized(a).max.min(self.sized(b).max), TRAVERSAL),
            op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS if either => {
                scaled(self.sized(a).max.min(self.sized(b).max), TRAVERSAL)
                    .max(u64::from(matches!(self.kind(a), Type::Dyn)))
            }
            op::IN if matches!(self.kind(b), Type::List(_) | Type::Dyn) => self.sized(b).max,
            op::ADD if either || matches!(self.kind(a), Type::List(_)) => {
                let size = self.sized(a).add(self.sized(b));
                self.sizes.insert(e.id, size);
                if let (Some(x), Some(y)) = (self.item(a), self.item(b)) {
                    self.items.insert(e.id, x.union(y));
                }
                if matches!(self.kind(a), Type::List(_)) { 1 } else { scaled(size.max, TRAVERSAL).max(1) }
            }
            _ => 1,
        }
    }

    fn method(&mut self, e: &IdedExpr, name: &str, target: &IdedExpr, args: &[IdedExpr]) -> u64 {
        let size = self.sized(target);
        match (name, args) {
            ("sum" | "min" | "max" | "isSorted" | "indexOf" | "lastIndexOf", _) => match self.kind(target) {
                Type::List(items) => {
                    let text = matches!(**items, Type::String | Type::Bytes);
                    let most = self.declared_item(target).max;
                    let each = if text { scaled(most, TRAVERSAL).saturating_add(1) } else { 1 };
                    size.max.saturating_mul(each)
                }
                _ => scaled(size.max, TRAVERSAL),
            },
            ("lowerAscii" | "upperAscii" | "substring" | "trim", _) => {
                self.sizes.insert(e.id, size);
                scaled(size.max, TRAVERSAL)
            }
            ("replace", [old, new, ..]) => {
                let (old, new) = (self.sized(old), self.sized(new));
                let most = if old.min == 0 {
                    size.max.saturating_add(1).saturating_mul(new.max).saturating_add(size.max)
                } else if new.max <= old.min {
                    size.max
                } else {
                    size.max.div_ceil(old.min).saturating_mul(new.max)
                };
                self.sizes.insert(e.id, Size { min: 0, max: most });
                scaled(size.max, 2.0 * TRAVERSAL)
            }
            ("split", _) => {
                let limit = match args.get(1).map(|limit| &limit.expr) {
                    // A negative limit is none.
                    Some(Expr::Literal(LiteralValue::Int(limit))) => {
                        u64::try_from(*limit.inner()).unwrap_or(u64::MAX)
                    }
                    _ => size.max,
                };
                self.sizes.insert(e.id, Size { min: 0, max: limit });
                scaled(size.max, 2.0 * TRAVERSAL)
            }
            ("join", _) => {
                let item = self.declared_item(target);
                let separator = args.first().map_or(Size::fixed(0), |s| self.sized(s));
                let gaps = size.max.saturating_sub(1).saturating_mul(separator.max);
                let most = size.max.saturating_mul(item.max).saturating_add(gaps);
                self.sizes.insert(e.id, Size { min: 0, max: most });
                scaled(most, TRAVERSAL)
            }
            ("matches" | "find" | "findAll", [pattern, ..]) => {
                if name != "matches" {
                    self.sizes.insert(e.id, Size { min: 0, max: size.max });
                }
                let text = scaled(size.max.saturating_add(1), TRAVERSAL);
                text.saturating_mul(scaled(self.sized(pattern).max, PATTERN))
            }
            ("contains", [part]) => {
                scaled(size.max, TRAVERSAL).saturating_mul(scaled(self.sized(part).max, TRAVERSAL))
            }
            ("startsWith" | "endsWith", [part]) => scaled(self.sized(part).max, TRAVERSAL),
            // How long the text gets is not known.
            ("format", [_]) => scaled(size.max, TRAVERSAL),
            ("containsIP" | "containsCIDR", _) => {
                let text = args.first().filter(|a| matches!(self.kind(a), Type::String)).map(|a| a.id);
                let parsed = match (text, args.first()) {
                    (Some(_), Some(arg)) => scaled(self.sized(arg).max, TRAVERSAL),
                    _ => 0,
                };
                let base = if name == "containsIP" { 4 } else { 4 + 2 + 1 };
                parsed.saturating_add(base)
            }
            _ => self.costly_method(name, args),
        }
    }

    /// Methods of Kubernetes' libraries that look at more than their target.
    fn costly_method(&mut self, name: &str, args: &[IdedExpr]) -> u64 {
        match (name, args) {
            ("validate", [text]) => {
                let read = scaled(self.sized(text).max, TRAVERSAL);
                scaled(read, NAME_PATTERN as f64 * PATTERN)
            }
            ("check", _) => AUTHORIZATION,
            ("fieldSelector" | "labelSelector", [selector]) => {
                let selector = self.sized(selector);
                let requirements = scaled(selector.max, REQUIREMENTS);
                SELECTOR
                    .saturating_add(scaled(selector.max, TRAVERSAL))
                    .saturating_add(scaled(requirements, REQUIREMENT))
            }
            _ => 1,
        }
    }
}
