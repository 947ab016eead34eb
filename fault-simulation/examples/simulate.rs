//! Runs the whole simulation over seeds, one runtime per thread: `cargo xtask simulate`.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Parser;
use fleet_api::mutation::{self, Mutation};
use fleet_fault_simulation::{Outcome, People, SimulationPlan, run_plan, shrink};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    #[arg(long, default_value_t = 1)]
    first: u64,
    #[arg(long)]
    minutes: Option<u64>,
    /// Seeds at once.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Go on after a seed that fails, and only name it.
    #[arg(long)]
    keep_going: bool,
    /// Turn on a deliberate bug, to see after how many seeds it is found.
    #[arg(long, value_parser = bug)]
    bug: Option<Mutation>,
    /// Turn on each deliberate bug in turn, and print after how many seeds it was found.
    #[arg(long, conflicts_with = "bug")]
    bugs: bool,
    /// Who is out there besides faults, by name and comma; `all`: each of them in some seeds.
    #[arg(long, default_value = "", value_parser = People::named)]
    people: People,
    /// Print the log of each seed, whether it fails or not.
    #[arg(long)]
    verbose: bool,
}

fn bug(name: &str) -> Result<Mutation, String> {
    let known = |bug: &&Mutation| format!("{bug:?}") == name;
    Mutation::ALL.iter().find(known).copied().ok_or_else(|| format!("the bugs are {:?}", Mutation::ALL))
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    requests: u64,
    virtual_time: Duration,
    faults: BTreeMap<&'static str, u64>,
    /// Runs that ended before their job, by what ended them.
    ended: BTreeMap<String, u64>,
    failed: Vec<(u64, String)>,
    first_failure: Option<(SimulationPlan, Outcome)>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "off".into()),
        )
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    if arguments.bugs {
        return hunt_all(&arguments);
    }
    mutation::set(arguments.bug.unwrap_or(Mutation::None));
    let began = Instant::now();
    let until = arguments.minutes.map(|minutes| began + Duration::from_secs(minutes * 60));
    let next = AtomicU64::new(arguments.first);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let over = until.is_some_and(|until| Instant::now() >= until);
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if over || stop.load(Ordering::Relaxed) || seed >= arguments.first + arguments.seeds {
                        return;
                    }
                    run_seed(seed, &arguments, &stop, &totals);
                }
            });
        }
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&totals, began.elapsed())
}

/// Looks for each bug, and prints the table of `docs/simulation.md`.
fn hunt_all(arguments: &Arguments) -> ExitCode {
    println!("| bug | found at seed | seeds looked at | by |\n| --- | --- | --- | --- |");
    let mut missed = 0;
    for bug in Mutation::ALL {
        mutation::set(*bug);
        match hunt(arguments) {
            Some((seed, what)) => {
                println!("| `{bug:?}` | {seed} | {} | {what} |", seed + 1 - arguments.first);
            }
            None => {
                missed += 1;
                println!("| `{bug:?}` | - | {} | not found |", arguments.seeds);
            }
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The first seed that fails, and how.
fn hunt(arguments: &Arguments) -> Option<(u64, String)> {
    let next = AtomicU64::new(arguments.first);
    let found: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let known = || found.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                while known().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.first + arguments.seeds {
                        return;
                    }
                    let what = match run_plan(&SimulationPlan::of_seed_with(seed, &arguments.people)) {
                        Ok(outcome) => outcome.found.first().map(|first| first.violation.to_string()),
                        Err(error) => Some(format!("{error:#}")),
                    };
                    let mut known = known();
                    if let Some(what) = what.filter(|_| known.as_ref().is_none_or(|(at, _)| seed < *at)) {
                        *known = Some((seed, what));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_seed(seed: u64, arguments: &Arguments, stop: &AtomicBool, totals: &Mutex<Totals>) {
    let plan = SimulationPlan::of_seed_with(seed, &arguments.people);
    let outcome = match run_plan(&plan) {
        Ok(outcome) => outcome,
        Err(error) => {
            let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.failed.push((seed, format!("{error:#}")));
            return;
        }
    };
    if arguments.verbose {
        print_run(&plan, &outcome);
    }
    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
    totals.seeds += 1;
    totals.requests += outcome.requests;
    totals.virtual_time += outcome.took;
    for (kind, count) in &outcome.faults {
        *totals.faults.entry(kind).or_default() += count;
    }
    for line in outcome.lines.iter().filter(|line| matches!(line.event, "Preempted" | "Evicted")) {
        let reason = line.fields.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default();
        *totals.ended.entry(format!("{} {reason}", line.event)).or_default() += 1;
    }
    if let Some(first) = outcome.found.first() {
        let all: Vec<String> =
            outcome.found.iter().map(|found| format!("at {} ms: {}", found.at_ms, found.violation)).collect();
        eprintln!("seed {seed} failed {}", all.join("; "));
        totals.failed.push((seed, format!("at {} ms: {}", first.at_ms, first.violation)));
        if !arguments.keep_going {
            stop.store(true, Ordering::Relaxed);
            // What a deliberate bug breaks is known: nobody reads it again.
            if arguments.bug.is_none() {
                totals.first_failure.get_or_insert((plan, outcome));
            }
        }
    }
}

fn report(totals: &Totals, took: Duration) -> ExitCode {
    let seconds = took.as_secs_f64().max(0.001);
    let injected: u64 = totals.faults.values().sum();
    println!(
        "{} seeds in {seconds:.1} s: {:.2} virtual hours a second, {injected} faults injected ({:.0} an hour), {} requests",
        totals.seeds,
        totals.virtual_time.as_secs_f64() / 3600.0 / seconds,
        injected as f64 * 3600.0 / seconds,
        totals.requests,
    );
    for (kind, count) in &totals.faults {
        println!("  {count:>9} {kind}");
    }
    println!("runs that ended before their job:");
    for (what, count) in &totals.ended {
        println!("  {count:>9} {what}");
    }
    for (seed, what) in &totals.failed {
        println!("seed {seed} failed {what}");
    }
    if let Some((plan, outcome)) = &totals.first_failure {
        println!("making seed {} shorter ({} events) ...", plan.seed, plan.events.len());
        let (plan, outcome) = shrink(plan, outcome);
        print_run(&plan, &outcome);
        println!("cargo xtask simulate --first {} --seeds 1 (and the same --people)", plan.seed);
    }
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_run(plan: &SimulationPlan, outcome: &Outcome) {
    println!("seed {}: {} clusters, {} events", plan.seed, plan.clusters.len(), plan.events.len());
    for object in &plan.objects {
        println!("  object {}", object["spec"]);
    }
    for event in &plan.events {
        println!("  {:>8} ms {}", event.at.as_millis(), event.what);
    }
    for line in &outcome.lines {
        println!("{}", line.to_json());
    }
    for found in &outcome.found {
        println!("VIOLATION at {} ms: {}", found.at_ms, found.violation);
    }
    print!("{}", outcome.picture);
}
