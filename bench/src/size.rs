//! Time from start to ready, resident memory of an idle `fleet up`, size of the program.

use std::time::{Duration, Instant};

use anyhow::Context;
use fleet_kubesim::{FleetSpec, Listen, LocalFleet, RunTime};

use super::measured::{Finding, READY_WITHIN};

/// Temporary allocations of the start have been freed by then.
const SETTLE: Duration = Duration::from_secs(3);
const MIB: f64 = 1024.0 * 1024.0;

pub async fn measure() -> anyhow::Result<Vec<Finding>> {
    let directory = tempfile::tempdir().context("a directory for the measured fleet")?;
    let spec = FleetSpec {
        data_dir: Some(directory.path().to_path_buf()),
        listen: Listen::Ephemeral,
        default_run_time: RunTime::Forever,
        ..FleetSpec::default()
    };
    let began = Instant::now();
    let fleet = LocalFleet::start(spec).await?;
    fleet.ready(READY_WITHIN).await?;
    let ready = began.elapsed();
    tokio::time::sleep(SETTLE).await;
    let resident = resident_bytes()?;
    fleet.shutdown().await;
    let program = std::env::current_exe().and_then(std::fs::metadata).context("this program's own file")?;
    let build = if cfg!(debug_assertions) { "debug program" } else { "release program" };
    Ok(vec![
        Finding::new("start to ready, on disk", ready.as_secs_f64(), "s", Some(1.0)),
        Finding::new("resident memory, idle", resident as f64 / MIB, "MiB", Some(150.0)),
        Finding::new(build, program.len() as f64 / MIB, "MiB", None),
    ])
}

fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS in /proc/self/status")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("VmRSS")?;
    Ok(kib * 1024)
}
