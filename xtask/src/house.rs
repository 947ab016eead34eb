//! Measures the workspace: modules and their uses, sizes of crates, files and functions, dependencies that no
//! source uses, and the code map in `docs/ARCHITECTURE.md`.
//!
//! What exceeds a limit today is in `xtask/debt.txt` with its measure, which may only shrink. So a limit holds for
//! everything new before the last old violation is fixed.

mod debt;
mod graph;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use anyhow::Context;

use debt::Debt;
use source::Room;
pub use source::without_tests;

/// Lines of one room, tests left out.
const ROOM_LINES: usize = 8_000;
/// Lines of one file, tests, examples and benches too.
const FILE_LINES: usize = 600;
/// Lines of one function, unless its first line says why.
const FUNCTION_LINES: usize = 80;
/// Modules of one room that may use each other in a circle.
const CIRCLE: usize = 2;
/// The room whose sources are tests.
const TESTS: &str = "tests";

/// Measures every room and names what is beyond its limit.
///
/// # Errors
/// A file that cannot be read or parsed.
pub fn check(root: &Path, folders: &[String]) -> anyhow::Result<Vec<String>> {
    let rooms: Vec<Room> = folders.iter().map(|folder| Room::read(root, folder)).collect::<Result<_, _>>()?;
    let mut measured = Vec::new();
    for room in &rooms {
        measured.extend(sizes(room));
        for circle in graph::circles(&room.uses) {
            if circle.len() > CIRCLE {
                let names: Vec<&str> = circle.iter().map(String::as_str).collect();
                measured.push(Measure {
                    what: format!("circle {}", room.folder),
                    found: circle.len(),
                    allowed: CIRCLE,
                    unit: "modules that use each other",
                    about: names.join(", "),
                });
            }
        }
    }
    for room in &rooms {
        measured.extend(unused(root, room)?);
    }
    measured.extend(unused_by_all(root, folders)?);
    let mut broken = Debt::read(&root.join("xtask/debt.txt"))?.judge(&measured);
    broken.extend(table(root, &rooms)?);
    Ok(broken)
}

/// Something beyond its limit.
pub struct Measure {
    /// Kind and name, as `debt.txt` has it.
    pub what: String,
    pub found: usize,
    pub allowed: usize,
    pub unit: &'static str,
    pub about: String,
}

