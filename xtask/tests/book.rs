//! The site that is made from the pages of `docs/`.

use std::{path::Path, process::Command};

#[test]
fn the_book_is_built_without_a_warning_and_every_link_of_it_leads_somewhere() {
    let is_here = Command::new("mdbook").arg("--version").output().is_ok();
    if !is_here && std::env::var_os("FLEET_TOOLS").is_none() {
        eprintln!("skipped: mdbook is not on the PATH");
        return;
    }
    let site = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("book")
        .arg(site.path())
        .output()
        .expect("xtask can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let has = |path: &str| site.path().join(path).exists();
    for path in ["docs/index.html", "docs/queues.html", "examples/pytorchjob.yaml", "charts/README.md"] {
        assert!(has(path), "{path} is not in {}", site.path().display());
    }
    let summary = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a root").join("docs/SUMMARY.md");
    let summary = std::fs::read_to_string(summary).expect("a summary");
    let pages = summary.split("](").skip(1).filter_map(|rest| rest.split_once(".md)"));
    let pages: Vec<String> = pages.map(|(page, _)| format!("docs/{page}.html")).collect();
    assert!(pages.len() > 15, "{pages:?}");
    assert!(pages.iter().all(|page| has(page)), "of {pages:?}, some are missing");
}
