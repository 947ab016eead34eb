//! Reads expressions: a text becomes a tree, with the place of each part.
//!
//! Macros are resolved here, so that what follows knows calls and comprehensions alone. Absent on purpose: types.

mod macros;

pub use macros::{MAP_INSERT, SORT_BY};

use crate::lex::{Mistake, Token, Word, words};
use kube_cel::cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, MapEntryExpr, MapExpr,
    SelectExpr, StructExpr, StructFieldExpr, operators as op,
};

/// Longest expression, in characters.
const MAX_LENGTH: usize = 100_000;
/// Deepest tree: what walks it recurses.
const MAX_DEPTH: usize = 200;
/// Deepest nesting of brackets: reading one takes many calls.
const MAX_NESTING: usize = 100;
/// Words that name nothing.
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "in",
];

/// What an expression can start with, as mistakes list it.
const STARTS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, \
    IDENTIFIER}";

/// A tree, with the place of each part by its id.
#[derive(Debug)]
pub struct Parsed {
    /// The whole expression.
    pub root: IdedExpr,
    places: Vec<usize>,
    text: String,
}

impl Parsed {
    /// A mistake at a part, as the real server shows it.
    pub fn show(&self, id: u64, why: &str) -> String {
        let at = usize::try_from(id).ok().and_then(|id| self.places.get(id)).copied().unwrap_or(0);
        shown(&self.text, at, why)
    }

    /// Whether a variable of this name is read.
    pub fn reads(&self, name: &str) -> bool {
        mentions(&self.root, name)
    }
}

/// A mistake with its line, and a mark below its place.
fn shown(text: &str, at: usize, why: &str) -> String {
    if text.is_empty() {
        return format!("ERROR: <input>:1:0: {why}");
    }
    let before = &text[..at.min(text.len())];
    let (start, line) = (before.rfind('\n').map_or(0, |i| i + 1), before.matches('\n').count() + 1);
    let column = before[start..].chars().count();
    let source = text[start..].lines().next().unwrap_or_default();
    format!("ERROR: <input>:{line}:{}: {why}\n | {source}\n | {}^", column + 1, ".".repeat(column))
}

/// Reads an expression.
///
/// # Errors
/// It is too long, too deep, or no expression; the text shows where.
pub fn parse(text: &str) -> Result<Parsed, String> {
    let length = text.chars().count();
    if length > MAX_LENGTH {
        return Err(format!(
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"
        ));
    }
    let told = |mistake: Mistake| shown(text, mistake.at, &mistake.why);
    let words = words(text).map_err(told)?;
    let mut parser = Parser { words, next: 0, places: vec![0], levels: vec![0], nesting: 0 };
    let root = parser.expression().and_then(|root| parser.end().map(|()| root)).map_err(told)?;
    Ok(Parsed { root, places: parser.places, text: text.to_string() })
}

type Read<T = IdedExpr> = Result<T, Mistake>;

struct Parser {
    words: Vec<Word>,
    next: usize,
    places: Vec<usize>,
    /// How deep each part is.
    levels: Vec<usize>,
    nesting: usize,
}

/// Operators that bind equally, the weakest first; all of them lean to the left.
const LEVELS: [&[(&str, &str)]; 3] = [
    &[
        ("==", op::EQUALS),
        ("!=", op::NOT_EQUALS),
        ("<=", op::LESS_EQUALS),
        (">=", op::GREATER_EQUALS),
        ("<", op::LESS),
        (">", op::GREATER),
    ],
    &[("+", op::ADD), ("-", op::SUBSTRACT)],
    &[("*", op::MULTIPLY), ("/", op::DIVIDE), ("%", op::MODULO)],
];

impl Parser {
    fn word(&self) -> &Word {
        // The last word is the end, and nothing steps over it.
        &self.words[self.next.min(self.words.len() - 1)]
    }

    fn here(&self) -> usize {
        self.word().at
    }

    fn is(&self, sign: &str) -> bool {
        matches!(self.word().token, Token::Sign(s) if s == sign)
    }

