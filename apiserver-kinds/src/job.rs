//! Jobs and CronJobs.
//!
//! Inputs: decoded objects, defaults applied. Source: the validation of Kubernetes 1.36.

use super::cron;
use fleet_apiserver_pods::spec as pod_spec;
use fleet_apiserver_schema::field::{At, same, same_but};
use fleet_apiserver_schema::validate::NameRule;
use serde_json::Value;

/// Most completions of an indexed Job that names neither limits per index nor fewer pods at once.
const MOST_COMPLETIONS: i64 = i32::MAX as i64;
/// Most pods of an indexed Job at once.
const MOST_PARALLEL: i64 = 100_000;
/// Longest name of a CronJob: a Job adds 11 characters to it.
const LONGEST_CRON_NAME: usize = 52;

/// Checks a Job.
pub fn job(new: &At, old: Option<&At>, subresource: &str) {
    let spec = new.at("spec");
    job_spec(&spec);
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    if !selector.is_set() {
        selector.required("");
    } else {
        selector.label_selector();
        pod_spec::selected(&selector, &template);
    }
    let name = new.at("metadata.name");
    let last = spec.at("completions").number().unwrap_or(1).max(1) - 1;
    if spec.at("completionMode").text() == "Indexed" && old.is_none() {
        // The name of each pod is a host name: the Job's, a dash, and its index.
        let longest = name.text().len() + 1 + last.to_string().len();
        if longest > 63 {
            name.invalid(
                "will not able to create pod with invalid DNS label: must be no more than 63 characters",
            );
        }
    }
    let Some(old) = old else { return };
    if subresource == "status" {
        status(new, old);
    } else {
        job_update(&spec, &old.at("spec"), old);
    }
}

fn job_spec(spec: &At) {
    for field in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        spec.at(field).non_negative();
    }
    spec.at("backoffLimitPerIndex").non_negative();
    spec.at("maxFailedIndexes").non_negative();
    let indexed = spec.at("completionMode").text() == "Indexed";
    spec.at("completionMode").one_of(&["Indexed", "NonIndexed"]);
    if indexed {
        let (completions, parallel) = (spec.at("completions"), spec.at("parallelism"));
        if !completions.is_set() {
            completions.required("when completion mode is Indexed");
        }
        completions.within(0..=MOST_COMPLETIONS);
        if parallel.number().is_some_and(|n| n > MOST_PARALLEL) {
            parallel.invalid(&format!(
                "must be less than or equal to {MOST_PARALLEL} when completion mode is Indexed"
            ));
        }
    }
    for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        let field = spec.at(field);
        if field.is_set() && !indexed {
            field.invalid("requires indexed completion mode");
        }
    }
    let failed = spec.at("maxFailedIndexes");
    if failed.is_set() && !spec.at("backoffLimitPerIndex").is_set() {
        spec.at("backoffLimitPerIndex").required("when maxFailedIndexes is specified");
    }
    let manager = spec.at("managedBy");
    if manager.is_set() {
        domain_path(&manager);
    }
    let replacement = spec.at("podReplacementPolicy");
    replacement.one_of(&["Failed", "TerminatingOrFailed"]);
    if spec.at("podFailurePolicy").is_set() {
        if replacement.text() == "TerminatingOrFailed" {
            replacement.unsupported(&["Failed"]);
        }
        failure_policy(spec);
    }
    success_policy(spec, indexed);
    let template = spec.at("template");
    pod_spec::template(&template);
    let policy = template.at("spec.restartPolicy");
    if policy.text() == "Always" {
        policy.required("valid values: \"OnFailure\", \"Never\"");
    } else {
        policy.one_of(&["OnFailure", "Never"]);
    }
}

/// A domain, a slash and a path.
fn domain_path(at: &At) {
    let fine = at.text().split_once('/').is_some_and(|(domain, path)| {
        fleet_apiserver_schema::validate::name(NameRule::Subdomain, domain).is_none() && !path.is_empty()
    });
    if !fine {
        at.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")");
    } else if at.text().len() > 63 {
        at.too_long(63);
    }
}

