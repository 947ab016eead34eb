//! `cargo run --release -p fleet-kubesim --example shared -- --gangs 10000`: gangs on a cluster that another scheduler fills
//! and empties. Ends with 1 when one was started in part for longer than the grace, or did not end.

use std::process::ExitCode;

use clap::Parser;
use fleet_kubesim::shared::{Story, play};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
struct Flags {
    #[arg(long, default_value_t = 1000)]
    gangs: usize,
    #[arg(long, default_value_t = 16)]
    nodes: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Let the cluster's own scheduler bind the gangs, behind gates
    #[arg(long)]
    gates: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let flags = Flags::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let story = Story {
        gangs: flags.gangs,
        nodes: flags.nodes,
        seed: flags.seed,
        pod_scheduling: if flags.gates { "Gates" } else { "Fleet" },
    };
    let outcome = tokio::runtime::Runtime::new()?.block_on(play(story))?;
    println!(
        "{} of {} gangs succeeded in {:.0} s beside {} pods of tenants; partial beyond the grace: {}; longest partial {} ms; \
         refused by a kubelet: {} pods of gangs, {} of tenants",
        outcome.succeeded,
        flags.gangs,
        outcome.took.as_secs_f32(),
        outcome.tenants,
        outcome.partial.len(),
        outcome.longest_partial.as_millis(),
        outcome.refused.0,
        outcome.refused.1,
    );
    for line in &outcome.failed {
        println!("not succeeded: {line}");
    }
    let good = outcome.partial.is_empty() && outcome.failed.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
