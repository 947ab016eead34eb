//! `fleet simulate`: scenarios, traces, and the page of a run.

use super::{run, stderr};

fn scenario(name: &str) -> String {
    format!("{}/../examples/scenarios/{name}.yaml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_scenario_is_told_and_repeats() {
    let output = run(&["simulate", &scenario("cluster-failover")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("FENCED") && text.contains("SUCCEEDED on west, attempt 2"), "{text}");
    let lines = |seed: &str| run(&["simulate", &scenario("reclaim"), "-o", "jsonl", "--seed", seed]).stdout;
    assert_eq!(lines("1"), lines("1"));
    let last = String::from_utf8(lines("1")).expect("utf-8").lines().last().map(str::to_string);
    assert!(last.is_some_and(|line| line.starts_with(r#"{"summary":{"#)));
}

#[test]
fn a_bad_scenario_has_status_2_and_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("bad.yaml").to_string_lossy().to_string();
    std::fs::write(&file, "clusters:\n  - name: east\n    nodepools: []\n").expect("written");
    for (arguments, says) in [
        (vec!["simulate", &file], "bad.yaml:2: clusters[0].nodePools: found nothing; allowed: a list"),
        (vec!["simulate", "/nowhere.yaml"], "/nowhere.yaml:1: the file: found No such file"),
        (vec!["simulate", "--trace", "/nowhere.csv", "--fleet", &file], "clusters[0].nodePools"),
    ] {
        let output = run(&arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says) && text.lines().count() == 1, "{says} in {text}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(run(&["simulate"]).status.code(), Some(2));
}

#[test]
fn a_trace_is_replayed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let (trace, fleet) = (path("jobs.csv"), path("fleet.yaml"));
    std::fs::write(&trace, "submit_s,duration_s,gpus\n0,10,8\n1,5,16\n").expect("written");
    let pool = "{name: n, count: 2, allocatable: {cpu: 64, nvidia.com/gpu: 8}}";
    std::fs::write(&fleet, format!("clusters: [{{name: a, nodePools: [{pool}]}}]\n")).expect("written");
    let output = run(&["simulate", "--trace", &trace, "--fleet", &fleet, "--policy", "fair"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 jobs: 2 succeeded"));
    let told = stderr(&output);
    assert!(told.contains("no column job_id") && told.contains("jobs/s"), "{told}");
}

#[test]
fn ways_to_share_a_cluster_are_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let (trace, cells) = (path("jobs.csv"), path("cells.yaml"));
    let config = "physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells: [{cellType: POOL}]
virtualClusters:
  a: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
  b: {virtualCells: [{cellType: POOL.NODE, cellNumber: 1}]}
";
    let jobs = "submit_s,duration_s,gpus,vc\n0,1000,1,a\n0,10,3,b\n1,1000,1,a\n20,50,4,b\n";
    std::fs::write(&trace, jobs).expect("written");
    std::fs::write(&cells, config).expect("written");
    let output = run(&["simulate", "--trace", &trace, "--cells", &cells]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8_lossy(&output.stdout).to_string();
    assert!(
        table.contains("b       4   82%     2       0s     8m     0s            1  16m            0   -"),
        "{table}"
    );
    let lines = run(&["simulate", "--trace", &trace, "--cells", &cells, "-o", "jsonl"]).stdout;
    assert_eq!(String::from_utf8_lossy(&lines).lines().count(), 3);
    std::fs::write(&cells, config.replace("POOL.NODE", "POOL.RACK")).expect("written");
    let told = stderr(&run(&["simulate", "--trace", &trace, "--cells", &cells]));
    assert!(
        told.contains("cells.yaml:7: virtualClusters.a.virtualCells[0].cellType: found `POOL.RACK`"),
        "{told}"
    );
}

#[test]
fn a_simulated_run_is_written_as_one_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("run.html");
    let page = page.to_str().expect("text");
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/scenarios/reclaim.yaml");
    let plain = run(&["simulate", scenario]);
    let drawn = run(&["simulate", scenario, "--html", page]);
    assert!(drawn.status.success(), "{}", stderr(&drawn));
    // The log stays what it was.
    assert_eq!(drawn.stdout, plain.stdout);
    let text = std::fs::read_to_string(page).expect("a page");
    assert!(
        text.starts_with("<!DOCTYPE html>") && !text.contains("src=") && !text.contains("href="),
        "{text}"
    );
    for part in ["GPUs in use, by queue", "Runs in ", "What happened", "class=\"moved\"", "Preempted"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let refused = run(&["simulate", scenario, scenario, "--html", page]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--html: found 2; allowed: one scenario"), "{}", stderr(&refused));
}

#[test]
fn a_simulated_run_of_cells_is_written_as_one_page() {
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("run.html");
    let page = page.to_str().expect("text");
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/scenarios/cells/opportunistic.yaml");
    let plain = run(&["simulate", scenario]);
    let drawn = run(&["simulate", scenario, "--html", page]);
    assert!(drawn.status.success(), "{}", stderr(&drawn));
    assert_eq!(drawn.stdout, plain.stdout);
    let text = std::fs::read_to_string(page).expect("a page");
    for part in ["Runs in cells", "peak ", "class=\"moved\"", "Preempted", "preemptions 1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
