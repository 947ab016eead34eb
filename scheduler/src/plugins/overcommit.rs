//! Plugin overcommit: jobs are admitted while they request less than a multiple of the cluster together.

use super::rules::Rules;
use crate::settings::{ArgumentError, Hook, Settings, thousandths};

const DEFAULT: i64 = 1_200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overcommit {
    /// Thousandths of the cluster.
    pub factor: i64,
}

impl Rules for Overcommit {
    const NAME: &'static str = "overcommit";
    const ARGUMENTS: &'static [&'static str] = &["overcommit-factor"];
    const HOOKS: &'static [Hook] = &[Hook::JobEnqueued];

    /// As in Volcano, a factor below one is the default.
    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let name = "overcommit-factor";
        let Some(text) = settings.text(name) else { return Ok(Self { factor: DEFAULT }) };
        let factor =
            thousandths(text).ok_or_else(|| settings.error(name, text, "a number from 1, such as 1.2"))?;
        Ok(Self { factor: if factor < 1_000 { DEFAULT } else { factor } })
    }
}
