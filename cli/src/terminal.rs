//! The terminal: its width, and whether it has colours.

use std::io::{self, IsTerminal, Write};

/// Columns of the terminal; `None` without a limit, as in a pipe. The variable `COLUMNS` overrides it.
pub fn width() -> Option<usize> {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.trim().parse().ok());
    let seen = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    told.or_else(|| io::stdout().is_terminal().then(seen).flatten()).filter(|width| *width > 0)
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
            self.out.write_all(paint(&String::from_utf8_lossy(&whole)).as_bytes())?;
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
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_terminal() {
        let check = |is_terminal: bool, set: &[(&str, &str)], expected: bool| {
            let variable =
                |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string());
            assert_eq!(wants_colours(is_terminal, variable), expected, "{is_terminal} {set:?}");
        };
        check(true, &[("TERM", "xterm")], true);
        check(false, &[("TERM", "xterm")], false);
        check(true, &[("TERM", "dumb")], false);
        check(true, &[], false);
        check(true, &[("TERM", "xterm"), ("NO_COLOR", "1")], false);
        check(true, &[("TERM", "xterm"), ("NO_COLOR", "")], true);
    }

    #[test]
    fn states_are_painted_and_nothing_else() {
        assert_eq!(paint("a   Running   1s\n"), "a   \u{1b}[32mRunning\u{1b}[0m   1s\n");
        assert_eq!(paint("running-man\n"), "running-man\n");
        let mut painter = Painter::new(Vec::new());
        painter.write_all(b"x FAI").unwrap();
        painter.write_all(b"LED\ny").unwrap();
        painter.flush().unwrap();
        assert_eq!(String::from_utf8(painter.out).unwrap(), "x \u{1b}[31mFAILED\u{1b}[0m\ny");
    }
}