fn failure_policy(spec: &At) {
    let restart = spec.at("template.spec.restartPolicy");
    if restart.text() != "Never" {
        restart.invalid("only \"Never\" is supported when podFailurePolicy is specified");
    }
    let rules = spec.at("podFailurePolicy.rules");
    if rules.len() > 20 {
        rules.too_many(20);
    }
    for rule in rules.items() {
        let action = rule.at("action");
        action.need_one_of(&["Count", "FailIndex", "FailJob", "Ignore"]);
        if action.text() == "FailIndex" && !spec.at("backoffLimitPerIndex").is_set() {
            action.invalid("requires the backoffLimitPerIndex to be set");
        }
        let (codes, conditions) = (rule.at("onExitCodes"), rule.at("onPodConditions"));
        match (codes.is_set(), conditions.is_empty()) {
            (true, false) => rule.invalid("specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, true) => rule.invalid("specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
        for condition in conditions.items() {
            condition.at("type").qualified();
            condition.at("status").need_one_of(&["False", "True", "Unknown"]);
        }
        if !codes.is_set() {
            continue;
        }
        let (operator, values) = (codes.at("operator"), codes.at("values"));
        operator.need_one_of(&["In", "NotIn"]);
        if values.is_empty() {
            values.invalid("at least one value is required");
        }
        for value in values.items() {
            if value.number() == Some(0) && operator.text() == "In" {
                value.invalid("must not be 0 for the In operator");
            }
        }
    }
}

fn success_policy(spec: &At, indexed: bool) {
    let policy = spec.at("successPolicy");
    if !policy.is_set() {
        return;
    }
    if !indexed {
        policy.invalid("requires indexed completion mode");
        return;
    }
    let rules = policy.at("rules");
    if rules.is_empty() {
        rules.required("at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > 20 {
        rules.too_many(20);
    }
    for rule in rules.items() {
        let (count, indexes) = (rule.at("succeededCount"), rule.at("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            rule.required("at least one of succeededCount or succeededIndexes must be specified");
        }
        count.non_negative();
    }
}

fn unfinished(old: &At) -> bool {
    !old.at("status.conditions")
        .items()
        .any(|c| matches!(c.at("type").text(), "Complete" | "Failed") && c.at("status").text() == "True")
}

fn job_update(spec: &At, before: &At, old: &At) {
    for field in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
        "podReplacementPolicy",
    ] {
        let (now, was) = (spec.at(field), before.at(field));
        // What older servers did not fill in may be filled in.
        if was.is_set() || !matches!(field, "podReplacementPolicy" | "completionMode") {
            now.same_as(&was);
        }
    }
    let (completions, was) = (spec.at("completions"), before.at("completions"));
    if !same(completions.value(), was.value()) {
        // An indexed Job may be resized together with its parallelism.
        let elastic = spec.at("completionMode").text() == "Indexed"
            && completions.is_set()
            && same(completions.value(), spec.at("parallelism").value())
            && same(was.value(), before.at("parallelism").value());
        if !elastic {
            completions.invalid("field is immutable");
        }
    }
    let (template, was) = (spec.at("template"), before.at("template"));
    if same(template.value(), was.value()) {
        return;
    }
    // While it is suspended and has never started, a Job may be told where to run.
    let suspended = before.at("suspend").is_true() && !old.at("status.startTime").is_set() && unfinished(old);
    if !suspended {
        template.invalid("field is immutable");
    } else if !same_placing(template.value(), was.value()) {
        template.at("spec").invalid("field is immutable");
    }
}

/// What a queue may still set on a Job that waits: where its pods may run.
fn same_placing(new: &Value, old: &Value) -> bool {
    const PLACING: [&str; 5] = ["nodeSelector", "affinity", "tolerations", "schedulingGates", "containers"];
    let part = |v: &Value, key: &str| v.get(key).cloned().unwrap_or_default();
    let labels = |v: &Value| v.pointer("/spec").cloned().unwrap_or_default();
    let containers = |v: &Value| -> Vec<Value> {
        let list = v.pointer("/spec/containers").and_then(Value::as_array).cloned().unwrap_or_default();
        let bare = list.into_iter().map(|mut c| {
            if let Some(map) = c.as_object_mut() {
                map.remove("resources");
            }
            c
        });
        bare.collect()
    };
    let meta = |v: &Value| part(v, "metadata");
    same_but(&labels(new), &labels(old), &PLACING)
        && containers(new) == containers(old)
        && same_but(&meta(new), &meta(old), &["labels", "annotations"])
}

fn is_true(conditions: &At, kind: &str) -> bool {
    conditions.items().any(|c| c.at("type").text() == kind && c.at("status").text() == "True")
}

/// Which changes of a Job's status are allowed, whichever controller writes it.
fn status(new: &At, old: &At) {
    let (status, before) = (new.at("status"), old.at("status"));
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        status.at(field).non_negative();
    }
    let ready = status.at("ready");
    if ready.number().unwrap_or(0) > status.at("active").number().unwrap_or(0)
        && !same(ready.value(), before.at("ready").value())
    {
        ready.invalid("cannot set more ready pods than active");
    }
    let (conditions, were) = (status.at("conditions"), before.at("conditions"));
    for kind in ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"] {
        if is_true(&were, kind) && !is_true(&conditions, kind) {
            // Only the last two words about a job are terminal.
            let terminal = if matches!(kind, "Complete" | "Failed") { "terminal " } else { "" };
            conditions.wrong(&format!("cannot disable the {terminal}{kind}=True condition"));
        }
    }
    let (complete, failed) = (is_true(&conditions, "Complete"), is_true(&conditions, "Failed"));
    if complete && failed {
        conditions.wrong("cannot set Complete=True and Failed=true conditions");
    }
    if complete && is_true(&conditions, "FailureTarget") {
        conditions.wrong("cannot set Complete=True and FailureTarget=true conditions");
    }
    if complete && !is_true(&were, "Complete") {
        if !is_true(&conditions, "SuccessCriteriaMet") {
            conditions
                .wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
        }
        if !status.at("completionTime").is_set() {
            status.at("completionTime").required("completionTime is required for Complete jobs");
        }
    }
    if failed && !is_true(&were, "Failed") && !is_true(&conditions, "FailureTarget") {
        conditions.wrong("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if is_true(&conditions, "SuccessCriteriaMet") && (is_true(&conditions, "FailureTarget") || failed) {
        let other = if failed { "Failed" } else { "FailureTarget" };
        conditions.wrong(&format!("cannot set SuccessCriteriaMet=True and {other}=true conditions"));
    }
    let (start, end) = (status.at("startTime"), status.at("completionTime"));
    if complete || failed {
        let active = status.at("active");
        if active.number().unwrap_or(0) > 0 {
            active.invalid("active>0 is invalid for finished job");
        }
        let terminating = status.at("terminating");
        if terminating.number().unwrap_or(0) > 0 {
            terminating.invalid("terminating>0 is invalid for finished job");
        }
    }
    if end.is_set() && !complete {
        end.invalid("cannot set completionTime when there is no Complete=True condition");
    }
    if before.at("completionTime").is_set() {
        end.same_as(&before.at("completionTime"));
    }
    if start.is_set() && end.is_set() && end.text() < start.text() {
        end.invalid("must be equal to or after `startTime`");
    }
    let running = before.at("startTime");
    let suspended = new.at("spec.suspend").is_true();
    if running.is_set() && !suspended && start.is_set() && !same(start.value(), running.value()) {
        start.required("startTime cannot be modified for unsuspended job");
    }
    if (complete || failed) && !start.is_set() {
        start.required("startTime is required for finished job");
    }
}

/// Checks a CronJob.
pub fn cron_job(new: &At, old: Option<&At>) {
    let (spec, name) = (new.at("spec"), new.at("metadata.name"));
    if name.text().len() > LONGEST_CRON_NAME && old.is_none() {
        name.invalid(&format!("must be no more than {LONGEST_CRON_NAME} characters"));
    }
    let (schedule, zone) = (spec.at("schedule"), spec.at("timeZone"));
    if schedule.text().is_empty() {
        schedule.required("");
    } else if old.is_none_or(|old| old.at("spec.schedule").text() != schedule.text()) {
        if let Err(why) = cron::check(schedule.text()) {
            schedule.invalid(&why);
        }
        if schedule.text().contains("TZ") {
            schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead");
        }
    }
    if zone.is_set() {
        time_zone(&zone);
    }
    spec.at("startingDeadlineSeconds").non_negative();
    spec.at("concurrencyPolicy").need_one_of(&["Allow", "Forbid", "Replace"]);
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        spec.at(field).non_negative();
    }
    let job = spec.at("jobTemplate.spec");
    job_spec(&job);
    let (selector, manual) = (job.at("selector"), job.at("manualSelector"));
    if selector.is_set() {
        selector.invalid("`selector` will be auto-generated");
    }
    if manual.is_true() {
        manual.unsupported(&["nil", "false"]);
    }
}

fn time_zone(zone: &At) {
    let name = zone.text();
    if name.is_empty() {
        zone.invalid("timeZone must be nil or non-empty string");
    } else if name.eq_ignore_ascii_case("local") {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones");
    } else if jiff::tz::TimeZone::get(name).is_err() {
        zone.invalid(&format!("unknown time zone {name}"));
    }
}
