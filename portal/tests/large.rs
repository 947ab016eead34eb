//! Prints how long pages of 100,000 jobs and 10,000 nodes take as HTML, and how long they are:
//! `cargo test --release -p fleet-portal --test suite large -- --ignored --nocapture`. Nothing is asserted: machines differ.

#[path = "../../views/examples/large_fleet/fleet.rs"]
mod fleet;

use std::hint::black_box;

use fleet::{CLUSTERS, JOBS, NODES, fleet};
use fleet_pages::{
    html::fragment,
    report,
    shown::{Hub, View},
};
use fleet_views::{JobQuery, Known, NodeGroup, PlaceFacts, Sight, Sort, State, run::Recorder};
use jiff::Timestamp;

/// Processor time over which the mean is taken.
const ENOUGH_MS: f64 = 500.0;
const NOW_S: i64 = 1_000_000;
/// Nodes of the page of one cluster.
const ROWS: usize = 200;

#[test]
#[ignore = "a measurement"]
fn pages_of_a_large_fleet() {
    let mut known = fleet();
    name_nodes(&mut known);
    println!("{JOBS} jobs, {NODES} nodes of {CLUSTERS} clusters: view, HTML, size");
    let (known, sight) = (&known, &Sight::all());
    let list = |change: fn(&mut JobQuery)| {
        let mut query = JobQuery { limit: 100, ..JobQuery::default() };
        change(&mut query);
        move || View::Jobs(Box::new(query.clone()), fleet_views::jobs(known, sight, &query))
    };
    tell("/", || View::Home(fleet_views::home(known, sight, "user-7", NOW_S)));
    tell("/jobs", list(|_| {}));
    tell("/jobs?state=Waiting", list(|query| query.state = Some(State::Waiting)));
    tell("/jobs?sort=gpus", list(|query| query.sort = Sort::Gpus));
    tell("/queues", || View::Queues(fleet_views::queues(known, sight)));
    let queue = |path: &'static str| {
        move || View::Queue(Box::new(fleet_views::queue(known, sight, path, None, 200).expect("a queue")))
    };
    tell("/queues/root", queue("root"));
    tell("/queues/root/team-3", queue("root/team-3"));
    tell("/clusters", || View::Clusters(fleet_views::cluster_pages(known, sight)));
    tell("/clusters/cluster-3", || {
        let page = fleet_views::cluster_page(known, sight, "cluster-3", 0, ROWS);
        View::Cluster(Box::new(page.expect("a cluster")))
    });
    simulated_run();
}

/// Every node has a name, and running jobs are on them.
fn name_nodes(known: &mut Known) {
    let each = NODES / CLUSTERS;
    for index in 0..CLUSTERS {
        let name = format!("cluster-{index}");
        let mut facts = known.clusters()[&name].clone();
        let group = |node: i64| NodeGroup {
            count: 1,
            gpus: 8,
            gpus_free: node % 9,
            names: vec![format!("node-{node}.{name}.example.com")],
            domain: format!("rack-{}", node / 16),
            ..NodeGroup::default()
        };
        facts.groups = (0..each).map(group).collect();
        known.set_cluster(&name, Some(facts));
    }
    let running: Vec<_> =
        known.jobs().values().filter(|job| job.state() == State::Running).cloned().collect();
    for (index, job) in (0_i64..).zip(running) {
        let cluster = job.cluster().to_owned();
        let nodes = (0..1 + index % 4)
            .map(|node| format!("node-{}.{cluster}.example.com", (index * 7 + node) % each));
        let places = PlaceFacts { nodes: nodes.collect(), cluster, id: job.id.clone() };
        known.set_places(job.id, Some(places));
    }
}

/// Processor time of this thread, in milliseconds.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a thread of Linux");
    let ns: f64 = text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds");
    ns / 1e6
}

fn mean_ms<T>(mut make: impl FnMut() -> T) -> f64 {
    let (began, mut times) = (cpu_ms(), 0);
    while times < 3 || cpu_ms() - began < ENOUGH_MS {
        black_box(make());
        times += 1;
    }
    (cpu_ms() - began) / f64::from(times)
}

fn tell(name: &str, make: impl Fn() -> View) {
    let view = make();
    let now = Timestamp::from_second(NOW_S).expect("a time");
    let html = || fragment(&view, None, &Hub::Up, true, now).into_string();
    println!("  {name:22} {:8.2} ms {:8.2} ms {:8} kB", mean_ms(&make), mean_ms(html), html().len() / 1000);
}

/// The page of `fleet simulate --html`, with a story of 40 MB.
fn simulated_run() {
    let began = cpu_ms();
    let (mut recorder, mut story) = (Recorder::default(), String::new());
    let mut ends: Vec<(i64, i64)> = Vec::new();
    for index in 0..JOBS {
        let (at_ms, job) = (index * 1_000, format!("team-{}/job-{index:06}", index % 500));
        recorder.submitted(at_ms, &job, 1 + index % 64);
        recorder.queued(at_ms, &job, &format!("root/team-{}", index % 200));
        ends.retain(|(end_ms, ended)| {
            let is_over = *end_ms <= at_ms;
            if is_over {
                let job = format!("team-{}/job-{ended:06}", ended % 500);
                let how = if ended % 50 == 0 { "Preempted" } else { "Succeeded" };
                recorder.ended(*end_ms, &job, how);
            }
            !is_over
        });
        recorder.started(at_ms, &job, &format!("cluster-{}", index % CLUSTERS));
        ends.push((at_ms + 60_000 + index % 977 * 1_000, index));
        for what in ["submitted", "queued", "bound", "runs", "succeeded"] {
            story.push_str(&format!(
                "{at_ms:>9}  {job:24}  {what}, as the log says it in a line of this length\n"
            ));
        }
    }
    let recorded = cpu_ms();
    let page = report::page("a run", &recorder.charts(), &story);
    println!(
        "a simulated run: recorded in {:.0} ms, page in {:.0} ms, {} kB of a log of {} kB",
        recorded - began,
        cpu_ms() - recorded,
        page.len() / 1000,
        story.len() / 1000
    );
}
