//! Measurements.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

pub const READY_WITHIN: Duration = Duration::from_secs(60);

/// One measured number.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub measure: String,
    pub found: f64,
    pub unit: &'static str,
    /// The project's target, in the same unit.
    pub aim: Option<f64>,
}

impl Finding {
    pub fn new(measure: impl Into<String>, found: f64, unit: &'static str, aim: Option<f64>) -> Self {
        Self { measure: measure.into(), found, unit, aim }
    }
}

pub fn say(what: &str) {
    eprintln!("measuring {what}");
}

/// User and system time of this process.
pub fn cpu_s() -> anyhow::Result<f64> {
    /// Ticks of the kernel's accounting, the same on every Linux.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // Fields after the name, which may contain blanks: state is the first, user time the twelfth.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).context("/proc/self/stat");
    Ok((ticks(11)? + ticks(12)?) / TICKS)
}

/// Peak memory of this process, in MiB.
pub fn peak_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .context("no VmHWM in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().context("VmHWM")?;
    Ok(kib / 1024.0)
}

/// Nearest rank.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn percentiles_are_nearest_ranks() {
        let sorted: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(super::percentile(&sorted, 50), 50.0);
        assert_eq!(super::percentile(&sorted, 99), 99.0);
        assert_eq!(super::percentile(&[7.0], 99), 7.0);
        assert_eq!(super::percentile(&[], 99), 0.0);
    }
}
