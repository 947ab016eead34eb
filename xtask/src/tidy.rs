//! Rules that the compiler does not check: which crate may use which, and that pure crates stay pure.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, bail};

use crate::house;

/// Room (package) to the rooms it may depend on, outside tests. Arrows point one way.
const MAY_USE: &[(&str, &[&str])] = &[
    ("fleet-resources", &[]),
    ("fleet-policies", &["fleet-resources"]),
    ("fleet-runs", &["fleet-policies"]),
    ("fleet-quota-tree", &["fleet-resources"]),
    ("fleet-quota", &["fleet-resources", "fleet-quota-tree"]),
    ("fleet-placement", &["fleet-resources"]),
    ("fleet-scheduler-state", &["fleet-resources", "fleet-placement"]),
    ("fleet-scheduler", &["fleet-resources", "fleet-placement", "fleet-scheduler-state"]),
    ("fleet-mirror", &[]),
    ("fleet-informer", &["fleet-mirror"]),
    ("fleet-election", &[]),
    ("fleet-cells", &["fleet-resources"]),
    ("fleet-pai", &[]),
    ("fleet-views", &["fleet-resources", "fleet-policies"]),
    ("fleet-ordered", &[]),
    ("fleet-console", &["fleet-resources"]),
    (
        "fleet-api",
        &[
            "fleet-ordered",
            "fleet-resources",
            "fleet-policies",
            "fleet-quota-tree",
            "fleet-placement",
            "fleet-cells",
        ],
    ),
    ("fleet-apiserver-ground", &["fleet-ordered"]),
    ("fleet-apiserver-cel", &["fleet-apiserver-ground"]),
    ("fleet-apiserver-schema", &["fleet-resources", "fleet-apiserver-ground", "fleet-apiserver-cel"]),
    ("fleet-apiserver-ownership", &["fleet-apiserver-ground", "fleet-apiserver-schema"]),
    (
        "fleet-apiserver-registration",
        &["fleet-apiserver-ground", "fleet-apiserver-cel", "fleet-apiserver-schema"],
    ),
    ("fleet-apiserver-pods", &["fleet-resources", "fleet-apiserver-ground", "fleet-apiserver-schema"]),
    (
        "fleet-apiserver-devices",
        &[
            "fleet-resources",
            "fleet-apiserver-ground",
            "fleet-apiserver-cel",
            "fleet-apiserver-schema",
            "fleet-apiserver-pods",
        ],
    ),
    (
        "fleet-apiserver-kinds",
        &[
            "fleet-resources",
            "fleet-apiserver-ground",
            "fleet-apiserver-schema",
            "fleet-apiserver-pods",
            "fleet-apiserver-devices",
            "fleet-apiserver-registration",
        ],
    ),
    ("fleet-apiserver-printers", &["fleet-apiserver-ground", "fleet-apiserver-schema"]),
    (
        "fleet-apiserver-admission",
        &[
            "fleet-resources",
            "fleet-apiserver-ground",
            "fleet-apiserver-cel",
            "fleet-apiserver-schema",
            "fleet-apiserver-ownership",
            "fleet-apiserver-kinds",
        ],
    ),
    (
        "fleet-apiserver-openapi",
        &["fleet-apiserver-ground", "fleet-apiserver-schema", "fleet-apiserver-admission"],
    ),
    (
        "fleet-apiserver",
        &[
            "fleet-ordered",
            "fleet-apiserver-ground",
            "fleet-apiserver-schema",
            "fleet-apiserver-ownership",
            "fleet-apiserver-kinds",
            "fleet-apiserver-printers",
            "fleet-apiserver-admission",
            "fleet-apiserver-openapi",
        ],
    ),
    ("fleet-check", &["fleet-resources", "fleet-api"]),
    (
        "fleet-planner",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-quota",
            "fleet-quota-tree",
            "fleet-placement",
            "fleet-cells",
            "fleet-api",
        ],
    ),
    (
        "fleet-cell-requests",
        &["fleet-resources", "fleet-policies", "fleet-cells", "fleet-api", "fleet-planner"],
    ),
    (
        "fleet-hub-world",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-quota-tree",
            "fleet-placement",
            "fleet-mirror",
            "fleet-api",
        ],
    ),
    (
        "fleet-hub-core",
        &[
            "fleet-hub-world",
            "fleet-planner",
            "fleet-cell-requests",
            "fleet-resources",
            "fleet-policies",
            "fleet-runs",
            "fleet-quota",
            "fleet-quota-tree",
            "fleet-placement",
            "fleet-cells",
            "fleet-views",
            "fleet-api",
        ],
    ),
    (
        "fleet-controller",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-quota",
            "fleet-informer",
            "fleet-election",
            "fleet-views",
            "fleet-api",
            "fleet-hub-core",
            "fleet-metrics",
        ],
    ),
    ("fleet-openpai", &["fleet-policies", "fleet-cells", "fleet-pai", "fleet-api", "fleet-cell-requests"]),
    (
        "fleet-pages",
        &[
            "fleet-openpai",
            "fleet-resources",
            "fleet-policies",
            "fleet-quota-tree",
            "fleet-views",
            "fleet-api",
        ],
    ),
    (
        "fleet-portal",
        &[
            "fleet-openpai",
            "fleet-pages",
            "fleet-policies",
            "fleet-quota-tree",
            "fleet-placement",
            "fleet-mirror",
            "fleet-informer",
            "fleet-pai",
            "fleet-views",
            "fleet-api",
            "fleet-planner",
            "fleet-hub-core",
            "fleet-metrics",
        ],
    ),
    ("fleet-cli-ground", &["fleet-console", "fleet-views", "fleet-api", "fleet-kubesim", "fleet-openpai"]),
    (
        "fleet-cli-clusters",
        &[
            "fleet-console",
            "fleet-views",
            "fleet-api",
            "fleet-apiserver",
            "fleet-hub-core",
            "fleet-cli-ground",
        ],
    ),
    ("fleet-cli-volcano", &["fleet-resources", "fleet-api", "fleet-cli-ground"]),
    (
        "fleet-bench",
        &[
            "fleet-resources",
            "fleet-placement",
            "fleet-scheduler",
            "fleet-console",
            "fleet-api",
            "fleet-apiserver",
            "fleet-kubesim",
            "fleet-cli-ground",
            "member-agent",
        ],
    ),
    ("fleet-watchdog", &[]),
    ("fleet-metrics", &["fleet-resources"]),
    (
        "fleet-simulator",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-runs",
            "fleet-quota",
            "fleet-quota-tree",
            "fleet-placement",
            "fleet-cells",
            "fleet-views",
            "fleet-api",
            "fleet-planner",
            "fleet-hub-core",
        ],
    ),
    (
        "fleet-kubesim",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-api",
            "fleet-apiserver",
            "fleet-controller",
            "fleet-metrics",
            "fleet-simulator",
            "fleet-watchdog",
            "member-agent",
        ],
    ),
    (
        "fleet-fault-simulation",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-quota-tree",
            "fleet-api",
            "fleet-apiserver",
            "fleet-check",
            "fleet-controller",
            "fleet-kubesim",
            "fleet-simulator",
            "member-agent",
        ],
    ),
    (
        "fleet-agent-ground",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-mirror",
            "fleet-informer",
            "fleet-api",
            "fleet-metrics",
        ],
    ),
    (
        "fleet-job-controllers",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-mirror",
            "fleet-informer",
            "fleet-pai",
            "fleet-api",
            "fleet-agent-ground",
        ],
    ),
    (
        "fleet-works",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-mirror",
            "fleet-informer",
            "fleet-api",
            "fleet-watchdog",
            "fleet-agent-ground",
        ],
    ),
    (
        "fleet-member-state",
        &[
            "fleet-resources",
            "fleet-policies",
            "fleet-placement",
            "fleet-scheduler",
            "fleet-cells",
            "fleet-api",
            "fleet-agent-ground",
        ],
    ),
    (
        "fleet-member-scheduler",
        &[
            "fleet-resources",
            "fleet-placement",
            "fleet-scheduler",
            "fleet-informer",
            "fleet-api",
            "fleet-agent-ground",
            "fleet-member-state",
        ],
    ),
    (
        "member-agent",
        &[
            "fleet-scheduler",
            "fleet-informer",
            "fleet-election",
            "fleet-api",
            "fleet-watchdog",
            "fleet-agent-ground",
            "fleet-job-controllers",
            "fleet-works",
            "fleet-member-state",
            "fleet-member-scheduler",
            "fleet-metrics",
        ],
    ),
];

