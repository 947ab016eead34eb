//! Jobs of roles and replicas as in the Kubeflow training operator: the common part of PyTorchJob, TFJob and
//! MPIJob. The differences (environment, when the job runs, when it has succeeded) are in the module of each
//! framework.
//!
//! Deliberately absent: the init container by which the operator makes workers wait for the master's
//! name (it needs an image from outside), the horizontal autoscaler of elastic jobs, events.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kube::discovery::ApiResource;
use serde_json::{Map, Value, json};

use fleet_agent_ground::{Object, Pod};

use super::{
    JobPlan, Pods, RESTARTS_ANNOTATION, count, limits, mpi, pod, pytorch,
    replicas::{Framework, Progress, REPLICA_INDEX_LABEL, Restart, Role, Tally, View},
    rfc3339, status, tensorflow, time_left,
};

/// How many pods of a job are replaced after failures by default, as for batch Jobs. The training operator
/// has no limit.
const DEFAULT_BACKOFF_LIMIT: i64 = 6;
/// Delay of the second replacement of a failed pod; doubles with each further one. The first has no delay.
const FIRST_RESTART_DELAY: Duration = Duration::from_secs(1);
const LAST_RESTART_DELAY: Duration = Duration::from_secs(60);

/// The plan of one Kubeflow job.
pub(crate) fn plan(
    framework: Framework,
    resource: &ApiResource,
    job: &Object,
    pods: &Pods,
    now: Timestamp,
) -> JobPlan {
    let mut plan = JobPlan::default();
    let policy = &job.spec["runPolicy"];
    if policy["managedBy"].as_str().is_some_and(|manager| manager != framework.manager()) {
        return plan;
    }
    let mut roles = roles(framework, job);
    let too_many = bound(framework, &mut roles);
    let tallies: Vec<Tally> = roles.iter().map(|role| tally(job, role, pods)).collect();
    let view = View { job, roles: &roles, tallies: &tallies, pods };
    plan.support = support(framework, resource, &view);
    if job.is_deleting() {
        plan.delete_all(pods);
        plan.delete_support = true;
        return plan;
    }
    if is_ended(&job.status) {
        clean_up(framework, &mut plan, job, pods, now);
        return plan;
    }
    let mut status = job.status.clone();
    let says = Says { framework, job, now };
    says.set(&mut status, "Created", true, "Created", "created");
    if policy["suspend"] == true {
        plan.delete_all(pods);
        suspend(&says, &mut status, &roles);
        plan.set_status(job, status);
        return plan;
    }
    if status::is_true(&status, "Suspended") {
        says.set(&mut status, "Suspended", false, "Resumed", "resumed");
        status["startTime"] = rfc3339(now).into();
    }
    if !status["startTime"].is_string() {
        status["startTime"] = rfc3339(now).into();
    }
    write_tallies(&mut status, framework, &view);
    let progress = match framework {
        Framework::PyTorch => pytorch::progress(&view),
        Framework::TensorFlow => tensorflow::progress(&view),
        Framework::Mpi => mpi::progress(&view),
    };
    let late = policy["activeDeadlineSeconds"]
        .as_i64()
        .and_then(|seconds| time_left(&status["startTime"], seconds, now));
    if progress == Progress::Succeeded {
        succeed(&says, &mut status);
    } else if late == Some(Duration::ZERO) {
        let message = format!(
            "{} {} has failed because it was active longer than specified deadline",
            framework.kind(),
            job.name()
        );
        says.fail(&mut status, &message);
    } else {
        if let Some(left) = late {
            plan.look_again_in(left);
        }
        let filled = fill(framework, resource, &mut plan, &view, &says, &mut status);
        if filled != Filled::Failed {
            plan.refuse(too_many);
        }
        // A job whose pods are being replaced has state Restarting until they are.
        if progress == Progress::Running && filled == Filled::Whole {
            says.set(&mut status, "Running", true, "Running", "running");
        }
    }
    plan.set_status(job, status);
    plan
}

/// Result for the failed pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filled {
    Whole,
    Restarting,
    Failed,
}

