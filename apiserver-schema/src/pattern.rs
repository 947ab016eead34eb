//! A small regular expression matcher for `pattern` rules.
//!
//! Inputs: the RE2 subset that schemas use: literals, classes, groups, alternation, repetition, anchors and the
//! escapes `\d \w \s \b` and their negations. Runs as a set of states, so no input makes it exponential.
//! Absent on purpose: captures, Unicode classes, flags. A pattern outside the subset is not enforced.

#[derive(Debug, Clone)]
enum Inst {
    Char(char),
    Any,
    Class(Vec<(char, char)>, bool),
    Split(usize, usize),
    Jump(usize),
    Start,
    End,
    Word(bool),
    Match,
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern(Vec<Inst>);

/// Repetitions are unrolled; this bounds the program.
const MAX_PROGRAM: usize = 20_000;

#[derive(Debug, Clone)]
enum Node {
    Empty,
    One(Inst),
    Cat(Vec<Node>),
    Alt(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

impl Pattern {
    /// Compiles; None when the pattern uses something outside the subset.
    pub fn new(text: &str) -> Option<Pattern> {
        let chars: Vec<char> = text.chars().collect();
        let mut parser = Parser { chars: &chars, at: 0, depth: 0 };
        let node = parser.alternation()?;
        if parser.at != chars.len() {
            return None;
        }
        let mut program = Vec::new();
        emit(&node, &mut program)?;
        program.push(Inst::Match);
        Some(Pattern(program))
    }

    /// True when the pattern matches somewhere in the text.
    pub fn is_match(&self, text: &str) -> bool {
        let chars: Vec<char> = text.chars().collect();
        let mut current = States::new(self.0.len());
        let mut next = States::new(self.0.len());
        for at in 0..=chars.len() {
            // Searching anywhere: a new attempt starts at each place.
            if self.follow(0, at, &chars, &mut current) {
                return true;
            }
            let Some(&c) = chars.get(at) else { break };
            next.clear();
            for i in 0..current.list.len() {
                let pc = current.list[i];
                let ok = match &self.0[pc] {
                    Inst::Char(x) => *x == c,
                    Inst::Any => c != '\n',
                    Inst::Class(ranges, negated) => {
                        ranges.iter().any(|(a, b)| *a <= c && c <= *b) != *negated
                    }
                    _ => false,
                };
                if ok && self.follow(pc + 1, at + 1, &chars, &mut next) {
                    return true;
                }
            }
            std::mem::swap(&mut current, &mut next);
        }
        false
    }

    fn follow(&self, start: usize, at: usize, chars: &[char], states: &mut States) -> bool {
        let mut stack = vec![start];
        while let Some(pc) = stack.pop() {
            if !states.add(pc) {
                continue;
            }
            match &self.0[pc] {
                Inst::Match => return true,
                Inst::Jump(to) => stack.push(*to),
                Inst::Split(a, b) => stack.extend([*b, *a]),
                Inst::Start if at == 0 => stack.push(pc + 1),
                Inst::End if at == chars.len() => stack.push(pc + 1),
                Inst::Word(want) => {
                    let word = |i: Option<&char>| i.is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_');
                    let before = at > 0 && word(chars.get(at - 1));
                    if (before != word(chars.get(at))) == *want {
                        stack.push(pc + 1);
                    }
                }
                _ => {}
            }
        }
        false
    }
}

struct States {
    list: Vec<usize>,
    seen: Vec<bool>,
}

impl States {
    fn new(n: usize) -> States {
        States { list: Vec::new(), seen: vec![false; n] }
    }
    fn add(&mut self, pc: usize) -> bool {
        if self.seen[pc] {
            return false;
        }
        self.seen[pc] = true;
        self.list.push(pc);
        true
    }
    fn clear(&mut self) {
        for pc in self.list.drain(..) {
            self.seen[pc] = false;
        }
    }
}

fn emit(node: &Node, out: &mut Vec<Inst>) -> Option<()> {
    if out.len() > MAX_PROGRAM {
        return None;
    }
    match node {
        Node::Empty => {}
        Node::One(i) => out.push(i.clone()),
        Node::Cat(list) => {
            for n in list {
                emit(n, out)?;
            }
        }
        Node::Alt(list) => {
            let mut ends = Vec::new();
            for (i, n) in list.iter().enumerate() {
                if i + 1 == list.len() {
                    emit(n, out)?;
                } else {
                    let split = out.len();
                    out.push(Inst::Match);
                    emit(n, out)?;
                    ends.push(out.len());
                    out.push(Inst::Match);
                    out[split] = Inst::Split(split + 1, out.len());
                }
            }
            let end = out.len();
            for at in ends {
                out[at] = Inst::Jump(end);
            }
        }
        Node::Repeat(n, min, max) => {
            for _ in 0..*min {
                emit(n, out)?;
            }
            match max {
                None => {
                    let split = out.len();
                    out.push(Inst::Match);
                    emit(n, out)?;
                    out.push(Inst::Jump(split));
                    out[split] = Inst::Split(split + 1, out.len());
                }
                Some(max) => {
                    let mut splits = Vec::new();
                    for _ in *min..*max {
                        splits.push(out.len());
                        out.push(Inst::Match);
                        emit(n, out)?;
                    }
                    let end = out.len();
                    for at in splits {
                        out[at] = Inst::Split(at + 1, end);
                    }
                }
            }
        }
    }
    Some(())
}

struct Parser<'a> {
    chars: &'a [char],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.peek() == Some(c);
        self.at += usize::from(hit);
        hit
    }

