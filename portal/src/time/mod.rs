//! A run log as pages are made from it: the fleet at any instant, of a file that may still grow.
//!
//! The file is read on, never held open. A log in two parts is one: `FILE.1` is the older. A line that is none of a log
//! is left out, and told.

mod file;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use fleet_views::{
    Known,
    log::{Around, Clock, Coverage, LineError, Recording},
};
use serde::de::IgnoredAny;

use file::Parts;

/// How old may be what is known of the file.
const FRESH: Duration = Duration::from_secs(1);
/// Instants that are kept: the pages of one instant are made from the same.
const MOST_SEEN: usize = 4;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum TimeError {
    #[error("{file}: found {error}; allowed: a run log that can be read")]
    Unreadable { file: String, error: std::io::Error },
    #[error("{file}: {error}")]
    Line { file: String, error: LineError },
    #[error("{file}: found no events; allowed: the log of a run (fleet simulate FILE --log OUT)")]
    Empty { file: String },
}

/// The log in a file.
pub struct Time {
    path: PathBuf,
    read: Mutex<Read>,
}

#[derive(Default)]
struct Read {
    parts: Parts,
    recording: Recording,
    /// A last line without an end, which may be written on.
    rest: Vec<u8>,
    /// The first line that is none of a log.
    broken: Option<LineError>,
    trouble: Option<String>,
    at: Option<Instant>,
    /// By number of lines.
    seen: Vec<(usize, Arc<Known>, Coverage)>,
}

/// The fleet at an instant.
#[derive(Clone)]
pub struct Moment {
    pub known: Arc<Known>,
    pub around: Around,
    pub clock: Clock,
    /// What the reader must know of the log.
    pub notices: Vec<String>,
}

impl Time {
    /// A log that is whole so far.
    ///
    /// # Errors
    /// It cannot be read, has no events, or has a line that is none. A last line that breaks off is none of these.
    pub fn open(path: &Path) -> Result<Self, TimeError> {
        let time = Self::following(path);
        let file = path.display().to_string();
        let mut read = time.read();
        match read.refresh(path) {
            Ok(()) => {}
            Err(Refused::File(error)) => return Err(TimeError::Unreadable { file, error }),
            Err(Refused::Line(error)) => return Err(TimeError::Line { file, error }),
        }
        if read.recording.is_empty() {
            return Err(TimeError::Empty { file });
        }
        drop(read);
        Ok(time)
    }

    /// A log that somebody keeps, or will keep.
    pub fn following(path: &Path) -> Self {
        Self { path: path.to_owned(), read: Mutex::default() }
    }

    /// Name of the file.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh(&self) -> MutexGuard<'_, Read> {
        let mut read = self.read();
        if read.at.is_none_or(|at| at.elapsed() >= FRESH) {
            let outcome = read.refresh(&self.path);
            read.trouble = outcome.err().map(|refused| match refused {
                Refused::File(error) => format!("{} cannot be read: {error}", self.name()),
                Refused::Line(error) => format!("{}, {error}", self.name()),
            });
            read.at = Some(Instant::now());
        }
        read
    }

    /// Namespaces that have jobs in the log.
    pub fn namespaces(&self) -> Vec<String> {
        self.fresh().recording.namespaces().cloned().collect()
    }

    /// The fleet at an instant; without one, at the end. `None`: nothing was recorded. It reads a file.
    pub fn moment(&self, at_ms: Option<i64>) -> Option<Moment> {
        let mut read = self.fresh();
        if read.recording.is_empty() {
            return None;
        }
        let around = read.recording.around(at_ms.unwrap_or(i64::MAX));
        let (known, coverage) = read.seen_at(around.number);
        Some(Moment {
            known,
            clock: read.recording.clock(),
            notices: read.notices(&self.name(), coverage),
            around,
        })
    }

    /// Why there is nothing, where there is nothing.
    pub fn trouble(&self) -> Option<String> {
        self.fresh().trouble.clone()
    }
}

enum Refused {
    File(std::io::Error),
    Line(LineError),
}

impl Read {
    /// Reads on; anew where the file is another one.
    fn refresh(&mut self, path: &Path) -> Result<(), Refused> {
        loop {
            let (parts, piece) = self.parts.read_on(path).map_err(Refused::File)?;
            match parts.is_new {
                true => *self = Self { parts, ..Self::default() },
                false => self.parts = parts,
            }
            if piece.is_empty() {
                break;
            }
            self.seen.clear();
            let mut text = std::mem::take(&mut self.rest);
            text.extend(piece);
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                match line.strip_suffix(b"\n") {
                    None => self.rest = line.to_owned(),
                    Some(line) => self.push(line),
                }
            }
        }
        // A whole last line lacks nothing but its end.
        if serde_json::from_slice::<IgnoredAny>(&self.rest).is_ok() {
            let rest = std::mem::take(&mut self.rest);
            self.push(&rest);
        }
        self.broken.clone().map_or(Ok(()), |error| Err(Refused::Line(error)))
    }

    fn push(&mut self, line: &[u8]) {
        if let Err(error) = self.recording.push(String::from_utf8_lossy(line).trim_end()) {
            self.broken.get_or_insert(error);
        }
    }

    fn seen_at(&mut self, number: usize) -> (Arc<Known>, Coverage) {
        if let Some((_, known, coverage)) = self.seen.iter().find(|(seen, ..)| *seen == number) {
            return (known.clone(), *coverage);
        }
        let (known, coverage) = self.recording.after(number);
        if self.seen.len() >= MOST_SEEN {
            self.seen.remove(0);
        }
        self.seen.push((number, known.clone(), coverage));
        (known, coverage)
    }

    fn notices(&self, name: &str, coverage: Coverage) -> Vec<String> {
        let mut notices: Vec<String> = self.trouble.iter().cloned().collect();
        if !self.rest.is_empty() {
            let number = self.recording.read() + 1;
            notices.push(format!("{name}: its last line, {number}, breaks off and is left out."));
        }
        if !coverage.all {
            notices.push(
                "This log does not say which clusters and which quota there were: what is shown of them is what jobs \
                 used. fleet simulate FILE --log OUT writes a log that says it."
                    .to_owned(),
            );
        }
        if coverage.left_out > 0 {
            notices.push(format!(
                "{} older jobs are not shown: the bound on the log's size left no room for them.",
                coverage.left_out
            ));
        }
        if !self.recording.violations().is_empty() {
            notices.push(format!("The run broke {}", self.recording.violations().join("; ")));
        }
        notices
    }
}

#[cfg(test)]
mod tests;