/// Creates missing pods, replaces failed ones, deletes excess ones.
fn fill(
    framework: Framework,
    resource: &ApiResource,
    plan: &mut JobPlan,
    view: &View<'_>,
    says: &Says<'_>,
    status: &mut Value,
) -> Filled {
    let (job, total) = (view.job, view.total());
    let mut wanted = BTreeSet::new();
    let mut failures = Failures::of(job);
    let mut replaced = Vec::new();
    for role in view.roles {
        for index in 0..role.replicas {
            let name = role.pod_name(job, index);
            match view.pods.get(&name) {
                None if plan.create.is_full() => {}
                None => plan.create.push(make_pod(framework, resource, view, role, index, total)),
                Some(pod) if pod.is_failed() && !pod.is_deleting() => {
                    if !is_retryable(role.restart, pod) {
                        let failed = view.role(role.name).map_or(1, |(_, tally)| tally.failed);
                        let message = format!(
                            "{} {} is failed because {failed} {} replica(s) failed.",
                            framework.kind(),
                            job.name(),
                            role.name
                        );
                        plan.create.clear();
                        says.fail(status, &message);
                        return Filled::Failed;
                    }
                    failures.add(pod);
                    replaced.push((role, pod.clone()));
                }
                Some(_) => {}
            }
            wanted.insert(name);
        }
    }
    let running = view.pods.values().filter(|p| p.is_running());
    let in_place = fleet_resources::sum(running.map(|p| p.container_restarts()));
    let limit = job.spec["runPolicy"]["backoffLimit"].as_i64();
    let counted = failures.count.saturating_add(limit.map_or(0, |_| in_place));
    if counted > limit.unwrap_or(DEFAULT_BACKOFF_LIMIT) {
        let message = format!(
            "{} {} has failed because it has reached the specified backoff limit",
            framework.kind(),
            job.name()
        );
        plan.create.clear();
        says.fail(status, &message);
        return Filled::Failed;
    }
    let filled = if replaced.is_empty() { Filled::Whole } else { Filled::Restarting };
    for (role, pod) in replaced {
        let message = format!(
            "{} {} is restarting because {} {} replica(s) failed.",
            framework.kind(),
            job.name(),
            view.role(role.name).map_or(1, |(_, tally)| tally.failed),
            role.name
        );
        says.set_with(status, "Restarting", true, "Restarting", &message);
        let left = failures.wait(&pod, says.now);
        if left.is_zero() {
            plan.delete.push(pod.name().to_owned());
        } else {
            plan.look_again_in(left);
        }
    }
    plan.annotations = failures.changed(job);
    let surplus = view.pods.values().filter(|p| !p.is_deleting() && !wanted.contains(p.name()));
    plan.delete.extend(surplus.map(|p| p.name().to_owned()));
    filled
}

fn make_pod(
    framework: Framework,
    resource: &ApiResource,
    view: &View<'_>,
    role: &Role<'_>,
    index: i64,
    total: i64,
) -> Value {
    let job = view.job;
    let mut made = pod::from_template(job, resource, &role.pod_name(job, index), role.template);
    if let Some(labels) = role.labels(job, framework).as_object() {
        for (name, value) in labels {
            pod::set_label(&mut made, name, value.as_str().unwrap_or_default());
        }
    }
    pod::set_label(&mut made, REPLICA_INDEX_LABEL, &index.to_string());
    pod::mark_gang(&mut made, job, role.component(framework), total);
    made["spec"]["restartPolicy"] = match role.restart {
        Restart::Always => "Always",
        Restart::OnFailure => "OnFailure",
        // The pod shows its exit code once, and the controller decides.
        Restart::Never | Restart::ExitCode => "Never",
    }
    .into();
    match framework {
        Framework::PyTorch => pytorch::furnish(&mut made, view, role, index),
        Framework::TensorFlow => tensorflow::furnish(&mut made, view, role, index),
        Framework::Mpi => mpi::furnish(&mut made, view, role, index),
    }
    made
}

fn support(framework: Framework, resource: &ApiResource, view: &View<'_>) -> Vec<Value> {
    match framework {
        Framework::PyTorch => pytorch::support(resource, view),
        Framework::TensorFlow => tensorflow::support(resource, view),
        Framework::Mpi => mpi::support(resource, view),
    }
}

fn roles(framework: Framework, job: &Object) -> Vec<Role<'_>> {
    let specs = &job.spec[framework.replica_specs_field()];
    let present = framework.roles().iter().filter(|(name, _)| specs[*name]["template"].is_object());
    present
        .map(|(name, default)| {
            let spec = &specs[*name];
            let absent = i64::from(!(framework == Framework::Mpi && *name == "Worker"));
            Role {
                name,
                lower: name.to_lowercase(),
                replicas: count(&spec["replicas"], absent),
                restart: match spec["restartPolicy"].as_str() {
                    Some("Always") => Restart::Always,
                    Some("OnFailure") => Restart::OnFailure,
                    Some("Never") => Restart::Never,
                    Some("ExitCode") => Restart::ExitCode,
                    _ => *default,
                },
                template: &spec["template"],
            }
        })
        .collect()
}

