//! The answer of a command: text for stdout, notes for stderr, and whether it succeeded.

use std::{
    borrow::Cow,
    io::{self, ErrorKind, IsTerminal, Write},
    process::ExitCode,
};

use anyhow::Context;

use fleet_console::terminal;

#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    /// Not data: lines are wrapped at the width of the terminal, and states are coloured if it has colours.
    pub for_people: bool,
    /// Lines for stderr.
    pub notes: Vec<String>,
    /// Something requested was not found or did not answer; the exit status is 1.
    pub failed: bool,
}

impl Answer {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A text for people.
    pub fn people(text: impl Into<String>) -> Self {
        Self { text: text.into(), for_people: true, ..Self::default() }
    }

    pub fn note(&mut self, line: impl Into<String>) {
        self.notes.push(line.into());
    }

    pub fn fail(&mut self, line: impl Into<String>) {
        self.note(line);
        self.failed = true;
    }

    /// Writes the answer. A closed pipe (`| head`) is no error.
    ///
    /// # Errors
    /// Cannot write to stdout.
    pub fn print(&self) -> anyhow::Result<ExitCode> {
        match self.write() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("cannot write to stdout")
            }
            _ => Ok(if self.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }),
        }
    }

    /// Writes text and notes.
    ///
    /// # Errors
    /// Cannot write to stdout, or nobody reads it any more.
    pub fn write(&self) -> io::Result<()> {
        let text = shown(&self.text, self.for_people, io::stdout().is_terminal());
        let text = match self.for_people {
            true => Cow::Owned(terminal::fold(&text, terminal::width())),
            false => text,
        };
        let text = if self.for_people && terminal::has_colours() {
            Cow::Owned(terminal::paint(&text))
        } else {
            text
        };
        let mut out = io::stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        let bound = terminal::width().filter(|_| io::stderr().is_terminal());
        for note in &self.notes {
            eprintln!("{}", terminal::fold(&terminal::plain(note), bound));
        }
        written
    }
}

/// What is printed of a text that may be of objects: at a terminal nothing that commands it. Programs get data byte by
/// byte.
fn shown(text: &str, for_people: bool, at_terminal: bool) -> Cow<'_, str> {
    match for_people || at_terminal {
        true => terminal::plain(text),
        false => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_an_object_commands_a_terminal() {
        let text = "a\u{1b}]0;title\u{7}b\tc\n";
        let plain = "a\\u{1b}]0;title\\u{7}b\tc\n";
        for (for_people, at_terminal, expected) in
            [(true, false, plain), (true, true, plain), (false, true, plain), (false, false, text)]
        {
            assert_eq!(shown(text, for_people, at_terminal), expected, "{for_people} {at_terminal}");
        }
    }
}