    /// Steps over a sign; its place.
    fn step(&mut self, sign: &str) -> Option<usize> {
        let at = self.here();
        self.is(sign).then(|| {
            self.next += 1;
            at
        })
    }

    fn expect(&mut self, sign: &str) -> Read<usize> {
        self.step(sign).ok_or_else(|| self.unexpected(&format!("'{sign}'")))
    }

    fn end(&mut self) -> Read<()> {
        if self.word().token == Token::End { Ok(()) } else { Err(self.unexpected("<EOF>")) }
    }

    fn unexpected(&self, wanted: &str) -> Mistake {
        let found = match &self.word().token {
            Token::Name(text) | Token::Int(text) => text.clone(),
            Token::Uint(text) => format!("{text}u"),
            Token::Double(number) => number.to_string(),
            Token::Text(text) => format!("'{text}'"),
            Token::Bytes(_) => "bytes".to_string(),
            Token::Sign(sign) => (*sign).to_string(),
            Token::End => "<EOF>".to_string(),
        };
        Mistake {
            at: self.here(),
            why: format!("Syntax error: mismatched input '{found}' expecting {wanted}"),
        }
    }

    fn make(&mut self, at: usize, expr: Expr) -> IdedExpr {
        let made = IdedExpr { id: self.places.len() as u64, expr };
        let level =
            |part: &IdedExpr| usize::try_from(part.id).ok().and_then(|id| self.levels.get(id)).copied();
        let below = parts(&made).into_iter().filter_map(level).max().unwrap_or(0);
        self.places.push(at);
        self.levels.push(below + 1);
        made
    }

    /// Fails for a tree that has become too deep.
    fn bounded(&self) -> Read<()> {
        let deep = self.levels.last().is_some_and(|level| *level > MAX_DEPTH) || self.nesting > MAX_NESTING;
        let why = format!("expression recursion limit exceeded: {MAX_DEPTH}");
        if deep { Err(Mistake { at: self.here(), why }) } else { Ok(()) }
    }