/// Why a job of this size is not run. Its roles are cut to the limit, so that no loop over them is longer.
fn bound(framework: Framework, roles: &mut [Role<'_>]) -> Option<String> {
    let asked = fleet_resources::sum(roles.iter().map(|role| role.replicas));
    let field = format!("spec.{}", framework.replica_specs_field());
    let too_many = limits::too_many(&field, asked, framework.lists_hosts());
    if too_many.is_some() {
        roles
            .iter_mut()
            .for_each(|role| role.replicas = role.replicas.min(limits::most(framework.lists_hosts())));
    }
    too_many
}

fn tally(job: &Object, role: &Role<'_>, pods: &Pods) -> Tally {
    let mut tally = Tally::default();
    for pod in (0..role.replicas).filter_map(|index| pods.get(&role.pod_name(job, index))) {
        match pod.status.phase.as_str() {
            // A pod that is deleted while it runs may never show its end.
            "Running" if pod.is_deleting() => tally.failed += 1,
            "Running" => tally.active += 1,
            "Succeeded" => tally.succeeded += 1,
            "Failed" => tally.failed += 1,
            _ => {}
        }
    }
    tally
}

fn write_tallies(status: &mut Value, framework: Framework, view: &View<'_>) {
    let mut replica_statuses = Map::new();
    for (role, tally) in view.roles.iter().zip(view.tallies) {
        let mut one = Map::new();
        for (field, number) in
            [("active", tally.active), ("succeeded", tally.succeeded), ("failed", tally.failed)]
        {
            if number > 0 {
                one.insert(field.to_owned(), number.into());
            }
        }
        let selector: Vec<String> = role
            .labels(view.job, framework)
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
            .collect();
        one.insert("selector".to_owned(), selector.join(",").into());
        replica_statuses.insert(role.name.to_owned(), Value::Object(one));
    }
    status["replicaStatuses"] = Value::Object(replica_statuses);
}

fn is_retryable(restart: Restart, pod: &Pod) -> bool {
    match restart {
        Restart::Always | Restart::OnFailure => true,
        Restart::Never => false,
        // A pod that failed without an exit code was evicted or lost with its node.
        Restart::ExitCode => pod.exit_code().is_none_or(|code| code >= 128),
    }
}

pub(super) fn is_ended(status: &Value) -> bool {
    status::is_true(status, "Succeeded") || status::is_true(status, "Failed")
}

fn succeed(says: &Says<'_>, status: &mut Value) {
    says.set(status, "Succeeded", true, "Succeeded", "successfully completed");
    status["completionTime"] = rfc3339(says.now).into();
    // Pods that still run are deleted or left to end; the operator counts them with the job.
    for (_, one) in status["replicaStatuses"].as_object_mut().into_iter().flatten() {
        let active = one["active"].as_i64().unwrap_or(0);
        if active > 0 {
            one["succeeded"] = one["succeeded"].as_i64().unwrap_or(0).saturating_add(active).into();
        }
        if let Some(fields) = one.as_object_mut() {
            fields.remove("active");
        }
    }
}

fn suspend(says: &Says<'_>, status: &mut Value, roles: &[Role<'_>]) {
    if status::find(status, "Running").is_some() {
        says.set_with(
            status,
            "Running",
            false,
            "Suspended",
            &format!("{} {} is suspended.", says.framework.kind(), says.job.name()),
        );
    }
    says.set(status, "Suspended", true, "Suspended", "suspended");
    if let Some(fields) = status.as_object_mut() {
        fields.remove("startTime");
    }
    status["replicaStatuses"] = roles.iter().map(|role| (role.name.to_owned(), json!({}))).collect();
}

