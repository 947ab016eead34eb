//! What changes a text into the next one, for a browser that has the text: pieces that it keeps, and pieces that are new.

use std::time::{Duration, Instant};

use serde::Serialize;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// Then the difference need not be the smallest any more.
const PATIENCE: Duration = Duration::from_millis(20);

/// One piece of the new text. Places and lengths are counted as scripts of browsers count them, in units of UTF-16.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Piece {
    /// From this place of the old text on, so many.
    Keep(usize, usize),
    New(String),
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Patch {
    /// Length of the text that it changes.
    of: usize,
    pieces: Vec<Piece>,
}

/// The change from `old` to `new` in one line of JSON. None where it would be half as long as the new text, or longer.
pub fn patch(old: &str, new: &str) -> Option<String> {
    patch_within(PATIENCE, old, new)
}

fn patch_within(patience: Duration, old: &str, new: &str) -> Option<String> {
    let (before, after) = (elements(old), elements(new));
    let steps =
        capture_diff_slices_deadline(Algorithm::Myers, &before, &after, Some(Instant::now() + patience));
    let mut starts = Vec::with_capacity(before.len() + 1);
    let mut length = 0;
    for part in &before {
        starts.push(length);
        length += units(part);
    }
    starts.push(length);
    let mut pieces = Vec::new();
    for step in steps {
        match step {
            DiffOp::Equal { old_index, len, .. } => {
                let from = starts[old_index];
                pieces.push(Piece::Keep(from, starts[old_index + len] - from));
            }
            DiffOp::Insert { new_index, new_len, .. } | DiffOp::Replace { new_index, new_len, .. } => {
                pieces.push(Piece::New(after[new_index..new_index + new_len].concat()));
            }
            DiffOp::Delete { .. } => {}
        }
    }
    let text = serde_json::to_string(&Patch { of: length, pieces }).ok()?;
    (text.len() < new.len() / 2).then_some(text)
}

/// The text in parts, each of which begins with the tag of an element: what changes is most often one element.
fn elements(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (at, _) in text.match_indices('<').filter(|(at, _)| !text[at + 1..].starts_with('/')) {
        if at > from {
            parts.push(&text[from..at]);
            from = at;
        }
    }
    if from < text.len() {
        parts.push(&text[from..]);
    }
    parts
}

fn units(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::patch_within;
    use std::time::Duration;

    /// As the script does it.
    fn apply(old: &str, patch: &str) -> String {
        let old: Vec<u16> = old.encode_utf16().collect();
        let patch: Value = serde_json::from_str(patch).expect("JSON");
        assert_eq!(patch["of"], old.len());
        let mut new = Vec::new();
        for piece in patch["pieces"].as_array().expect("pieces") {
            match piece.as_str() {
                Some(text) => new.extend(text.encode_utf16()),
                None => {
                    let at = |index: usize| piece[index].as_u64().expect("a number") as usize;
                    new.extend(&old[at(0)..at(0) + at(1)]);
                }
            }
        }
        String::from_utf16(&new).expect("text")
    }

    /// With all the time it takes.
    fn patch(old: &str, new: &str) -> Option<String> {
        patch_within(Duration::from_secs(60), old, new)
    }

    #[test]
    fn a_patch_makes_the_new_text_of_the_old() {
        let row = |number: usize| format!("<tr><td>{number}</td><td>ä😀 &lt;odd&gt;\r\n</td></tr>");
        let table = |rows: &[usize]| {
            let rows: String = rows.iter().map(|number| row(*number)).collect();
            format!("<h1>Jobs</h1><table>{rows}</table><p>end")
        };
        let old = table(&(0..100).collect::<Vec<_>>());
        let check = |new: &str, most: usize| {
            let patch = patch(&old, new).expect("a patch");
            assert_eq!(apply(&old, &patch), new);
            assert!(patch.len() <= most, "{} bytes: {patch}", patch.len());
        };
        check(&old, 40);
        // A row that comes, one that goes, one that changes, and all three.
        check(&table(&[&[100], &(0..99).collect::<Vec<_>>()[..]].concat()), 150);
        check(&table(&(1..100).collect::<Vec<_>>()), 60);
        check(&old.replace("<td>50</td>", "<td>fifty</td>"), 80);
        check(
            &table(&[&[100], &(0..30).collect::<Vec<_>>()[..], &(31..100).collect::<Vec<_>>()[..]].concat()),
            170,
        );
        assert_eq!(patch("<p>a", "<p>b<p>c"), None);
        assert_eq!(patch("", "text"), None);
        let (old, new) = (format!("<p>{}<p>b", "a".repeat(100)), format!("<p>{}", "a".repeat(100)));
        assert_eq!(patch(&old, &new).expect("a patch"), "{\"of\":107,\"pieces\":[[0,103]]}");
    }
}
