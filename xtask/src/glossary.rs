//! The glossary names types that exist, at most forty terms, in alphabetical order.

use std::{fs, path::Path};

use anyhow::{Context, bail};

const GLOSSARY: &str = "docs/glossary.md";
/// More than that nobody learns.
const MOST_TERMS: usize = 40;

/// # Errors
/// Names each row that is wrong.
pub fn check() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let text = fs::read_to_string(root.join(GLOSSARY)).context(GLOSSARY)?;
    let terms = terms(&text);
    let mut broken = Vec::new();
    if terms.is_empty() || terms.len() > MOST_TERMS {
        broken.push(format!("found {} terms; allowed: 1 to {MOST_TERMS}", terms.len()));
    }
    for pair in terms.windows(2) {
        if pair[0].term > pair[1].term {
            broken.push(format!(
                "{:?} stands before {:?}; allowed: alphabetical order",
                pair[0].term, pair[1].term
            ));
        }
    }
    for term in &terms {
        let sources = sources(&root.join(term.of_crate).join("src"))
            .with_context(|| format!("{GLOSSARY}: {}: crate {}", term.term, term.of_crate))?;
        if !sources.iter().any(|source| defines(source, term.of_type)) {
            broken.push(format!(
                "{}: type {} is not defined in {}/src",
                term.term, term.of_type, term.of_crate
            ));
        }
    }
    if !broken.is_empty() {
        bail!("{GLOSSARY}:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

struct Term<'t> {
    term: &'t str,
    of_type: &'t str,
    of_crate: &'t str,
}

/// Rows `| term | meaning | type | crate |` of the table.
fn terms(text: &str) -> Vec<Term<'_>> {
    let rows = text.lines().filter(|line| line.starts_with("| ")).filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        match cells.as_slice() {
            [term, _, of_type, of_crate] if of_type.starts_with('`') => {
                Some(Term { term, of_type: of_type.trim_matches('`'), of_crate: of_crate.trim_matches('`') })
            }
            _ => None,
        }
    });
    rows.collect()
}

fn sources(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(fs::read_to_string(&path)?);
        }
    }
    Ok(found)
}

/// Whether a source defines the type, itself or as a kind of the Kubernetes API.
fn defines(source: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    source.lines().any(|line| {
        let line = line.trim_start();
        line == format!("kind = \"{name}\",")
            || ["struct ", "enum ", "trait ", "type "].iter().any(|keyword| {
                let at = line.split_once(keyword).map(|(before, rest)| (before.trim(), rest));
                let is_item = at.is_some_and(|(before, _)| before.is_empty() || before.starts_with("pub"));
                is_item && at.and_then(|(_, rest)| rest.strip_prefix(name)).is_some_and(ends)
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_glossary_names_types_that_exist() {
        check().expect("the glossary is true");
    }

    #[test]
    fn types_and_kinds_are_found() {
        let source = "pub struct Queues;\npub(crate) enum Reason {\n// struct Gone\nkind = \"Work\",\n";
        let found = ["Reason", "Work", "Queues"].map(|name| defines(source, name));
        assert_eq!(found, [true; 3]);
        assert_eq!(["Queue", "Gone", "Reas"].map(|name| defines(source, name)), [false; 3]);
    }
}
