//! batch/v1 Job: runs `parallelism` pods at a time until `completions` have succeeded, indexed or not.
//!
//! Deliberately absent: `podFailurePolicy`, `successPolicy`, `backoffLimitPerIndex`, and the tracking
//! finalizer of the upstream controller; pods that have ended stay until the job is deleted, and are counted
//! directly.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use fleet_api::names::{COMPONENT_LABEL, RESERVATION_ANNOTATION};

use fleet_agent_ground::Object;

use super::{JobPlan, Pods, count, limits, pod, rfc3339, status, time_left};

const DEFAULT_BACKOFF_LIMIT: i64 = 6;
/// Name of the only component of a batch Job in bindings and reservations.
const COMPONENT: &str = "job";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
const MANAGER: &str = "kubernetes.io/job-controller";

/// The plan of one batch Job.
pub(crate) fn plan(resource: &ApiResource, job: &Object, pods: &Pods, now: Timestamp) -> JobPlan {
    let mut plan = JobPlan::default();
    if job.spec["managedBy"].as_str().is_some_and(|manager| manager != MANAGER) {
        return plan;
    }
    if job.is_deleting() {
        plan.delete_all(pods);
        return plan;
    }
    if status::is_true(&job.status, "Complete") || status::is_true(&job.status, "Failed") {
        clean_up(&mut plan, job, pods, now);
        return plan;
    }
    let view = View::of(job, pods);
    let mut status = job.status.clone();
    if !status.is_object() {
        status = json!({});
    }
    if job.spec["suspend"] == true {
        plan.delete_all(pods);
        set(&mut status, "Suspended", true, "JobSuspended", "Job suspended", now);
        if let Some(fields) = status.as_object_mut() {
            fields.remove("startTime");
        }
        view.write(&mut status);
        plan.set_status(job, status);
        return plan;
    }
    if status::is_true(&status, "Suspended") {
        set(&mut status, "Suspended", false, "JobResumed", "Job resumed", now);
    }
    if !status["startTime"].is_string() {
        status["startTime"] = rfc3339(now).into();
    }
    let limit = job.spec["backoffLimit"].as_i64().unwrap_or(DEFAULT_BACKOFF_LIMIT);
    let deadline = job.spec["activeDeadlineSeconds"].as_i64();
    let late = deadline.and_then(|seconds| time_left(&status["startTime"], seconds, now));
    if let Some(left) = late.filter(|left| !left.is_zero()) {
        plan.look_again_in(left);
    }
    if view.failed.saturating_add(view.container_restarts) > limit {
        let message = "Job has reached the specified backoff limit";
        fail(&mut plan, &mut status, pods, "BackoffLimitExceeded", message, now);
    } else if late == Some(Duration::ZERO) {
        let message = "Job was active longer than specified deadline";
        fail(&mut plan, &mut status, pods, "DeadlineExceeded", message, now);
    } else if view.is_complete() {
        plan.delete = active(pods).map(str::to_owned).collect();
        let (reason, message) = ("CompletionsReached", "Reached expected number of succeeded pods");
        set(&mut status, "SuccessCriteriaMet", true, reason, message, now);
        set(&mut status, "Complete", true, reason, message, now);
        status["completionTime"] = rfc3339(now).into();
    } else {
        view.fill(&mut plan, resource);
    }
    let ended = status::is_true(&status, "Complete") || status::is_true(&status, "Failed");
    View { active: if ended { 0 } else { view.active }, ready: if ended { 0 } else { view.ready }, ..view }
        .write(&mut status);
    plan.set_status(job, status);
    plan
}

/// The job with counts of its pods.
struct View<'a> {
    job: &'a Object,
    pods: &'a Pods,
    parallelism: i64,
    completions: Option<i64>,
    indexed: bool,
    active: i64,
    /// Being deleted and not ended yet.
    terminating: i64,
    ready: i64,
    succeeded: i64,
    failed: i64,
    container_restarts: i64,
    /// Indexes with a pod that succeeded; only for indexed jobs.
    done: BTreeSet<i64>,
}

