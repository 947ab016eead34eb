//! Prints what fair-share preemption costs in mode fast: 10,000 jobs in 20 leaves with four times the capacity asked
//! for. Fixed inputs; run with `--release`. `fair_share 2000 mixed` takes fewer jobs and one of the loads.

mod measure;

use measure::{LEAVES, LOADS, measure};

/// The allocator of the `fleet` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let only = std::env::args().nth(2);
    println!(
        "| load | jobs | leaves | wall, s | preemptions | work lost | lines of the log | of them Pending |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for load in LOADS.iter().filter(|load| only.as_deref().is_none_or(|only| only == load.name)) {
        let found = measure(load, count)?;
        let rules: Vec<String> = found.preempted.iter().map(|(rule, n)| format!("{rule} {n}")).collect();
        println!(
            "| {} | {count} | {LEAVES} | {:.1} | {} ({}) | {:.2} % | {} | {} ({:.0} %) |",
            load.name,
            found.wall.as_secs_f64(),
            found.preemptions,
            rules.join(", "),
            found.lost_percent,
            found.lines,
            found.pending,
            found.pending_percent(),
        );
    }
    Ok(())
}
