//! One task of a job: its attempts, and the log of the present one.

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::header,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    caller::Caller,
    error::RestError,
    jobs::{no_attempt, number_of, runs},
    looks::Looks,
    state::{Portal, Shared},
};
use crate::{
    jobs::{self, Notes, Run, Shown},
    members,
    server::is_path_part,
};

/// Container of a task that runs its commands.
const CONTAINER: &str = "app";
/// Last lines of a log that are sent.
const LINES: usize = 1_000;
/// Most bytes of them: a member sends what it likes.
const LOG_MAX: usize = 16 << 20;

/// Which task, as the path says.
#[derive(Deserialize)]
pub struct Of {
    id: String,
    attempt: String,
    role: String,
    index: String,
    number: Option<String>,
    container: Option<String>,
}

/// The task with its attempts, and the run of the job if this is its present attempt.
async fn find(
    portal: &Portal,
    looks: &Looks,
    caller: &Caller,
    of: &Of,
) -> Result<(Value, Option<Run>), RestError> {
    let found = runs(caller, &portal.namespace, &of.id).await?;
    let number = number_of(&found, &of.id, &of.attempt)?;
    let _turn = looks.job(caller, &found).await?;
    let is_present = number + 1 == jobs::number_of_attempts(&found);
    let notes = match found.first().filter(|_| is_present) {
        Some(run) => Notes::read(&caller.server, run).await,
        None => Notes::default(),
    };
    let task = {
        let shown = Shown::of(&found, Some(number)).map_err(|all| no_attempt(&of.id, &of.attempt, all))?;
        task(&shown, of, &notes)?
    };
    Ok((task, found.into_iter().next().filter(|_| is_present)))
}

fn task(shown: &Shown<'_>, of: &Of, notes: &Notes) -> Result<Value, RestError> {
    if let Ok(index) = of.index.parse::<usize>()
        && let Some((rule, mut task)) = shown.task(&of.role, index)
    {
        notes.add_to_task(&rule.task, i64::try_from(index).unwrap_or(i64::MAX), &mut task);
        return Ok(jobs::task_attempts(&task, &of.role));
    }
    let roles = shown.roles().into_iter();
    let allowed = roles.map(|(name, rule)| format!("{name} 0 to {}", (rule.instances - 1).max(0)));
    let allowed = allowed.collect::<Vec<_>>().join(", ");
    let message = format!("job {}: found task {:?} {:?}; allowed: {allowed}", of.id, of.role, of.index);
    Err(RestError::new(404, "NoTaskError", message))
}

/// `GET .../attempts`.
pub async fn attempts(
    State(portal): Shared,
    Extension(looks): Extension<Looks>,
    caller: Caller,
    Path(of): Path<Of>,
) -> Result<Json<Value>, RestError> {
    Ok(Json(find(&portal, &looks, &caller, &of).await?.0))
}

/// The run whose pod has the log: that of the task's last attempt in the job's present one.
async fn with_log(
    portal: &Portal,
    looks: &Looks,
    caller: &Caller,
    of: &Of,
) -> Result<(Value, Run), RestError> {
    let (task, present) = find(portal, looks, caller, of).await?;
    let number = of.number.clone().unwrap_or_default();
    let last = task["attempts"].as_array().and_then(|attempts| attempts.last());
    let last = last.map_or(0, |attempt| attempt["attemptId"].as_i64().unwrap_or(0));
    match present.filter(|_| number.parse() == Ok(last)) {
        Some(run) => Ok((task, run)),
        None => {
            let message = format!(
                "job {}: found no log of attempt {number} of the task; allowed: {last}, of the present attempt of the job",
                of.id
            );
            Err(RestError::new(404, "NoTaskLogError", message))
        }
    }
}

/// The name of a task's pod, as a part of a path.
fn pod_of(run: &Run, task: &str, index: &str) -> Option<String> {
    let index: u32 = index.parse().ok()?;
    let pod = format!("{}-{task}-{index}", run.name());
    (is_path_part(&pod) && is_path_part(run.namespace())).then_some(pod)
}

/// `GET .../attempts/{k}/logs`: where the logs are. Standard output and errors are one.
pub async fn logs(
    State(portal): Shared,
    Extension(looks): Extension<Looks>,
    caller: Caller,
    Path(of): Path<Of>,
) -> Result<Json<Value>, RestError> {
    with_log(&portal, &looks, &caller, &of).await?;
    let number = of.number.unwrap_or_default();
    let uri = format!(
        "/api/v2/jobs/{}/attempts/{}/taskRoles/{}/taskIndex/{}/attempts/{number}/logs/{CONTAINER}",
        of.id, of.attempt, of.role, of.index
    );
    Ok(Json(json!({"locations": [{"name": "all", "uri": uri}]})))
}

/// `GET .../attempts/{k}/logs/app`: the log's last lines, from the member, with what the caller may read of it.
pub async fn log(
    State(portal): Shared,
    Extension(looks): Extension<Looks>,
    caller: Caller,
    Path(of): Path<Of>,
) -> Result<Response, RestError> {
    let (_, run) = with_log(&portal, &looks, &caller, &of).await?;
    let none = |why: String| RestError::new(404, "NoTaskLogError", format!("job {}: {why}", of.id));
    if of.container.as_deref() != Some(CONTAINER) {
        return Err(none(format!("found log {:?}; allowed: {CONTAINER}", of.container)));
    }
    let rules = run.rules().into_iter().flat_map(|rules| rules.roles);
    let rule = rules.into_iter().find(|rule| rule.role == of.role);
    let (Some(cluster), Some(rule)) = (run.cluster(), rule) else {
        return Err(none("it runs nowhere".to_owned()));
    };
    let member = members::reach(&caller.server, cluster).await.map_err(|error| none(error.to_string()))?;
    let pod = pod_of(&run, &rule.task, &of.index).ok_or_else(|| none("its task has no pod".to_owned()))?;
    let path = format!(
        "/api/v1/namespaces/{}/pods/{pod}/log?container={CONTAINER}&tailLines={LINES}",
        run.namespace()
    );
    let text = member.text(&path, LOG_MAX).await.map_err(|error| none(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_pod_leads_to_no_other_path() {
        let of = |namespace: &str| {
            let object = json!({"metadata": {"name": "alice-j", "namespace": namespace,
                "annotations": {fleet_pai::names::ID_ANNOTATION: "alice~j"}}});
            Run::of(object, None).expect("a job")
        };
        assert_eq!(pod_of(&of("ns"), "train", "3").as_deref(), Some("alice-j-train-3"));
        for (namespace, task, index) in [
            ("ns", "0/proxy/x?", "0"),
            ("ns", "..", "0"),
            ("ns", "a%2fb", "0"),
            ("ns", "train", "0/proxy"),
            ("ns", "train", "-1"),
            ("ns", "train", ""),
            ("a/../b", "train", "0"),
        ] {
            assert_eq!(pod_of(&of(namespace), task, index), None, "{namespace} {task} {index}");
        }
    }
}
