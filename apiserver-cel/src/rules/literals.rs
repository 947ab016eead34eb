//! Checks of literal arguments: what can only fail is refused before it is ever evaluated.

use super::types::Type;
use crate::eval::{self, Scope};
use crate::parse::parts;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue};
use std::collections::HashMap;

type Mistake = (u64, String);

/// Checks an expression whose types are known.
pub fn check(e: &IdedExpr, types: &HashMap<u64, Type>) -> Result<(), Mistake> {
    if let Expr::Call(call) = &e.expr {
        match (call.func_name.as_str(), text_of(call)) {
            ("duration", Some((id, text))) if eval::parse_duration(text).is_none() => {
                return Err((id, "invalid duration argument".into()));
            }
            ("timestamp", Some((id, text))) if eval::parse_time(text).is_none() => {
                return Err((id, "invalid timestamp argument".into()));
            }
            ("matches", Some((id, text))) if eval::compile_pattern(text).is_err() => {
                return Err((id, "invalid matches argument".into()));
            }
            ("format", _) => formatted(call, types)?,
            _ => {}
        }
    }
    parts(e).into_iter().try_for_each(|part| check(part, types))
}

/// The last argument, if it is a literal text.
fn text_of(call: &CallExpr) -> Option<(u64, &str)> {
    let last = call.args.last()?;
    match &last.expr {
        Expr::Literal(LiteralValue::String(text)) => Some((last.id, text.inner())),
        _ => None,
    }
}

/// The clauses of a literal pattern against the types of literal arguments.
fn formatted(call: &CallExpr, types: &HashMap<u64, Type>) -> Result<(), Mistake> {
    let (Some(target), [list]) = (&call.target, call.args.as_slice()) else { return Ok(()) };
    let (Expr::Literal(LiteralValue::String(pattern)), Expr::List(args)) = (&target.expr, &list.expr) else {
        return Ok(());
    };
    let mut clauses = Vec::new();
    let mut chars = pattern.inner().chars();
    while let Some(c) = chars.next() {
        if c == '%' {
            match chars.find(|c| !c.is_ascii_digit() && *c != '.') {
                Some('%') => {}
                Some(clause) => clauses.push(clause),
                None => {
                    return Err((
                        list.id,
                        "could not parse formatting clause: unexpected end of string".into(),
                    ));
                }
            }
        }
    }
    for (i, clause) in clauses.iter().enumerate() {
        if !"sdfebxXo".contains(*clause) {
            let why =
                format!("could not parse formatting clause: unrecognized formatting clause \"{clause}\"");
            return Err((list.id, why));
        }
        let Some(arg) = args.elements.get(i) else {
            return Err((list.id, format!("index {i} out of range")));
        };
        let of = types.get(&arg.id).unwrap_or(&Type::Dyn);
        if let Some(takes) = refuses(*clause, of) {
            return Err((arg.id, format!("error during formatting: {takes}, was given {of}")));
        }
    }
    if args.elements.len() > clauses.len() {
        let (wanted, found) = (clauses.len(), args.elements.len());
        let why = format!("too many arguments supplied to string.format (expected {wanted}, got {found})");
        return Err((list.id, why));
    }
    Ok(())
}

/// What a clause takes, if it does not take this.
fn refuses(clause: char, of: &Type) -> Option<&'static str> {
    use Type::{Bool, Bytes, Double, Dyn, Free, Int, Object, Opaque, Optional, String, Uint};
    if matches!(of, Dyn | Free) {
        return None;
    }
    let (takes, fits) = match clause {
        'd' => ("decimal clause can only be used on integers", matches!(of, Int | Uint)),
        'f' => ("fixed-point clause can only be used on doubles", matches!(of, Double)),
        'e' => ("scientific clause can only be used on doubles", matches!(of, Double)),
        'b' => ("only integers and bools can be formatted as binary", matches!(of, Int | Uint | Bool)),
        'o' => ("octal clause can only be used on integers", matches!(of, Int | Uint)),
        'x' | 'X' => (
            "only integers, byte buffers, and strings can be formatted as hex",
            matches!(of, Int | Uint | String | Bytes),
        ),
        _ => (
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps",
            !matches!(of, Object(_) | Opaque(_) | Optional(_)),
        ),
    };
    (!fits).then_some(takes)
}

/// Functions that are called when a rule is compiled, if their arguments are literals.
const FOLDED: [&str; 10] =
    ["int", "uint", "double", "string", "bool", "bytes", "duration", "timestamp", "find", "findAll"];

/// Why a part of an expression can have no value, whatever it is evaluated with.
pub fn hopeless(e: &IdedExpr) -> Option<String> {
    if let Expr::Call(call) = &e.expr
        && FOLDED.contains(&call.func_name.as_str())
        && call.target.iter().map(|t| &**t).chain(&call.args).all(constant)
    {
        return Scope::new(Vec::new())
            .value(e)
            .err()
            .map(|why| format!("program instantiation failed: {why}"));
    }
    parts(e).into_iter().find_map(hopeless)
}

fn constant(e: &IdedExpr) -> bool {
    match &e.expr {
        Expr::Literal(_) => true,
        Expr::Call(call) => call.func_name == "dyn" && call.args.iter().all(constant),
        _ => false,
    }
}