/// What a pure room may use from outside: data and errors, nothing that reads a clock, rolls dice or does IO.
const PURE: &[&str] = &[
    "fleet-resources",
    "fleet-policies",
    "fleet-quota-tree",
    "fleet-quota",
    "fleet-placement",
    "fleet-scheduler-state",
    "fleet-scheduler",
    "fleet-mirror",
    "fleet-pai",
    "fleet-views",
    "fleet-cells",
    "fleet-runs",
    "fleet-planner",
    "fleet-cell-requests",
    "fleet-hub-world",
    "fleet-hub-core",
    "fleet-pages",
];
const PURE_MAY_USE: &[&str] = &["schemars", "serde", "serde_json", "thiserror"];

/// What some of them may use besides: those that are told of Kubernetes objects, the objects' types and times as values;
/// the one that draws pages, what writes HTML and addresses. No client is among them.
const OBJECTS: &[(&str, &[&str])] = &[
    ("fleet-mirror", &["kube-core"]),
    ("fleet-hub-world", &["jiff", "k8s-openapi", "kube-core"]),
    ("fleet-hub-core", &["jiff", "k8s-openapi", "kube-core"]),
    ("fleet-pages", &["jiff", "maud", "percent-encoding"]),
];

/// Words that have no place in the sources of a pure room.
const IMPURE_WORDS: &[&str] = &[
    "std::time::",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::now",
    "println!",
    "eprintln!",
    "HashMap",
    "HashSet",
    "tokio",
    "tracing::",
    "Timestamp::now",
    "Zoned::now",
    "fleet_api::clock",
];

