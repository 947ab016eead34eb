//! What is wrong with a text that is no JSON, in the words of the real server.
//!
//! Inputs: the bytes of a body that could not be parsed. Absent on purpose: parsing (see `tree::parse`).

/// What a composite value is in the middle of.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Key,
    Value,
    Array,
}

/// What is expected of the next byte.
#[derive(Clone, Copy)]
enum State {
    ValueOrEnd,
    Value,
    KeyOrEnd,
    Key,
    AfterValue,
    AfterAll,
    Text,
    Escape,
    Hex(u8),
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    /// A word, and how much of it was there.
    Word(&'static str, usize),
}

type Step = Result<State, String>;

/// Why bytes are not JSON; None if they are.
pub fn problem(bytes: &[u8]) -> Option<String> {
    let (mut state, mut within) = (State::Value, Vec::new());
    for byte in bytes {
        state = match next(state, *byte, &mut within) {
            Ok(state) => state,
            Err(why) => return Some(why),
        };
    }
    // The end counts as a space: a number is complete only now, and a word may miss its last letters.
    match next(state, b' ', &mut within) {
        Ok(State::AfterAll) => None,
        Ok(_) => Some("unexpected end of JSON input".into()),
        Err(why) => Some(why),
    }
}

fn wrong(byte: u8, context: &str) -> Step {
    let c = char::from(byte);
    let shown = match c {
        '\'' => "\\'".to_string(),
        '"' => "\"".to_string(),
        '\\' => "\\\\".to_string(),
        '\n' => "\\n".to_string(),
        '\r' => "\\r".to_string(),
        '\t' => "\\t".to_string(),
        '\u{7}' => "\\a".to_string(),
        '\u{8}' => "\\b".to_string(),
        '\u{b}' => "\\v".to_string(),
        '\u{c}' => "\\f".to_string(),
        '\0'..='\u{1f}' | '\u{7f}' => format!("\\x{byte:02x}"),
        '\u{80}'..='\u{a0}' | '\u{ad}' => format!("\\u{byte:04x}"),
        c => c.to_string(),
    };
    Err(format!("invalid character '{shown}' {context}"))
}

fn next(state: State, c: u8, within: &mut Vec<Within>) -> Step {
    use State::*;
    let space = matches!(c, b' ' | b'\t' | b'\r' | b'\n');
    match state {
        ValueOrEnd | Value | KeyOrEnd | Key | AfterAll if space => Ok(state),
        ValueOrEnd if c == b']' => after_value(c, within),
        ValueOrEnd | Value => value(c, within),
        KeyOrEnd if c == b'}' => {
            if let Some(last) = within.last_mut() {
                *last = Within::Value;
            }
            after_value(c, within)
        }
        KeyOrEnd | Key if c == b'"' => Ok(Text),
        KeyOrEnd | Key => wrong(c, "looking for beginning of object key string"),
        AfterValue => after_value(c, within),
        AfterAll => wrong(c, "after top-level value"),
        Text | Escape | Hex(_) => in_text(state, c),
        Word(word, at) => in_word(word, at, c),
        number => in_number(number, c, within),
    }
}

fn value(c: u8, within: &mut Vec<Within>) -> Step {
    match c {
        b'{' => {
            within.push(Within::Key);
            Ok(State::KeyOrEnd)
        }
        b'[' => {
            within.push(Within::Array);
            Ok(State::ValueOrEnd)
        }
        b'"' => Ok(State::Text),
        b'-' => Ok(State::Minus),
        b'0' => Ok(State::Zero),
        b'1'..=b'9' => Ok(State::Digits),
        b't' => Ok(State::Word("true", 1)),
        b'f' => Ok(State::Word("false", 1)),
        b'n' => Ok(State::Word("null", 1)),
        _ => wrong(c, "looking for beginning of value"),
    }
}

fn after_value(c: u8, within: &mut Vec<Within>) -> Step {
    let space = matches!(c, b' ' | b'\t' | b'\r' | b'\n');
    let Some(last) = within.last_mut() else {
        return if space { Ok(State::AfterAll) } else { wrong(c, "after top-level value") };
    };
    let end = match (*last, c) {
        _ if space => return Ok(State::AfterValue),
        (Within::Key, b':') => {
            *last = Within::Value;
            return Ok(State::Value);
        }
        (Within::Key, _) => return wrong(c, "after object key"),
        (Within::Value, b',') => {
            *last = Within::Key;
            return Ok(State::Key);
        }
        (Within::Array, b',') => return Ok(State::Value),
        (Within::Value, b'}') | (Within::Array, b']') => true,
        _ => false,
    };
    if !end {
        let object = *last == Within::Value;
        return wrong(c, if object { "after object key:value pair" } else { "after array element" });
    }
    within.pop();
    Ok(if within.is_empty() { State::AfterAll } else { State::AfterValue })
}

fn in_text(state: State, c: u8) -> Step {
    match (state, c) {
        (State::Text, b'"') => Ok(State::AfterValue),
        (State::Text, b'\\') => Ok(State::Escape),
        (State::Text, 0..=0x1f) => wrong(c, "in string literal"),
        (State::Text, _) => Ok(State::Text),
        (State::Escape, b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"') => Ok(State::Text),
        (State::Escape, b'u') => Ok(State::Hex(4)),
        (State::Escape, _) => wrong(c, "in string escape code"),
        (State::Hex(left), _) if c.is_ascii_hexdigit() => {
            Ok(if left > 1 { State::Hex(left - 1) } else { State::Text })
        }
        _ => wrong(c, "in \\u hexadecimal character escape"),
    }
}

fn in_word(word: &'static str, at: usize, c: u8) -> Step {
    match word.as_bytes().get(at) {
        Some(want) if *want == c && at + 1 == word.len() => Ok(State::AfterValue),
        Some(want) if *want == c => Ok(State::Word(word, at + 1)),
        Some(want) => wrong(c, &format!("in literal {word} (expecting '{}')", char::from(*want))),
        None => Ok(State::AfterValue),
    }
}

fn in_number(state: State, c: u8, within: &mut Vec<Within>) -> Step {
    use State::*;
    let digit = c.is_ascii_digit();
    match state {
        Minus if c == b'0' => Ok(Zero),
        Minus if digit => Ok(Digits),
        Minus => wrong(c, "in numeric literal"),
        Digits if digit => Ok(Digits),
        Digits | Zero if c == b'.' => Ok(Point),
        Digits | Zero | Fraction if matches!(c, b'e' | b'E') => Ok(Exponent),
        Point | Fraction if digit => Ok(Fraction),
        Point => wrong(c, "after decimal point in numeric literal"),
        Exponent if matches!(c, b'+' | b'-') => Ok(ExponentSign),
        Exponent | ExponentSign | ExponentDigits if digit => Ok(ExponentDigits),
        Exponent | ExponentSign => wrong(c, "in exponent of numeric literal"),
        _ => after_value(c, within),
    }
}

/// The start of a body, as a message shows it.
pub fn summary(bytes: &[u8]) -> String {
    const SHOWN: usize = 30;
    if bytes.is_empty() {
        return "<empty>".into();
    }
    let start = &bytes[..bytes.len().min(SHOWN)];
    let dots = if bytes.len() > SHOWN { " ..." } else { "" };
    if bytes[0] == b'{' {
        return format!("{}{dots}", String::from_utf8_lossy(start));
    }
    let hex: String = start.iter().map(|b| format!("{b:02x}")).collect();
    format!("{hex}{dots}")
}

#[cfg(test)]
mod tests;
