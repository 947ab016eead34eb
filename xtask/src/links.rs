//! Checks the Markdown files: relative links exist, anchors name a heading, every page of the book is in its
//! summary, and commands are in blocks that the suite of the docs runs.
//!
//! Inputs: the Markdown files of the checkout. Deliberately absent: addresses on the network, which a test must not
//! depend on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, bail};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Folders that hold no pages of the project.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "book"];
/// Root of the book, as `book.toml` has it.
pub const BOOK: &str = "docs";
pub const SUMMARY: &str = "docs/SUMMARY.md";
/// Languages of blocks; commands stand in those of `console`, which `fleet-tests` runs or lists with a reason.
const LANGUAGES: &[&str] = &["console", "console no-run", "yaml", "text", "rust", "toml", "json"];
/// What a line of a command begins with.
const COMMANDS: &[&str] = &["$ ", "fleet ", "kubectl ", "cargo ", "helm ", "curl ", "vcctl "];

/// What one page offers to links, and where it points.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Page {
    anchors: BTreeSet<String>,
    /// Line and target of each link and picture.
    pub links: Vec<(usize, String)>,
    /// Line, language and text of each block of code.
    blocks: Vec<(usize, String, String)>,
}

/// Checks every Markdown file of the checkout.
///
/// # Errors
/// Names each broken link by file and line, with what was found and what is allowed.
pub fn check() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let pages = pages(root)?;
    let mut broken = broken_links(&pages, |path| root.join(path).exists());
    broken.extend(missing_pages(&pages));
    broken.extend(hidden_commands(&pages));
    if !broken.is_empty() {
        bail!("broken pages:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

/// Every Markdown file of the checkout, by its path in it.
///
/// # Errors
/// A file cannot be read.
pub fn pages(root: &Path) -> anyhow::Result<BTreeMap<PathBuf, Page>> {
    let mut files = Vec::new();
    collect(root, Path::new(""), &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(root.join(&file)).with_context(|| file.display().to_string())?;
        pages.insert(file, read(&text));
    }
    Ok(pages)
}

fn collect(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = fs::read_dir(root.join(folder)).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        if entry.file_type()?.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                collect(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    Ok(())
}

fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut heading: Option<String> = None;
    let mut in_block = false;
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                // Of headings of one text, the later ones are numbered.
                let count = seen.entry(slug.clone()).or_default();
                page.anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
                *count += 1;
            }
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                page.blocks.push((line_of(text, range.start), language, String::new()));
                in_block = true;
            }
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Text(words) | Event::Code(words) => {
                if let (true, Some((_, _, body))) = (in_block, page.blocks.last_mut()) {
                    body.push_str(&words);
                }
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((line_of(text, range.start), dest_url.to_string()));
            }
            _ => {}
        }
    }
    page
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Blocks without a language that is known, and commands that no test would see.
fn hidden_commands(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut hidden = Vec::new();
    for (file, page) in pages {
        for (line, language, body) in &page.blocks {
            let at = format!("{}:{line}", file.display());
            if !LANGUAGES.contains(&language.as_str()) {
                hidden.push(format!(
                    "{at}: found a block of the language {language:?}; allowed: {LANGUAGES:?}"
                ));
                continue;
            }
            let is_command = |line: &&str| COMMANDS.iter().any(|begin| line.starts_with(begin));
            if let Some(command) = body.lines().find(is_command).filter(|_| !language.starts_with("console"))
            {
                hidden.push(format!(
                    "{at}: found the command {command:?} in a block of the language {language:?}; allowed: \
                     \"console\", or \"console no-run\" with a reason in the suite of the docs"
                ));
            }
        }
    }
    hidden
}

/// The anchor of a heading, as GitHub and mdBook make it.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ => character.is_alphanumeric().then_some(character),
    });
    kept.flat_map(char::to_lowercase).collect()
}

