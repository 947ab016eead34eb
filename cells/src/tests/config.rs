//! Configurations: what is inferred, and what is refused with which words.

use super::play::{errors, read};
use crate::{
    Cells, Unreported,
    config::{ClusterConfig, read_document},
};

const GOOD: &str = "
physicalCluster:
  skuTypes: {GPU: {gpu: 1, cpu: 2, memory: 4096Mi}}
  cellTypes:
    SWITCH: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: SWITCH, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
    - cellType: RACK
      cellChildren:
        - cellAddress: n1
        - cellAddress: n2
virtualClusters:
  vc: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}
";

#[track_caller]
fn wrong(replace: &str, by: &str, expected: &[&str]) {
    assert!(GOOD.contains(replace), "{replace}");
    let found = errors(&GOOD.replacen(replace, by, 1));
    assert_eq!(found, expected, "{replace} -> {by}");
}

#[test]
fn a_good_one_is_taken_and_written_back() {
    assert_eq!(errors(GOOD), [""; 0]);
    let config = read(GOOD);
    let written = serde_json::to_value(&config).expect("JSON");
    assert_eq!(ClusterConfig::read(&written), Ok(config.clone()));
    assert_eq!(serde_json::from_value::<ClusterConfig>(written).expect("JSON"), config);
}

#[test]
fn the_wrapper_of_a_services_configuration_is_read() {
    for text in [
        include_str!("../../testdata/one-virtual-cluster.yaml"),
        include_str!("../../testdata/two-virtual-clusters.yaml"),
    ] {
        Cells::new(read(text), Unreported::Good).unwrap_or_else(|errors| panic!("{errors}"));
    }
    let empty = serde_json::json!({"hivedscheduler": {}});
    assert!(
        read_document(&empty)
            .expect_err("no config")
            .to_string()
            .starts_with("hivedscheduler.config: found nothing")
    );
}

#[test]
fn addresses_are_inferred_from_the_top_down() {
    let text = "
physicalCluster:
  cellTypes:
    SWITCH: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: SWITCH, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: RACK}, {cellType: RACK, cellAddress: second}]
";
    let cells = Cells::new(read(text), Unreported::Good).expect("a configuration");
    let trees = cells.physical_cells();
    let leaves = |tree: usize, node: usize| -> Vec<String> {
        let node = &trees[tree].cell_children[node];
        node.cell_children
            .iter()
            .flat_map(|switch| &switch.cell_children)
            .map(|leaf| leaf.cell_address.clone())
            .collect()
    };
    assert_eq!(leaves(0, 1), ["0/1/0/0", "0/1/0/1", "0/1/1/2", "0/1/1/3"]);
    assert_eq!(leaves(1, 0), ["second/2/0/0", "second/2/0/1", "second/2/1/2", "second/2/1/3"]);
    let names: Vec<String> = cells.nodes().map(ToString::to_string).collect();
    assert_eq!(names, ["0", "1", "2", "3"]);
}

#[test]
fn forms_are_checked() {
    let i32s = |least| format!("an integer of {least} to 2147483647");
    let path = "physicalCluster.cellTypes.RACK";
    let number = format!("{path}.childCellNumber");
    wrong(
        "childCellType: NODE, childCellNumber: 2",
        "childCellType: NODE, childCellNumber: -2",
        &[&format!("{number}: found -2; allowed: {}", i32s(1))],
    );
    wrong(
        "childCellType: NODE, childCellNumber: 2",
        "childCellType: NODE, childCellNumber: 0",
        &[&format!("{number}: found 0; allowed: {}", i32s(1))],
    );
    wrong(
        "childCellType: NODE, childCellNumber: 2",
        "childCellType: NODE, childCellNumber: two",
        &[&format!("{number}: found `two`; allowed: {}", i32s(1))],
    );
    wrong(
        "childCellType: NODE, childCellNumber: 2",
        "childCellType: NODE",
        &[&format!("{number}: found nothing; allowed: {}", i32s(1))],
    );
    wrong(
        "cellNumber: 1",
        "cellNumber: -1",
        &[&format!("virtualClusters.vc.virtualCells[0].cellNumber: found -1; allowed: {}", i32s(0))],
    );
    wrong(
        "cellNumber: 1",
        "cellNumbr: 1",
        &[
            "virtualClusters.vc.virtualCells[0].cellNumbr: found an unknown field; allowed: cellType, cellNumber",
            &format!("virtualClusters.vc.virtualCells[0].cellNumber: found nothing; allowed: {}", i32s(0)),
        ],
    );
    wrong(
        "isNodeLevel: true",
        "isNodeLevel: 1",
        &["physicalCluster.cellTypes.NODE.isNodeLevel: found 1; allowed: true or false"],
    );
    wrong(
        "gpu: 1",
        "gpu: -1",
        &[&format!("physicalCluster.skuTypes.GPU.gpu: found -1; allowed: {}", i32s(0))],
    );
    wrong(
        "4096Mi",
        "lots",
        &[
            "physicalCluster.skuTypes.GPU.memory: found `lots`; allowed: a quantity of bytes that is not negative, e.g. 4096Mi",
        ],
    );
    wrong(
        "  physicalCells:",
        "  physicalCell:",
        &[
            "physicalCluster.physicalCell: found an unknown field; allowed: skuTypes, cellTypes, physicalCells",
        ],
    );
    wrong(
        "        - cellAddress: n2",
        "        - n2",
        &["physicalCluster.physicalCells[0].cellChildren[1]: found `n2`; allowed: an object"],
    );
}