    fn alternation(&mut self) -> Option<Node> {
        self.depth += 1;
        if self.depth > 50 {
            return None;
        }
        let mut list = vec![self.sequence()?];
        while self.eat('|') {
            list.push(self.sequence()?);
        }
        self.depth -= 1;
        Some(if list.len() == 1 { list.swap_remove(0) } else { Node::Alt(list) })
    }

    fn sequence(&mut self) -> Option<Node> {
        let mut list = Vec::new();
        while let Some(c) = self.peek() {
            if c == '|' || c == ')' {
                break;
            }
            let atom = self.atom()?;
            list.push(self.repeat(atom)?);
        }
        Some(if list.is_empty() { Node::Empty } else { Node::Cat(list) })
    }

    fn repeat(&mut self, atom: Node) -> Option<Node> {
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => {
                let close = self.chars[self.at..].iter().position(|c| *c == '}')? + self.at;
                let body: String = self.chars[self.at + 1..close].iter().collect();
                self.at = close;
                match body.split_once(',') {
                    None => {
                        let n = body.parse().ok()?;
                        (n, Some(n))
                    }
                    Some((a, "")) => (a.parse().ok()?, None),
                    Some((a, b)) => (a.parse().ok()?, Some(b.parse().ok()?)),
                }
            }
            _ => return Some(atom),
        };
        self.at += 1;
        // Laziness does not change whether there is a match.
        self.eat('?');
        if min > 1000 || max.is_some_and(|m| m > 1000 || m < min) {
            return None;
        }
        Some(Node::Repeat(Box::new(atom), min, max))
    }

    fn atom(&mut self) -> Option<Node> {
        let c = self.peek()?;
        self.at += 1;
        Some(match c {
            '.' => Node::One(Inst::Any),
            '^' => Node::One(Inst::Start),
            '$' => Node::One(Inst::End),
            '(' => {
                if self.eat('?') && !self.eat(':') {
                    return None;
                }
                let inner = self.alternation()?;
                if !self.eat(')') {
                    return None;
                }
                inner
            }
            '[' => self.class()?,
            '\\' => match self.peek()? {
                'b' => {
                    self.at += 1;
                    Node::One(Inst::Word(true))
                }
                'B' => {
                    self.at += 1;
                    Node::One(Inst::Word(false))
                }
                'A' => {
                    self.at += 1;
                    Node::One(Inst::Start)
                }
                'z' => {
                    self.at += 1;
                    Node::One(Inst::End)
                }
                _ => {
                    let (ranges, negated) = self.escape()?;
                    Node::One(Inst::Class(ranges, negated))
                }
            },
            '*' | '+' | '?' => return None,
            c => Node::One(Inst::Char(c)),
        })
    }

    fn escape(&mut self) -> Option<(Vec<(char, char)>, bool)> {
        let c = self.peek()?;
        self.at += 1;
        let word = || vec![('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')];
        let space = || vec![(' ', ' '), ('\t', '\r')];
        Some(match c {
            'd' => (vec![('0', '9')], false),
            'D' => (vec![('0', '9')], true),
            'w' => (word(), false),
            'W' => (word(), true),
            's' => (space(), false),
            'S' => (space(), true),
            'n' => (vec![('\n', '\n')], false),
            't' => (vec![('\t', '\t')], false),
            'r' => (vec![('\r', '\r')], false),
            c if c.is_ascii_alphanumeric() => return None,
            c => (vec![(c, c)], false),
        })
    }

    fn class(&mut self) -> Option<Node> {
        let negated = self.eat('^');
        let mut ranges: Vec<(char, char)> = Vec::new();
        let mut first = true;
        loop {
            let c = self.peek()?;
            self.at += 1;
            if c == ']' && !first {
                break;
            }
            first = false;
            if c == '[' && self.peek() == Some(':') {
                return None;
            }
            let low = if c == '\\' {
                let (mut set, inverse) = self.escape()?;
                if inverse {
                    return None;
                }
                if set.len() > 1 || set[0].0 != set[0].1 {
                    ranges.append(&mut set);
                    continue;
                }
                set[0].0
            } else {
                c
            };
            if self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|c| *c != ']') {
                self.at += 1;
                let mut high = self.peek()?;
                self.at += 1;
                if high == '\\' {
                    high = self.escape()?.0.first()?.0;
                }
                ranges.push((low, high));
            } else {
                ranges.push((low, low));
            }
        }
        Some(Node::One(Inst::Class(ranges, negated)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let p = Pattern::new(pattern).expect(pattern);
        for t in yes {
            assert!(p.is_match(t), "{pattern} should match {t}");
        }
        for t in no {
            assert!(!p.is_match(t), "{pattern} should not match {t}");
        }
    }

    #[test]
    fn usual_patterns() {
        check("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", &["a", "a-b"], &["", "-a", "a-", "A"]);
        check(r"^\d{2,3}$", &["12", "123"], &["1", "1234"]);
        check("^(foo|ba[rz])+$", &["foo", "barbaz"], &["fo", ""]);
        check("b", &["abc"], &["ac"]);
        check(r"^(([0-9]+(\.[0-9]+)?(s|m|h))+|0)$", &["10s", "1h30m", "0", "1.5h"], &["10", "s"]);
        check("^(a*)*$", &["aaaa", ""], &["aaab"]);
        assert!(Pattern::new("(?i)a").is_none());
    }
}
