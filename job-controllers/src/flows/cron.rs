//! The plan of one CronJob (`batch.volcano.sh`): a pure function of it, its jobs and the time.
//!
//! One job for the newest due time; missed times are not made up for. Deliberately absent: clients, clocks.

use std::time::Duration;

use cronexpr::Crontab;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use fleet_agent_ground::Object;

/// Jobs kept by default.
const SUCCESSFUL_KEPT: i64 = 3;
const FAILED_KEPT: i64 = 1;
/// Annotation on a job: its scheduled time.
const SCHEDULED_AT: &str = "volcano.sh/cronjob-scheduled-timestamp";
/// Default deadline for a late start, so that nothing old is started after a long stop.
const DEFAULT_DEADLINE_S: i64 = 86_400;

/// The actions for one CronJob.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CronPlan {
    /// The job of the due time.
    pub create: Option<Value>,
    /// Names of jobs to delete: replaced ones, or more than are kept.
    pub delete: Vec<String>,
    /// The whole new status, if it changed.
    pub status: Option<Value>,
    /// When the next time is due.
    pub look_again: Option<Duration>,
    /// The mistake in the schedule, as a sentence.
    pub problem: Option<String>,
}

/// Parses a schedule; the error is a sentence.
pub(crate) fn times(spec: &Value) -> Result<Crontab, String> {
    let schedule = spec["schedule"].as_str().unwrap_or_default();
    let zone = spec["timeZone"].as_str().filter(|zone| !zone.is_empty()).unwrap_or("UTC");
    let macros = match schedule {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other => other,
    };
    if jiff::tz::TimeZone::get(zone).is_err() {
        return Err(format!("field spec.timeZone: found {zone:?}; allowed: names such as Asia/Shanghai"));
    }
    cronexpr::parse_crontab(&format!("{macros} {zone}")).map_err(|_| {
        format!(
            "field spec.schedule: found {schedule:?}; allowed: five fields such as \"*/5 * * * *\", or @daily"
        )
    })
}

/// `jobs`: all jobs of the CronJob.
pub(crate) fn plan(cron: &Object, jobs: &[&Object], now: Timestamp) -> CronPlan {
    let mut plan = CronPlan::default();
    if cron.is_deleting() {
        let live = jobs.iter().filter(|job| !job.is_deleting());
        plan.delete = live.map(|job| job.name().to_owned()).collect();
        return plan;
    }
    let mut status = if cron.status.is_object() { cron.status.clone() } else { json!({}) };
    let active: Vec<&&Object> = jobs.iter().filter(|job| !is_over(job) && !job.is_deleting()).collect();
    prune(cron, jobs, &mut plan);
    if let Some(time) = jobs.iter().filter(|job| phase(job) == "Completed").filter_map(ended).max() {
        status["lastSuccessfulTime"] = time.into();
    }
    let mut started = active.iter().map(reference).collect::<Vec<_>>();
    match times(&cron.spec) {
        Err(problem) => plan.problem = Some(problem),
        Ok(_) if cron.spec["suspend"] == true => {}
        Ok(times) => {
            if let Some(due) = due(cron, &times, now) {
                let policy = cron.spec["concurrencyPolicy"].as_str().unwrap_or("Allow");
                let free = active.is_empty() || policy != "Forbid";
                if policy == "Replace" {
                    plan.delete.extend(active.iter().map(|job| job.name().to_owned()));
                    started.clear();
                }
                // A skipped time stays due until its deadline: the job that blocks it may end before.
                if free {
                    let job = job(cron, due);
                    let known =
                        jobs.iter().any(|known| Some(known.name()) == job["metadata"]["name"].as_str());
                    if !known {
                        plan.create = Some(job);
                    }
                    status["lastScheduleTime"] = stamp(due).into();
                }
            }
            plan.look_again = times.find_next(&*now.to_string()).ok().map(|next| {
                Duration::from_secs(
                    u64::try_from(next.timestamp().as_second() - now.as_second()).unwrap_or(0),
                )
                .max(Duration::from_secs(1))
            });
        }
    }
    match (started.is_empty(), status.as_object_mut()) {
        (true, Some(fields)) => drop(fields.remove("active")),
        _ => status["active"] = started.into(),
    }
    plan.status =
        (status != cron.status && !(cron.status.is_null() && status == json!({}))).then_some(status);
    plan
}