#[test]
fn types_are_checked() {
    wrong(
        "SWITCH: {childCellType: GPU,",
        "SWITCH: {childCellType: RACK,",
        &[
            "physicalCluster.cellTypes.NODE.childCellType: found NODE -> SWITCH -> RACK -> NODE; allowed: types that do not contain themselves",
            "physicalCluster.cellTypes.RACK.childCellType: found RACK -> NODE -> SWITCH -> RACK; allowed: types that do not contain themselves",
            "physicalCluster.cellTypes.SWITCH.childCellType: found SWITCH -> RACK -> NODE -> SWITCH; allowed: types that do not contain themselves",
        ],
    );
    wrong(
        "RACK: {childCellType: NODE, childCellNumber: 2}",
        "RACK: {childCellType: NODE, childCellNumber: 2, isNodeLevel: true}",
        &[
            "physicalCluster.cellTypes.RACK.isNodeLevel: found node level on RACK and on NODE below it; allowed: one node level from the top of a chain to its leaves",
        ],
    );
    wrong(
        "    SWITCH:",
        "    A.B:",
        &[
            "physicalCluster.cellTypes.A.B: found `A.B`; allowed: a name without `.` and `/`, which join types and addresses",
        ],
    );
    wrong(
        "- cellType: RACK",
        "- cellType: ROW",
        &[
            "physicalCluster.physicalCells[0].cellType: found `ROW`; allowed: a type of physicalCluster.cellTypes: NODE, RACK, SWITCH",
        ],
    );
    wrong(
        "- cellType: RACK",
        "- cellType: SWITCH",
        &[
            "physicalCluster.physicalCells[0].cellType: found `SWITCH`, which is below node level; allowed: a type that is a node or contains nodes (isNodeLevel)",
        ],
    );
    wrong(
        "childCellType: GPU, childCellNumber: 2",
        "childCellType: GPU, childCellNumber: 2147483647",
        &[
            "physicalCluster.cellTypes.RACK.childCellNumber: found 8589934588 leaf cells in one cell of RACK; allowed: at most 4000000",
        ],
    );
    wrong(
        "childCellType: GPU, childCellNumber: 2",
        "childCellType: GPU, childCellNumber: 10000000",
        &["physicalCluster.physicalCells[0]: found 80000000 cells up to here; allowed: at most 4000000"],
    );
}

