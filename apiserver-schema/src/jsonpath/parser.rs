//! From the text of a path to its parts.
//!
//! Inputs: what stands between the braces of a template. The rules are those of client-go, odd ones too: a key in brackets is a path
//! of its own, and its dots are escaped by a backslash. Absent on purpose: what a path leads to.

use super::{Filter, Node, Range};
use serde_json::Value;

/// Parts within parts, such as filters within filters.
const DEEPEST: usize = 20;

/// The parts of a path; None for what is none.
pub fn parse(text: &str) -> Option<Vec<Node>> {
    action(text, 0)
}

fn action(text: &str, depth: usize) -> Option<Vec<Node>> {
    if depth > DEEPEST {
        return None;
    }
    let mut parser = Parser { chars: text.chars().collect(), at: 0, depth, nodes: Vec::new() };
    parser.run()?;
    // What follows a closing brace is text, or another path that no column shows.
    Some(parser.nodes)
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    depth: usize,
    nodes: Vec<Node>,
}

/// What ends a name.
fn ends(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn starts(&self, with: &str) -> bool {
        with.chars().enumerate().all(|(i, c)| self.chars.get(self.at + i) == Some(&c))
    }

    fn since(&self, start: usize) -> String {
        self.chars.get(start..self.at).unwrap_or_default().iter().collect()
    }

    fn run(&mut self) -> Option<()> {
        while let Some(c) = self.peek() {
            if self.starts("[?(") {
                self.filter()?;
                continue;
            }
            if self.starts("..") {
                self.recursive()?;
                continue;
            }
            match c {
                '}' => return Some(()),
                ' ' | '@' | '$' => self.at += 1,
                '[' => self.array()?,
                '"' | '\'' => self.quote()?,
                '.' => {
                    self.at += 1;
                    self.field();
                }
                '+' | '-' => self.number()?,
                c if c.is_numeric() => self.number()?,
                c if c == '_' || c.is_alphabetic() => self.word(),
                _ => return None,
            }
        }
        Some(())
    }

    fn recursive(&mut self) -> Option<()> {
        if self.nodes.last() == Some(&Node::Recursive) {
            return None;
        }
        self.at += 2;
        self.nodes.push(Node::Recursive);
        if self.peek().is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            self.field();
        }
        Some(())
    }

    /// A name up to what ends it; a backslash keeps the next character.
    fn field(&mut self) {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| !ends(*c)) {
            self.at += 1;
            if c != '\\' {
                name.push(c);
            } else if let Some(kept) = self.next().filter(|kept| *kept != '\\') {
                name.push(kept);
            }
        }
        self.nodes.push(if name == "*" { Node::Wildcard } else { Node::Field(name) });
    }

    fn word(&mut self) {
        let start = self.at;
        while self.peek().is_some_and(|c| !ends(c)) {
            self.at += 1;
        }
        self.nodes.push(match self.since(start).as_str() {
            "true" => Node::Literal(Value::Bool(true)),
            "false" => Node::Literal(Value::Bool(false)),
            _ => Node::Word,
        });
    }

    fn number(&mut self) -> Option<()> {
        let start = self.at;
        self.at += 1;
        while self.peek().is_some_and(|c| c == '.' || c.is_numeric()) {
            self.at += 1;
        }
        let text = self.since(start);
        let value = match text.parse::<i64>() {
            Ok(n) => Value::from(n),
            Err(_) => Value::from(text.parse::<f64>().ok()?),
        };
        self.nodes.push(Node::Literal(value));
        Some(())
    }

    fn quote(&mut self) -> Option<()> {
        let quote = self.next()?;
        let mut text = String::new();
        loop {
            match self.next()? {
                '\n' => return None,
                '\\' => text.push(match self.next()? {
                    'a' => '\u{7}',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    'v' => '\u{b}',
                    '\\' => '\\',
                    c if c == quote => c,
                    _ => return None,
                }),
                c if c == quote => break,
                c => text.push(c),
            }
        }
        self.nodes.push(Node::Literal(Value::String(text)));
        Some(())
    }

    fn array(&mut self) -> Option<()> {
        let start = self.at + 1;
        while self.next()? != ']' {
            if self.peek() == Some('\n') {
                return None;
            }
        }
        let text: String = self.chars.get(start..self.at - 1)?.iter().collect();
        if text.contains(',') {
            let part = |part: &str| action(&format!("[{}]", part.trim_matches(' ')), self.depth + 1);
            let parts: Option<Vec<_>> = text.split(',').map(part).collect();
            self.nodes.push(Node::Union(parts?));
            return Some(());
        }
        let key = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        match key.filter(|key| !key.contains('\'')) {
            Some(key) => self.nodes.extend(action(&format!(".{key}"), self.depth + 1)?),
            None => self.nodes.push(Node::Array(range(&text)?)),
        }
        Some(())
    }

    fn filter(&mut self) -> Option<()> {
        self.at += 3;
        let start = self.at;
        let (mut quote, mut closed) = (None, false);
        loop {
            let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at)).copied();
            match self.next()? {
                '\n' => return None,
                c @ ('"' | '\'') if quote.is_none() => quote = Some(c),
                c if Some(c) == quote && before != Some('\\') => closed = true,
                ')' if quote.is_some() == closed => break,
                _ => {}
            }
        }
        let text: String = self.chars.get(start..self.at - 1)?.iter().collect();
        if self.next()? != ']' {
            return None;
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let filter = match text.find(is_operator).filter(|at| *at > 0) {
            None => Filter { left: action(&text, self.depth + 1)?, compared: None },
            Some(at) => {
                let (left, rest) = text.split_at(at);
                let right = rest.trim_start_matches(is_operator);
                let operator = rest.strip_suffix(right).filter(|_| !right.is_empty())?;
                let compared = Some((operator.to_string(), action(right, self.depth + 1)?));
                Filter { left: action(left, self.depth + 1)?, compared }
            }
        };
        self.nodes.push(Node::Filter(Box::new(filter)));
        Some(())
    }
}

/// An index, or `start:end:step`, each of which may be left out.
fn range(text: &str) -> Option<Range> {
    let text = if text == "*" { ":" } else { text };
    let parts: Vec<&str> = text.split(':').collect();
    let number = |text: &str| -> Option<Option<i64>> {
        if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
    };
    let plain = |text: &&str| text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if parts.len() > 3 || !parts.iter().all(plain) {
        return None;
    }
    let start = number(parts.first()?)?;
    let single = parts.len() == 1;
    let end = match parts.get(1) {
        Some(end) => number(end)?,
        None => Some(start.unwrap_or(0).checked_add(1)?),
    };
    let step = parts.get(2).map_or(Some(None), |step| number(step))?;
    Some(Range { start, end, step, single })
}