/// Folders of programs and tests: they may use every room.
const TOPS: &[&str] = &["agent-fixture", "cli", "tests", "xtask"];

pub fn check() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    let rules: BTreeMap<&str, &[&str]> = MAY_USE.iter().copied().collect();
    let mut broken = Vec::new();
    let all = rooms(root)?;
    let mut manifests = BTreeMap::new();
    for folder in &all {
        let manifest = std::fs::read_to_string(root.join(folder).join("Cargo.toml"))
            .with_context(|| format!("{folder}/Cargo.toml"))?;
        manifests.insert(folder.as_str(), read_manifest(&manifest));
    }
    for (folder, (package, dependencies)) in &manifests {
        if TOPS.contains(folder) {
            continue;
        }
        let Some(allowed) = rules.get(package.as_str()) else {
            broken.push(format!("{folder}: package {package} has no rule in xtask/src/tidy.rs"));
            continue;
        };
        let pure = PURE.contains(&package.as_str());
        for unused in allowed.iter().filter(|room| !dependencies.iter().any(|used| used == *room)) {
            broken.push(format!("{folder}: does not use {unused}; its rule in xtask/src/tidy.rs allows it"));
        }
        for dependency in dependencies {
            let room = manifests.values().any(|(package, _)| package == dependency);
            if room && !allowed.contains(&dependency.as_str()) {
                broken.push(format!("{folder}: may not use {dependency}; allowed rooms: {allowed:?}"));
            }
            let of_objects =
                OBJECTS.iter().find(|(room, _)| *room == package).map_or(&[][..], |(_, all)| all);
            let mut may_use = PURE_MAY_USE.iter().chain(of_objects);
            if pure && !room && !may_use.any(|allowed| *allowed == dependency) {
                broken.push(format!(
                    "{folder}: is pure and may not use {dependency}; allowed: {PURE_MAY_USE:?} and {of_objects:?}"
                ));
            }
        }
        check_docs(&root.join(folder).join("src"), &mut broken)?;
        if pure {
            check_sources(&root.join(folder).join("src"), &mut broken)?;
        }
    }
    for manifest in
        std::iter::once("Cargo.toml".to_string()).chain(all.iter().map(|room| format!("{room}/Cargo.toml")))
    {
        let text = std::fs::read_to_string(root.join(&manifest)).with_context(|| manifest.clone())?;
        broken.extend(bugs_outside_tests(&manifest, &text));
    }
    broken.extend(house::check(root, &all)?);
    if !broken.is_empty() {
        bail!("the rules of the house are broken:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

/// The feature that compiles deliberate bugs in.
const BUGS: &str = "deliberate-bugs";

/// Lines of a manifest that turn deliberate bugs on in anything but tests.
fn bugs_outside_tests(manifest: &str, text: &str) -> Vec<String> {
    let mut section = "";
    let mut broken = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            section = line;
        }
        let declares = section == "[features]" && line == format!("{BUGS} = []");
        let of_tests = section.starts_with("[dev-dependencies");
        if line.contains(BUGS) && !declares && !of_tests {
            broken
                .push(format!("{manifest}: found {BUGS} under {section}; allowed: [dev-dependencies] alone"));
        }
    }
    broken
}

