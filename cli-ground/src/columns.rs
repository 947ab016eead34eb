//! Columns as in Volcano's program: fixed widths, wider only if the first column needs it.

/// One column: its header and its width.
pub type Column = (&'static str, usize);

/// Space after the longest name of a column that grows.
const GAP: usize = 3;

/// Prints rows; columns of width 0 are as wide as their longest cell and [`GAP`].
pub fn print(columns: &[Column], rows: &[Vec<String>]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count());
        let longest = cells.chain([columns[at].0.len()]).max().unwrap_or(0);
        match columns[at].1 {
            0 => longest + GAP,
            // A cell that is too wide keeps one space, so that columns stay distinguishable.
            fixed => fixed.max(longest + 1),
        }
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let mut text = String::new();
    let headers: Vec<String> = columns.iter().map(|(header, _)| (*header).to_owned()).collect();
    for row in std::iter::once(&headers).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let cell = cell.replace(['\n', '\r', '\t'], " ");
            line.push_str(&cell);
            line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::print;

    #[test]
    fn columns_have_their_widths() {
        let rows = [
            vec!["default".to_owned(), "1".to_owned()],
            vec!["a-long-queue".to_owned(), "12345678".to_owned()],
        ];
        insta::assert_snapshot!(print(&[("Name", 0), ("Weight", 8)], &rows), @r"
        Name           Weight
        default        1
        a-long-queue   12345678
        ");
    }
}
