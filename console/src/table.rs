//! Tables in kubectl's form: upper-case headers, columns three spaces apart, no trailing space.

use crate::terminal;

/// Space between columns.
const GAP: usize = 3;
/// Columns that are never dropped.
const KEPT: usize = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub headers: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Headers of columns that are dropped before the last ones, in this order.
    pub spare: &'static [&'static str],
}

impl Table {
    pub fn new(headers: &[&str]) -> Self {
        let headers = headers.iter().map(|header| (*header).to_string()).collect();
        Self { headers, ..Self::default() }
    }

    pub fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text, as wide as the terminal at most. Rows may be shorter than the headers.
    pub fn print(&self) -> String {
        self.print_within(terminal::width())
    }

    /// The table in `width` columns, `None` without a limit: long cells are wrapped, the widest column first;
    /// if it still does not fit, the spare columns are dropped, and then the last ones.
    pub fn print_within(&self, width: Option<usize>) -> String {
        let shown = self.shown();
        let headers: Vec<String> = shown.headers.iter().map(|header| header.to_uppercase()).collect();
        let columns = shown.fit(width, &self.spare_columns());
        print_rows([&headers].into_iter().chain(&shown.rows), &columns)
    }

    /// Rows in the same columns, to be printed below headers that are there already.
    pub fn rows_below(&self, width: Option<usize>) -> String {
        let shown = self.shown();
        print_rows(shown.rows.iter(), &shown.fit(width, &self.spare_columns()))
    }

    /// Rows without headers, in columns as wide as their cells.
    pub fn rows_within(&self, width: Option<usize>) -> String {
        let shown = Self { headers: vec![String::new(); self.headers.len()], ..self.shown() };
        print_rows(shown.rows.iter(), &shown.fit(width, &shown.spare_columns()))
    }

    /// The table with cells of one line each that command no terminal.
    fn shown(&self) -> Self {
        let one_line = |cell: &String| terminal::plain(&cell.replace(['\n', '\r', '\t'], " ")).into_owned();
        let rows = self.rows.iter().map(|row| row.iter().map(one_line).collect()).collect();
        Self { headers: self.headers.iter().map(one_line).collect(), rows, spare: self.spare }
    }

    fn spare_columns(&self) -> Vec<usize> {
        self.spare.iter().filter_map(|name| self.headers.iter().position(|header| header == name)).collect()
    }

    /// The columns that are shown, each with its width.
    fn fit(&self, bound: Option<usize>, spare: &[usize]) -> Vec<(usize, usize)> {
        let natural: Vec<(usize, usize)> = self.widths().into_iter().enumerate().collect();
        let Some(bound) = bound else { return natural };
        let mut shown = natural;
        loop {
            let mut columns = shown.clone();
            self.shrink(&mut columns, bound);
            if shown.len() <= KEPT || total(&columns) <= bound {
                return columns;
            }
            let spare = spare.iter().find_map(|spare| shown.iter().position(|(at, _)| at == spare));
            shown.remove(spare.unwrap_or(shown.len() - 1));
        }
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headers.iter().map(|header| width(header)).collect();
        for row in &self.rows {
            for (column, cell) in widths.iter_mut().zip(row) {
                *column = (*column).max(width(cell));
            }
        }
        widths
    }

    /// Narrows the widest columns until the table fits, as far as their longest words allow. The first column
    /// has names and stays.
    fn shrink(&self, columns: &mut [(usize, usize)], bound: usize) {
        let longest = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).chain(self.headers.get(at));
            cells.flat_map(|cell| cell.split(' ')).map(width).max().unwrap_or(0)
        };
        let least: Vec<usize> = columns.iter().map(|(at, _)| longest(*at)).collect();
        while total(columns) > bound {
            let can = (1..columns.len()).filter(|index| columns[*index].1 > least[*index]);
            let Some(widest) = can.max_by_key(|index| columns[*index].1) else { return };
            columns[widest].1 -= 1;
        }
    }
}

fn total(columns: &[(usize, usize)]) -> usize {
    columns.iter().map(|(_, width)| width).sum::<usize>() + GAP * columns.len().saturating_sub(1)
}

fn print_rows<'r>(rows: impl Iterator<Item = &'r Vec<String>>, columns: &[(usize, usize)]) -> String {
    let mut text = String::new();
    for row in rows {
        print_row(&mut text, row, columns);
    }
    text
}

fn print_row(text: &mut String, row: &[String], columns: &[(usize, usize)]) {
    let cells: Vec<Vec<String>> = columns
        .iter()
        .map(|(at, column)| wrap(row.get(*at).map(String::as_str).unwrap_or_default(), *column))
        .collect();
    let lines = cells.iter().map(Vec::len).max().unwrap_or(0);
    let last = columns.len().saturating_sub(1);
    for line in 0..lines {
        let mut printed = String::new();
        for (index, (_, column)) in columns.iter().enumerate() {
            let cell = cells[index].get(line).map(String::as_str).unwrap_or_default();
            printed.push_str(cell);
            if index < last {
                printed.extend(std::iter::repeat_n(' ', column + GAP - width(cell)));
            }
        }
        // Continuation lines have nothing after their last cell; the others are as in kubectl.
        text.push_str(if line > 0 { printed.trim_end() } else { &printed });
        text.push('\n');
    }
}

/// Splits the cell into lines of `column` characters at word breaks.
fn wrap(cell: &str, column: usize) -> Vec<String> {
    if width(cell) <= column {
        return vec![cell.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in cell.split(' ') {
        let line = lines.last_mut().map(|line| width(line)).unwrap_or(0);
        if line > 0 && line + 1 + width(word) > column {
            lines.push(word.to_string());
        } else if let Some(current) = lines.last_mut() {
            if line > 0 {
                current.push(' ');
            }
            current.push_str(word);
        }
    }
    lines
}

/// `Job:       team/train`: a line for each label and its text, which begins in column `column`.
pub fn labelled(lines: &[(&str, String)], column: usize) -> String {
    let line = |(label, text): &(&str, String)| {
        let label = if label.is_empty() { String::new() } else { format!("{label}:") };
        format!("{label:<column$}{}\n", terminal::plain(text))
    };
    lines.iter().map(line).collect()
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests;
