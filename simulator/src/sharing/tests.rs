//! Small traces whose delays can be counted by hand, and a random one.

use fleet_cells::config::ClusterConfig;

use super::*;

/// Two nodes of four GPUs; each tenant was promised one.
const RACK: &str = "
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: POOL}]
virtualClusters:
  a: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
";

fn config(text: &str) -> ClusterConfig {
    let value = fleet_api::yaml::read_located(text).expect("YAML").to_json();
    ClusterConfig::read(&value).expect("a configuration")
}

fn compared(rows: &str, order: Order) -> Comparison {
    let text = format!("job_id,submit_s,duration_s,gpus,workers,vc,priority\n{rows}");
    let comparison = compare("t.csv", text.as_bytes(), &config(RACK), order).expect(rows);
    assert_eq!(comparison.violations, [""; 0]);
    comparison
}

/// Two jobs of a come to lie on both nodes, because a job of b was between them. Later b needs a whole node.
const ANOMALY: &str = "a1,0,1000,1,1,a,0\nb1,0,10,3,1,b,0\na2,1,1000,1,1,a,0\nb2,20,50,4,1,b,0\n";

#[test]
fn quota_alone_lets_another_tenant_break_up_a_node_and_cells_do_not() {
    let found = compared(ANOMALY, Order::Fifo);
    let b = &found.tenants[1];
    assert_eq!((b.name.as_str(), b.promised_leaves, b.jobs), ("b", 4, 2));
    assert_eq!((b.private.longest_s, b.quota.longest_s, b.cells.longest_s), (0.0, 980.0, 0.0));
    assert_eq!((b.quota.later, b.quota.most_later_s, b.quota.mean_s), (1, 980.0, 490.0));
    assert_eq!((found.tenants[0].quota.later, found.total.quota.later, found.later_under_cells()), (0, 1, 0));
    assert_eq!(
        found.table(),
        "VC   GPUS  LOAD  JOBS  PRIVATE  QUOTA  CELLS  LATER:QUOTA   BY  LATER:CELLS  BY\n\
         a       4   50%     2       0s     0s     0s            0    -            0   -\n\
         b       4   82%     2       0s     8m     0s            1  16m            0   -\n\
         all     8   28%     4       0s     4m     0s            1  16m            0   -\n"
    );
}

#[test]
fn the_order_within_a_tenant_is_kept_in_every_way() {
    // `a` is full until 100; a wide, a narrow and a short job wait.
    let rows = "h1,0,100,3,1,a,0\nwide,1,50,4,1,a,0\nnarrow,2,40,1,1,a,0\nshort,3,1,4,1,a,0\n";
    let mean = |order| {
        let a = compared(rows, order).tenants.remove(0);
        assert_eq!((a.quota.mean_s, a.cells.mean_s), (a.private.mean_s, a.private.mean_s));
        a.private.mean_s
    };
    // First in first out: narrow waits behind wide until 150, with short behind both until 190.
    assert_eq!(mean(Order::Fifo), (99.0 + 148.0 + 187.0) / 4.0);
    // What does not fit is passed: narrow starts at once, wide at 100, short at 150.
    assert_eq!(mean(Order::Priority), (99.0 + 147.0) / 4.0);
    // At 2 narrow is the shortest that waits and fits; short follows the first job.
    assert_eq!(mean(Order::Sjf), (97.0 + 100.0) / 4.0);
}

#[test]
fn jobs_that_cannot_take_part_are_left_out_and_counted() {
    let rows = "a,0,9,4,1,a,0\nnone,0,9,0,1,a,0\nwide,0,9,8,2,a,0\nother,0,9,1,1,c,0\n";
    let found = compared(rows, Order::Priority);
    assert_eq!(found.total.jobs, 1);
    let left_out: Vec<&String> =
        found.notices.iter().filter(|notice| notice.starts_with("left out")).collect();
    assert_eq!(
        left_out,
        [
            "left out: 1 jobs of virtual clusters that the configuration does not have",
            "left out: 1 jobs that ask for no GPU",
            "left out: 1 jobs that do not fit the empty cells of their virtual cluster",
        ]
    );
    let error = compare("t.csv", b"gpus\n1\n", &config(RACK), Order::Fair).expect_err("fair").to_string();
    assert!(error.contains("--policy: found fair; allowed: fifo, priority or sjf"), "{error}");
}

/// Racks, nodes and parts of nodes, as three tenants were promised them.
const LEVELS: &str = "
physicalCluster:
  cellTypes:
    SWITCH: {childCellType: GPU, childCellNumber: 2}
    SOCKET: {childCellType: SWITCH, childCellNumber: 2}
    NODE: {childCellType: SOCKET, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: RACK}, {cellType: RACK}, {cellType: RACK}, {cellType: RACK}]
virtualClusters:
  a: {virtualCells: [{cellType: RACK, cellNumber: 1}, {cellType: RACK.NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: RACK, cellNumber: 1}, {cellType: RACK.NODE.SOCKET, cellNumber: 2}]}
  c: {virtualCells: [{cellType: RACK.NODE, cellNumber: 1}, {cellType: RACK.NODE.SOCKET.SWITCH, cellNumber: 1}]}
";

#[test]
fn no_job_waits_longer_under_cells_than_in_a_private_cluster() {
    let mut late_under_quota = 0;
    for seed in 0..5_u64 {
        let mut state = seed;
        let mut below = |bound: u64| {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z ^ (z >> 31)) % bound
        };
        let mut rows = "job_id,submit_s,duration_s,gpus,vc\n".to_string();
        let mut at = 0;
        for job in 0..200 {
            at += below(20);
            let gpus = [1, 1, 1, 2, 2, 3, 4, 8, 16][below(9) as usize];
            let vc = ["a", "b", "c"][below(3) as usize];
            rows.push_str(&format!("{job},{at},{},{gpus},{vc}\n", 1 + below(200)));
        }
        for order in [Order::Fifo, Order::Priority, Order::Sjf] {
            let found = compare("t.csv", rows.as_bytes(), &config(LEVELS), order).expect("a trace");
            assert_eq!(found.violations, [""; 0]);
            assert_eq!(found.later_under_cells(), 0, "seed {seed}, {order:?}:\n{}", found.table());
            late_under_quota += found.total.quota.later;
        }
    }
    assert!(late_under_quota > 0);
}

/// The table of `docs/virtual-clusters.md`, in all three orders.
#[test]
#[ignore = "a real trace, in the folder that FLEET_TRACES names; `cargo xtask laws` runs it"]
fn no_job_of_the_philly_trace_waits_longer_under_cells() {
    let folder =
        std::env::var("FLEET_TRACES").expect("FLEET_TRACES names the folder with philly_jobs.csv.gz");
    let file = std::path::Path::new(&folder).join("philly_jobs.csv.gz");
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let config = config(include_str!("../../../examples/traces/virtual-clusters.yaml"));
    for (name, order) in [("fifo", Order::Fifo), ("priority", Order::Priority), ("sjf", Order::Sjf)] {
        let found = compare("philly_jobs.csv.gz", &bytes, &config, order).expect("a table of jobs");
        println!("{name}: {}\n{}", found.notices.join("; "), found.table());
        assert_eq!(
            (found.later_under_cells(), &found.violations[..]),
            (0, &[][..]),
            "{name}\n{}",
            found.table()
        );
        assert_eq!(found.total.jobs, 82_229, "{name}");
        assert!(found.total.quota.later > 0, "{name}: quota alone delays some");
    }
}
