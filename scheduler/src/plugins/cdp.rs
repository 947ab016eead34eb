//! Plugin cdp (cooldown protection): a pod is no victim for its cooldown time after it started.
//!
//! Source: Volcano's plugin of that name (label or annotation `volcano.sh/cooldown-time`).

use super::rules::{Rules, Taking};
use crate::ids::PodId;
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cdp;

impl Rules for Cdp {
    const NAME: &'static str = "cdp";
    const HOOKS: &'static [Hook] = &[Hook::Preemptable, Hook::Reclaimable];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }

    fn victims(&self, state: &State, _: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        let cools = |pod: &PodId| state.pod(*pod).cools_until().is_some_and(|until| until > state.now);
        Some(candidates.iter().copied().filter(|pod| !cools(pod)).collect())
    }
}
