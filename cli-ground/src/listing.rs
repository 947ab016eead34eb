//! Lists: rows of a command in every format, sorted, and printed once or whenever a row changes.
//!
//! A command builds a [`List`]: the data of each item beside the cells of its row, so that a table and `-o json`
//! always have the same items. Deliberately absent: `fleet get`, whose tables come from the servers; it shares
//! only [`repeat`].

use std::{collections::BTreeSet, time::Duration};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    answer::Answer,
    args::{Format, Listing},
    columns, output,
};
use fleet_console::{table::Table, terminal};

/// Pause between two polls.
const STEP: Duration = Duration::from_secs(1);

/// The items of a command.
#[derive(Debug, Default)]
pub struct List {
    pub headers: Vec<&'static str>,
    pub rows: Vec<Row>,
    pub layout: Layout,
    /// By which `-o name` names an item: a prefix, and a field.
    pub named: (&'static str, &'static str),
    /// The data of the list beside its items.
    pub beside: Value,
    /// Headers of cells that change with time alone: such a change is none for `--watch`.
    pub aging: &'static [&'static str],
    /// Headers of columns that a narrow terminal drops first.
    pub spare: &'static [&'static str],
    /// Printed before the rows, for people.
    pub before: String,
    pub notes: Vec<String>,
    /// Note if there are no rows.
    pub nothing: String,
}

#[derive(Debug)]
pub struct Row {
    data: Value,
    cells: Vec<String>,
}

/// How rows are printed.
#[derive(Debug, Default)]
pub enum Layout {
    #[default]
    Table,
    /// A block for each row: its first cell, and below it a line for each other one. Empty cells are left out, and
    /// a line break begins another line.
    Blocks,
    /// Volcano's columns, as long as the terminal has room for them.
    Volcano(Vec<columns::Column>),
}

/// How the rows of a tree are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Indented below their parents.
    Tree,
    /// By full path, for another order than the tree's.
    Paths,
}

impl Names {
    pub fn of(how: &Listing) -> Self {
        if how.sort_by.is_some() { Self::Paths } else { Self::Tree }
    }
}

