//! Arguments of `fleet sim`.

use std::time::Duration;

use clap::{Args, Subcommand};
use fleet_kubesim::RunTime;
use serde_json::{Value, json};

use super::up::{cpu, memory};

#[derive(Debug, Clone, Subcommand)]
pub enum SimCommand {
    /// Make hollow nodes in a cluster and run the pods that its scheduler binds to them, until Ctrl-C
    Up(SimUpArgs),
    /// Remove the hollow nodes of a cluster, with their pods
    Down(SimDownArgs),
}

#[derive(Debug, Clone, Args)]
pub struct SimUpArgs {
    /// Nodes to make: NAME-node-0, NAME-node-1 and so on
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: u32,
    #[command(flatten)]
    pub group: Group,
    /// nvidia.com/gpu of each node
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub gpus: u32,
    /// cpu of each node
    #[arg(long, value_name = "QUANTITY", default_value = "64", value_parser = cpu)]
    pub cpu: String,
    /// memory of each node
    #[arg(long, value_name = "QUANTITY", default_value = "512Gi", value_parser = memory)]
    pub memory: String,
    /// Label of each node; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Taint of each node, so that only pods that tolerate it come; may be repeated
    #[arg(long = "taint", value_name = "KEY[=VALUE]:EFFECT", value_parser = taint)]
    pub taints: Vec<Value>,
    /// Default run time of pods of jobs: 60s, 5m, forever (the annotation sim.fleet.dev/runtime overrides it)
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub runtime: RunTime,
    /// Period in which the lease of each node is renewed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = period)]
    pub heartbeat: Duration,
}

#[derive(Debug, Clone, Args)]
pub struct SimDownArgs {
    #[command(flatten)]
    pub group: Group,
}

#[derive(Debug, Clone, Args)]
pub struct Group {
    /// Name of the nodes' group, for more than one in a cluster
    #[arg(long, value_name = "NAME", default_value = "sim", value_parser = name)]
    pub name: String,
}

fn name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 40;
    let ends = |end: Option<char>| end.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let fine = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    match fine && text.len() <= LONGEST && ends(text.chars().next()) && ends(text.chars().last()) {
        true => Ok(text.to_string()),
        false => {
            Err(format!("allowed: lower-case letters, digits and '-' within, at most {LONGEST} characters"))
        }
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err("allowed: KEY=VALUE".to_string()),
    }
}

fn taint(text: &str) -> Result<Value, String> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let wrong = || format!("allowed: KEY[=VALUE]:EFFECT, EFFECT one of {}", EFFECTS.join(", "));
    let (left, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (key, value) = left.split_once('=').unwrap_or((left, ""));
    match EFFECTS.contains(&effect) && !key.is_empty() {
        true if value.is_empty() => Ok(json!({"key": key, "effect": effect})),
        true => Ok(json!({"key": key, "value": value, "effect": effect})),
        false => Err(wrong()),
    }
}

fn period(text: &str) -> Result<Duration, String> {
    let wrong = || "allowed: a time of at least 1s, such as 10s or 1m".to_string();
    let span: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    let period = Duration::try_from(span).map_err(|_| wrong())?;
    if period < Duration::from_secs(1) { Err(wrong()) } else { Ok(period) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_are_those_of_kubectl() {
        assert_eq!(
            taint("sim=yes:NoSchedule"),
            Ok(json!({"key": "sim", "value": "yes", "effect": "NoSchedule"}))
        );
        assert_eq!(taint("sim:NoExecute"), Ok(json!({"key": "sim", "effect": "NoExecute"})));
        for wrong in ["sim", "sim:Never", "=yes:NoSchedule", ":NoSchedule"] {
            assert!(taint(wrong).is_err_and(|error| error.contains("PreferNoSchedule")), "{wrong}");
        }
    }

    #[test]
    fn names_labels_and_periods_are_checked() {
        assert_eq!(name("rack-1").as_deref(), Ok("rack-1"));
        for wrong in ["", "-a", "a-", "A", "a.b", &"a".repeat(41)] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(label("zone=a=b"), Ok(("zone".to_string(), "a=b".to_string())));
        assert!(label("zone").is_err() && label("=a").is_err());
        assert_eq!(period("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["10ms", "-5s", "soon"] {
            assert!(period(wrong).is_err(), "{wrong}");
        }
    }
}
