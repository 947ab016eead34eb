//! How long a hollow pod runs and how it ends: pure rules over annotations.
//!
//! Inputs: the annotations of the pod, those of the job that owns it, and the fleet's default.
//! Deliberately absent: clocks and clients.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use fleet_api::names::{SIM_FAIL_ON_ANNOTATION, SIM_RESULT_ANNOTATION, SIM_RUNTIME_ANNOTATION};

/// How long a pod runs once it is Running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunTime {
    For(Duration),
    Forever,
}

/// A text that is no run time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found:?} is not a run time; allowed: `forever` or numbers with units h, m, s, ms, such as 90s, 1h30m, 500ms"
)]
pub struct RunTimeError {
    pub found: String,
}

impl FromStr for RunTime {
    type Err = RunTimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if text == "forever" {
            return Ok(Self::Forever);
        }
        // Go has no days, and neither have run times.
        let us = Some(text).filter(|text| !text.contains('d')).and_then(fleet_resources::duration_us);
        let us = us.and_then(|us| u64::try_from(us).ok());
        us.map(|us| Self::For(Duration::from_micros(us)))
            .ok_or_else(|| RunTimeError { found: text.to_string() })
    }
}

impl fmt::Display for RunTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => f.write_str("forever"),
            Self::For(time) if time.subsec_millis() == 0 => write!(f, "{}s", time.as_secs()),
            Self::For(time) => write!(f, "{}ms", time.as_millis()),
        }
    }
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Succeeds,
    Fails,
}

/// What one pod does on one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlan {
    pub run_time: RunTime,
    pub ending: Ending,
}

/// Whether a pod without annotations of its own or its owner's ever ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// A job's pod: it ends after the default run time.
    Batch,
    /// A service's pod: it runs until it is deleted.
    Service,
    /// A job's pod whose process serves the others: it runs until it is deleted, unless the pod itself says
    /// otherwise.
    Daemon,
}

pub type Annotations = BTreeMap<String, String>;

/// The plan of a pod on `cluster`. Each annotation is looked up on the pod, then on its owner. A value
/// that cannot be read counts as absent, because a simulated pod cannot report an error.
pub fn run_plan(
    pod: &Annotations,
    owner: &Annotations,
    nature: Nature,
    cluster: &str,
    default: RunTime,
) -> RunPlan {
    let look_up = |name: &str| pod.get(name).or_else(|| owner.get(name)).map(String::as_str);
    let unmarked = match nature {
        Nature::Batch => default,
        Nature::Service | Nature::Daemon => RunTime::Forever,
    };
    let asked = match nature {
        Nature::Daemon => pod.get(SIM_RUNTIME_ANNOTATION).map(String::as_str),
        _ => look_up(SIM_RUNTIME_ANNOTATION),
    };
    let run_time = asked.and_then(|text| text.parse().ok()).unwrap_or(unmarked);
    let fails_here = look_up(SIM_FAIL_ON_ANNOTATION)
        .is_some_and(|clusters| clusters.split(',').any(|name| name.trim() == cluster));
    let told_to_fail = look_up(SIM_RESULT_ANNOTATION) == Some("fail");
    RunPlan { run_time, ending: if fails_here || told_to_fail { Ending::Fails } else { Ending::Succeeds } }
}

#[cfg(test)]
mod tests;