/// After the end: deletes pods by the clean-up policy, then the job by its time to live.
fn clean_up(framework: Framework, plan: &mut JobPlan, job: &Object, pods: &Pods, now: Timestamp) {
    let policy = &job.spec["runPolicy"];
    let clean = policy["cleanPodPolicy"].as_str().unwrap_or(framework.default_clean_pods());
    // The rest of a failed gang would only hold its places, so it is deleted under every policy; the operator
    // leaves it running under `None`.
    let failed = status::is_true(&job.status, "Failed");
    let doomed = pods.values().filter(|pod| !pod.is_deleting()).filter(|pod| match clean {
        "All" => true,
        "Running" => !pod.is_ended(),
        _ => failed && !pod.is_ended(),
    });
    plan.delete = doomed.map(|pod| pod.name().to_owned()).collect();
    plan.delete_support = clean == "All" && !pods.is_empty();
    if let Some(seconds) = policy["ttlSecondsAfterFinished"].as_i64()
        && let Some(left) = time_left(&job.status["completionTime"], seconds, now)
    {
        if left.is_zero() {
            plan.delete_job = true;
        } else {
            plan.look_again_in(left);
        }
    }
}

/// Writes conditions with the operator's texts.
struct Says<'a> {
    framework: Framework,
    job: &'a Object,
    now: Timestamp,
}

impl Says<'_> {
    /// `reason` is completed by the kind, the message is `<kind> <name> is <what>.`
    fn set(&self, status: &mut Value, kind: &str, value: bool, reason: &str, what: &str) {
        let name = match self.framework {
            Framework::PyTorch => self.job.name().to_owned(),
            _ if kind == "Suspended" || (self.framework == Framework::TensorFlow && kind == "Created") => {
                self.job.name().to_owned()
            }
            // The other operators include the namespace.
            _ => format!("{}/{}", self.job.namespace(), self.job.name()),
        };
        let is = match self.framework {
            Framework::PyTorch => "is ",
            _ if kind == "Succeeded" => "",
            _ => "is ",
        };
        self.set_with(status, kind, value, reason, &format!("{} {name} {is}{what}.", self.framework.kind()));
    }

    fn set_with(&self, status: &mut Value, kind: &str, value: bool, reason: &str, message: &str) {
        let reason = format!("{}{reason}", self.framework.kind());
        status::set(status, kind, value, &reason, message, self.now);
    }

    fn fail(&self, status: &mut Value, message: &str) {
        self.set_with(status, "Failed", true, "Failed", message);
        status["completionTime"] = rfc3339(self.now).into();
    }
}

/// How often pods were replaced; stored in an annotation of the job, so that it survives the pods and a
/// restart of the controller.
struct Failures {
    count: i64,
    counted: BTreeSet<String>,
    standing: BTreeSet<String>,
}

impl Failures {
    fn of(job: &Object) -> Self {
        let text = job.annotation(RESTARTS_ANNOTATION).unwrap_or_default();
        let (count, uids) = text.split_once(' ').unwrap_or((text, ""));
        Self {
            count: count.parse().unwrap_or(0),
            counted: uids.split(',').filter(|uid| !uid.is_empty()).map(str::to_owned).collect(),
            standing: BTreeSet::new(),
        }
    }

    fn add(&mut self, pod: &Pod) {
        if !self.counted.contains(pod.uid()) {
            self.count = self.count.saturating_add(1);
        }
        self.standing.insert(pod.uid().to_owned());
    }

    /// The annotation to write, when something new was counted.
    fn changed(&self, job: &Object) -> std::collections::BTreeMap<String, String> {
        if self.standing.is_subset(&self.counted) {
            return Default::default();
        }
        let uids: Vec<&str> = self.standing.iter().map(String::as_str).collect();
        let text = format!("{} {}", self.count, uids.join(","));
        if job.annotation(RESTARTS_ANNOTATION) == Some(&text) {
            return Default::default();
        }
        [(RESTARTS_ANNOTATION.to_owned(), text)].into()
    }

    /// How long the replacement of this pod is still delayed.
    fn wait(&self, pod: &Pod, now: Timestamp) -> Duration {
        if self.count <= 1 {
            return Duration::ZERO;
        }
        let doublings = u32::try_from(self.count - 2).unwrap_or(0).min(16);
        let delay = FIRST_RESTART_DELAY.saturating_mul(1 << doublings).min(LAST_RESTART_DELAY);
        let ended = pod.finished_at().unwrap_or(now);
        let waited = now.as_millisecond().saturating_sub(ended.as_millisecond());
        match pod.finished_at() {
            Some(_) => delay.saturating_sub(Duration::from_millis(u64::try_from(waited).unwrap_or(0))),
            // Without an end time the delay counts from now.
            None => Duration::ZERO,
        }
    }
}