/// The newest due time that was not handled yet. It is searched by halves: years of missed minutes cost thirty looks.
fn due(cron: &Object, times: &Crontab, now: Timestamp) -> Option<Timestamp> {
    let created = cron.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let seen: Option<Timestamp> = cron.status["lastScheduleTime"].as_str().and_then(|text| text.parse().ok());
    let deadline = cron.spec["startingDeadlineSeconds"].as_i64().unwrap_or(DEFAULT_DEADLINE_S).max(0);
    let earliest = Timestamp::from_second(now.as_second().saturating_sub(deadline)).ok()?;
    let first_after = |time: Timestamp| -> Option<Timestamp> {
        let next = times.find_next(&*time.to_string()).ok()?.timestamp();
        (next <= now).then_some(next)
    };
    let mut newest = first_after(seen.or(created)?.max(earliest))?;
    let mut end = now.as_second();
    while newest.as_second() < end {
        let middle = newest.as_second() + (end - newest.as_second()) / 2;
        match first_after(Timestamp::from_second(middle).ok()?) {
            Some(later) => newest = later,
            None => end = middle,
        }
    }
    Some(newest)
}

fn job(cron: &Object, due: Timestamp) -> Value {
    let template = &cron.spec["jobTemplate"];
    let mut annotations: Map<String, Value> =
        template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(SCHEDULED_AT.to_owned(), stamp(due).into());
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            // One name per time, so a retry creates no second job.
            "name": format!("{}-{}", cron.name(), due.as_second() / 60),
            "namespace": cron.namespace(),
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [{
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "name": cron.name(), "uid": cron.uid(),
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": template["spec"],
    })
}

/// Ended jobs beyond those that are kept, the oldest first.
fn prune(cron: &Object, jobs: &[&Object], plan: &mut CronPlan) {
    let kept = |field: &str, absent: i64| cron.spec[field].as_i64().unwrap_or(absent).max(0) as usize;
    for (good, keep) in [
        (true, kept("successfulJobsHistoryLimit", SUCCESSFUL_KEPT)),
        (false, kept("failedJobsHistoryLimit", FAILED_KEPT)),
    ] {
        let mut over: Vec<&&Object> =
            jobs.iter().filter(|job| is_over(job) && (phase(job) == "Completed") == good).collect();
        over.sort_by_key(|job| (job.metadata.creation_timestamp.as_ref().map(|time| time.0), job.name()));
        let surplus = over.len().saturating_sub(keep);
        let surplus = over.into_iter().take(surplus).filter(|job| !job.is_deleting());
        plan.delete.extend(surplus.map(|job| job.name().to_owned()));
    }
}

fn phase<'j>(job: &'j &Object) -> &'j str {
    job.status["state"]["phase"].as_str().unwrap_or_default()
}

fn is_over(job: &&Object) -> bool {
    matches!(phase(job), "Completed" | "Failed" | "Terminated" | "Aborted")
}

fn ended(job: &&Object) -> Option<String> {
    job.status["state"]["lastTransitionTime"].as_str().map(str::to_owned)
}

fn reference(job: &&&Object) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job.name(), "namespace": job.namespace(),
        "uid": job.uid(),
    })
}

