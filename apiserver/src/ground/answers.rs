//! Counts of answers.
//!
//! Inputs: each answer. Absent on purpose: how long they took.

use http::StatusCode;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

/// Answers since the start, by method and code.
#[derive(Default)]
pub struct Answers(Mutex<BTreeMap<(&'static str, u16), u64>>);

impl Answers {
    /// Counts an answer.
    pub fn count(&self, method: &http::Method, code: StatusCode) {
        let verb = match *method {
            http::Method::GET => "GET",
            http::Method::POST => "POST",
            http::Method::PUT => "PUT",
            http::Method::PATCH => "PATCH",
            http::Method::DELETE => "DELETE",
            _ => "OTHER",
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((verb, code.as_u16())).or_insert(0) += 1;
    }

    /// Writes the counts in the text format of Prometheus.
    pub fn write(&self, text: &mut String) {
        text.push_str(
            "# HELP apiserver_request_total Answers by verb and code; a watch counts when it begins.\n\
             # TYPE apiserver_request_total counter\n",
        );
        for ((verb, code), n) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(text, "apiserver_request_total{{code=\"{code}\",verb=\"{verb}\"}} {n}");
        }
    }
}
