//! Reads a path. Each character is read once, and what is nested is nested [`MAX_DEPTH`] levels at most.

use serde_json::{Number, Value};

use super::{Filter, Operand, Operator, Segment, Slice};

/// How deep filters, parentheses and negations may be nested.
const MAX_DEPTH: usize = 8;

/// Longer operators first.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Eq),
    ("!=", Operator::Ne),
    ("<=", Operator::Le),
    (">=", Operator::Ge),
    ("<", Operator::Lt),
    (">", Operator::Gt),
];

/// The segments of a whole path; `None` if it cannot be read.
pub(super) fn path(text: &str) -> Option<Vec<Segment>> {
    let text = text.trim();
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text).trim();
    let mut reader = Reader { rest: text, depth: 0 };
    let mut segments = Vec::new();
    if !reader.eat("$") && !text.starts_with(['.', '[']) {
        segments.push(Segment::Name(reader.name()?));
    }
    segments.extend(reader.segments()?);
    reader.rest.is_empty().then_some(segments)
}

struct Reader<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn eat(&mut self, start: &str) -> bool {
        let rest = self.rest.strip_prefix(start);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// The characters from here on that are `of` a kind; at least one.
    fn word(&mut self, of: impl Fn(char) -> bool) -> Option<&'t str> {
        let end = self.rest.find(|c| !of(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    fn name(&mut self) -> Option<String> {
        self.word(|c| c.is_alphanumeric() || matches!(c, '_' | '-')).map(str::to_owned)
    }

    fn segments(&mut self) -> Option<Vec<Segment>> {
        let mut segments = Vec::new();
        loop {
            if self.eat(".") {
                segments.push(if self.eat("*") { Segment::All } else { Segment::Name(self.name()?) });
            } else if self.eat("[") {
                self.spaces();
                segments.push(self.selector()?);
                self.spaces();
                if !self.eat("]") {
                    return None;
                }
            } else {
                return Some(segments);
            }
        }
    }

    fn selector(&mut self) -> Option<Segment> {
        if self.eat("*") {
            return Some(Segment::All);
        }
        if self.eat("?") {
            return self.deeper(Self::any).map(Segment::Where);
        }
        match self.quoted()? {
            Some(name) => Some(Segment::Name(name)),
            None => self.numbers(),
        }
    }

    fn numbers(&mut self) -> Option<Segment> {
        let start = self.integer()?;
        self.spaces();
        if !self.eat(":") {
            return start.map(Segment::Index);
        }
        self.spaces();
        let end = self.integer()?;
        self.spaces();
        let has_step = self.eat(":");
        self.spaces();
        let step = if has_step { self.integer()? } else { None };
        let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0)?;
        Some(Segment::Slice(Slice { start, end, step }))
    }

    /// An integer, or nothing; `None` if it has more than 64 bits.
    fn integer(&mut self) -> Option<Option<i64>> {
        match self.word(|c| c.is_ascii_digit() || c == '-') {
            None => Some(None),
            Some(digits) => digits.parse().ok().map(Some),
        }
    }

    /// A text in quotes, or nothing; `None` if it does not end.
    fn quoted(&mut self) -> Option<Option<String>> {
        let Some(quote) = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return Some(None);
        };
        let mut text = String::new();
        let mut letters = self.rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                end if end == quote => {
                    self.rest = self.rest.get(at + 1..)?;
                    return Some(Some(text));
                }
                '\\' => {
                    let (_, escaped) = letters.next()?;
                    text.push(matches!(escaped, '\'' | '"' | '\\' | '/').then_some(escaped)?);
                }
                letter => text.push(letter),
            }
        }
        None
    }

    fn deeper(&mut self, read: impl Fn(&mut Self) -> Option<Filter>) -> Option<Filter> {
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }

    fn any(&mut self) -> Option<Filter> {
        let mut filters = vec![self.all()?];
        while self.eat("||") {
            filters.push(self.all()?);
        }
        Some(Filter::Any(filters))
    }

    fn all(&mut self) -> Option<Filter> {
        let mut filters = vec![self.one()?];
        while self.eat("&&") {
            filters.push(self.one()?);
        }
        Some(Filter::All(filters))
    }

    /// One term, and the spaces around it.
    fn one(&mut self) -> Option<Filter> {
        self.spaces();
        let filter = if self.eat("!") {
            Filter::Not(Box::new(self.deeper(Self::one)?))
        } else if self.eat("(") {
            let inner = self.deeper(Self::any)?;
            if !self.eat(")") {
                return None;
            }
            inner
        } else {
            self.term()?
        };
        self.spaces();
        Some(filter)
    }

    fn term(&mut self) -> Option<Filter> {
        let left = self.operand()?;
        self.spaces();
        let operator = OPERATORS.iter().find(|(text, _)| self.eat(text)).map(|(_, operator)| *operator);
        let Some(operator) = operator else {
            return match left {
                Operand::Path(segments) => Some(Filter::Exists(segments)),
                Operand::Literal(_) => None,
            };
        };
        self.spaces();
        let right = self.operand()?;
        (left.is_single() && right.is_single()).then_some(Filter::Compares(left, operator, right))
    }

    fn operand(&mut self) -> Option<Operand> {
        if self.eat("@") {
            return self.segments().map(Operand::Path);
        }
        if let Some(text) = self.quoted()? {
            return Some(Operand::Literal(Value::String(text)));
        }
        let literals = [("true", true.into()), ("false", false.into()), ("null", Value::Null)];
        for (text, value) in literals {
            if self.eat(text) {
                return Some(Operand::Literal(value));
            }
        }
        let number = self.word(|c| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E'))?;
        serde_json::from_str::<Number>(number).ok().map(|number| Operand::Literal(Value::Number(number)))
    }
}

impl Operand {
    fn is_single(&self) -> bool {
        match self {
            Self::Literal(_) => true,
            Self::Path(segments) => {
                segments.iter().all(|segment| matches!(segment, Segment::Name(_) | Segment::Index(_)))
            }
        }
    }
}
