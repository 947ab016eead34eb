//! Patterns of RE2 in the syntax of this workspace's engine.
//!
//! Both are without backtracking and nearly of one syntax. What differs: RE2's classes are of ASCII, and a bracket
//! inside a class is itself.

/// The same pattern for the engine here.
pub fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut class = false;
    while let Some(c) = chars.next() {
        match (c, class) {
            ('\\', _) => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\f\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\f\\r ]"),
                Some('b') if !class => out.push_str("(?-u:\\b)"),
                // Not on the boundary of a word of ASCII; inside a character there is none.
                Some('B') if !class => out.push_str("(?-u:\\B)"),
                Some(other) => out.extend(['\\', other]),
                None => out.push('\\'),
            },
            ('[', false) => {
                class = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
                // A bracket that comes first is itself.
                if chars.peek() == Some(&']') {
                    chars.next();
                    out.push_str("\\]");
                }
            }
            ('[', true) if chars.peek() == Some(&':') => {
                out.push('[');
                for inner in chars.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            ('[' | '&' | '~', true) => out.extend(['\\', c]),
            (']', true) => {
                class = false;
                out.push(']');
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    #[test]
    fn classes_are_of_ascii() {
        let matches = |pattern: &str, text: &str| Regex::new(&translate(pattern)).unwrap().is_match(text);
        assert!(matches(r"^[\w.-]+$", "a_1.-") && !matches(r"^\w$", "é") && !matches(r"^\d$", "٣"));
        assert!(matches(r"^[^\d]$", "٣") && matches(r"^[[a]+$", "[a") && matches(r"^[]a]+$", "]a"));
        assert!(
            matches(r"^[[:alpha:]&&~]+$", "a&~") && matches(r"\bab\b", "x ab y") && !matches("a.b", "a\nb")
        );
    }
}
