//! Runs whose cluster can give them no more cells.

use super::*;

/// Two members with a node each, and how many nodes of each the virtual cluster `vc` was promised.
fn two_members(west: i64, east: i64) -> ClusterConfig {
    let text = format!(
        "
physicalCluster:
  skuTypes:
    GPU: {{gpu: 1, cpu: 2, memory: 4096Mi}}
    LARGE: {{gpu: 1, cpu: 2, memory: 4096Mi}}
  cellTypes:
    W-NODE: {{childCellType: GPU, childCellNumber: 2, isNodeLevel: true}}
    E-NODE: {{childCellType: LARGE, childCellNumber: 4, isNodeLevel: true}}
  physicalCells:
    - {{cellType: W-NODE, cellAddress: w, cluster: west}}
    - {{cellType: E-NODE, cellAddress: e, cluster: east}}
virtualClusters:
  vc: {{virtualCells: [{{cellType: W-NODE, cellNumber: {west}}}, {{cellType: E-NODE, cellNumber: {east}}}]}}
  other: {{virtualCells: [{{cellType: W-NODE, cellNumber: {}}}]}}
",
        1 - west
    );
    ClusterConfig::read(&fleet_api::yaml::read(&text).expect("YAML")).expect("a configuration")
}

fn lab(west: i64, east: i64) -> Lab {
    let mut lab = Lab { planner: Planner::new(Settings::default()), now_ms: 0, jobs: BTreeMap::new() };
    for (name, node) in [("west", "w"), ("east", "e")] {
        let facts =
            fleet_policies::affinity::ClusterFacts { name: name.into(), ready: true, ..Default::default() };
        let shapes: Vec<NodeShape> = Vec::new();
        lab.planner
            .set_cluster(name, Member { facts, reserves: true, shapes, sequence: 1, ..Member::default() });
        lab.planner.set_cell_nodes(
            name,
            Some(CellNodes { good: [node.to_string()].into(), ..CellNodes::default() }),
        );
    }
    lab.promise(west, east);
    lab
}

impl Lab {
    fn promise(&mut self, west: i64, east: i64) {
        self.planner.set_cells(Some(two_members(west, east)), self.now_ms).expect("valid");
    }

    /// The run of the job is in the west.
    fn in_the_west(&mut self, name: &str) {
        let job = self.jobs.get_mut(name).expect("known");
        let JobPhase::Holds(held) = &mut job.phase else { panic!("it runs") };
        held.cluster = "west".into();
        self.planner.set_job(job.clone(), self.now_ms);
    }

    fn ended_in_the_west(&mut self, name: &str, indices: &[i64]) {
        self.ended(name, indices);
        self.in_the_west(name);
    }
}

#[test]
fn a_run_without_pods_leaves_a_cluster_that_can_give_it_no_cells() {
    let mut lab = lab(1, 0);
    lab.submit("three", "vc", 100, 3, false);
    assert_eq!(lab.plan(), ["three -> w0:[0] w1:[1]"]);
    lab.in_the_west("three");
    assert!(lab.plan().is_empty());
    // What was promised is in another cluster now: what runs goes on.
    lab.promise(0, 1);
    lab.ended_in_the_west("three", &[]);
    lab.plan();
    lab.in_the_west("three");
    assert!(lab.plan().is_empty(), "two pods run");
    lab.ended_in_the_west("three", &[0]);
    lab.plan();
    lab.in_the_west("three");
    assert!(lab.plan().is_empty(), "one pod runs");
    lab.ended_in_the_west("three", &[0, 1]);
    let told = lab.plan();
    assert!(told.contains(&"three leaves west".to_string()), "{told:?}");
    lab.in_the_west("three");
    assert_eq!(lab.plan(), ["three leaves west"], "until it is told that the run ends");
    lab.leaves("three");
    assert_eq!(lab.plan(), ["three -> e0:[0] e1:[1] e2:[2]"]);
}