/// Folders of all packages of the workspace, in its own order.
fn rooms(root: &Path) -> anyhow::Result<Vec<String>> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let members = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next());
    let members = members.context("Cargo.toml names the members of the workspace")?;
    Ok(members.split('"').skip(1).step_by(2).map(str::to_string).collect())
}

/// The graph of modules of every room, for graphviz.
pub fn draw() -> anyhow::Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace has a root")?;
    house::draw(root, &rooms(root)?)
}

/// Package name and the names under `[dependencies]`.
fn read_manifest(text: &str) -> (String, Vec<String>) {
    let mut section = "";
    let mut package = String::new();
    let mut dependencies = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            section = line;
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        match section {
            "[package]" if key.trim() == "name" => package = value.trim().trim_matches('"').to_string(),
            "[dependencies]" => {
                let name = key.trim().split('.').next().unwrap_or_default();
                dependencies.push(name.to_string());
            }
            _ => {}
        }
    }
    (package, dependencies)
}

/// Nothing runs the tests in documentation: an example is a test of its own, or text.
fn check_docs(folder: &Path, broken: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            check_docs(&path, broken)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let of_docs = |line: &str| {
                let line = line.trim_start();
                line.strip_prefix("///")
                    .or_else(|| line.strip_prefix("//!"))
                    .map(|rest| rest.trim().to_owned())
            };
            let fence = text.lines().position(|line| of_docs(line).is_some_and(|rest| rest == "```"));
            if let Some(number) = fence {
                broken.push(format!(
                    "{}:{}: a code block in documentation; allowed: ```text",
                    path.display(),
                    number + 1
                ));
            }
        }
    }
    Ok(())
}

fn check_sources(folder: &Path, broken: &mut Vec<String>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            check_sources(&path, broken)?;
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let code = crate::house::without_tests(&text).with_context(|| path.display().to_string())?;
        for (number, line) in code.into_iter().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            for word in IMPURE_WORDS.iter().filter(|word| line.contains(*word)) {
                broken.push(format!("{}:{}: `{word}` in a pure room", path.display(), number + 1));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_keeps_its_rules() {
        check().expect("no rule is broken");
    }

    #[test]
    fn deliberate_bugs_are_for_tests_alone() {
        let found = |text: &str| bugs_outside_tests("m", text).len();
        let on = "fleet-api = { workspace = true, features = [\"deliberate-bugs\"] }";
        assert_eq!(found(&format!("[dev-dependencies]\n{on}\n")), 0);
        assert_eq!(found("[features]\n# of deliberate-bugs\ndeliberate-bugs = []\n"), 0);
        assert_eq!(found(&format!("[dependencies]\n{on}\n")), 1);
        assert_eq!(found(&format!("[workspace.dependencies]\n{on}\n[dev-dependencies]\n")), 1);
        assert_eq!(found("[features]\ndefault = [\"fleet-api/deliberate-bugs\"]\n"), 1);
        assert_eq!(found("[features]\nbugs = [\"fleet-api/deliberate-bugs\"]\n"), 1);
    }

    #[test]
    fn a_manifest_is_read() {
        let text = "[package]\nname = \"a\"\n[dependencies]\nserde.workspace = true\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n";
        assert_eq!(read_manifest(text), ("a".to_string(), vec!["serde".to_string(), "b".to_string()]));
    }
}
