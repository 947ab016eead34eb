//! Blocks that no test can run, each with the reason, and what is checked of them all the same: programs, commands, flags,
//! packages, targets and files exist.
//!
//! The same is checked of commands within sentences.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context, bail, ensure};
use fleet_tests::{
    console::{self, Block},
    process::{fleet_binary, program},
    repository,
};

/// Page, beginning of the first command, and why no test runs the block.
const NOT_RUN: &[(&str, &str, &str)] = &[
    ("docs/operations.md", "etcdutl snapshot restore", "needs etcd and a backup of it"),
    (
        "docs/simulation.md",
        "cargo xtask simulate",
        "hours of simulation; fault-simulation/tests/whole.rs runs its own seeds",
    ),
    ("docs/simulation.md", "cargo mutants", "needs cargo-mutants, and takes an hour"),
    (
        "docs/apiserver.md",
        "export APISERVER_URL",
        "compiles; the suite itself runs against the embedded server in every run of the tests",
    ),
    ("CONTRIBUTING.md", "cargo xtask tidy", "runs the whole test suite, this one too"),
    (
        "CONTRIBUTING.md",
        "rustup target add",
        "builds a release for minutes; xtask/tests/dist.rs makes one of its own build",
    ),
    ("charts/README.md", "helm lint", "apiserver/tests/helm.rs drives helm"),
    (
        "charts/README.md",
        "helm install",
        "apiserver/tests/helm.rs installs the charts; images are not published",
    ),
    (
        "charts/README.md",
        "fleet join",
        "needs a kubeconfig with a context for each cluster; suite `docs` joins one",
    ),
];

/// Commands of `fleet` that end at once where no hub is known.
const NEED_A_HUB: &[&str] = &[
    "audit", "clusters", "cordon", "describe", "doctor", "drain", "explain", "get", "join", "pai", "queue",
    "status", "uncordon", "unjoin", "vc",
];
/// Status with which a program ends that does not know a command or flag, or misses one.
const USAGE: i32 = 2;
/// Programs of Fleet beside `fleet`.
const PROGRAMS: &[&str] = &["fleet-controller", "member-agent"];
/// Programs of others, whose words are not checked.
const OTHERS: &[&str] = &[
    "kubectl", "helm", "curl", "export", "etcdutl", "rustup", "apt-get", "pip", "skopeo", "cd", "sed",
    "printf",
];

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    /// In a block, as it is typed.
    Block,
    /// In a sentence, which may leave out what it is not about, such as the values of flags.
    Sentence,
}

/// Every block that is not run is listed, and every entry of the list is a block.
///
/// # Errors
/// One is missing.
pub fn check_list(blocks: &[Block]) -> anyhow::Result<()> {
    let is_about = |block: &Block, page: &str, begins: &str| {
        block.page == page && block.steps[0].command.starts_with(begins)
    };
    for block in blocks.iter().filter(|block| !block.is_run) {
        let listed = NOT_RUN.iter().any(|(page, begins, _)| is_about(block, page, begins));
        ensure!(listed, "{}:{}: `console no-run` without a reason in NOT_RUN", block.page, block.line);
    }
    for (page, begins, why) in NOT_RUN {
        let stands = blocks.iter().any(|block| !block.is_run && is_about(block, page, begins));
        ensure!(stands && !why.is_empty(), "NOT_RUN: {page}: {begins:?}: no such block, or no reason");
    }
    Ok(())
}

