//! `fleet demo gangs` and `fleet demo spark`: many jobs with and without gang scheduling.

use std::{process::ExitCode, time::Instant};

use anyhow::bail;
use fleet_kubesim::{
    RunTime,
    plays::{self, Gangs, Outcome},
};

use crate::{
    answer::Answer,
    args::{Play, PlayArgs},
    progress::Progress,
    table::Table,
};

const TRAININGS: u16 = 5;
const QUERIES: u16 = 104;
/// Most names of stuck jobs; the others are counted.
const NAMED: usize = 5;

pub async fn run(play: Play) -> anyhow::Result<ExitCode> {
    let (args, default) = match &play {
        Play::Gangs(args) => (args, TRAININGS),
        Play::Spark(args) => (args, QUERIES),
    };
    let RunTime::For(runtime) = args.runtime else {
        bail!("--runtime: found forever; allowed: a duration, because the demo waits for it")
    };
    let jobs = usize::from(args.jobs.unwrap_or(default));
    let gangs = if args.no_gang { Gangs::Ignored } else { Gangs::Kept };
    let began = Instant::now();
    let progress = Progress::start(format!("{jobs} jobs run"));
    let outcome = match &play {
        Play::Gangs(_) => plays::trainings(jobs, gangs, runtime).await?,
        Play::Spark(_) => plays::queries(jobs, gangs, runtime).await?,
    };
    drop(progress);
    let text = format!("{}{}\n", table(args, &outcome, began), verdict(&outcome));
    Answer::text(text).print()?;
    Ok(if outcome.all_ended() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(args: &PlayArgs, outcome: &Outcome, began: Instant) -> String {
    let mut table = Table::new(&["GANGS", "JOBS", "FINISHED", "MOST AT ONCE", "STUCK", "SECONDS"]);
    table.row([
        if args.no_gang { "no" } else { "yes" }.to_owned(),
        outcome.jobs.to_string(),
        outcome.ended.to_string(),
        outcome.most_at_once.to_string(),
        outcome.stuck.len().to_string(),
        format!("{:.1}", began.elapsed().as_secs_f64()),
    ]);
    table.print()
}

fn verdict(outcome: &Outcome) -> String {
    if outcome.all_ended() {
        return "All have finished.".to_owned();
    }
    let mut names: Vec<&str> = outcome.stuck.iter().take(NAMED).map(String::as_str).collect();
    let more = outcome.stuck.len().saturating_sub(NAMED);
    let rest = format!("{more} more");
    if more > 0 {
        names.push(&rest);
    }
    format!("Deadlock: {} hold places and wait for places that the others hold.", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stuck_is_named_and_the_rest_counted() {
        let stuck = (1..=7).map(|i| format!("job-{i}")).collect();
        let outcome = Outcome { jobs: 7, ended: 0, most_at_once: 7, stuck };
        assert_eq!(
            verdict(&outcome),
            "Deadlock: job-1, job-2, job-3, job-4, job-5, 2 more hold places and wait for places that the others hold."
        );
        assert_eq!(verdict(&Outcome { jobs: 2, ended: 2, ..Outcome::default() }), "All have finished.");
    }
}