impl<'a> View<'a> {
    fn of(job: &'a Object, pods: &'a Pods) -> Self {
        let completions = job.spec["completions"].as_i64();
        let indexed = job.spec["completionMode"] == "Indexed";
        let mut view = View {
            job,
            pods,
            parallelism: count(&job.spec["parallelism"], 1),
            completions,
            indexed,
            active: 0,
            terminating: 0,
            ready: 0,
            succeeded: 0,
            failed: 0,
            container_restarts: 0,
            done: BTreeSet::new(),
        };
        for pod in pods.values() {
            if pod.is_succeeded() {
                view.succeeded += 1;
                view.done.extend(index_of(job, pod.name()).filter(|_| indexed));
            } else if pod.is_failed() {
                view.failed += 1;
            } else if pod.is_deleting() {
                view.terminating += 1;
            } else {
                view.active += 1;
                view.ready += i64::from(pod.is_ready());
                view.container_restarts = view.container_restarts.saturating_add(pod.container_restarts());
            }
        }
        if indexed {
            view.done.retain(|index| completions.is_none_or(|completions| *index < completions));
            view.succeeded = i64::try_from(view.done.len()).unwrap_or(i64::MAX);
        }
        view
    }

    /// Without `completions`, one success is enough once the other pods have ended.
    fn is_complete(&self) -> bool {
        match self.completions {
            Some(completions) => self.succeeded >= completions,
            None => self.succeeded > 0 && self.active == 0,
        }
    }

    /// Creates pods up to the parallelism and deletes those above it. A pod is replaced after it has ended,
    /// as with `podReplacementPolicy: Failed`: until then it uses the quota and the place, which were counted
    /// once.
    fn fill(&self, plan: &mut JobPlan, resource: &ApiResource) {
        let wanted = match self.completions {
            Some(completions) => self.parallelism.min(completions.saturating_sub(self.succeeded)),
            None if self.succeeded > 0 => 0,
            None => self.parallelism,
        };
        if self.active > wanted {
            let surplus = usize::try_from(self.active.saturating_sub(wanted)).unwrap_or(usize::MAX);
            // Pods with the highest names are deleted; a job without `completions` lets its pods end.
            if self.completions.is_some() || self.succeeded == 0 {
                let mut names: Vec<&str> = active(self.pods).collect();
                names.sort_by_key(|name| std::cmp::Reverse(number_of(self.job, name)));
                plan.delete.extend(names.into_iter().take(surplus).map(str::to_owned));
            }
            return;
        }
        // Pods that have ended stay, so the job has as many in the end as it completes.
        let field = if self.completions.is_some() { "spec.completions" } else { "spec.parallelism" };
        let too_many = limits::too_many(field, self.completions.unwrap_or(self.parallelism), false);
        if too_many.is_some() {
            plan.refuse(too_many);
            return;
        }
        let mut missing = wanted.saturating_sub(self.active).saturating_sub(self.terminating).max(0);
        if self.indexed {
            let numbered =
                self.pods.values().filter_map(|pod| Some((index_of(self.job, pod.name())?, &**pod)));
            let known = limits::by_index(numbered);
            for index in 0..self.completions.unwrap_or(0) {
                if missing == 0 || plan.create.is_full() {
                    break;
                }
                if self.done.contains(&index) {
                    continue;
                }
                let base = format!("{}-{index}", self.job.name());
                let (attempts, runs) = known.get(&index).copied().unwrap_or_default();
                if runs {
                    continue;
                }
                let name = if attempts == 0 { base } else { format!("{base}-r{attempts}") };
                plan.create.push(self.make_pod(resource, &name, Some(index)));
                missing -= 1;
            }
            return;
        }
        let mut number = 0;
        while missing > 0 && !plan.create.is_full() {
            let name = format!("{}-{number}", self.job.name());
            if !self.pods.contains_key(&name) {
                plan.create.push(self.make_pod(resource, &name, None));
                missing -= 1;
            }
            number += 1;
        }
    }