/// Checks every command of the blocks that are not run.
///
/// # Errors
/// Names each line with a command that does not exist.
pub fn check_blocks(blocks: &[Block]) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    for block in blocks.iter().filter(|block| !block.is_run) {
        for step in &block.steps {
            if let Err(error) = check(&step.command, Code::Block) {
                wrong.push(format!("{}:{}: {}: {error:#}", block.page, step.line, step.command));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Checks every command of Fleet and of cargo that a sentence of these pages names.
///
/// # Errors
/// As [`check_blocks`].
pub fn check_sentences(pages: &[(String, String)]) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    let mut wrong = Vec::new();
    for (page, text) in pages {
        for (line, code) in console::inline(text) {
            let command = code.split_once("=1 ").map_or(code.as_str(), |(_, command)| command);
            let is_command = ["fleet ", "kubectl fleet ", "kubectl amc ", "cargo "]
                .iter()
                .any(|program| command.starts_with(*program));
            if is_command
                && known.insert(code.clone())
                && let Err(error) = check(&code, Code::Sentence)
            {
                wrong.push(format!("{page}:{line}: `{code}`: {error:#}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Checks what a shell would run: the parts of a pipe or of a list, without comments and variables before them.
///
/// # Errors
/// A program, command, flag, package, target or file of it does not exist.
fn check(command: &str, code: Code) -> anyhow::Result<()> {
    let text = command.replace("\\\n", " ");
    let text = text.split(" # ").next().unwrap_or_default();
    for part in text.split(['|', ';', '\n']).flat_map(|part| part.split("&&")) {
        let words: Vec<&str> = part.split_whitespace().map(|word| word.trim_matches(['\'', '"'])).collect();
        let words: Vec<&str> = words
            .into_iter()
            .skip_while(|word| word.contains('=') && !word.starts_with('-'))
            .filter(|word| *word != "&")
            .collect();
        match words.as_slice() {
            [] => {}
            ["fleet", rest @ ..] | ["kubectl", "fleet" | "amc", rest @ ..] => {
                parses(&fleet_binary()?, rest, code)?;
            }
            ["cargo", rest @ ..] => check_cargo(rest)?,
            [own, rest @ ..] if PROGRAMS.contains(own) => parses(&program(own)?, rest, Code::Sentence)?,
            [other, ..] if OTHERS.contains(other) => {}
            [unknown, ..] => {
                bail!("found the program {unknown}; allowed: Fleet's, cargo, {}", OTHERS.join(", "))
            }
        }
    }
    Ok(())
}

/// Whether the program knows these commands and flags: it reads them, and then finds no hub, or only prints its help.
fn parses(program: &Path, words: &[&str], code: Code) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command
        .args(words)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nonexistent")
        .env("FLEET_HOME", "/nonexistent");
    let first = words.iter().find(|word| !word.starts_with('-') && !word.contains('.'));
    let needs_a_hub = first.is_some_and(|first| NEED_A_HUB.contains(first));
    if code == Code::Sentence || !needs_a_hub {
        // Flags that are required are not missed then.
        command.arg("--help");
    }
    let said = command.output().with_context(|| program.display().to_string())?;
    let error = String::from_utf8_lossy(&said.stderr);
    let is_left_out = code == Code::Sentence && error.contains("a value is required for");
    ensure!(said.status.code() != Some(USAGE) || is_left_out, "{}", error.trim());
    Ok(())
}

fn check_cargo(words: &[&str]) -> anyhow::Result<()> {
    match words {
        ["xtask", rest @ ..] => parses(&program("xtask")?, rest, Code::Sentence),
        ["mutants", rest @ ..] => {
            for (flag, file) in pairs(rest) {
                let file = file.split("/**").next().unwrap_or_default();
                ensure!(flag != "-f" || repository().join(file).exists(), "found {file}; allowed: a file");
            }
            Ok(())
        }
        [task @ ("build" | "install" | "nextest" | "run" | "test"), rest @ ..] => {
            let own = rest.split(|word| *word == "--").next().unwrap_or_default();
            let package = value(own, "-p").or_else(|| value(own, "--package"));
            let folder = match (package, value(own, "--path")) {
                (Some(name), _) => Some(package_folder(name)?),
                (None, Some(path)) => Some(path.to_string()),
                (None, None) => None,
            };
            for (flag, place) in [("--test", "tests"), ("--example", "examples"), ("--bin", "src/bin")] {
                let Some(name) = value(own, flag) else { continue };
                let folder = folder.as_deref().with_context(|| format!("{flag} {name} without -p"))?;
                ensure!(has_target(folder, place, name)?, "found {flag} {name}; allowed: one of {folder}");
            }
            match rest.split(|word| *word == "--").nth(1) {
                // Of the programs of the workspace, the one that is run if none is named.
                Some(words) if *task == "run" && folder.is_none() => {
                    parses(&fleet_binary()?, words, Code::Sentence)
                }
                _ => Ok(()),
            }
        }
        _ => bail!(
            "found cargo {}; allowed: xtask, mutants, build, install, nextest, run, test",
            words.join(" ")
        ),
    }
}

fn pairs<'a>(words: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    words.windows(2).map(|pair| (pair[0], pair[1]))
}

fn value<'a>(words: &'a [&'a str], flag: &str) -> Option<&'a str> {
    pairs(words).find(|(name, _)| *name == flag).map(|(_, value)| value)
}

/// The folder of a package of the workspace.
fn package_folder(name: &str) -> anyhow::Result<String> {
    let mut known = BTreeSet::new();
    for entry in fs::read_dir(repository())? {
        let folder = entry?.path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let line = manifest.lines().find_map(|line| line.strip_prefix("name = "));
        let package = line.unwrap_or_default().trim_matches('"').to_string();
        if package == name {
            return Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        known.insert(package);
    }
    bail!("found the package {name}; allowed: {}", known.into_iter().collect::<Vec<_>>().join(", "))
}

/// Whether a package has a target: a file of the usual place, or one that its manifest names.
fn has_target(folder: &str, place: &str, name: &str) -> anyhow::Result<bool> {
    let root = repository().join(folder);
    let manifest = fs::read_to_string(root.join("Cargo.toml")).with_context(|| folder.to_string())?;
    let is_file = [format!("{name}.rs"), format!("{name}/main.rs")]
        .iter()
        .any(|file| root.join(place).join(file).is_file());
    Ok(is_file || manifest.lines().any(|line| line == format!("name = \"{name}\"")))
}

#[test]
fn a_command_that_does_not_exist_is_found() -> anyhow::Result<()> {
    for wrong in [
        "fleet joins east",
        "fleet join east --no-such-flag",
        "fleet join east --agent-kubeconfig agent.kubeconfig",
        "kubectl fleet get pod --everywhere",
        "fleet crds --hub | fleet simulate --sped 3",
        "cargo xtask simulate --seed 1",
        "cargo run --release -p fleet-none --example a",
        "cargo run --release -p fleet-quota --example none",
        "cargo test -p fleet-apiserver --test none",
        "cargo run --release -- simulates",
        "cargo mutants -f 'hub-core/src/none.rs'",
        "cargo bogus",
        "fleets get",
    ] {
        assert!(check(wrong, Code::Block).is_err(), "{wrong}");
    }
    for right in [
        "fleet join east --member-kubeconfig east.kubeconfig   # a comment",
        "fleet crds --hub | kubectl apply -f -",
        "fleet-controller --kubeconfig hub.kubeconfig &",
        "cargo xtask simulate --seeds 1000              # stops",
        "UPDATE_DOCS=1 cargo test -p fleet reference",
        "cargo run --release -p fleet-quota --example plan_speed 1000",
        "cargo test -p fleet-apiserver --test conformance",
        "cargo run --release -- simulate FILE",
        "cargo mutants --workspace -f 'hub-core/src/dispatch/**' -- --lib",
    ] {
        check(right, Code::Block).with_context(|| right.to_string())?;
    }
    for sentence in ["fleet get -m", "fleet simulate --trace --cells", "fleet unjoin --force", "fleet vc"] {
        check(sentence, Code::Sentence).with_context(|| sentence.to_string())?;
    }
    assert!(check("fleet -M", Code::Sentence).is_err());
    Ok(())
}
