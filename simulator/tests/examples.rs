//! Every scenario of `examples/scenarios` says what is written beside it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use fleet_simulator::{
    Scenario, fast,
    scenario::log::{JsonLines, Log, People, Record, Summary},
};

/// Set to write what is expected anew.
const UPDATE: &str = "UPDATE_SCENARIOS";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios")
}

fn scenarios(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// Both tellings at once.
struct Both<'o> {
    people: People<&'o mut Vec<u8>>,
    lines: JsonLines<&'o mut Vec<u8>>,
}

impl Log for Both<'_> {
    fn record(&mut self, record: &Record) -> std::io::Result<()> {
        self.people.record(record)?;
        self.lines.record(record)
    }

    fn end(&mut self, summary: &Summary) -> std::io::Result<()> {
        self.people.end(summary)?;
        self.lines.end(summary)
    }
}

fn check(folder: &Path) -> usize {
    let mut wrong = Vec::new();
    let files = scenarios(folder);
    for file in &files {
        let name = file.file_stem().and_then(|name| name.to_str()).expect("a name");
        let text = fs::read_to_string(file).expect("readable");
        assert!(text.starts_with("# "), "{name} says what to look at");
        let scenario = Scenario::read(name, &text).unwrap_or_else(|error| panic!("{error}"));
        let (mut told, mut lines) = (Vec::new(), Vec::new());
        let people = People::new(&mut told, "").expect("memory");
        let mut log = Both { people, lines: JsonLines { out: &mut lines } };
        let summary = fast::run(&scenario, &mut log).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(summary.violations, [], "{name}");
        let told = String::from_utf8(told).expect("utf-8");
        for line in String::from_utf8(lines).expect("utf-8").lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("json");
            assert!(line["event"].is_string() || line["summary"].is_object(), "{line}");
        }
        let expected = folder.join("expected").join(format!("{name}.txt"));
        if std::env::var_os(UPDATE).is_some() {
            fs::create_dir_all(folder.join("expected")).expect("made");
            fs::write(&expected, &told).expect("written");
        }
        let standing = fs::read_to_string(&expected).unwrap_or_default();
        if standing != told {
            wrong.push(format!("{name} now says:\n{told}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nif that is right: {UPDATE}=1 cargo test -p fleet-simulator --test examples",
        wrong.join("\n")
    );
    files.len()
}

#[test]
fn the_examples_say_what_is_written_beside_them() {
    assert!(check(&folder()) >= 20);
}

#[test]
fn the_cases_of_dispatch_do_too() {
    assert!(check(&folder().join("dispatch")) >= 10);
}
