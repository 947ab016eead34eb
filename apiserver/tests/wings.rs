//! Parts of one crate that stand on each other: what is below uses nothing above it. Between crates, the code map
//! holds (`xtask tidy`).

use std::path::{Path, PathBuf};

/// Folder, and what its sources may not name.
const RULES: [(&str, &[&str]); 2] =
    [("apiserver/src/verbs", &["crate::door"]), ("apiserver-admission/src/access", &["crate::"])];
/// What a folder may name all the same.
const OWN: [&str; 1] = ["crate::access"];

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The first of some paths that a source names.
fn named<'a>(text: &'a str, forbidden: &[&str]) -> Option<&'a str> {
    let lines = text.lines().filter(|line| !OWN.iter().any(|own| line.contains(own)));
    lines.into_iter().find(|line| forbidden.iter().any(|path| line.contains(path)))
}

#[test]
fn what_is_below_uses_nothing_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    for (folder, forbidden) in RULES {
        let mut files = Vec::new();
        sources(&root.join(folder), &mut files);
        assert!(files.len() > 5, "{folder}: only {} files were found", files.len());
        for file in files {
            let text = std::fs::read_to_string(&file).expect("a source");
            assert_eq!(named(&text, forbidden), None, "{}", file.display());
        }
    }
}

#[test]
fn a_use_of_what_is_above_is_found() {
    let text = "use crate::access::auth::Auth;\nuse crate::call::Core;\n";
    assert_eq!(named(text, &["crate::"]), Some("use crate::call::Core;"));
    assert_eq!(named(text, &["crate::door"]), None);
}
