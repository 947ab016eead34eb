//! Tables as kubectl prints them: upper-case headers, columns three spaces apart, nothing after the last.

/// Space between columns.
const GAP: usize = 3;

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

    /// The table as text, one line per row. Rows may be shorter than the headers.
    pub fn print(&self) -> String {
        let mut widths: Vec<usize> = self.headers.iter().map(|header| width(header)).collect();
        for row in &self.rows {
            for (column, cell) in widths.iter_mut().zip(row) {
                *column = (*column).max(width(cell));
            }
        }
        let headers: Vec<String> = self.headers.iter().map(|header| header.to_uppercase()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headers).chain(&self.rows) {
            print_row(&mut text, row, &widths);
        }
        text
    }
}

fn print_row(text: &mut String, row: &[String], widths: &[usize]) {
    let last = widths.len().saturating_sub(1);
    for (index, column) in widths.iter().enumerate() {
        let cell = row.get(index).map(String::as_str).unwrap_or_default();
        // A line break in a cell would tear the table.
        let cell = cell.replace(['\n', '\r', '\t'], " ");
        text.push_str(&cell);
        if index < last {
            text.extend(std::iter::repeat_n(' ', column + GAP - width(&cell)));
        }
    }
    text.push('\n');
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
}
