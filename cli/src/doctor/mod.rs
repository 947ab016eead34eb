//! `fleet doctor`: problems of a fleet, and what to do about them.
//!
//! Inputs: the options that name a hub. It reads the objects (`facts`) and judges them (`judge`), which is
//! pure. Deliberately absent: why one job waits (`fleet explain`), the invariants (`fleet audit`), and any
//! repair.

mod facts;
mod judge;

use fleet_cli_ground::{answer::Answer, args::Connect, output};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use crate::args::DoctorArgs;
use facts::Scope;
use fleet_console::progress::Progress;

/// Result of a check, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Warning,
    Error,
}

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    level: Level,
    /// What was checked, such as `hub` or `cluster east`.
    about: String,
    found: String,
    /// What to do about it; empty if all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    fix: String,
}

impl Finding {
    fn ok(about: impl Into<String>, found: impl Into<String>) -> Self {
        Self { level: Level::Ok, about: about.into(), found: found.into(), fix: String::new() }
    }

    fn warning(about: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Warning, about: about.into(), found: found.into(), fix: fix.into() }
    }

    fn error(about: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Error, about: about.into(), found: found.into(), fix: fix.into() }
    }
}

pub async fn run(connect: &Connect, args: &DoctorArgs) -> anyhow::Result<Answer> {
    let _progress = Progress::start("checking the fleet");
    let findings = match connect.hub().await {
        Ok(hub) => {
            let scope = if args.hub_only { Scope::Hub } else { Scope::Fleet };
            let facts = facts::gather(&hub, scope).await;
            judge::judge(&facts, Timestamp::now())
        }
        Err(error) => {
            let mut findings = vec![judge::no_hub(&format!("{error:#}"))];
            findings.extend(judge::ports(&facts::taken_ports()));
            findings
        }
    };
    let fails = if args.strict { Level::Warning } else { Level::Error };
    let failed = findings.iter().any(|finding| finding.level >= fails);
    let answer = match output::data(args.shown.output.as_ref(), &json!({"items": findings}), ("", ".about"))?
    {
        Some(text) => Answer::text(text),
        None => Answer::people(print(&findings)),
    };
    Ok(Answer { failed, ..answer })
}

/// A line for each check, what to do below it, and the sum at the end.
fn print(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let level = match finding.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "ERROR",
        };
        text.push_str(&format!("{level:<9}{}: {}\n", finding.about, finding.found));
        if !finding.fix.is_empty() {
            text.push_str(&format!("{:9}-> {}\n", "", finding.fix));
        }
    }
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    text.push_str(&match (count(Level::Error), count(Level::Warning)) {
        (0, 0) => "\nNothing is wrong.\n".to_string(),
        (errors, warnings) => format!("\nErrors: {errors}, warnings: {warnings}.\n"),
    });
    text
}
