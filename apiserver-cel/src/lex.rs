//! Words of an expression.
//!
//! Inputs: a text. Literals are those of the language definition: escapes, raw and triple-quoted texts, bytes.

/// A word, and where it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    pub token: Token,
    /// Byte of the text.
    pub at: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Name(String),
    Int(String),
    Uint(String),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    pub at: usize,
    pub why: String,
}

/// The longer ones first.
const SIGNS: [&str; 25] = [
    "==", "!=", "<=", ">=", "&&", "||", "(", ")", "[", "]", "{", "}", ",", ".", "?", ":", "+", "-", "*", "/",
    "%", "<", ">", "!", "=",
];

/// Splits a text into words; the last one is the end.
pub fn words(text: &str) -> Result<Vec<Word>, Mistake> {
    let mut lexer = Lexer { text, at: 0 };
    let mut out = Vec::new();
    loop {
        lexer.skip_space();
        let at = lexer.at;
        let token = lexer.token()?;
        let end = token == Token::End;
        out.push(Word { token, at });
        if end {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn take(&mut self, fits: impl Fn(char) -> bool) -> String {
        let rest = self.rest();
        let end = rest.find(|c: char| !fits(c)).unwrap_or(rest.len());
        let found = rest[..end].to_string();
        self.at += end;
        found
    }

    fn skip_space(&mut self) {
        loop {
            self.take(|c| matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.take(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, Mistake> {
        let rest = self.rest();
        let mut chars = rest.chars();
        let Some(first) = chars.next() else { return Ok(Token::End) };
        let second = chars.next();
        if let Some(found) = self.literal()? {
            return Ok(found);
        }
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(Token::Name(self.take(|c| c.is_ascii_alphanumeric() || c == '_')));
        }
        for sign in SIGNS {
            if rest.starts_with(sign) && sign != "=" {
                self.at += sign.len();
                return Ok(Token::Sign(sign));
            }
        }
        let why = match first {
            '`' => "unsupported syntax: '`'".to_string(),
            other => format!("Syntax error: token recognition error at: '{other}'"),
        };
        Err(Mistake { at: self.at, why })
    }

    fn number(&mut self) -> Result<Token, Mistake> {
        let (start, rest) = (self.at, self.rest());
        if rest.starts_with("0x") || rest.starts_with("0X") {
            self.at += 2;
            let digits = self.take(|c| c.is_ascii_hexdigit());
            let text = format!("0x{digits}");
            return Ok(self.whole(text));
        }
        let mut text = self.take(|c| c.is_ascii_digit());
        let mut double = false;
        let fraction =
            self.rest().strip_prefix('.').is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
        if fraction {
            double = true;
            self.at += 1;
            text = format!("{text}.{}", self.take(|c| c.is_ascii_digit()));
        }
        let exponent = self.rest().strip_prefix(['e', 'E']).map(|r| r.strip_prefix(['+', '-']).unwrap_or(r));
        if exponent.is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit())) {
            double = true;
            let signed = self.rest()[1..].starts_with(['+', '-']);
            let sign = if signed { &self.rest()[1..2] } else { "" }.to_string();
            self.at += 1 + sign.len();
            text = format!("{text}e{sign}{}", self.take(|c| c.is_ascii_digit()));
        }
        if !double {
            return Ok(self.whole(text));
        }
        text.parse()
            .map(Token::Double)
            .map_err(|_| Mistake { at: start, why: "invalid double literal".into() })
    }

    fn whole(&mut self, text: String) -> Token {
        if self.rest().starts_with(['u', 'U']) {
            self.at += 1;
            return Token::Uint(text);
        }
        Token::Int(text)
    }

    /// A text or bytes, if one starts here.
    fn literal(&mut self) -> Result<Option<Token>, Mistake> {
        let (start, rest) = (self.at, self.rest());
        let prefix = ["br", "bR", "Br", "BR", "b", "B", "r", "R", ""]
            .into_iter()
            .find(|p| rest.strip_prefix(p).is_some_and(|r| r.starts_with(['\'', '"'])));
        let Some(prefix) = prefix else { return Ok(None) };
        let (bytes, raw) = (prefix.contains(['b', 'B']), prefix.contains(['r', 'R']));
        let body = &rest[prefix.len()..];
        let quote = ["'''", "\"\"\"", "'", "\""].into_iter().find(|q| body.starts_with(q)).unwrap_or("'");
        let inside = &body[quote.len()..];
        let unfinished = || Mistake {
            at: start,
            why: format!(
                "Syntax error: token recognition error at: '{}'",
                rest.lines().next().unwrap_or_default()
            ),
        };
        let end = closing(inside, quote, raw).ok_or_else(unfinished)?;
        let content = &inside[..end];
        let made = if bytes {
            Token::Bytes(if raw {
                content.as_bytes().to_vec()
            } else {
                unescape(content, true).map_err(|why| Mistake { at: start, why })?
            })
        } else if raw {
            Token::Text(content.to_string())
        } else {
            let plain = unescape(content, false).map_err(|why| Mistake { at: start, why })?;
            Token::Text(String::from_utf8(plain).map_err(|_| unfinished())?)
        };
        self.at = start + prefix.len() + quote.len() + end + quote.len();
        Ok(Some(made))
    }
}

/// Where a literal ends.
fn closing(inside: &str, quote: &str, raw: bool) -> Option<usize> {
    let (long, mut at) = (quote.len() == 3, 0);
    while at < inside.len() {
        let rest = &inside[at..];
        if rest.starts_with(quote) {
            return Some(at);
        }
        let c = rest.chars().next()?;
        if !long && matches!(c, '\n' | '\r') {
            return None;
        }
        at += c.len_utf8();
        if c == '\\' && !raw {
            at += inside[at..].chars().next()?.len_utf8();
        }
    }
    None
}

/// Resolves escapes. In bytes, hexadecimal and octal escapes are bytes; in texts they are characters.
fn unescape(content: &str, bytes: bool) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(content.len());
    let mut chars = content.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            put(&mut out, c);
            continue;
        }
        let escape = chars.next().unwrap_or('\\');
        let wrong = || format!("unable to unescape string: \\{escape}");
        let (digits, radix) = match escape {
            'a' => (0, 0x7),
            'b' => (0, 0x8),
            'f' => (0, 0xc),
            'n' => (0, 0xa),
            'r' => (0, 0xd),
            't' => (0, 0x9),
            'v' => (0, 0xb),
            '\\' | '\'' | '"' | '`' | '?' => (0, u32::from(escape)),
            'x' | 'X' => (2, 16),
            'u' if !bytes => (4, 16),
            'U' if !bytes => (8, 16),
            '0'..='3' => (3, 8),
            _ => return Err(wrong()),
        };
        if digits == 0 {
            put(&mut out, char::from_u32(radix).ok_or_else(wrong)?);
            continue;
        }
        let first = (radix == 8).then_some(escape);
        let code: String =
            first.into_iter().chain(chars.by_ref().take(digits - usize::from(radix == 8))).collect();
        let code =
            u32::from_str_radix(&code, radix).ok().filter(|_| code.len() == digits).ok_or_else(wrong)?;
        if bytes {
            out.push(u8::try_from(code).map_err(|_| wrong())?);
        } else {
            put(&mut out, char::from_u32(code).ok_or_else(wrong)?);
        }
    }
    Ok(out)
}

fn put(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(text: &str) -> Token {
        words(text).unwrap().swap_remove(0).token
    }

    #[test]
    fn literals_are_those_of_the_language() {
        for (text, means) in [
            (r"'a\'b'", "a'b"),
            (r#""it's""#, "it's"),
            (r#"'\"'"#, "\""),
            (r"r'\d'", r"\d"),
            ("'''a'b\n'''", "a'b\n"),
            (r"'\u00e9\x41\101\n'", "éAA\n"),
        ] {
            assert_eq!(first(text), Token::Text(means.into()), "{text}");
        }
        assert_eq!(first(r"b'\xff\303é'"), Token::Bytes(vec![0xff, 0o303, 0xc3, 0xa9]));
        assert_eq!(first("1.5e-3"), Token::Double(0.0015));
        assert_eq!(first(".5"), Token::Double(0.5));
        assert_eq!(first("0x1Fu"), Token::Uint("0x1F".into()));
        assert_eq!(first("12"), Token::Int("12".into()));
        for wrong in ["'a", "'a\nb'", r"'\z'", "`a`", "#", r"'\u12'"] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
