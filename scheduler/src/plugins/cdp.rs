//! Plugin cdp: accepted, no effect.

use super::rules::Rules;
use crate::settings::{ArgumentError, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cdp;

impl Rules for Cdp {
    const NAME: &'static str = "cdp";
    const IDLE: &'static [&'static str] = &["cdp"];

    fn compile(_: &Settings<'_>) -> Result<Self, ArgumentError> {
        Ok(Self)
    }
}
