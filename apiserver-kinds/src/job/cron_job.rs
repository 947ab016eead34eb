//! CronJobs: when Jobs are made, and what they are.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36, which does not look at the status.

use crate::{cron, workload};
use fleet_apiserver_schema::field::{At, same};

/// Longest name: a Job adds 11 characters to it.
const LONGEST_NAME: usize = 52;
/// Longest part of the name of a time zone.
const LONGEST_PART: usize = 14;

/// Checks a CronJob.
pub fn cron_job(new: &At, old: Option<&At>, subresource: &str) {
    if subresource == "status" {
        return;
    }
    let spec = new.at("spec");
    schedule(&spec, old);
    spec.at("startingDeadlineSeconds").non_negative();
    let zone = spec.at("timeZone");
    if zone.is_set() && old.is_none_or(|old| !same(old.at("spec.timeZone").value(), zone.value())) {
        time_zone(&zone);
    }
    spec.at("concurrencyPolicy").need_one_of(&["Allow", "Forbid", "Replace"]);
    let job = spec.at("jobTemplate.spec");
    super::check_spec(&job);
    let (selector, manual) = (job.at("selector"), job.at("manualSelector"));
    if selector.is_set() {
        let shown = workload::shown_selector(selector.value());
        selector.wrong(&format!("{shown}: `selector` will be auto-generated"));
    }
    if manual.is_true() {
        manual.unsupported(&["nil", "false"]);
    }
    spec.at("successfulJobsHistoryLimit").non_negative();
    spec.at("failedJobsHistoryLimit").non_negative();
    let name = new.at("metadata.name");
    if old.is_none() && name.text().len() > LONGEST_NAME {
        name.invalid(&format!("must be no more than {LONGEST_NAME} characters"));
    }
}

/// A schedule that names a zone may keep one, but not beside the field for it.
fn schedule(spec: &At, old: Option<&At>) {
    let schedule = spec.at("schedule");
    if schedule.text().is_empty() {
        schedule.required("");
        return;
    }
    if let Err(why) = cron::check(schedule.text()) {
        schedule.invalid(&why);
    }
    if !schedule.text().contains("TZ") {
        return;
    }
    if !old.is_some_and(|old| old.at("spec.schedule").text().contains("TZ")) {
        schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
    } else if spec.at("timeZone").is_set() {
        schedule.invalid("cannot use both timeZone field and TZ or CRON_TZ in schedule");
    }
}

fn time_zone(zone: &At) {
    let name = zone.text();
    if name.is_empty() {
        zone.invalid("timeZone must be nil or non-empty string");
        return;
    }
    if !name.split('/').all(is_part) {
        zone.invalid(&format!("unknown time zone {name}"));
        return;
    }
    if name.eq_ignore_ascii_case("local") {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    }
    if let Err(why) = cron::zone(name) {
        zone.invalid(&why);
    }
}

fn is_part(part: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+');
    !matches!(part, "" | "." | "..")
        && part.len() <= LONGEST_PART
        && !part.starts_with('-')
        && part.bytes().all(plain)
}
