//! The wings of the server stand on each other: none uses one above it.

use std::path::Path;

/// From the ground up; each may use those before it.
const WINGS: [&str; 7] = ["ground", "schema", "access", "kinds", "admission", "verbs", "door"];

fn sources(dir: &Path, out: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Wings that a source names: `crate::wing::...`, alone or in braces.
fn named(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for part in text.split("crate::").skip(1) {
        let words: Vec<&str> = match part.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or_default().split(',').map(str::trim).collect(),
            None => vec![part],
        };
        for word in words {
            let end = word.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(word.len());
            found.extend(WINGS.iter().position(|w| *w == &word[..end]));
        }
    }
    found
}

#[test]
fn no_wing_uses_one_above_it() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut looked_at = 0;
    for (height, wing) in WINGS.iter().enumerate() {
        let mut files = Vec::new();
        sources(&src.join(wing), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source");
            looked_at += 1;
            for used in named(&text) {
                assert!(
                    used <= height,
                    "{}: uses wing {:?}, which stands above {wing:?}",
                    file.display(),
                    WINGS[used]
                );
            }
        }
    }
    assert!(looked_at > 80, "only {looked_at} files were found");
}

#[test]
fn wings_are_found_in_groups_too() {
    assert_eq!(named("use crate::{Ids, door::server, ground::tree};"), [6, 0]);
    assert_eq!(named("crate::verbs::read::get(call)"), [5]);
}
