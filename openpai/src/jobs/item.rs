//! One job as lists show it.

use std::collections::BTreeMap;

use fleet_pai::{
    completion::Rules,
    names, retry,
    state::{ExecutionType, State, SubState, shown},
};
use fleet_policies::reason::Reason;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::{annotation, label, text};

/// The last run of a job that can be started: later ones would have names that no object has.
pub(super) const RUNS_MAX: i64 = 1_000_000;
/// Most of whatever a status counts. Sums of such counts do not overflow.
const COUNT_MAX: i64 = 2_147_483_647;
/// Most tags of one job, and the longest of them in characters. Whoever may write a job writes more.
pub const TAGS_MAX: usize = 64;
pub const TAG_MAX: usize = 128;

/// A count of a status.
fn count(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0).clamp(0, COUNT_MAX)
}

/// One run of a job: its object, and its binding if the caller may read it.
#[derive(Clone, Debug)]
pub struct Run {
    pub object: Value,
    pub binding: Option<Value>,
    /// 1 for the first.
    pub number: i64,
    pub id: String,
}

impl Run {
    /// `None` for an object without the labels of a job.
    pub fn of(object: Value, binding: Option<Value>) -> Option<Self> {
        let id = annotation(&object, names::ID_ANNOTATION).to_owned();
        names::of_id(&id)?;
        let number = label(&object, names::RUN_LABEL).parse().ok();
        let number = number.filter(|number| (1..=RUNS_MAX).contains(number)).unwrap_or(1);
        Some(Self { object, binding, number, id })
    }

    pub fn name(&self) -> &str {
        text(&self.object["metadata"]["name"], "")
    }

    pub fn namespace(&self) -> &str {
        text(&self.object["metadata"]["namespace"], "")
    }

    pub fn uid(&self) -> &str {
        text(&self.object["metadata"]["uid"], "")
    }

    pub fn user(&self) -> &str {
        names::of_id(&self.id).map_or("", |(user, _)| user)
    }

    /// When it ends and is retried; `None` also if its owner wrote what no job file makes.
    pub fn rules(&self) -> Option<Rules> {
        Rules::read(annotation(&self.object, names::RULES_ANNOTATION))
    }

    pub fn execution(&self) -> ExecutionType {
        let stop = fleet_api::names::is_stopped(&self.object["metadata"]["annotations"]);
        if stop { ExecutionType::Stop } else { ExecutionType::Start }
    }

    /// The member it is bound to.
    pub fn cluster(&self) -> Option<&str> {
        self.binding.as_ref()?["spec"]["clusters"][0]["name"].as_str()
    }

    /// Why it waits, if a condition says so.
    pub fn waiting(&self) -> Option<(&str, &str)> {
        if let Some(why) = self.unclaimed() {
            return Some(why);
        }
        if self.retry_delay().is_some() {
            let state = &self.object["status"]["state"];
            return Some((text(&state["reason"], ""), text(&state["message"], "")));
        }
        let conditions = self.binding.as_ref()?["status"]["conditions"].as_array()?;
        let said = conditions.iter().find(|c| c["type"] == "Scheduled" && c["status"] == "False")?;
        Some((text(&said["reason"], ""), text(&said["message"], "")))
    }

    /// Why Fleet does not manage it: no policy selects it, or it cannot be read.
    fn unclaimed(&self) -> Option<(&str, &str)> {
        let state = &self.object["status"]["state"];
        let (reason, message) = (text(&state["reason"], ""), text(&state["message"], ""));
        let own = [Reason::NoPolicy, Reason::PolicyInvalid, Reason::InvalidWorkload];
        own.iter().any(|own| own.as_str() == reason).then_some((reason, message))
    }

    fn phase(&self) -> &str {
        text(&self.object["status"]["state"]["phase"], "")
    }