impl List {
    /// A list of Kubernetes objects.
    pub fn of_objects(headers: &[&'static str], prefix: &'static str) -> Self {
        let named = (prefix, ".metadata.name");
        Self { headers: headers.to_vec(), named, beside: output::list(Vec::new()), ..Self::default() }
    }

    /// A list of other items, of which `-o name` prints this field.
    pub fn of_items(headers: &[&'static str], named: (&'static str, &'static str)) -> Self {
        Self { headers: headers.to_vec(), named, beside: json!({}), ..Self::default() }
    }

    /// # Errors
    /// The item cannot be serialized.
    pub fn row(&mut self, item: &impl Serialize, cells: Vec<String>) -> anyhow::Result<()> {
        self.rows.push(Row { data: output::tidy(serde_json::to_value(item)?), cells });
        Ok(())
    }

    /// The rows for people.
    pub fn print(&self) -> String {
        self.print_within(terminal::width(), output::Headers::Printed)
    }

    pub fn print_within(&self, width: Option<usize>, headers: output::Headers) -> String {
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.cells.clone()).collect();
        match &self.layout {
            Layout::Blocks => {
                let blocks: Vec<String> = rows.iter().map(|cells| block(&self.headers, cells)).collect();
                return blocks.join("\n");
            }
            Layout::Volcano(columns) => {
                let text = columns::print(columns, &rows);
                if width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width)) {
                    return match headers {
                        output::Headers::Printed => text,
                        output::Headers::Left => {
                            text.split_once('\n').map_or("", |(_, rows)| rows).to_string()
                        }
                    };
                }
            }
            Layout::Table => {}
        }
        let table = Table { rows, spare: self.spare, ..Table::new(&self.headers) };
        match headers {
            output::Headers::Printed => table.print_within(width),
            output::Headers::Left => table.rows_below(width),
        }
    }

    /// # Errors
    /// A path or a template is invalid.
    pub fn answer(mut self, how: &Listing, headers: output::Headers) -> anyhow::Result<Answer> {
        output::sort(&mut self.rows, how.sort_by.as_deref(), |row| &row.data)?;
        let mut value = self.beside.take();
        value["items"] = self.rows.iter_mut().map(|row| row.data.take()).collect();
        let text = match (&how.output, headers) {
            (Some(Format::Columns(spec)), output::Headers::Left) => {
                Some(output::columns(spec, &output::items(&value), headers)?)
            }
            (format, _) => output::data(format.as_ref(), &value, self.named)?,
        };
        if let Some(text) = text {
            return Ok(Answer::text(text));
        }
        let mut answer = Answer { notes: std::mem::take(&mut self.notes), ..Answer::people(&self.before) };
        if self.rows.is_empty() {
            match self.layout {
                // Volcano's program prints it on stdout.
                Layout::Volcano(_) => answer.text = format!("{}\n", self.nothing),
                _ if self.nothing.is_empty() => {}
                _ => answer.note(self.nothing),
            }
            return Ok(answer);
        }
        if !answer.text.is_empty() {
            answer.text.push('\n');
        }
        answer.text.push_str(&self.print_within(terminal::width(), headers));
        Ok(answer)
    }

    /// Keeps the rows that were not there at the last poll, or have changed since, and remembers all.
    fn keep_changed(&mut self, seen: &mut BTreeSet<String>) {
        let key = |row: &Row| {
            let cells = row.cells.iter().zip(&self.headers);
            let cells: Vec<&str> = cells
                .filter(|(_, header)| !self.aging.contains(header))
                .map(|(cell, _)| cell.as_str())
                .collect();
            format!("{} {}", row.data["metadata"]["namespace"], cells.join("\t"))
        };
        let keys: Vec<String> = self.rows.iter().map(key).collect();
        let mut known = keys.iter().map(|key| seen.contains(key)).collect::<Vec<_>>().into_iter();
        self.rows.retain(|_| known.next() == Some(false));
        *seen = keys.into_iter().collect();
    }
}

/// `east`, and below it `  ready       True`.
fn block(headers: &[&str], cells: &[String]) -> String {
    let (name, cells) = cells.split_first().map_or(("", cells), |(name, cells)| (name.as_str(), cells));
    let mut text = format!("{name}\n");
    for (header, cell) in headers.iter().skip(1).zip(cells) {
        for line in cell.lines() {
            text.push_str(&format!("  {header:<12}{line}\n"));
        }
    }
    text
}

/// Prints the list once, or with `--watch` what changes, until the reader closes the pipe.
///
/// # Errors
/// Those of `ask`; a path or a template is invalid.
pub async fn run(how: &Listing, ask: impl AsyncFn() -> anyhow::Result<List>) -> anyhow::Result<Answer> {
    if !how.watch {
        return ask().await?.answer(how, output::Headers::of(how));
    }
    let mut seen = BTreeSet::new();
    repeat(async |is_first| {
        let mut list = ask().await?;
        list.keep_changed(&mut seen);
        match (is_first, list.rows.is_empty()) {
            (true, _) => list.answer(how, output::Headers::of(how)),
            (false, true) => Ok(Answer::default()),
            (false, false) => {
                list.before.clear();
                list.answer(how, output::Headers::Left)
            }
        }
    })
    .await
}

/// Polls, and writes each answer, until the reader closes the pipe; notes are written once. The poll is told
/// whether it is the first one.
///
/// # Errors
/// Those of a poll.
pub async fn repeat(mut poll: impl AsyncFnMut(bool) -> anyhow::Result<Answer>) -> anyhow::Result<Answer> {
    let mut is_first = true;
    loop {
        let mut answer = poll(is_first).await?;
        if !is_first {
            answer.notes.clear();
        }
        if answer.write().is_err() {
            return Ok(Answer::default());
        }
        is_first = false;
        tokio::time::sleep(STEP).await;
    }
}

#[cfg(test)]
mod tests;