/// The graph of modules of every room in the language of graphviz, circles in red.
///
/// # Errors
/// A file that cannot be read or parsed.
pub fn draw(root: &Path, folders: &[String]) -> anyhow::Result<String> {
    let mut text = String::from("digraph house {\n  rankdir=LR; node [shape=box, fontname=sans];\n");
    for folder in folders {
        let room = Room::read(root, folder)?;
        let circles = graph::circles(&room.uses);
        let circle_of =
            |module: &str| circles.iter().position(|circle| circle.len() > CIRCLE && circle.contains(module));
        let _ = writeln!(text, "  subgraph \"cluster_{folder}\" {{\n    label=\"{folder}\";");
        for (from, uses) in &room.uses {
            let _ = writeln!(text, "    \"{folder}::{from}\" [label=\"{from}\"];");
            for to in uses {
                let red = circle_of(from).is_some() && circle_of(from) == circle_of(to);
                let colour = if red { " [color=red]" } else { "" };
                let _ = writeln!(text, "    \"{folder}::{from}\" -> \"{folder}::{to}\"{colour};");
            }
        }
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    Ok(text)
}

fn sizes(room: &Room) -> Vec<Measure> {
    let mut found = Vec::new();
    let lines: usize = room.files.iter().filter(|file| !file.is_test).map(|file| file.lines).sum();
    if lines > ROOM_LINES {
        let about = String::new();
        found.push(Measure {
            what: format!("room {}", room.folder),
            found: lines,
            allowed: ROOM_LINES,
            unit: "lines",
            about,
        });
    }
    for file in &room.files {
        if file.lines > FILE_LINES {
            let what = format!("file {}", file.path);
            found.push(Measure {
                what,
                found: file.lines,
                allowed: FILE_LINES,
                unit: "lines",
                about: String::new(),
            });
        }
        for function in
            file.functions.iter().filter(|function| function.lines > FUNCTION_LINES && !function.says_why)
        {
            found.push(Measure {
                what: format!("function {}::{}", file.path, function.name),
                found: function.lines,
                allowed: FUNCTION_LINES,
                unit: "lines",
                about: "or a reason in a comment on its first line".to_string(),
            });
        }
    }
    found
}

/// Dependencies of a manifest that no source of the room names.
fn unused(root: &Path, room: &Room) -> anyhow::Result<Vec<Measure>> {
    let manifest = std::fs::read_to_string(root.join(&room.folder).join("Cargo.toml"))?;
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        }
        let Some((key, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
        let name = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
        let words = match section {
            "[dependencies]" if room.folder != TESTS => &room.roots,
            "[dependencies]" => &room.test_words,
            "[dev-dependencies]" => &room.test_words,
            _ => continue,
        };
        if !words.contains(&name.replace('-', "_")) {
            let about = format!("{name} under {section} is used by no source");
            let what = format!("unused {}/Cargo.toml {name}", room.folder);
            found.push(Measure { what, found: 1, allowed: 0, unit: "dependency", about });
        }
    }
    Ok(found)
}

/// Dependencies of the workspace that no crate takes.
fn unused_by_all(root: &Path, folders: &[String]) -> anyhow::Result<Vec<Measure>> {
    let read = |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
    let mut taken = BTreeSet::new();
    for folder in folders {
        let manifest = read(&root.join(folder).join("Cargo.toml"))?;
        let keys = manifest.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        taken.extend(keys.map(str::to_owned));
    }
    let workspace = read(&root.join("Cargo.toml"))?;
    let section = workspace.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let names =
        section.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(" = "));
    let unused = names.map(|(name, _)| name).filter(|name| !taken.contains(*name));
    Ok(unused
        .map(|name| Measure {
            what: format!("unused Cargo.toml {name}"),
            found: 1,
            allowed: 0,
            unit: "dependency",
            about: format!("{name} under [workspace.dependencies] is used by no crate"),
        })
        .collect())
}

/// The table of rooms names every room, and only rooms.
fn table(root: &Path, rooms: &[Room]) -> anyhow::Result<Vec<String>> {
    let page = "docs/ARCHITECTURE.md";
    let text = std::fs::read_to_string(root.join(page)).context(page)?;
    let listed: BTreeSet<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("| crate |"))
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.strip_prefix("| `"))
        .flat_map(|line| line.split('|').next().unwrap_or_default().split('`'))
        .filter_map(|name| name.strip_suffix('/'))
        .collect();
    let known: BTreeMap<&str, &Room> = rooms.iter().map(|room| (room.folder.as_str(), room)).collect();
    let missing = known.keys().filter(|room| !listed.contains(**room));
    let mut found: Vec<String> =
        missing.map(|room| format!("{page}: the table of rooms lacks {room}/")).collect();
    let extra = listed.iter().filter(|name| !root.join(name).is_dir());
    found.extend(extra.map(|name| format!("{page}: the table of rooms names {name}/, which does not exist")));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beside_the_sources_only_files_have_a_limit() {
        let root = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let function = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2));
        write("a/src/lib.rs", "");
        write("a/tests/main.rs", "#[path = \"../../b/tests/long.rs\"]\nmod long;\n");
        for folder in ["tests", "tests/deep", "examples", "benches"] {
            write(&format!("a/{folder}/long.rs"), &function(FILE_LINES + 1));
        }
        // All of them together are longer than a room may be.
        for number in 0..=ROOM_LINES / FILE_LINES {
            write(&format!("a/tests/part{number}.rs"), &function(FILE_LINES));
        }
        write("b/tests/long.rs", &function(FILE_LINES + 2));
        let mut found = sizes(&Room::read(root.path(), "a").expect("a room"));
        found.sort_by(|one, other| one.what.cmp(&other.what));
        let found: Vec<_> = found.iter().map(|measure| (measure.what.as_str(), measure.found)).collect();
        let long = [
            ("file a/benches/long.rs", FILE_LINES + 1),
            ("file a/examples/long.rs", FILE_LINES + 1),
            ("file a/tests/deep/long.rs", FILE_LINES + 1),
            ("file a/tests/long.rs", FILE_LINES + 1),
        ];
        assert_eq!(found, long);
    }
}