fn stamp(time: Timestamp) -> String {
    format!("{time:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        serde_json::from_value(value).expect("an object")
    }

    fn cron(spec: Value, last: Option<&str>) -> Object {
        let mut spec = spec;
        spec["jobTemplate"] = json!({"spec": {"minAvailable": 1}, "metadata": {"labels": {"a": "b"}}});
        object(
            json!({"metadata": {"name": "c", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:30Z"},
            "spec": spec, "status": last.map_or(json!({}), |last| json!({"lastScheduleTime": last}))}),
        )
    }

    fn job(name: &str, phase: &str, created: &str) -> Object {
        object(
            json!({"metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created},
            "status": {"state": {"phase": phase, "lastTransitionTime": created}}}),
        )
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn made(plan: &CronPlan) -> &str {
        plan.create.as_ref().map_or("", |job| job["metadata"]["name"].as_str().unwrap_or_default())
    }

    #[test]
    fn the_newest_time_that_is_due_makes_one_job() {
        let every = cron(json!({"schedule": "*/5 * * * *"}), None);
        let early = plan(&every, &[], at("2026-01-01T00:04:59Z"));
        assert_eq!((made(&early), early.look_again), ("", Some(Duration::from_secs(1))));
        let first = plan(&every, &[], at("2026-01-01T00:05:01Z"));
        assert_eq!(made(&first), "c-29453765");
        let made_job = first.create.as_ref().expect("a job");
        assert_eq!(made_job["metadata"]["annotations"][SCHEDULED_AT], "2026-01-01T00:05:00Z");
        assert_eq!(made_job["metadata"]["labels"]["a"], "b");
        assert_eq!(first.status.as_ref().expect("a status")["lastScheduleTime"], "2026-01-01T00:05:00Z");
        assert_eq!(first.look_again, Some(Duration::from_secs(299)));
        // Three times were missed: the newest counts.
        let late = plan(&every, &[], at("2026-01-01T00:17:00Z"));
        assert_eq!(late.status.expect("a status")["lastScheduleTime"], "2026-01-01T00:15:00Z");
        // Seen is seen.
        let seen = cron(json!({"schedule": "*/5 * * * *"}), Some("2026-01-01T00:15:00Z"));
        assert_eq!(made(&plan(&seen, &[], at("2026-01-01T00:17:00Z"))), "");
        let hurried = cron(json!({"schedule": "*/5 * * * *", "startingDeadlineSeconds": 60}), None);
        assert_eq!(made(&plan(&hurried, &[], at("2026-01-01T00:17:00Z"))), "", "its deadline is over");
        let held = cron(json!({"schedule": "*/5 * * * *", "suspend": true}), None);
        assert_eq!(made(&plan(&held, &[], at("2026-01-01T00:17:00Z"))), "");
    }

    #[test]
    fn years_of_missed_minutes_are_not_counted_one_by_one() {
        let far = json!({"startingDeadlineSeconds": i64::MAX / 1_000_000_000});
        let began = std::time::Instant::now();
        for (schedule, newest) in [
            ("* * * * *", "2026-06-30T12:00:00Z"),
            ("*/7 3 1-8 1 *", "2026-01-08T03:56:00Z"),
            ("0 0 29 2 *", "2024-02-29T00:00:00Z"),
            ("0 0 1 1 *", "2026-01-01T00:00:00Z"),
        ] {
            let mut spec = far.clone();
            spec["schedule"] = schedule.into();
            let plan = plan(&cron(spec, Some("1970-01-01T00:00:00Z")), &[], at("2026-06-30T12:00:30Z"));
            assert_eq!(plan.status.expect("a status")["lastScheduleTime"], newest, "{schedule}");
        }
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    }

    #[test]
    fn a_job_that_still_runs_is_kept_forbids_or_is_replaced() {
        let now = at("2026-01-01T00:05:01Z");
        let running = job("c-1", "Running", "2026-01-01T00:00:00Z");
        let with = |policy: &str| {
            let cron = cron(json!({"schedule": "*/5 * * * *", "concurrencyPolicy": policy}), None);
            plan(&cron, &[&running], now)
        };
        let allowed = with("Allow");
        assert_eq!((made(&allowed).is_empty(), allowed.delete.len()), (false, 0));
        let forbidden = with("Forbid");
        assert_eq!((made(&forbidden), forbidden.delete.len()), ("", 0));
        assert!(
            forbidden.status.expect("a status")["lastScheduleTime"].is_null(),
            "it is due until it can start"
        );
        let replaced = with("Replace");
        assert_eq!((made(&replaced).is_empty(), replaced.delete), (false, vec!["c-1".to_owned()]));
    }

    #[test]
    fn ended_jobs_are_kept_as_many_as_the_spec_says() {
        let ended: Vec<Object> = (0..5)
            .map(|i| {
                job(
                    &format!("c-{i}"),
                    if i == 4 { "Failed" } else { "Completed" },
                    &format!("2026-01-01T00:0{i}:00Z"),
                )
            })
            .collect();
        let jobs: Vec<&Object> = ended.iter().collect();
        let now = at("2026-01-01T00:06:00Z");
        let kept = |spec: Value| plan(&cron(spec, Some("2026-01-01T00:05:00Z")), &jobs, now).delete;
        assert_eq!(kept(json!({"schedule": "*/5 * * * *"})), ["c-0"]);
        let none =
            json!({"schedule": "*/5 * * * *", "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
        assert_eq!(kept(none), ["c-0", "c-1", "c-2", "c-4"]);
    }

    #[test]
    fn a_schedule_has_its_time_zone_and_mistakes_are_named() {
        let shanghai = json!({"schedule": "0 9 * * *", "timeZone": "Asia/Shanghai"});
        let next = times(&shanghai).and_then(|times| {
            times
                .find_next("2026-01-01T00:00:00Z")
                .map(|time| time.timestamp())
                .map_err(|error| error.to_string())
        });
        assert_eq!(next, Ok(at("2026-01-01T01:00:00Z")));
        assert!(times(&json!({"schedule": "@hourly"})).is_ok());
        assert!(times(&json!({"schedule": "every day"})).is_err_and(|why| why.contains("spec.schedule")));
        let nowhere = json!({"schedule": "@daily", "timeZone": "Mars/Olympus"});
        assert!(times(&nowhere).is_err_and(|why| why.contains("spec.timeZone")));
    }
}
