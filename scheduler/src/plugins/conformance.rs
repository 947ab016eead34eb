//! Plugin conformance: critical pods are no victims.

use super::rules::{Rules, Taking};
use crate::ids::PodId;
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conformance;

impl Rules for Conformance {
    const NAME: &'static str = "conformance";
    const HOOKS: &'static [Hook] = &[Hook::Preemptable, Hook::Reclaimable];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }

    fn victims(&self, state: &State, _: Taking, candidates: &[PodId]) -> Option<Vec<PodId>> {
        Some(candidates.iter().copied().filter(|pod| !state.pod(*pod).critical).collect())
    }
}
