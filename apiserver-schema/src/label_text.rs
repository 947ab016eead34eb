//! The text of a label selector: from what a URL says to requirements.
//!
//! Inputs: the value of `labelSelector`. Texts of errors: those of the real server, which names the token it stopped at.
//! Absent on purpose: what labels an object has (see `selectors`).

use crate::names;
use crate::validate::quoted;
use std::collections::BTreeSet;

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    Missing,
    Greater,
    Less,
}

/// What is required of one label.
#[derive(Debug, PartialEq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token {
    Word,
    /// `in` and `notin`, which are words where a key or a value stands.
    Keyword,
    Symbol,
    End,
}

type Item<'t> = (Token, &'t str);

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn is_special(b: u8) -> bool {
    matches!(b, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// The next token of a text, and what follows it.
fn scan(text: &str) -> (Item<'_>, &str) {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n']);
    let Some(first) = text.bytes().next().filter(|b| *b != 0) else { return ((Token::End, ""), "") };
    if is_special(first) {
        let symbol =
            SYMBOLS.iter().find(|symbol| text.starts_with(**symbol)).map_or(1, |symbol| symbol.len());
        let (symbol, rest) = text.split_at(symbol);
        return ((Token::Symbol, symbol), rest);
    }
    let end = text.bytes().position(|b| b == 0 || is_special(b) || is_space(b)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let token = if matches!(word, "in" | "notin") { Token::Keyword } else { Token::Word };
    ((token, word), rest.strip_prefix('\0').unwrap_or(rest))
}

struct Tokens<'t> {
    list: Vec<Item<'t>>,
    at: usize,
}

impl<'t> Tokens<'t> {
    fn of(mut text: &'t str) -> Self {
        let mut list = Vec::new();
        loop {
            let (item, rest) = scan(text);
            if item.0 == Token::End {
                return Tokens { list, at: 0 };
            }
            list.push(item);
            text = rest;
        }
    }

    fn look(&self) -> Item<'t> {
        self.list.get(self.at).copied().unwrap_or((Token::End, ""))
    }

    fn take(&mut self) -> Item<'t> {
        let item = self.look();
        self.at += 1;
        item
    }
}

fn is_word(item: Item) -> bool {
    matches!(item.0, Token::Word | Token::Keyword)
}

/// Parses a selector.
pub fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = Tokens::of(text);
    let mut out = Vec::new();
    loop {
        match tokens.look() {
            (Token::End, _) => return Ok(out),
            item if is_word(item) || item.1 == "!" => {
                let found =
                    requirement(&mut tokens).map_err(|e| format!("unable to parse requirement: {e}"))?;
                out.push(found);
            }
            (_, found) => {
                return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
            }
        }
        match tokens.take() {
            (Token::End, _) => return Ok(out),
            (_, ",") => {
                let next = tokens.look();
                if !is_word(next) && next.1 != "!" {
                    return Err(format!("found '{}', expected: identifier after ','", next.1));
                }
            }
            (_, found) => return Err(format!("found '{found}', expected: ',' or 'end of string'")),
        }
    }
}

fn requirement(tokens: &mut Tokens) -> Result<Requirement, String> {
    let mut item = tokens.take();
    let missing = item.1 == "!";
    if missing {
        item = tokens.take();
    }
    if !is_word(item) {
        return Err(format!("found '{}', expected: identifier", item.1));
    }
    let key = item.1.to_string();
    let whys = names::qualified(&key);
    if !whys.is_empty() {
        return Err(format!("<nil>: Invalid value: {}: {}", quoted(&key), whys.join("; ")));
    }
    let ends = matches!(tokens.look(), (Token::End, _) | (_, ","));
    if missing || ends {
        let operator = if missing { Operator::Missing } else { Operator::Exists };
        return Ok(Requirement { key, operator, values: Vec::new() });
    }
    let (token, text) = tokens.take();
    let operator = match text {
        "in" if token == Token::Keyword => Operator::In,
        "notin" if token == Token::Keyword => Operator::NotIn,
        "=" | "==" => Operator::In,
        "!=" => Operator::NotIn,
        ">" => Operator::Greater,
        "<" => Operator::Less,
        _ => return Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = if token == Token::Keyword { listed(tokens)? } else { exact(tokens)? };
    check(&key, operator, &values)?;
    Ok(Requirement { key, operator, values })
}

/// The one value behind a comparison; nothing is a value, too.
fn exact(tokens: &mut Tokens) -> Result<Vec<String>, String> {
    if matches!(tokens.look(), (Token::End, _) | (_, ",")) {
        return Ok(vec![String::new()]);
    }
    let item = tokens.take();
    if is_word(item) {
        Ok(vec![item.1.to_string()])
    } else {
        Err(format!("found '{}', expected: identifier", item.1))
    }
}

/// The values between parentheses, sorted.
fn listed(tokens: &mut Tokens) -> Result<Vec<String>, String> {
    let open = tokens.take();
    if open.1 != "(" {
        return Err(format!("found '{}' expected: '('", open.1));
    }
    let mut values = BTreeSet::new();
    match tokens.look() {
        (_, ")") => {
            values.insert(String::new());
        }
        item if is_word(item) || item.1 == "," => identifiers(tokens, &mut values)?,
        (_, found) => return Err(format!("found '{found}', expected: ',', ')' or identifier")),
    }
    // The closing one, which was seen.
    tokens.take();
    Ok(values.into_iter().collect())
}

fn identifiers(tokens: &mut Tokens, values: &mut BTreeSet<String>) -> Result<(), String> {
    loop {
        let item = tokens.take();
        if is_word(item) {
            values.insert(item.1.to_string());
            match tokens.look() {
                (_, ",") => {}
                (_, ")") => return Ok(()),
                (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
            }
        } else if item.1 == "," {
            if values.is_empty() {
                values.insert(String::new());
            }
            match tokens.look() {
                (_, ")") => {
                    values.insert(String::new());
                    return Ok(());
                }
                (_, ",") => {
                    values.insert(String::new());
                }
                _ => {}
            }
        } else {
            return Err(format!("found '{}', expected: ',', or identifier", item.1));
        }
    }
}

/// Values are those that labels can have, and numbers where they are compared.
fn check(key: &str, operator: Operator, values: &[String]) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (i, value) in values.iter().enumerate() {
        if matches!(operator, Operator::Greater | Operator::Less) && value.parse::<i64>().is_err() {
            let why = "for 'Gt', 'Lt' operators, the value must be an integer";
            wrong.push(format!("values[{i}]: Invalid value: {}: {why}", quoted(value)));
        }
    }
    for (i, value) in values.iter().enumerate() {
        let whys = names::label_value(value);
        if !whys.is_empty() {
            wrong.push(format!("values[{i}][{key}]: Invalid value: {}: {}", quoted(value), whys.join("; ")));
        }
    }
    match &wrong[..] {
        [] => Ok(()),
        [one] => Err(one.clone()),
        more => Err(format!("[{}]", more.join(", "))),
    }
}

#[cfg(test)]
mod tests;