    fn call(&mut self, at: usize, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.make(at, Expr::Call(CallExpr { func_name: name.to_string(), target: None, args }))
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Parser) -> Read<T>) -> Read<T> {
        self.nesting += 1;
        let found = self.bounded().and_then(|()| read(self));
        self.nesting -= 1;
        found
    }

    fn expression(&mut self) -> Read {
        self.deeper(|parser| {
            let test = parser.joined("||", op::LOGICAL_OR)?;
            let Some(at) = parser.step("?") else { return Ok(test) };
            let yes = parser.joined("||", op::LOGICAL_OR)?;
            parser.expect(":")?;
            let no = parser.expression()?;
            Ok(parser.call(at, op::CONDITIONAL, vec![test, yes, no]))
        })
    }

    /// Terms joined by `||` or `&&`, as a balanced tree: many of them are not deep.
    fn joined(&mut self, sign: &str, name: &str) -> Read {
        let term = |parser: &mut Parser| match sign {
            "||" => parser.joined("&&", op::LOGICAL_AND),
            _ => parser.binary(0),
        };
        let (mut terms, mut places) = (vec![term(self)?], Vec::new());
        while let Some(at) = self.step(sign) {
            places.push(at);
            terms.push(term(self)?);
        }
        let mut terms: Vec<Option<IdedExpr>> = terms.into_iter().map(Some).collect();
        Ok(self.balanced(name, &mut terms, &places))
    }

    fn balanced(&mut self, name: &str, terms: &mut [Option<IdedExpr>], places: &[usize]) -> IdedExpr {
        if let [one] = terms {
            return one.take().unwrap_or_default();
        }
        let middle = places.len() / 2;
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balanced(name, left, &places[..middle]);
        let right = self.balanced(name, right, &places[middle + 1..]);
        self.call(places[middle], name, vec![left, right])
    }

    fn binary(&mut self, level: usize) -> Read {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        loop {
            let sign = operators.iter().find(|(sign, _)| self.is(sign)).map(|(_, name)| *name);
            let within = level == 0 && self.word().token == Token::Name("in".into());
            let Some(name) = sign.or(within.then_some(op::IN)) else { return Ok(left) };
            let at = self.here();
            self.next += 1;
            let right = self.binary(level + 1)?;
            left = self.call(at, name, vec![left, right]);
            self.bounded()?;
        }
    }

    fn unary(&mut self) -> Read {
        let (sign, name) = if self.is("!") {
            ("!", op::LOGICAL_NOT)
        } else if self.is("-") {
            ("-", op::NEGATE)
        } else {
            return self.member();
        };
        let at = self.here();
        let mut count = 0;
        while self.step(sign).is_some() {
            count += 1;
        }
        // The smallest number is a literal of its own.
        if sign == "-" && matches!(self.word().token, Token::Int(_) | Token::Double(_)) {
            count -= 1;
            let number = self.number(true)?;
            let number = self.members(number)?;
            return Ok(if count % 2 == 0 { number } else { self.call(at, name, vec![number]) });
        }
        let operand = self.member()?;
        Ok(if count % 2 == 0 { operand } else { self.call(at, name, vec![operand]) })
    }

    fn number(&mut self, negative: bool) -> Read {
        let Word { token, at } = self.word().clone();
        self.next += 1;
        let parsed = |text: &str| {
            let signed = |digits: &str| if negative { format!("-{digits}") } else { digits.to_string() };
            match text.strip_prefix("0x") {
                Some(hex) => i64::from_str_radix(&signed(hex), 16).ok(),
                None => signed(text).parse().ok(),
            }
        };
        let wrong = |what: &str| Mistake { at, why: format!("invalid {what} literal") };
        let literal = match token {
            Token::Int(text) => LiteralValue::Int(parsed(&text).ok_or_else(|| wrong("int"))?.into()),
            Token::Double(number) => LiteralValue::Double(if negative { -number } else { number }.into()),
            Token::Uint(text) => {
                let number = match text.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16).ok(),
                    None => text.parse::<u64>().ok(),
                };
                LiteralValue::UInt(number.ok_or_else(|| wrong("uint"))?.into())
            }
            _ => return Err(wrong("number")),
        };
        Ok(self.make(at, Expr::Literal(literal)))
    }

    fn member(&mut self) -> Read {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut target: IdedExpr) -> Read {
        loop {
            self.bounded()?;
            if let Some(at) = self.step(".") {
                let optional = self.step("?").is_some();
                let Token::Name(field) = self.word().token.clone() else {
                    return Err(self.unexpected("IDENTIFIER"));
                };
                if matches!(field.as_str(), "in" | "true" | "false" | "null") {
                    return Err(self.unexpected("IDENTIFIER"));
                }
                self.next += 1;
                target = if optional {
                    let name = self.make(at, Expr::Literal(LiteralValue::String(field.as_str().into())));
                    self.call(at, op::OPT_SELECT, vec![target, name])
                } else if self.is("(") {
                    let at = self.here();
                    let args = self.arguments()?;
                    self.receiver(at, target, field, args)?
                } else {
                    let operand = Box::new(target);
                    self.make(at, Expr::Select(SelectExpr { operand, field, test: false }))
                };
            } else if let Some(at) = self.step("[") {
                let name = if self.step("?").is_some() { op::OPT_INDEX } else { op::INDEX };
                let index = self.expression()?;
                self.expect("]")?;
                target = self.call(at, name, vec![target, index]);
            } else if self.is("{")
                && let Some(name) = qualified(&target)
            {
                target = self.message(name)?;
            } else {
                return Ok(target);
            }
        }
    }

    fn arguments(&mut self) -> Read<Vec<IdedExpr>> {
        self.expect("(")?;
        let mut args = Vec::new();
        while !self.is(")") {
            args.push(self.expression()?);
            if self.step(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok(args)
    }

    fn primary(&mut self) -> Read {
        let Word { token, at } = self.word().clone();
        match token {
            Token::Int(_) | Token::Uint(_) | Token::Double(_) => self.number(false),
            Token::Text(text) => {
                self.next += 1;
                Ok(self.make(at, Expr::Literal(LiteralValue::String(text.as_str().into()))))
            }
            Token::Bytes(bytes) => {
                self.next += 1;
                Ok(self.make(at, Expr::Literal(LiteralValue::Bytes(bytes.into()))))
            }
            Token::Sign("(") => {
                self.next += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => self.list(),
            Token::Sign("{") => self.map(),
            Token::Sign(".") => {
                // A name of the outermost scope; there is no other.
                self.next += 1;
                self.name()
            }
            Token::Name(_) => self.name(),
            _ => Err(self.unexpected(STARTS)),
        }
    }

    fn name(&mut self) -> Read {
        let Word { token, at } = self.word().clone();
        let Token::Name(name) = token else { return Err(self.unexpected("IDENTIFIER")) };
        let literal = match name.as_str() {
            "true" => Some(LiteralValue::Boolean(true.into())),
            "false" => Some(LiteralValue::Boolean(false.into())),
            "null" => Some(LiteralValue::Null),
            _ => None,
        };
        if let Some(literal) = literal {
            self.next += 1;
            return Ok(self.make(at, Expr::Literal(literal)));
        }
        if RESERVED.contains(&name.as_str()) {
            return Err(Mistake { at, why: format!("reserved identifier: {name}") });
        }
        self.next += 1;
        if self.is("(") {
            let at = self.here();
            let args = self.arguments()?;
            return self.global(at, name, args);
        }
        Ok(self.make(at, Expr::Ident(name)))
    }

    fn list(&mut self) -> Read {
        let at = self.expect("[")?;
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        while !self.is("]") {
            if self.step("?").is_some() {
                optional.push(elements.len());
            }
            elements.push(self.expression()?);
            if self.step(",").is_none() {
                break;
            }
        }
        self.expect("]")?;
        Ok(self.make(at, Expr::List(ListExpr::new_with_optionals(elements, optional))))
    }

    fn entry(&mut self, at: usize) {
        self.places.push(at);
        self.levels.push(0);
    }

    fn map(&mut self) -> Read {
        let at = self.expect("{")?;
        let mut entries = Vec::new();
        while !self.is("}") {
            let optional = self.step("?").is_some();
            let key = self.expression()?;
            let colon = self.expect(":")?;
            let value = self.expression()?;
            self.entry(colon);
            let expr = EntryExpr::MapEntry(MapEntryExpr { key, value, optional });
            entries.push(IdedEntryExpr { id: self.places.len() as u64 - 1, expr });
            if self.step(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        Ok(self.make(at, Expr::Map(MapExpr { entries })))
    }

    fn message(&mut self, type_name: String) -> Read {
        let at = self.expect("{")?;
        let mut entries = Vec::new();
        while !self.is("}") {
            let optional = self.step("?").is_some();
            let Token::Name(field) = self.word().token.clone() else {
                return Err(self.unexpected("IDENTIFIER"));
            };
            self.next += 1;
            let colon = self.expect(":")?;
            let value = self.expression()?;
            self.entry(colon);
            let expr = EntryExpr::StructField(StructFieldExpr { field, value, optional });
            entries.push(IdedEntryExpr { id: self.places.len() as u64 - 1, expr });
            if self.step(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        Ok(self.make(at, Expr::Struct(StructExpr { type_name, entries })))
    }
}

/// The dotted name that an expression is, if it is one.
pub fn qualified(e: &IdedExpr) -> Option<String> {
    match &e.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified(&select.operand)?, select.field))
        }
        _ => None,
    }
}

/// The parts directly below a part.
pub fn parts(e: &IdedExpr) -> Vec<&IdedExpr> {
    match &e.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(entry_parts).collect(),
        Expr::Struct(made) => made.entries.iter().flat_map(entry_parts).collect(),
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
    }
}

fn entry_parts(entry: &IdedEntryExpr) -> Vec<&IdedExpr> {
    match &entry.expr {
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
        EntryExpr::StructField(field) => vec![&field.value],
    }
}

fn mentions(e: &IdedExpr, name: &str) -> bool {
    matches!(&e.expr, Expr::Ident(found) if found == name)
        || parts(e).into_iter().any(|part| mentions(part, name))
}