    /// The code it ended with, or is ending with.
    pub fn exit_code(&self) -> Option<i64> {
        let state = &self.object["status"]["state"];
        let stopped = self.execution() == ExecutionType::Stop;
        match self.phase() {
            "Completed" | "Completing" => Some(fleet_pai::exit::SUCCEEDED),
            "Failed" | "Aborted" | "Aborting" | "Terminated" | "Terminating" => {
                let reason = text(&state["reason"], "");
                Some(match reason {
                    _ if reason == Reason::Stopped.as_str() => fleet_pai::exit::STOP_REQUESTED,
                    "AbortJob" => fleet_pai::exit::STOP_REQUESTED,
                    "InvalidSpec" | "InvalidWorkload" => fleet_pai::exit::POD_SPEC_INVALID,
                    _ => exit_code_in(text(&state["message"], ""))
                        .unwrap_or(fleet_pai::exit::NO_FAILED_CONTAINER),
                })
            }
            "Restarting" => exit_code_in(text(&state["message"], "")),
            _ if stopped => Some(fleet_pai::exit::STOP_REQUESTED),
            _ => None,
        }
    }

    pub fn sub_state(&self) -> SubState {
        let stopped = self.execution() == ExecutionType::Stop;
        match self.phase() {
            "Completed" | "Failed" | "Aborted" | "Terminated" => SubState::Completed,
            "Aborting" | "Completing" | "Terminating" | "Restarting" => SubState::AttemptDeleting,
            // Nothing of it runs, and if a policy selects it later, it ends.
            _ if stopped && self.unclaimed().is_some() => SubState::Completed,
            _ if stopped => SubState::AttemptDeletionPending,
            "Running" if self.retry_delay().is_some() => SubState::AttemptCompleted,
            // A job that was evicted still shows the result of its last run.
            "Running" if self.binding.is_none() || self.cluster().is_some() => SubState::AttemptRunning,
            _ if self.cluster().is_none() => SubState::AttemptCreationPending,
            _ => {
                // Volcano does not call a gang Running while only some of its pods run; OpenPAI does.
                let status = &self.object["status"];
                let ran =
                    ["running", "succeeded", "failed"].iter().any(|f| status[*f].as_i64().unwrap_or(0) > 0);
                if ran { SubState::AttemptRunning } else { SubState::AttemptPreparing }
            }
        }
    }

    pub fn state(&self) -> State {
        shown(self.sub_state(), self.exit_code(), self.retry_delay().is_some())
    }

    /// For how many seconds its next attempt waits, counted from the end of the last one.
    fn retry_delay(&self) -> Option<i64> {
        let state = &self.object["status"]["state"];
        let is_delayed = state["reason"] == retry::DELAYED && self.cluster().is_some();
        is_delayed.then(|| retry::delay_in(text(&state["message"], "")))?
    }

    /// Attempts that Fleet ended and that were followed by another one.
    pub(super) fn ended_by_fleet(&self) -> &[Value] {
        let attempts = self.binding.as_ref().and_then(|binding| binding["status"]["attempts"].as_array());
        let attempts = attempts.map_or(&[][..], Vec::as_slice);
        &attempts[..attempts.len() - usize::from(self.ends_with(attempts))]
    }

    /// Whether the last attempt is the end of the job and not a retry: Fleet ended that run, and none followed. A job
    /// that is stopped while it waits for its next run ends without one, and so does one whose end its member reported.
    fn ends_with(&self, attempts: &[Value]) -> bool {
        let Some(last) = attempts.last().filter(|_| self.state().is_final()) else { return false };
        let result = self.binding.as_ref().map(|binding| &binding["status"]["result"]);
        let stopped = Reason::Stopped.as_str();
        match result.and_then(|result| result["reason"].as_str()) {
            Some(reason) if reason != stopped => {
                result.is_some_and(|result| result["epoch"] == last["epoch"])
            }
            Some(_) => last["reason"] == stopped,
            None => false,
        }
    }

