//! Reading the tables that kubectl and fleet print.

use std::collections::BTreeMap;

/// A printed table. Cells are found by where their column's header begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub headers: Vec<String>,
    pub rows: Vec<BTreeMap<String, String>>,
}

impl Table {
    /// Reads a table whose first line holds the headers. Two spaces end a column, one does not.
    pub fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let Some(head) = lines.next() else { return Self::default() };
        let starts = column_starts(head);
        let cells = |line: &str| -> Vec<String> {
            let characters: Vec<char> = line.chars().collect();
            let cell = |at: usize| {
                let from = starts[at].min(characters.len());
                let to = starts.get(at + 1).map_or(characters.len(), |next| (*next).min(characters.len()));
                characters[from..to].iter().collect::<String>().trim().to_string()
            };
            (0..starts.len()).map(cell).collect()
        };
        let headers = cells(head);
        let rows = lines.map(|line| headers.iter().cloned().zip(cells(line)).collect()).collect();
        Self { headers, rows }
    }

    /// The headers joined by one space each.
    pub fn header(&self) -> String {
        self.headers.join(" ")
    }

    /// The cells of one column, in order.
    pub fn column(&self, header: &str) -> Vec<&str> {
        self.rows.iter().map(|row| row.get(header).map_or("", String::as_str)).collect()
    }

    /// The row whose first cell is `name`.
    pub fn row(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        let first = self.headers.first()?;
        self.rows.iter().find(|row| row.get(first).is_some_and(|cell| cell == name))
    }

    /// One cell, empty when there is none.
    pub fn cell(&self, name: &str, header: &str) -> &str {
        self.row(name).and_then(|row| row.get(header)).map_or("", String::as_str)
    }
}

fn column_starts(head: &str) -> Vec<usize> {
    let characters: Vec<char> = head.chars().collect();
    let begins = |at: &usize| match at {
        0 => true,
        1 => false,
        _ => characters[at - 1] == ' ' && characters[at - 2] == ' ',
    };
    (0..characters.len()).filter(|at| characters[*at] != ' ').filter(begins).collect()
}

/// An age as kubectl prints it: `5s`, `2m10s`, `3h`.
pub fn is_age(text: &str) -> bool {
    let mut digits = 0;
    let mut units = 0;
    for character in text.chars() {
        match character {
            '0'..='9' => digits += 1,
            's' | 'm' | 'h' | 'd' | 'y' if digits > 0 => {
                digits = 0;
                units += 1;
            }
            _ => return false,
        }
    }
    units > 0 && digits == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_under_their_headers() {
        let table = Table::parse(
            "NAME           CLUSTER   LAST SEEN   AGE\npytorch-test   east                  6m23s\nb              west      now         1s\n",
        );
        assert_eq!(table.headers, ["NAME", "CLUSTER", "LAST SEEN", "AGE"]);
        assert_eq!(table.header(), "NAME CLUSTER LAST SEEN AGE");
        assert_eq!(table.column("CLUSTER"), ["east", "west"]);
        assert_eq!(table.cell("pytorch-test", "LAST SEEN"), "");
        assert_eq!(table.cell("pytorch-test", "AGE"), "6m23s");
        assert_eq!(Table::parse(""), Table::default());
    }

    #[test]
    fn ages() {
        for age in ["0s", "5s", "4m59s", "3h", "2d1h", "1y10d"] {
            assert!(is_age(age), "{age}");
        }
        for other in ["", "s", "5", "<unknown>", "5 s", "m5s"] {
            assert!(!is_age(other), "{other}");
        }
    }
}