fn broken_links(pages: &BTreeMap<PathBuf, Page>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut broken = Vec::new();
    for (file, page) in pages {
        for (line, target) in &page.links {
            if !is_relative(target) {
                continue;
            }
            let at = format!("{}:{line}", file.display());
            let (path, anchor) = match target.split_once('#') {
                Some((path, anchor)) => (path, Some(anchor)),
                None => (target.as_str(), None),
            };
            let folder = file.parent().unwrap_or(Path::new(""));
            let Some(found) = (if path.is_empty() { Some(file.clone()) } else { join(folder, path) }) else {
                broken.push(format!("{at}: {target}: leads out of the repository"));
                continue;
            };
            if !exists(&found) {
                broken.push(format!("{at}: {target}: found nothing at {}", found.display()));
                continue;
            }
            let Some(anchor) = anchor else { continue };
            match pages.get(&found) {
                Some(page) if page.anchors.contains(anchor) => {}
                Some(page) => broken.push(format!(
                    "{at}: {target}: found no heading {anchor:?} in {}; allowed: {}",
                    found.display(),
                    page.anchors.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
                )),
                None => broken.push(format!("{at}: {target}: an anchor, but no Markdown page")),
            }
        }
    }
    broken
}

/// Pages of the book that its summary does not name: a reader of the book would not find them.
fn missing_pages(pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let Some(summary) = pages.get(Path::new(SUMMARY)) else { return vec![format!("{SUMMARY} is not there")] };
    let named: BTreeSet<PathBuf> =
        summary.links.iter().filter_map(|(_, target)| join(Path::new(BOOK), target)).collect();
    let of_book = |file: &&PathBuf| file.starts_with(BOOK) && file.as_path() != Path::new(SUMMARY);
    let missing = pages.keys().filter(of_book).filter(|file| !named.contains(*file));
    missing.map(|file| format!("{SUMMARY}: does not name {}", file.display())).collect()
}

/// A link to a file of the repository or to a heading of the page itself.
pub fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:")
}

/// A relative path from a folder, without `..` in it; `None` when it leaves the repository.
pub fn join(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut joined = PathBuf::new();
    for part in folder.join(path).components() {
        match part {
            Component::ParentDir => {
                if !joined.pop() {
                    return None;
                }
            }
            Component::CurDir => {}
            other => joined.push(other),
        }
    }
    Some(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_leads_somewhere() {
        check().expect("no link is broken");
    }

    #[test]
    fn headings_have_the_anchors_that_sites_give_them() {
        for (heading, anchor) in [
            ("Backup and restore", "backup-and-restore"),
            ("Who may do what?", "who-may-do-what"),
            ("`fleet up`: a hub, in one process", "fleet-up-a-hub-in-one-process"),
            ("ClusterOverridePolicy (policy.one/v1)", "clusteroverridepolicy-policyonev1"),
        ] {
            assert_eq!(slug(heading), anchor);
        }
        let page = read("# A b\n## A b\n[x](y.md#z) ![p](q.svg)\n\n```\n[no](link.md)\n```\n");
        assert_eq!(page.anchors, ["a-b".to_string(), "a-b-1".to_string()].into());
        assert_eq!(page.links, [(3, "y.md#z".to_string()), (3, "q.svg".to_string())]);
    }

    #[test]
    fn a_command_that_no_test_runs_is_named() {
        let text =
            "```\nx\n```\n\n```text\n  Usage: x\nfleet up\n```\n\n```console\n$ fleet up\n```\n\n    y\n";
        let hidden = hidden_commands(&[(PathBuf::from("a.md"), read(text))].into());
        assert_eq!(hidden.len(), 3, "{hidden:?}");
        assert!(hidden[0].starts_with("a.md:1: found a block of the language \"\""), "{hidden:?}");
        assert!(hidden[1].starts_with("a.md:5: found the command \"fleet up\""), "{hidden:?}");
        assert!(hidden[2].starts_with("a.md:14: found a block of the language"), "{hidden:?}");
    }

    #[test]
    fn what_is_broken_is_named() {
        let pages: BTreeMap<PathBuf, Page> = [
            (
                PathBuf::from("docs/a.md"),
                read("# A\n[b](b.md#here) [r](../README.md) [o](../../x) [self](#a)\n"),
            ),
            (PathBuf::from("docs/b.md"), read("# B\n[gone](gone.md) [net](https://example.com/x#y)\n")),
            (PathBuf::from("docs/SUMMARY.md"), read("- [A](a.md)\n")),
        ]
        .into();
        let found = broken_links(&pages, |path| path != Path::new("docs/gone.md"));
        assert_eq!(
            found,
            [
                "docs/a.md:2: b.md#here: found no heading \"here\" in docs/b.md; allowed: b",
                "docs/a.md:2: ../../x: leads out of the repository",
                "docs/b.md:2: gone.md: found nothing at docs/gone.md",
            ]
        );
        assert_eq!(missing_pages(&pages), ["docs/SUMMARY.md: does not name docs/b.md"]);
    }
}