#[test]
fn physical_cells_are_checked() {
    let node = "physicalCluster.physicalCells[0].cellChildren[1]";
    wrong(
        "- cellAddress: n2",
        "- cellAddress: n1",
        &[&format!(
            "{node}.cellAddress: found node n1 for a second time; allowed: a node once in chain RACK"
        )],
    );
    wrong(
        "- cellAddress: n2",
        "- cellAddress: a/b",
        &[&format!(
            "{node}.cellAddress: found `a/b`; allowed: the cell's own part of the address, without `/`"
        )],
    );
    wrong(
        "- cellAddress: n2",
        "- {cellAddress: n2, cellType: RACK}",
        &[&format!(
            "{node}.cellType: found `RACK`; allowed: nothing or `NODE`, which follows from the parent's type"
        )],
    );
    wrong(
        "- cellAddress: n2",
        "- {cellAddress: n2, cluster: east}",
        &[&format!("{node}.cluster: found `east`; allowed: nothing here; the top cell names the cluster")],
    );
    wrong(
        "- cellAddress: n2",
        "- cellAddress: n2\n        - cellAddress: n3",
        &[
            "physicalCluster.physicalCells[0].cellChildren: found 3 children; allowed: at most 2, as its type says",
        ],
    );
    let leaf = |children: &str| {
        format!("- {{cellAddress: n2, cellChildren: [{{cellChildren: [{children}]}}, {{}}]}}")
    };
    wrong(
        "- cellAddress: n2",
        &leaf("{cellAddress: a}, {}"),
        &[&format!(
            "{node}.cellChildren[0].cellChildren[0].cellAddress: found `a`; allowed: the number of the device in its node, 0 or more"
        )],
    );
    wrong(
        "- cellAddress: n2",
        &leaf("{cellAddress: 7}, {cellAddress: 2}"),
        &[&format!(
            "{node}.cellChildren[1].cellChildren[0].cellAddress: found device 2 of node n2 for a second time; allowed: each device once"
        )],
    );
    wrong(
        "- cellAddress: n1\n        - cellAddress: n2",
        "- {cellAddress: n1, pinnedCellId: pin}\n        - {cellAddress: n2, pinnedCellId: pin}",
        &[&format!("{node}.pinnedCellId: found `pin`; allowed: an id that no other physical cell has")],
    );
}

#[test]
fn promises_are_checked() {
    let cell = "virtualClusters.vc.virtualCells[0].cellType";
    wrong(
        "RACK.NODE,",
        "ROW.NODE,",
        &[&format!(
            "{cell}: found `ROW.NODE`, whose first type is unknown; allowed: a path that begins with the type of a top cell: RACK"
        )],
    );
    wrong(
        "RACK.NODE,",
        "NODE,",
        &[&format!(
            "{cell}: found `NODE`, whose first type is the top of no physical cell; allowed: a path that begins with the type of a top cell: RACK"
        )],
    );
    wrong(
        "RACK.NODE,",
        "RACK.K80,",
        &[&format!(
            "{cell}: found `RACK.K80`, where `K80` does not lie below RACK; allowed: types of chain RACK, from the top down: NODE, SWITCH, GPU"
        )],
    );
    wrong(
        "RACK.NODE,",
        "RACK.SWITCH.NODE,",
        &[&format!(
            "{cell}: found `RACK.SWITCH.NODE`, where `NODE` does not lie below SWITCH; allowed: types of chain RACK, from the top down: GPU"
        )],
    );
    wrong(
        "cellNumber: 1",
        "cellNumber: 3",
        &[
            "virtualClusters: found 3 cells of type NODE (level 3) promised in chain RACK (vc 3); allowed: at most 2: what the physical cells have left",
        ],
    );
    wrong(
        "  vc:",
        "  vc_1:",
        &[
            "virtualClusters.vc_1: found `vc_1`; allowed: a name of at most 63 letters, digits and `-`, that begins and ends with a letter or digit",
        ],
    );
    let vc = "vc: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]}";
    let pin = |id: &str| format!("vc: {{pinnedCells: [{{pinnedCellId: {id}}}]}}");
    wrong(
        vc,
        &pin("pin"),
        &[
            "virtualClusters.vc.pinnedCells[0].pinnedCellId: found `pin`; allowed: a pinnedCellId of physicalCluster.physicalCells: none",
        ],
    );
}