    fn make_pod(&self, resource: &ApiResource, name: &str, index: Option<i64>) -> Value {
        let job = self.job;
        let mut made = pod::from_template(job, resource, name, &job.spec["template"]);
        for (label, value) in [
            ("batch.kubernetes.io/job-name", job.name()),
            ("batch.kubernetes.io/controller-uid", job.uid()),
            ("job-name", job.name()),
            ("controller-uid", job.uid()),
            (COMPONENT_LABEL, COMPONENT),
        ] {
            pod::set_label(&mut made, label, value);
        }
        if let Some(index) = index {
            let index = index.to_string();
            pod::set_label(&mut made, INDEX, &index);
            made["metadata"]["annotations"][INDEX] = index.as_str().into();
            made["spec"]["hostname"] = name.into();
            for container in pod::containers_mut(&mut made) {
                pod::set_env(container, "JOB_COMPLETION_INDEX", &index);
            }
        }
        // Only a job with reserved places starts as a whole; others start pod by pod.
        if job.annotation(RESERVATION_ANNOTATION).is_some() {
            let size = self.completions.map_or(self.parallelism, |c| c.min(self.parallelism));
            pod::mark_gang(&mut made, job, COMPONENT, size);
        }
        made
    }

    fn write(&self, status: &mut Value) {
        // Pods that were deleted while the job was suspended have ended once; only an elastic job may lose completions.
        let said = |field: &str| status[field].as_i64().unwrap_or(0);
        let is_elastic = self.indexed && self.completions == Some(self.parallelism);
        let succeeded = if is_elastic { self.succeeded } else { self.succeeded.max(said("succeeded")) };
        let counts =
            [("active", self.active), ("succeeded", succeeded), ("failed", self.failed.max(said("failed")))];
        let Some(fields) = status.as_object_mut() else { return };
        for (field, number) in counts {
            if number > 0 {
                fields.insert(field.to_owned(), number.into());
            } else {
                fields.remove(field);
            }
        }
        fields.insert("ready".to_owned(), self.ready.into());
        if self.indexed && !self.done.is_empty() {
            fields.insert("completedIndexes".to_owned(), ranges(&self.done).into());
        }
    }
}

fn fail(plan: &mut JobPlan, status: &mut Value, pods: &Pods, reason: &str, message: &str, now: Timestamp) {
    plan.delete = active(pods).map(str::to_owned).collect();
    set(status, "FailureTarget", true, reason, message, now);
    set(status, "Failed", true, reason, message, now);
}

/// Names of the pods that have not ended and are not being deleted.
fn active(pods: &Pods) -> impl Iterator<Item = &str> {
    pods.values().filter(|pod| !pod.is_ended() && !pod.is_deleting()).map(|pod| pod.name())
}

fn clean_up(plan: &mut JobPlan, job: &Object, pods: &Pods, now: Timestamp) {
    plan.delete = active(pods).map(str::to_owned).collect();
    let Some(seconds) = job.spec["ttlSecondsAfterFinished"].as_i64() else { return };
    let failed = status::find(&job.status, "Failed").map(|condition| &condition["lastTransitionTime"]);
    let end =
        if job.status["completionTime"].is_string() { Some(&job.status["completionTime"]) } else { failed };
    match end.and_then(|end| time_left(end, seconds, now)) {
        Some(Duration::ZERO) => plan.delete_job = true,
        Some(left) => plan.look_again_in(left),
        None => {}
    }
}

/// The number after the job's name, of a pod `<job>-<number>` or `<job>-<number>-r<attempt>`.
fn index_of(job: &Object, pod: &str) -> Option<i64> {
    let rest = pod.strip_prefix(job.name())?.strip_prefix('-')?;
    rest.split_once('-').map_or(rest, |(number, _)| number).parse().ok()
}

fn number_of(job: &Object, pod: &str) -> i64 {
    index_of(job, pod).unwrap_or(i64::MAX)
}

/// Indexes as `0-2,5`.
fn ranges(indexes: &BTreeSet<i64>) -> String {
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for &index in indexes {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(index) => *last = index,
            _ => parts.push((index, index)),
        }
    }
    let text = parts.iter().map(|(first, last)| match last.saturating_sub(*first) {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

/// A condition in the form of batch Jobs.
fn set(status: &mut Value, kind: &str, value: bool, reason: &str, message: &str, now: Timestamp) {
    let value = if value { "True" } else { "False" };
    if status::find(status, kind).is_some_and(|old| old["status"] == value) {
        return;
    }
    let now = rfc3339(now);
    let list = pod::list_mut(status, "conditions");
    list.retain(|condition| condition["type"] != kind);
    list.push(json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    }));
}
