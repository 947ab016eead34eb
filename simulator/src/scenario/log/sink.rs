//! What takes the records of a run: the trait, JSON lines, and a list for tests.

use std::io;

use super::{record::Record, summary::Summary};

/// Takes what happens, in order.
pub trait Log {
    /// # Errors
    /// The output cannot be written.
    fn record(&mut self, record: &Record) -> io::Result<()>;

    /// The end: nothing follows.
    ///
    /// # Errors
    /// The output cannot be written.
    fn end(&mut self, summary: &Summary) -> io::Result<()>;
}

/// JSON lines.
#[derive(Debug)]
pub struct JsonLines<W> {
    pub out: W,
}

impl<W: io::Write> Log for JsonLines<W> {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.out.write_all(record.json()?.as_bytes())?;
        self.out.write_all(b"\n")
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let line = serde_json::json!({"summary": summary});
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }
}

/// Keeps everything, for tests.
#[derive(Debug, Default)]
pub struct Kept {
    pub records: Vec<Record>,
    pub summary: Option<Summary>,
}

impl Log for Kept {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        self.records.push(record.clone());
        Ok(())
    }

    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.summary = Some(summary.clone());
        Ok(())
    }
}