    /// No run of it is anywhere: what its object reports of tasks is of a run that was evicted.
    pub(super) fn is_between_runs(&self) -> bool {
        let Some(binding) = &self.binding else { return false };
        let ended_by_fleet = binding["status"]["result"]["reason"].is_string();
        self.cluster().is_none() && (!self.state().is_final() || ended_by_fleet)
    }

    /// Names of the pods that have cells, as `train-0`, with node and devices.
    pub(super) fn cells(&self) -> BTreeMap<&str, (&str, Vec<i64>)> {
        let groups = self.binding.as_ref().and_then(|binding| binding["spec"]["cells"]["groups"].as_array());
        let pods =
            groups.into_iter().flatten().flat_map(|group| group["pods"].as_array().into_iter().flatten());
        let devices = |pod: &Value| -> Vec<i64> {
            pod["leafCells"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect()
        };
        pods.filter(|pod| !text(&pod["node"], "").is_empty())
            .map(|pod| (text(&pod["name"], ""), (text(&pod["node"], ""), devices(pod))))
            .collect()
    }

    /// Pods such as `train-0` whose group has lost its promised cells and runs on: who took them, and when.
    pub(super) fn lazily_preempted(&self) -> BTreeMap<&str, (&str, Option<i64>)> {
        let groups = self.binding.as_ref().and_then(|binding| binding["spec"]["cells"]["groups"].as_array());
        let lost = groups.into_iter().flatten().filter(|group| group["lazilyPreempted"].is_object());
        lost.flat_map(|group| {
            let lost = &group["lazilyPreempted"];
            let by = (text(&lost["preemptor"], ""), lost["atMs"].as_i64());
            let pods = group["pods"].as_array().into_iter().flatten();
            pods.map(move |pod| (text(&pod["name"], ""), by))
        })
        .collect()
    }

    /// Retries of a task alone: those that count against its bound, and those for want of room, as its member's
    /// controller counts them.
    pub(super) fn task_retries(&self, pod: &str) -> (i64, i64) {
        let entry = format!("retries-{}-{pod}", self.name());
        let mut words = text(&self.object["status"]["controlledResources"][entry], "").split(' ');
        let mut number = |at: usize| {
            let number: i64 = words.nth(at).and_then(|word| word.parse().ok()).unwrap_or(0);
            number.clamp(0, COUNT_MAX)
        };
        // `<retries that count> <pod> <retries for want of room>`
        (number(0), number(1))
    }

    fn retries(&self) -> Retries {
        let by_fleet = self.ended_by_fleet().len() as i64;
        let status = &self.object["status"];
        let user = count(&status["retryCount"]);
        // The failure that ends the job also raises the count, although no retry follows.
        let bound = self.object["spec"]["maxRetry"].as_i64().unwrap_or(i64::MAX);
        let user = if self.phase() == "Failed" { user.min(bound.saturating_sub(1)).max(0) } else { user };
        // Each attempt by the member's controller has a version, and so has the end of the last one.
        let ends = ["Completing", "Completed", "Aborting", "Aborted", "Terminating", "Terminated"];
        let last = i64::from(ends.contains(&self.phase()));
        let by_member = (count(&status["version"]) - user - last).max(0);
        // Those of its attempts that ended for want of room, as its controller counts them.
        let resource = text(&status["controlledResources"]["retries.resource"], "").parse().unwrap_or(0);
        let resource = by_member.min(resource).max(0);
        Retries { user, platform: by_fleet + by_member - resource, resource }
    }
}

/// Reads `exit code 137` from a controller's message about the end of a job.
pub(super) fn exit_code_in(message: &str) -> Option<i64> {
    let (_, rest) = message.split_once("exit code ")?;
    let digits = rest.trim_start_matches('-').find(|c: char| !c.is_ascii_digit());
    let sign = rest.len() - rest.trim_start_matches('-').len();
    rest[..digits.map_or(rest.len(), |end| end + sign)].parse().ok()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Retries {
    pub user: i64,
    pub platform: i64,
    pub resource: i64,
}

/// Fields and names are OpenPAI's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    pub debug_id: String,
    pub name: String,
    pub username: String,
    pub state: State,
    pub sub_state: SubState,
    pub execution_type: ExecutionType,
    pub tags: Vec<String>,
    pub retries: i64,
    pub retry_details: Retries,
    pub retry_delay_time: Option<i64>,
    /// All times in milliseconds since 1970.
    pub submission_time: Option<i64>,
    pub created_time: Option<i64>,
    pub launched_time: Option<i64>,
    pub completed_time: Option<i64>,
    pub app_exit_code: Option<i64>,
    pub virtual_cluster: String,
    pub total_gpu_number: i64,
    pub total_task_number: i64,
    pub total_task_role_number: i64,
    pub job_priority: String,
    /// Not in OpenPAI: the namespace of its object.
    pub namespace: String,
    pub cluster: Option<String>,
    /// Its file names no class, so it has that of most jobs.
    #[serde(skip)]
    pub is_of_default_class: bool,
}

pub(super) fn milliseconds(time: &Value) -> Option<i64> {
    time.as_str()?.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// When a phase was last entered.
pub(super) fn entered(status: &Value, phase: &str) -> Option<i64> {
    let conditions = status["conditions"].as_array()?;
    let entered = conditions.iter().find(|condition| condition["status"] == phase)?;
    milliseconds(&entered["lastTransitionTime"])
}

/// The tags that an annotation has. Lists of jobs compare all of them with all that are asked for.
fn tags(text: &str) -> Vec<String> {
    let tags: Vec<String> = serde_json::from_str(text).unwrap_or_default();
    tags.into_iter().filter(|tag| tag.chars().nth(TAG_MAX).is_none()).take(TAGS_MAX).collect()
}

/// A job as its newest run shows it.
pub fn item(run: &Run) -> Item {
    let (object, status) = (&run.object, &run.object["status"]);
    let created = milliseconds(&object["metadata"]["creationTimestamp"]);
    let submitted = annotation(object, names::SUBMITTED_ANNOTATION).parse().ok();
    let rules = run.rules();
    let roles = rules.as_ref().map_or(&[][..], |rules| rules.roles.as_slice());
    let retries = run.retries();
    let ended = run.state().is_final();
    Item {
        debug_id: run.name().to_owned(),
        name: names::of_id(&run.id).map_or(String::new(), |(_, job)| job.to_owned()),
        username: run.user().to_owned(),
        state: run.state(),
        sub_state: run.sub_state(),
        execution_type: run.execution(),
        tags: tags(annotation(object, names::TAGS_ANNOTATION)),
        retries: retries.user + retries.platform + retries.resource,
        retry_details: retries,
        retry_delay_time: run.retry_delay(),
        submission_time: submitted.or(created),
        created_time: created,
        launched_time: entered(status, "Running"),
        completed_time: ended.then(|| milliseconds(&status["state"]["lastTransitionTime"])).flatten(),
        app_exit_code: run.exit_code().filter(|_| ended),
        virtual_cluster: label(object, names::VIRTUAL_CLUSTER_LABEL).to_owned(),
        total_gpu_number: annotation(object, names::GPUS_ANNOTATION).parse().unwrap_or(0),
        total_task_number: rules.as_ref().map_or(0, Rules::tasks),
        total_task_role_number: roles.len() as i64,
        job_priority: label(object, names::CLASS_LABEL).to_owned(),
        namespace: run.namespace().to_owned(),
        cluster: run.cluster().map(str::to_owned),
        is_of_default_class: label(object, names::CLASS_LABEL).is_empty()
            || !annotation(object, names::CONFIG_ANNOTATION).contains("jobPriorityClass:"),
    }
}