#[test]
fn pins_are_checked() {
    let pinned = GOOD.replace("- cellAddress: n1", "- {cellAddress: n1, pinnedCellId: pin}");
    let twice = format!(
        "{}  other: {{pinnedCells: [{{pinnedCellId: pin}}]}}\n  third: {{pinnedCells: [{{pinnedCellId: pin}}]}}\n",
        pinned
    );
    assert_eq!(
        errors(&twice),
        [
            "virtualClusters.third.pinnedCells[0].pinnedCellId: found `pin`; allowed: a pin that no other entry has; virtualClusters.other.pinnedCells[0].pinnedCellId has it",
        ]
    );
    let inner = "- {cellAddress: n1, pinnedCellId: pin, cellChildren: [{pinnedCellId: inner}, {}]}";
    let nested = GOOD.replace("- cellAddress: n1", inner);
    let nested =
        format!("{nested}  other: {{pinnedCells: [{{pinnedCellId: pin}}, {{pinnedCellId: inner}}]}}\n");
    assert_eq!(
        errors(&nested),
        [
            "virtualClusters.other.pinnedCells[1].pinnedCellId: found `inner`; allowed: a pin that shares no cell with another; 0/n1 is pinned too",
        ]
    );
    // Two pinned switches in different nodes leave no whole node, though the numbers would do.
    let text = GOOD
        .replace("- cellAddress: n1", "- {cellAddress: n1, cellChildren: [{pinnedCellId: p1}, {}]}")
        .replace("- cellAddress: n2", "- {cellAddress: n2, cellChildren: [{pinnedCellId: p2}, {}]}");
    let text = format!("{text}  other: {{pinnedCells: [{{pinnedCellId: p1}}, {{pinnedCellId: p2}}]}}\n");
    assert_eq!(
        errors(&text),
        [
            "virtualClusters: found 1 cells of type NODE (level 3) promised in chain RACK (vc 1); allowed: at most 0: what the physical cells have left beside the pinned cells",
        ]
    );
}

#[test]
fn what_is_allowed_is_told_also_where_it_is_nothing() {
    let lines: Vec<&str> = GOOD.lines().collect();
    let at = |text: &str| lines.iter().position(|line| line.contains(text)).expect("a line");
    let cells = lines[at("physicalCells:")..at("virtualClusters:")].join("\n");
    wrong(
        &cells,
        "  physicalCells: []",
        &[
            "virtualClusters.vc.virtualCells[0].cellType: found `RACK.NODE`, whose first type is the top of no physical cell; allowed: a path that begins with the type of a top cell: none",
        ],
    );
    wrong(
        "RACK.NODE,",
        "RACK.NODE.SWITCH.GPU.GPU,",
        &[
            "virtualClusters.vc.virtualCells[0].cellType: found `RACK.NODE.SWITCH.GPU.GPU`, where `GPU` does not lie below GPU; allowed: types of chain RACK, from the top down: none",
        ],
    );
    let mut none = Cells::new(ClusterConfig::default(), Unreported::Good).expect("no cells");
    let refusal = none.admit(&crate::GroupRequest::new("g", "vc", 1, 1, 1)).expect_err("there is none");
    assert_eq!(refusal.to_string(), "virtualCluster: found vc; allowed: none");
}

#[test]
fn numbers_that_are_not_what_was_written_are_no_names() {
    let path = "physicalCluster.physicalCells[0].cellChildren[1].cellAddress";
    let allowed = "allowed: text, in quotes if it looks like a number";
    wrong("cellAddress: n2", "cellAddress: 1.10", &[&format!("{path}: found the number 1.1; {allowed}")]);
    assert_eq!(errors(&GOOD.replace("cellAddress: n2", "cellAddress: \"1.10\"")), [""; 0]);
    assert_eq!(errors(&GOOD.replace("cellAddress: n2", "cellAddress: 10")), [""; 0]);
}

#[test]
fn a_node_may_stand_in_several_chains_and_names_in_several_clusters() {
    let text = "
physicalCluster:
  cellTypes:
    GPU-NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
    CPU-NODE: {childCellType: CPU, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
    - {cellType: GPU-NODE, cellAddress: n1, cluster: east}
    - {cellType: CPU-NODE, cellAddress: n1, cluster: east}
    - {cellType: GPU-NODE, cellAddress: n1, cluster: west}
";
    assert_eq!(errors(text), [""; 0]);
    assert_eq!(
        errors(&text.replace("cluster: west", "cluster: east")),
        [
            "physicalCluster.physicalCells[2].cellAddress: found node east/n1 for a second time; allowed: a node once in chain GPU-NODE"
        ]
    );
}

#[test]
fn a_cell_that_lacks_children_is_used_but_not_promised() {
    let short = GOOD.replace("        - cellAddress: n2\n", "");
    assert_eq!(errors(&short), [""; 0]);
    assert_eq!(
        errors(&short.replace("RACK.NODE,", "RACK,")),
        [
            "virtualClusters: found 1 cells of type RACK (level 4) promised in chain RACK (vc 1); allowed: at most 0: what the physical cells have left"
        ]
    );
}
