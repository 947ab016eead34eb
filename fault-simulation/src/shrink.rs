//! Shortens a failing run: leaves events out as long as it still fails.

use super::{Outcome, SimulationPlan, run_plan};

/// Runs a search may take.
const MOST_RUNS: usize = 80;

/// The shortest plan found that still breaks an invariant with the same number, and what came of it. The search
/// leaves out halves, quarters and so on down to single events.
pub fn shrink(plan: &SimulationPlan, outcome: &Outcome) -> (SimulationPlan, Outcome) {
    let sought: Vec<u8> = outcome.found.iter().map(|found| found.violation.invariant).collect();
    let mut best = (plan.clone(), outcome.clone());
    let mut runs = 0;
    let mut size = plan.events.len().div_ceil(2);
    while size > 0 && runs < MOST_RUNS {
        let mut at = 0;
        let mut shorter = false;
        while at < best.0.events.len() && runs < MOST_RUNS {
            let mut candidate = best.0.clone();
            let end = (at + size).min(candidate.events.len());
            candidate.events.drain(at..end);
            runs += 1;
            match run_plan(&candidate) {
                Ok(found) if found.found.iter().any(|f| sought.contains(&f.violation.invariant)) => {
                    best = (candidate, found);
                    shorter = true;
                }
                _ => at = end,
            }
        }
        if !shorter || size > best.0.events.len() {
            size = size.min(best.0.events.len()) / 2;
        }
    }
    best
}