/// Another controller knows what runs by its reservations alone, and takes the cells from there with its first plan.
#[test]
fn a_run_whose_cells_are_still_to_be_recovered_is_not_ended_for_having_none() {
    let mut before = lab(1, 0);
    before.submit("three", "vc", 100, 3, false);
    assert_eq!(before.plan(), ["three -> w0:[0] w1:[1]"]);
    before.in_the_west("three");
    let strands = |lab: &mut Lab| {
        let job = lab.jobs["three"].clone();
        let (JobPhase::Holds(held), Some(asks)) = (&job.phase, job.cells.clone()) else { panic!("it runs") };
        let missing: Vec<CellGroupAsk> = lab.planner.cells.missing(&job, held).cloned().collect();
        lab.planner.is_stranded(&job, held, &asks, &missing)
    };
    // What was promised is in another cluster by now, so that nothing else keeps the run.
    let mut after = lab(0, 1);
    (after.now_ms, after.jobs) = (before.now_ms, before.jobs.clone());
    after.planner.set_job(after.jobs["three"].clone(), after.now_ms);
    assert_eq!(after.places(&JobId::new("default/three")), "", "nothing is recovered yet");
    assert!(!strands(&mut after), "pods may run on what its reservation names");
    let told = after.plan();
    assert!(told.iter().all(|told| !told.contains("leaves")), "{told:?}");
    after.in_the_west("three");
    assert!(after.plan().is_empty(), "two pods run");
    assert_eq!(after.places(&JobId::new("default/three")), "w0:[0] w1:[1]");
    after.ended_in_the_west("three", &[0, 1]);
    let told = after.plan();
    assert!(told.contains(&"three leaves west".to_string()), "{told:?}");
}

#[test]
fn a_run_stays_where_it_may_get_cells_again_or_where_no_other_cluster_has_any() {
    let mut lab = lab(1, 0);
    lab.submit("three", "vc", 100, 3, false);
    assert_eq!(lab.plan(), ["three -> w0:[0] w1:[1]"]);
    lab.in_the_west("three");
    // Nobody has promised it any cells.
    lab.promise(0, 0);
    lab.ended_in_the_west("three", &[0, 1]);
    lab.plan();
    lab.in_the_west("three");
    assert!(lab.plan().is_empty());
    // Both clusters have some, and a bad node recovers.
    lab.promise(1, 1);
    lab.planner.set_cell_nodes("west", Some(CellNodes::default()));
    lab.ended_in_the_west("three", &[0, 1]);
    assert!(lab.plan().iter().all(|told| !told.contains("leaves")));
    lab.planner
        .set_cell_nodes("west", Some(CellNodes { good: ["w".to_string()].into(), ..CellNodes::default() }));
    assert_eq!(lab.plan(), ["three ~ w2:[0]"]);
}

#[test]
fn a_run_without_pods_or_cells_does_not_hold_quota() {
    let mut lab = lab(1, 0);
    lab.submit("three", "vc", 100, 3, false);
    assert_eq!(lab.plan(), ["three -> w0:[0] w1:[1]"]);
    let root = r#"{"name": "root", "children": [{"name": "team", "namespaces": ["default"]}]}"#;
    let root = serde_json::from_str(root).expect("a tree");
    lab.planner
        .set_tree(Some(Arc::new(fleet_quota_tree::QuotaTree::build(&root).expect("valid").0)), lab.now_ms);
    lab.in_the_west("three");
    // No configuration says nothing of what its cells are.
    lab.planner.set_cells(None, lab.now_ms).expect("valid");
    lab.ended_in_the_west("three", &[0, 1]);
    lab.plan();
    lab.in_the_west("three");
    assert!(lab.plan().is_empty());
    lab.promise(0, 0);
    lab.plan();
    lab.in_the_west("three");
    assert_eq!(lab.plan(), ["three leaves west"]);
    lab.leaves("three");
    assert!(lab.plan().is_empty(), "no cluster has cells for it");
}

#[test]
fn a_job_whose_pods_differ_begins_where_all_of_them_can_run() {
    for (wide, place) in [(1, "w0:[0] w1:[1]"), (4, "e0:[0]")] {
        let mut lab = lab(1, 1);
        lab.submit("two", "vc", 100, 2, false);
        // The second pod needs as many devices as only the east has in one node.
        let job = lab.jobs.get_mut("two").expect("known");
        let mut asked = job.cells.as_deref().cloned().expect("cells");
        asked.groups[1].request = GroupRequest::new("default/two/train-1", "vc", 100, 1, wide);
        job.cells = Some(Arc::new(asked));
        lab.planner.set_job(job.clone(), lab.now_ms);
        assert_eq!(lab.plan(), [format!("two -> {place}")], "{wide}");
    }
}
