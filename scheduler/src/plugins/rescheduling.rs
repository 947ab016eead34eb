//! Plugin rescheduling: accepted, no effect.

use super::rules::Rules;
use crate::settings::{ArgumentError, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescheduling;

impl Rules for Rescheduling {
    const NAME: &'static str = "rescheduling";
    const ARGUMENTS: &'static [&'static str] =
        &["interval", "metricsPeriod", "strategies", "queueSelector", "labelSelector"];
    const IDLE: &'static [&'static str] = &["rescheduling"];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }
}
