//! The answer of a command: text for stdout, notes for stderr, and whether it succeeded.

use std::{
    io::{ErrorKind, Write},
    process::ExitCode,
};

use anyhow::Context;

use crate::terminal;

#[derive(Debug, Default)]
pub struct Answer {
    pub text: String,
    /// For terminals: states are coloured if the terminal has colours.
    pub painted: bool,
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
        Self { text: text.into(), painted: true, ..Self::default() }
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
        let mut out = std::io::stdout().lock();
        let painted = (self.painted && terminal::has_colours()).then(|| terminal::paint(&self.text));
        let text = painted.as_ref().unwrap_or(&self.text);
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(error).context("cannot write to stdout");
            }
            _ => {}
        }
        for note in &self.notes {
            eprintln!("{note}");
        }
        Ok(if self.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
