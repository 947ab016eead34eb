//! The terminal: its width, whether it has colours, and texts that cannot command it.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
};

/// Columns of the terminal; `None` without a limit, as in a pipe. The variable `COLUMNS` overrides it.
pub fn width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let seen = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    told.or_else(|| io::stdout().is_terminal().then(seen).flatten()).filter(|width| *width > 0)
}

/// The text without commands to the terminal. Names and messages of objects are written by tenants and members, and a
/// control character in them could rewrite what is on the screen, or the title and clipboard of the terminal; characters that
/// change the direction of text could show another name. They are shown as `\u{1b}`; line breaks and tabs stay.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for one in text.chars() {
        match commands(one) {
            true => shown.extend(one.escape_unicode()),
            false => shown.push(one),
        }
    }
    Cow::Owned(shown)
}

/// Whether a terminal does not show the character, but does something.
fn commands(one: char) -> bool {
    let turns = matches!(
        one,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    turns || one.is_control() && !matches!(one, '\n' | '\t')
}

/// The text with lines of `bound` columns at most: longer ones are wrapped at spaces, and their further lines
/// are indented to the text behind the label. Longer words stay whole, to be copied.
pub fn fold(text: &str, bound: Option<usize>) -> String {
    let Some(bound) = bound else { return text.to_string() };
    let mut folded = String::with_capacity(text.len());
    for piece in text.split_inclusive('\n') {
        let line = piece.trim_end_matches('\n');
        if line.trim_end().chars().count() <= bound {
            folded.push_str(line);
        } else {
            fold_line(&mut folded, line, bound);
        }
        folded.push_str(&piece[line.len()..]);
    }
    folded
}

fn fold_line(folded: &mut String, line: &str, bound: usize) {
    let (head, indent) = hang(line, bound);
    folded.push_str(&line[..head]);
    let mut at = line[..head].chars().count();
    let mut is_start = true;
    for word in line[head..].trim_end().split(' ') {
        let width = word.chars().count();
        if !is_start && at + 1 + width > bound {
            folded.push('\n');
            folded.extend(std::iter::repeat_n(' ', indent));
            (at, is_start) = (indent, true);
        }
        if !is_start {
            folded.push(' ');
            at += 1;
        }
        folded.push_str(word);
        (at, is_start) = (at + width, false);
    }
}

/// Where the text of a line starts, and the columns to which its further lines are indented. A label ends with two
/// spaces.
fn hang(line: &str, bound: usize) -> (usize, usize) {
    let lead = line.len() - line.trim_start().len();
    let rest = &line[lead..];
    if let Some(label) = rest.find("  ") {
        let head = line.len() - rest[label..].trim_start().len();
        let columns = line[..head].chars().count();
        if columns <= bound / 2 {
            return (head, columns);
        }
    }
    let bullet = ["-> ", "- "].into_iter().find(|bullet| rest.starts_with(bullet));
    // At the margin a further line has to differ from a line of its own.
    let further = if lead == 0 { 2 } else { 0 };
    (lead, lead + bullet.map_or(further, str::len))
}

/// Whether stdout is a terminal with colours, and `NO_COLOR` is not set.
pub fn has_colours() -> bool {
    wants_colours(io::stdout().is_terminal(), |name| std::env::var(name).ok())
}

fn wants_colours(is_terminal: bool, variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    is_terminal
        && !is_set("NO_COLOR")
        && variable("TERM").is_some_and(|term| term != "dumb" && !term.is_empty())
}

const GOOD: &[&str] =
    &["Running", "Succeeded", "Completed", "Complete", "Ready", "RUNS", "SUCCEEDED", "yes", "runs"];
const BAD: &[&str] = &[
    "Failed",
    "Aborted",
    "Terminated",
    "InvalidWorkload",
    "PolicyInvalid",
    "QuotaTreeInvalid",
    "INVALID:",
    "REJECTED",
    "FAILED",
    "EVICTED",
    "FENCED:",
    "NotReady",
    "ExceedsQuota",
    "ExceedsEveryCluster",
];
const WAITING: &[&str] = &[
    "Queuing",
    "Pending",
    "NoPolicy",
    "Enqueued",
    "Restarting",
    "PREEMPTED",
    "SchedulingDisabled",
    "waits",
    "waits,",
];

/// The text with the words of states in colours. Colour codes do not change the width of a column.
pub fn paint(text: &str) -> String {
    let mut painted = String::with_capacity(text.len());
    for piece in text.split_inclusive([' ', '\n']) {
        let word = piece.trim_end_matches([' ', '\n']);
        let code =
            [(GOOD, "32"), (BAD, "31"), (WAITING, "33")].iter().find(|(words, _)| words.contains(&word));
        match code {
            Some((_, code)) => {
                painted.push_str(&format!("\u{1b}[{code}m{word}\u{1b}[0m{}", &piece[word.len()..]));
            }
            None => painted.push_str(piece),
        }
    }
    painted
}

/// A writer that paints whole lines.
pub struct Painter<W> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> Painter<W> {
    pub fn new(out: W) -> Self {
        Self { out, line: Vec::new() }
    }
}

impl<W: Write> Write for Painter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            let rest = self.line.split_off(end + 1);
            let whole = std::mem::replace(&mut self.line, rest);
            self.out.write_all(paint(&plain(&String::from_utf8_lossy(&whole))).as_bytes())?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.line);
        self.out.write_all(&rest)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
