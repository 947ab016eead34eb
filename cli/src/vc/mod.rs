//! `fleet vc`: virtual clusters, their configuration and their cells.
//!
//! `fleet_openpai::cells` interprets configurations, computes changes and finds the jobs of cells, over the
//! hub's objects. This module queries and prints.

mod explain;
mod show;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use fleet_cli_ground::{
    answer::Answer,
    apply as files,
    args::Connect,
    connect::Hub,
    listing::{self, Names},
    output,
};
use fleet_openpai::cells::{self, Standing, file, plan, tree};
use jiff::Timestamp;
use serde_json::json;

use crate::args::vc::{ApplyArgs, CellsArgs, VcCommand, VcGetArgs};
use fleet_console::progress::Progress;

pub async fn run(connect: &Connect, command: &VcCommand) -> anyhow::Result<Answer> {
    match command {
        VcCommand::Apply(args) => apply(connect, args).await,
        VcCommand::Get(args) => get(&connect.hub().await?, args).await,
        VcCommand::Cells(args) => cells(&connect.hub().await?, args).await,
        VcCommand::Explain(args) => explain::run(&connect.hub().await?, args).await,
    }
}

async fn apply(connect: &Connect, args: &ApplyArgs) -> anyhow::Result<Answer> {
    let name = args.file.display().to_string();
    let in_file = |errors: &str| {
        let lines: Vec<String> = errors.lines().map(|line| format!("{name}: {line}")).collect();
        anyhow::anyhow!("{}", lines.join("\n"))
    };
    // Validated before anything is requested or sent: a mistake is a mistake on every hub.
    let wanted = file::read(&files::text_of(&args.file)?).map_err(|errors| in_file(&errors.to_string()))?;
    let hub = connect.hub().await?;
    let standing = {
        let _progress = Progress::start("asking the hub");
        Standing::read(&hub.server).await?
    };
    let plan = plan::plan(&standing, &wanted, Timestamp::now()).map_err(|error| match error {
        plan::PlanError::Config(errors) => in_file(&errors.to_string()),
        plan::PlanError::OtherName { .. } => in_file(&error.to_string()),
        other => other.into(),
    })?;
    let data = output::data(args.shown.output.as_ref(), &json!(plan), ("cellconfiguration/", "{.name}"))?;
    let is_data = data.is_some();
    let mut answer = Answer::people(data.unwrap_or_else(|| show::difference(&plan)));
    answer.for_people = !is_data;
    if args.dry_run {
        answer.note("nothing was changed");
        return Ok(answer);
    }
    if plan.is_change && !args.yes {
        // First the difference, then the question.
        answer.print()?;
        answer = Answer::default();
        if !agreed()? {
            answer.fail("nothing was changed");
            return Ok(answer);
        }
    }
    let done = match plan.is_change {
        true => plan::apply(&hub.server, &plan).await?,
        false => "unchanged",
    };
    let line = format!("cellconfiguration.fleet.dev/{} {done}", plan.name);
    match is_data {
        true => answer.note(line),
        false => answer.text.push_str(&format!("{line}\n")),
    }
    Ok(answer)
}

/// Asks for confirmation at the terminal; without a terminal nothing is confirmed.
fn agreed() -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!(
            "nothing was changed: --yes: found nothing, and stdin is no terminal to ask at; allowed: --yes"
        );
    }
    eprint!("Apply? [y/N] ");
    std::io::stderr().flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read stdin")?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

async fn get(hub: &Hub, args: &VcGetArgs) -> anyhow::Result<Answer> {
    listing::run(&args.listing, async || {
        let _progress = Progress::start("asking the hub");
        let (mut found, configurations) =
            tokio::try_join!(cells::virtual_clusters(&hub.server), cells::configurations(&hub.server))?;
        let known: Vec<String> = found.iter().map(|vc| vc.spec.name.clone()).collect();
        if let Some(wrong) = args.names.iter().find(|name| !known.contains(name)) {
            let allowed = if known.is_empty() {
                "none, there are no virtual clusters".into()
            } else {
                known.join(", ")
            };
            bail!("virtual cluster: found {wrong:?}; allowed: {allowed}");
        }
        found.retain(|vc| args.names.is_empty() || args.names.contains(&vc.spec.name));
        let mut list = show::virtual_clusters(&found, args.listing.is_wide())?;
        list.before = show::invalid(&configurations);
        Ok(list)
    })
    .await
}

async fn cells(hub: &Hub, args: &CellsArgs) -> anyhow::Result<Answer> {
    listing::run(&args.listing, async || {
        let _progress = Progress::start("asking the hub");
        let standing = Standing::read(&hub.server).await?;
        let names = Names::of(&args.listing);
        let picture = standing.picture(Timestamp::now())?;
        let detail = if args.all { tree::Detail::Every } else { tree::Detail::Folded };
        let rows = match (&picture, &args.vc) {
            (None, _) => Vec::new(),
            (Some(picture), None) => tree::physical(picture, detail),
            (Some(picture), Some(vc)) => {
                tree::of_virtual_cluster(picture, vc, detail).with_context(|| {
                    let known: Vec<&str> = picture.cells.virtual_clusters().collect();
                    format!("--vc: found {vc:?}; allowed: {}", known.join(", "))
                })?
            }
        };
        let mut list = show::tree(&rows, args.vc.is_some(), names)?;
        list.before = show::invalid(&standing.configurations);
        if let Some(picture) = &picture {
            let lost = picture.lost.iter().map(|lost| picture.job(&lost.group));
            list.notes.extend(
                lost.map(|job| format!("note: job {job} runs on devices that are no longer its cells")),
            );
        }
        Ok(list)
    })
    .await
}
