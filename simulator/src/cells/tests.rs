//! The examples say what is written beside them; files that are wrong say where.

use std::{fs, path::Path};

use super::{CellScenario, Record};

/// Set to write what is expected anew.
const UPDATE: &str = "UPDATE_SCENARIOS";

fn story(name: &str, text: &str) -> String {
    let scenario = CellScenario::read(name, text).unwrap_or_else(|error| panic!("{error}"));
    let scenario = scenario.unwrap_or_else(|| panic!("{name} is of mode cells"));
    let mut told = String::new();
    let summary = scenario
        .run(&mut |record: &Record| {
            told += &format!("{}\n", record.line());
            let line: serde_json::Value = serde_json::from_str(&record.json()?)?;
            assert!(line["event"].is_string() && line["job"].is_string(), "{line}");
            Ok(())
        })
        .expect("memory");
    assert_eq!(summary.violations, [""; 0], "{name}");
    told
}

fn check(folder: &str) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenarios/cells").join(folder);
    let mut wrong = Vec::new();
    let mut files = 0;
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        files += 1;
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        let text = fs::read_to_string(&path).expect("readable");
        assert!(text.starts_with("# "), "{name} says what to look at");
        let told = story(name, &text);
        let expected = folder.join("expected").join(format!("{name}.txt"));
        if std::env::var_os(UPDATE).is_some() {
            fs::create_dir_all(folder.join("expected")).expect("made");
            fs::write(&expected, &told).expect("written");
        }
        if fs::read_to_string(&expected).unwrap_or_default() != told {
            wrong.push(format!("{name} now says:\n{told}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nif that is right: {UPDATE}=1 cargo test -p fleet-simulator cells",
        wrong.join("\n")
    );
    files
}

#[test]
fn examples_say_what_stands_beside_them() {
    assert!(check(".") >= 10);
}

#[test]
fn cases_of_hived_s_rules_do_too() {
    assert!(check("cases") >= 13);
}

const NODE: &str = "mode: cells
cells:
  physicalCluster:
    cellTypes:
      NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    physicalCells: [{cellType: NODE, cellAddress: n1}]
  virtualClusters:
    vc: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
events:
";

#[test]
fn other_modes_are_left_to_others() {
    for text in ["clusters: []", "mode: fast", "[", ""] {
        assert!(matches!(CellScenario::read("f", text), Ok(None)), "{text}");
    }
}

#[test]
fn mistakes_are_told_with_their_line() {
    let cases = [
        ("  - {at: 0s, group: {name: a}}", "f:10: events[0].group.virtualCluster: found nothing"),
        (
            "  - {at: 0s, group: {name: a, virtualCluster: vc, class: best}}",
            "f:10: events[0].group.class: found \"best\"; allowed: oppo",
        ),
        (
            "  - {at: 0s, group: {name: a, virtualCluster: vc, class: test, priority: 3}}",
            "allowed: class or priority, not both",
        ),
        (
            "  - {at: 0s, group: {name: a, virtualCluster: vc, gpus: 3}}",
            "events[0].group.gpus: found an unknown field",
        ),
        ("  - {at: 0s}", "f:10: events[0]: found a map with at"),
        ("  - {at: 0s, restart: {}, show: {virtualCluster: vc}}", "allowed: at and one of"),
        (
            "  - {at: 0s, pod: {name: p, spec: {priority: x}}}",
            "events[0].pod.spec.priority: found `x`; allowed: an integer",
        ),
        ("  - {at: 0s, delete: {}}", "events[0].delete: found a map with nothing"),
        (
            "  - at: 0s\n    reconfigure:\n      virtualClusters: {vc: {virtualCells: [{cellType: X, cellNumber: 1}]}}",
            "f:12: events[0].reconfigure.virtualClusters.vc.virtualCells[0].cellType",
        ),
    ];
    let named = [
        (
            "  - {at: 0s, node: {name: n9, good: false}}",
            "f:10: events[0].node.name: found \"n9\"; allowed: n1",
        ),
        (
            "  - {at: 0s, show: {virtualCluster: cv}}",
            "events[0].show.virtualCluster: found \"cv\"; allowed: vc",
        ),
        (
            "  - {at: 0s, group: {name: a, virtualCluster: vc, pods: 2, gang: false}}\n  - {at: 1s, delete: {group: b}}",
            "f:11: events[1].delete.group: found \"b\"; allowed: a, a/0, a/1",
        ),
        ("  - {at: 0s, delete: {pod: p}}", "events[0].delete.pod: found \"p\"; allowed: none"),
        (
            "  - {at: 0s, group: {name: a, virtualCluster: vc, suggested: [n1, m1]}}",
            "f:10: events[0].group.suggested: found \"m1\"; allowed: n1",
        ),
        (
            "  - {at: 0s, pod: {name: p, suggested: [m1], spec: {virtualCluster: vc, priority: 1, leafCellNumber: 1}}}",
            "f:10: events[0].pod.suggested: found \"m1\"; allowed: n1",
        ),
    ];
    for (event, expected) in cases.into_iter().chain(named) {
        let error = CellScenario::read("f", &format!("{NODE}{event}\n")).expect_err(event).to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = CellScenario::read("f", &NODE.replace("childCellNumber: 4", "childCellNumber: -4"))
        .expect_err("negative");
    assert!(
        error.to_string().starts_with("f:5: cells.physicalCluster.cellTypes.NODE.childCellNumber: found -4"),
        "{error}"
    );
}

#[test]
fn a_group_that_never_fits_is_rejected_or_waits() {
    let five = "  - {at: 0s, group: {name: five, virtualCluster: vc, leafCells: 5}}\n";
    let told = story("f", &format!("{NODE}{five}"));
    assert!(told.contains("five rejected: group five can never run"), "{told}");
    let told = story("f", &format!("neverFits: wait\n{NODE}{five}"));
    assert!(told.contains("five waits: insufficient capacity in VC vc"), "{told}");
    let error =
        CellScenario::read("f", &format!("neverFits: maybe\n{NODE}")).expect_err("a third").to_string();
    assert!(error.contains("f:1: neverFits: found \"maybe\"; allowed: reject or wait"), "{error}");
}

#[test]
fn a_job_whose_pods_start_one_by_one_is_deleted_whole_or_by_pod() {
    let job = "  - {at: 0s, group: {name: a, virtualCluster: vc, pods: 3, gang: false}}\n";
    let told = story(
        "f",
        &format!("{NODE}{job}  - {{at: 1s, delete: {{group: a/1}}}}\n  - {{at: 2s, delete: {{group: a}}}}\n"),
    );
    let deleted: Vec<&str> =
        told.lines().filter_map(|line| line.strip_suffix(" deleted")).map(str::trim_start).collect();
    assert_eq!(deleted, ["1 a/1", "2 a/0", "2 a/2"], "{told}");
    // A job without pods is refused as a gang without pods is.
    for (wrong, why) in [("pods: 0", "podNumber: found 0"), ("members: []", "members: found no pods")] {
        let none = format!("  - {{at: 0s, group: {{name: a, virtualCluster: vc, gang: false, {wrong}}}}}\n");
        let told = story("f", &format!("{NODE}{none}"));
        assert!(told.contains("a rejected: ") && told.contains(why), "{told}");
    }
}

#[test]
fn nodes_that_come_and_go_are_named() {
    let other = "{physicalCluster: {cellTypes: {NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}}, \
                 physicalCells: [{cellType: NODE, cellAddress: n2}, {cellType: NODE, cellAddress: n3, cluster: east}]}}";
    let told = story("f", &format!("{NODE}  - {{at: 0s, reconfigure: {other}}}\n"));
    assert!(told.contains("new nodes n2, east/n3; nodes gone n1"), "{told}");
}

#[test]
fn a_difference_names_pins_and_cells_that_are_gone() {
    let a = "  - {at: 0s, group: {name: a, virtualCluster: vc, leafCells: 4}}\n";
    let fewer = |pin: &str, vc: &str, gpus: i64| {
        format!(
            "  - {{at: 1s, reconfigure: {{physicalCluster: {{cellTypes: {{NODE: {{childCellType: GPU, childCellNumber: \
             {gpus}, isNodeLevel: true}}}}, physicalCells: [{{cellType: NODE, cellAddress: n1{pin}}}]}}, \
             virtualClusters: {{vc: {{{vc}}}}}}}}}\n"
        )
    };
    let cells = "virtualCells: [{cellType: NODE, cellNumber: 1}]";
    let told = |event: String| story("f", &format!("{NODE}{a}{event}"));
    let pinned = told(fewer(", pinnedCellId: pin", "pinnedCells: [{pinnedCellId: pin}]", 4));
    for wanted in ["vc NODE of NODE 1 -> 0", "vc pinned cell pin, NODE of NODE 0 -> 1"] {
        assert!(pinned.contains(wanted), "{wanted} in\n{pinned}");
    }
    let lost = told(fewer("", cells, 3));
    assert!(lost.contains("runs on 1 cell that the configuration does not have"), "{lost}");
    let same = told(fewer("", cells, 4));
    assert!(same.contains("no promise, no node and no job"), "{same}");
}

#[test]
fn a_pod_of_cells_above_node_level_is_refused() {
    let rack = NODE
        .replace(
            "    physicalCells: [{cellType: NODE",
            "      RACK: {childCellType: NODE, childCellNumber: 1}\n    physicalCells: [{cellType: RACK",
        )
        .replace("cellAddress: n1", "cellChildren: [{cellAddress: n1}]")
        .replace("{cellType: NODE, cellNumber", "{cellType: RACK, cellNumber");
    let pod = "  - {at: 0s, pod: {name: p, spec: {version: v2, virtualCluster: vc, priority: 1, cellType: RACK, cellNumber: 1}}}\n";
    let told = story("f", &format!("{rack}{pod}"));
    let why = "p rejected: cellType: found RACK, which is above node level; allowed: GPU, NODE";
    assert!(told.contains(why), "{told}");
}

#[test]
fn a_name_is_taken_once_and_time_ends_when_it_is_said() {
    let text = format!(
        "{NODE}  - {{at: 0s, group: {{name: a, virtualCluster: vc, runtime: 60s}}}}\n  - {{at: 1s, group: {{name: a, \
         virtualCluster: vc}}}}\n  - {{at: 90s, group: {{name: late, virtualCluster: vc}}}}\nuntil: 30s\n"
    );
    let told = story("f", &text);
    assert!(told.contains("1 a rejected: found a second group a"), "{told}");
    assert!(!told.contains("finished") && !told.contains("late"), "{told}");
}

#[test]
fn a_pod_whose_place_in_its_groups_is_unclear_is_refused_and_the_rest_goes_on() {
    let pod = |name: &str, group: &str| {
        format!(
            "  - {{at: 0s, pod: {{name: {name}, spec: {{version: v2, virtualCluster: vc, priority: 1, cellType: GPU, \
             cellNumber: 1, podRootGroup: {{name: {name}, pod: {{cellsPerPod: {{cellType: GPU, cellNumber: 1}}, {group}}}}}}}}}}}\n"
        )
    };
    let none = pod("none", "podMinNumber: 1, podMaxNumber: 1");
    let unequal = pod("unequal", "podMinNumber: 1, podMaxNumber: 2, containsCurrentPod: true");
    let empty = pod("empty", "podMinNumber: 0, podMaxNumber: 0, containsCurrentPod: true");
    let good = pod("good", "podMinNumber: 1, podMaxNumber: 1, containsCurrentPod: true");
    let told = story("f", &format!("{NODE}{none}{unequal}{empty}{good}"));
    for wanted in [
        "none rejected: podRootGroup: found 0 pods with containsCurrentPod",
        "unequal rejected: podRootGroup.pod.podMaxNumber: found 2 beside podMinNumber 1",
        "empty rejected: ",
        "good is bound",
    ] {
        assert!(told.contains(wanted), "{wanted} in\n{told}");
    }
}
