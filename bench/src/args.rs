//! Arguments of `fleet bench`.

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_enum, default_value_t = Measure::All)]
    pub what: Measure,
    /// Print JSON instead of a table
    #[arg(short, long, value_enum)]
    pub output: Option<JsonFormat>,
    /// Number of jobs of the latency benchmark
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Number of jobs of the throughput benchmark
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// Shape of the queue benchmark
    #[arg(long, value_enum, default_value_t = Shape::Baseline)]
    pub shape: Shape,
    /// Queue benchmark without members: a stand-in ends each admitted job when its run time is over
    #[arg(long)]
    pub admission_only: bool,
    /// Nodes of the scheduler benchmark
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub nodes: u32,
    /// Pods of the scheduler benchmark
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub pods: u32,
    /// Create the pods of the scheduler benchmark in gangs of 8 to 512
    #[arg(long)]
    pub gangs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// From submission to Running, one job at a time on an idle fleet
    Latency,
    /// A thousand jobs of three pods, from submission to all Running
    Throughput,
    /// Memory, start and size of the program
    Size,
    /// Latency, throughput and size
    All,
    /// A deep queue under a quota tree, in real time: see --shape
    Queue,
    /// The member's scheduler, alone and end to end: see --nodes and --pods
    Scheduler,
}

/// Shapes of the queue benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// 15,000 jobs in 30 leaves of 5 parents
    Baseline,
    /// 50,000 jobs in 1,000 leaves of 10 parents
    LargeScale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JsonFormat {
    Json,
}
