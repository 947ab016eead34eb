//! Problems of a job, as texts with the place, what was found and what is allowed.

use thiserror::Error;

/// Longest piece of a found value that a problem repeats, in characters.
const SHOWN: usize = 200;

/// Longest text of what is allowed, in characters.
const LISTED: usize = 2_000;
/// Problems of one job that are told.
pub(crate) const TOLD: usize = 100;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{path}: found {found}; allowed: {allowed}", line_of(*.line))]
pub struct Problem {
    /// 0 if unknown.
    pub line: u64,
    /// Such as `taskRoles.train.instances`.
    pub path: String,
    pub found: String,
    pub allowed: String,
}

impl Problem {
    pub fn new(path: impl Into<String>, found: impl Into<String>, allowed: impl Into<String>) -> Self {
        let (found, allowed) = (shortened(found.into()), cut(allowed.into()));
        Self { line: 0, path: path.into(), found, allowed }
    }

    #[must_use]
    pub fn at(mut self, line: u64) -> Self {
        self.line = line;
        self
    }
}

/// At most [`LISTED`] characters.
fn cut(text: String) -> String {
    match text.char_indices().nth(LISTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn line_of(line: u64) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}

/// One line of at most [`SHOWN`] characters.
pub(crate) fn shortened(text: String) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= SHOWN {
        return text;
    }
    let start: String = text.chars().take(SHOWN).collect();
    format!("{start}...")
}

/// Mistakes of one document. Behind the first [`TOLD`], none is kept.
#[derive(Debug, Default)]
pub(crate) struct Sink(Vec<Problem>);

impl Sink {
    pub fn push(&mut self, problem: Problem) {
        if self.len() < TOLD {
            self.0.push(problem);
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the order in which they were found.
    pub fn into_problems(self) -> Vec<Problem> {
        self.0
    }
}

/// OpenPAI's error codes for the refusals of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    InvalidProtocol,
    ConflictJob,
    ForbiddenUser,
    NoStorage,
}

impl Code {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidProtocol => "InvalidProtocolError",
            Self::ConflictJob => "ConflictJobError",
            Self::ForbiddenUser => "ForbiddenUserError",
            Self::NoStorage => "NoStorageError",
        }
    }

    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::InvalidProtocol => 400,
            Self::ConflictJob => 409,
            Self::ForbiddenUser => 403,
            Self::NoStorage => 404,
        }
    }
}

/// Why a job is refused: a code and at least one problem.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", sentences(problems))]
pub struct Refusal {
    pub code: Code,
    pub problems: Vec<Problem>,
}

fn sentences(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

impl Refusal {
    pub fn one(code: Code, problem: Problem) -> Self {
        Self { code, problems: vec![problem] }
    }

    /// `Ok` when there is no problem.
    pub(crate) fn unless_empty(sink: Sink) -> Result<(), Self> {
        let mut problems = sink.into_problems();
        problems.sort_by_key(|problem| problem.line);
        if problems.is_empty() { Ok(()) } else { Err(Self { code: Code::InvalidProtocol, problems }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_problem_is_longer_than_a_page() {
        let long = "ä".repeat(1_000_000);
        let problem = Problem::new("p", long.clone(), long);
        assert!(problem.to_string().len() < 10_000);
        assert_eq!(Problem::new("p", "f", "a").to_string(), "p: found f; allowed: a");
    }
}
