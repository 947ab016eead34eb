//! Conditions in the form that kinds share: a type, a status, a reason, and since when.
//!
//! Inputs: a list of conditions of a status that a client writes. Absent on purpose: kinds with a form of their own.

use crate::field::At;
use std::collections::BTreeSet;

const MOST_REASON: usize = 1024;
const MOST_MESSAGE: usize = 32 * 1024;
const REASON: &str = "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')";

/// Checks a list of conditions.
pub fn check(list: &At) {
    let mut seen = BTreeSet::new();
    for condition in list.items() {
        let kind = condition.at("type");
        if !seen.insert(kind.text()) {
            kind.duplicate();
        }
        one(&condition);
    }
}

fn one(condition: &At) {
    condition.at("type").qualified();
    let status = condition.at("status");
    if !matches!(status.text(), "True" | "False" | "Unknown") {
        status.unsupported(&["False", "True", "Unknown"]);
    }
    let generation = condition.at("observedGeneration");
    if generation.number().is_some_and(|n| n < 0) {
        generation.invalid("must be greater than or equal to zero");
    }
    condition.at("lastTransitionTime").need();
    let reason = condition.at("reason");
    if reason.need() && !is_reason(reason.text()) {
        reason.tell(reason.text(), &[REASON]);
    }
    if reason.text().len() > MOST_REASON {
        reason.too_long(MOST_REASON);
    }
    let message = condition.at("message");
    if message.text().len() > MOST_MESSAGE {
        message.too_long(MOST_MESSAGE);
    }
}

fn is_reason(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(word)
        && text.chars().all(|c| word(c) || matches!(c, ',' | ':'))
}

#[cfg(test)]
mod tests;
