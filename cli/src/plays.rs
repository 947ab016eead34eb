//! `fleet demo gangs` and `fleet demo spark`: many jobs with and without gang scheduling.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use fleet_cli_ground::answer::Answer;
use fleet_kubesim::{
    RunTime,
    plays::{self, Drivers, Gangs, Outcome},
};

use crate::args::{Play, PlayArgs};
use fleet_console::{progress::Progress, table::Table};

/// Trainings, and for how many of them there is capacity.
const TRAININGS: [(usize, usize); 3] = [(1, 2), (2, 1), (5, 2)];
const QUERIES: u16 = 104;
/// Most names of stuck jobs; the others are counted.
const NAMED: usize = 5;

pub async fn run(play: Play) -> anyhow::Result<ExitCode> {
    let (Play::Gangs(args) | Play::Spark(args)) = &play;
    let RunTime::For(runtime) = args.runtime else {
        bail!("--runtime: found forever; allowed: a duration, because the demo waits for it")
    };
    let (table, outcomes) = match &play {
        Play::Gangs(args) => gangs(args, runtime).await?,
        Play::Spark(args) => spark(args, runtime).await?,
    };
    let mut text = table;
    for line in outcomes.iter().filter_map(deadlock) {
        text.push_str(&format!("{line}\n"));
    }
    let all_ended = outcomes.iter().all(Outcome::all_ended);
    if all_ended {
        text.push_str("All have finished.\n");
    }
    if let [grouped, own_node] = &outcomes[..]
        && all_ended
        && matches!(play, Play::Spark(_))
    {
        text.push_str(&gain(grouped.took, own_node.took));
    }
    Answer::text(text).print()?;
    Ok(if all_ended { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn gangs(args: &PlayArgs, runtime: Duration) -> anyhow::Result<(String, Vec<Outcome>)> {
    let kept = if args.no_gang { Gangs::Ignored } else { Gangs::Kept };
    let cases = args.jobs.map_or(TRAININGS.to_vec(), |jobs| vec![(usize::from(jobs), 2)]);
    let mut table =
        Table::new(&["GANGS", "JOBS", "CAPACITY FOR", "FINISHED", "MOST AT ONCE", "STUCK", "SECONDS"]);
    let mut outcomes = Vec::new();
    for (jobs, fit) in cases {
        let progress = Progress::start(format!("{jobs} jobs run"));
        let outcome = plays::trainings(jobs, fit, kept, runtime).await?;
        drop(progress);
        let first = [if args.no_gang { "no" } else { "yes" }.to_owned(), jobs.to_string(), fit.to_string()];
        table.row(first.into_iter().chain(figures(&outcome)));
        outcomes.push(outcome);
    }
    Ok((table.print(), outcomes))
}

async fn spark(args: &PlayArgs, runtime: Duration) -> anyhow::Result<(String, Vec<Outcome>)> {
    let queries = usize::from(args.jobs.unwrap_or(QUERIES));
    let all = if args.no_gang { &[Drivers::Free][..] } else { &[Drivers::Grouped, Drivers::OwnNode] };
    let mut table = Table::new(&["DRIVERS", "QUERIES", "FINISHED", "MOST AT ONCE", "STUCK", "SECONDS"]);
    let mut outcomes = Vec::new();
    for drivers in all {
        let progress = Progress::start(format!("{queries} queries run"));
        let outcome = plays::queries(queries, *drivers, runtime).await?;
        drop(progress);
        let name = match drivers {
            Drivers::Grouped => "PodGroups",
            Drivers::OwnNode => "own node",
            Drivers::Free => "anywhere",
        };
        table.row([name.to_owned(), queries.to_string()].into_iter().chain(figures(&outcome)));
        outcomes.push(outcome);
    }
    Ok((table.print(), outcomes))
}

fn figures(outcome: &Outcome) -> [String; 4] {
    [
        outcome.ended.to_string(),
        outcome.most_at_once.to_string(),
        outcome.stuck.len().to_string(),
        format!("{:.1}", outcome.took.as_secs_f64()),
    ]
}

fn deadlock(outcome: &Outcome) -> Option<String> {
    if outcome.all_ended() {
        return None;
    }
    let mut names: Vec<&str> = outcome.stuck.iter().take(NAMED).map(String::as_str).collect();
    let more = outcome.stuck.len().saturating_sub(NAMED);
    let rest = format!("{more} more");
    if more > 0 {
        names.push(&rest);
    }
    Some(format!("Deadlock: {} hold places and wait for places that the others hold.", names.join(", ")))
}

fn gain(grouped: Duration, own_node: Duration) -> String {
    let percent = (own_node.as_secs_f64() / grouped.as_secs_f64() - 1.0) * 100.0;
    format!(
        "With PodGroups the queries finish at a rate that is {percent:.0} % higher than with a node for drivers.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stuck_is_named_and_the_rest_counted() {
        let stuck = (1..=7).map(|i| format!("job-{i}")).collect();
        let outcome = Outcome { jobs: 7, most_at_once: 7, stuck, ..Outcome::default() };
        assert_eq!(
            deadlock(&outcome).as_deref(),
            Some(
                "Deadlock: job-1, job-2, job-3, job-4, job-5, 2 more hold places and wait for places that the others hold."
            )
        );
        assert_eq!(deadlock(&Outcome { jobs: 2, ended: 2, ..Outcome::default() }), None);
    }

    #[test]
    fn a_gain_is_one_of_rates() {
        let text = gain(Duration::from_secs(20), Duration::from_secs(26));
        assert_eq!(
            text,
            "With PodGroups the queries finish at a rate that is 30 % higher than with a node for drivers.\n"
        );
    }
}
