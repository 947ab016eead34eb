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
}

impl Table {
    pub fn new(headers: &[&str]) -> Self {
        Self { headers: headers.iter().map(|header| (*header).to_string()).collect(), rows: Vec::new() }
    }

    pub fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text, as wide as the terminal at most. Rows may be shorter than the headers.
    pub fn print(&self) -> String {
        self.print_within(terminal::width())
    }

    /// The table in `width` columns, `None` without a limit: long cells are wrapped, the widest column first;
    /// if it still does not fit, the last columns are dropped.
    pub fn print_within(&self, width: Option<usize>) -> String {
        let mut widths = self.widths();
        let mut shown = widths.len();
        if let Some(width) = width {
            self.shrink(&mut widths, width);
            while shown > KEPT && total(&widths[..shown]) > width {
                shown -= 1;
            }
        }
        let headers: Vec<String> = self.headers.iter().map(|header| header.to_uppercase()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headers).chain(&self.rows) {
            print_row(&mut text, row, &widths[..shown]);
        }
        text
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
    fn shrink(&self, widths: &mut [usize], bound: usize) {
        let longest = |at: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).chain(self.headers.get(at));
            cells.flat_map(|cell| cell.split(' ')).map(width).max().unwrap_or(0)
        };
        let least: Vec<usize> =
            (0..widths.len()).map(|at| if at == 0 { widths[0] } else { longest(at) }).collect();
        while total(widths) > bound {
            let widest = (1..widths.len()).filter(|at| widths[*at] > least[*at]).max_by_key(|at| widths[*at]);
            let Some(widest) = widest else { return };
            widths[widest] -= 1;
        }
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn print_row(text: &mut String, row: &[String], widths: &[usize]) {
    let cells: Vec<Vec<String>> = widths
        .iter()
        .enumerate()
        .map(|(index, column)| wrap(row.get(index).map(String::as_str).unwrap_or_default(), *column))
        .collect();
    let lines = cells.iter().map(Vec::len).max().unwrap_or(0);
    let last = widths.len().saturating_sub(1);
    for line in 0..lines {
        let mut printed = String::new();
        for (index, column) in widths.iter().enumerate() {
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

/// Splits the cell into lines of `column` characters at word breaks. Line breaks within the cell are removed,
/// because they would break the table.
fn wrap(cell: &str, column: usize) -> Vec<String> {
    let cell = cell.replace(['\n', '\r', '\t'], " ");
    if width(&cell) <= column {
        return vec![cell];
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

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["Name", "Cluster", "State", "Age", "Adoption"]);
        table.row(["pytorch-test", "east", "Running", "6m23s", "Y"]);
        table.row(["b", "member-4", "", "1s", "N"]);
        insta::assert_snapshot!(table.print(), @r"
        NAME           CLUSTER    STATE     AGE     ADOPTION
        pytorch-test   east       Running   6m23s   Y
        b              member-4             1s      N
        ");
    }

    #[test]
    fn a_table_fits_its_terminal() {
        let mut table = Table::new(&["Cluster", "Fits", "Why"]);
        table.row(["east", "no", "0 of 2 worker fit: 3 of 4 nodes lack 2 nvidia.com/gpu"]);
        insta::assert_snapshot!(table.print_within(Some(40)), @r"
        CLUSTER   FITS   WHY
        east      no     0 of 2 worker fit: 3 of
                         4 nodes lack 2
                         nvidia.com/gpu
        ");
        let mut wide = Table::new(&["Name", "State", "Endpoint", "Provider"]);
        wide.row(["pytorch-test", "Running", "https://10.0.0.1:6443", "somewhere"]);
        insta::assert_snapshot!(wide.print_within(Some(30)), @r"
        NAME           STATE
        pytorch-test   Running
        ");
        assert_eq!(wide.print_within(None).lines().map(|line| line.len()).max(), Some(58));
    }
}
