//! Jobs: submit, list, look at, stop and start, tag.

use std::collections::BTreeMap;

use axum::{
    Extension, Json,
    extract::{Path, Query as Parameters, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use fleet_pai::{names, state::ExecutionType};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{caller::Caller, error::RestError, looks::Looks, query::Query, sent, state::Shared};
use crate::jobs::{self, Item, JobError, Notes, Offers, Run, TAG_MAX, TAGS_MAX, Who};

type Answer = Result<Json<Value>, RestError>;

/// Jobs of all namespaces; of the portal's own for a caller who may not see all.
async fn all(caller: &Caller, namespace: &str) -> Result<Vec<Item>, JobError> {
    match jobs::list(&caller.server, None).await {
        Err(error) if error.status() == 403 => jobs::list(&caller.server, Some(namespace)).await,
        listed => listed,
    }
}

/// The runs of a job. An id says no namespace: the portal's own comes first, then the first that has such a job.
pub(super) async fn runs(caller: &Caller, namespace: &str, id: &str) -> Result<Vec<Run>, JobError> {
    let mut found = match jobs::runs(&caller.server, None, id).await {
        Err(error) if error.status() == 403 => jobs::runs(&caller.server, Some(namespace), id).await,
        found => found,
    }?;
    let first = found.iter().map(Run::namespace).min_by_key(|other| (*other != namespace, *other));
    if let Some(first) = first.map(str::to_owned) {
        found.retain(|run| run.namespace() == first);
    }
    Ok(found)
}

async fn newest(caller: &Caller, namespace: &str, id: &str) -> Result<Run, JobError> {
    let found = runs(caller, namespace, id).await?;
    found.into_iter().next().ok_or_else(|| JobError::NoJob { id: id.to_owned() })
}

pub async fn list(
    State(portal): Shared,
    Extension(looks): Extension<Looks>,
    caller: Caller,
    Parameters(given): Parameters<BTreeMap<String, String>>,
) -> Answer {
    let query = Query::read(&given)?;
    let _turn = looks.list(&caller).await?;
    let (total, items) = query.apply(all(&caller, &portal.namespace).await?);
    let items = json!(items);
    Ok(Json(if query.with_total_count { json!({"totalCount": total, "data": items}) } else { items }))
}

pub async fn submit(State(portal): Shared, caller: Caller, text: String) -> Result<Response, RestError> {
    let user = caller.user().await?;
    let who = Who { user: &user, namespace: &portal.namespace };
    let offers = Offers::read(&caller.server).await?;
    let now_ms = Timestamp::now().as_millisecond();
    let taken = jobs::submit(&caller.server, &text, who, &offers, now_ms).await?;
    let (_, job) = names::of_id(&taken.id).unwrap_or_default();
    Ok(accepted(format!("Update job {job} for user {user} successfully.")))
}

fn accepted(message: String) -> Response {
    let status = StatusCode::ACCEPTED;
    (status, Json(json!({"status": status.as_u16(), "message": message}))).into_response()
}

pub async fn detail(
    State(portal): Shared,
    Extension(looks): Extension<Looks>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, RestError> {
    let found = runs(&caller, &portal.namespace, &id).await?;
    let _turn = looks.job(&caller, &found).await?;
    let notes = match found.first() {
        Some(newest) => Notes::read(&caller.server, newest).await,
        None => Notes::default(),
    };
    Ok(sent::job(found, None, notes))
}

/// Attempts are counted from 0: each run of the job, and before it each of its attempts that Fleet ended.
pub async fn attempt(
    State(portal): Shared,
    caller: Caller,
    Path((id, attempt)): Path<(String, String)>,
) -> Result<Response, RestError> {
    let found = runs(&caller, &portal.namespace, &id).await?;
    let number = number_of(&found, &id, &attempt)?;
    Ok(sent::job(found, Some(number), Notes::default()))
}

/// The number of an attempt that a job has.
pub(super) fn number_of(found: &[Run], id: &str, attempt: &str) -> Result<usize, RestError> {
    let all = jobs::number_of_attempts(found);
    attempt.parse::<usize>().ok().filter(|number| *number < all).ok_or_else(|| no_attempt(id, attempt, all))
}

pub(super) fn no_attempt(id: &str, attempt: &str, all: usize) -> RestError {
    let message = format!("job {id}: found attempt {attempt:?}; allowed: 0 to {}", all.saturating_sub(1));
    RestError::new(404, "NoJobAttemptError", message)
}

pub async fn attempts(State(portal): Shared, caller: Caller, Path(id): Path<String>) -> Answer {
    Ok(Json(json!(jobs::attempts(&runs(&caller, &portal.namespace, &id).await?))))
}

pub async fn attempts_health(_caller: Caller, Path(_id): Path<String>) -> Json<Value> {
    Json(json!({"status": "OK"}))
}

pub async fn config(
    State(portal): Shared,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, RestError> {
    let run = newest(&caller, &portal.namespace, &id).await?;
    match run.object["metadata"]["annotations"][names::CONFIG_ANNOTATION].as_str() {
        Some(text) => {
            Ok(([(header::CONTENT_TYPE, "text/yaml; charset=utf-8")], text.to_owned()).into_response())
        }
        None => {
            let message = format!("job {id}: its configuration was taken away from its object");
            Err(RestError::new(404, "NoJobConfigError", message))
        }
    }
}

pub async fn events(
    State(portal): Shared,
    Extension(looks): Extension<Looks>,
    caller: Caller,
    Path(id): Path<String>,
    Parameters(given): Parameters<BTreeMap<String, String>>,
) -> Answer {
    let run = newest(&caller, &portal.namespace, &id).await?;
    let _turn = looks.job(&caller, std::slice::from_ref(&run)).await?;
    let mut events = jobs::events(&caller.server, &run).await?;
    if let Some(kind) = given.get("type") {
        if !["Normal", "Warning"].contains(&kind.as_str()) {
            return Err(RestError::parameter("type", kind, "Normal or Warning"));
        }
        events.retain(|event| event.kind == *kind);
    }
    Ok(Json(json!({"totalCount": events.len(), "data": events})))
}

/// Body of the requests that set something.
#[derive(Deserialize)]
pub struct Value1 {
    value: Value,
}

/// The JSON body, with OpenPAI's code where it is none.
fn value(body: &str, allowed: &str) -> Result<String, RestError> {
    let read: Result<Value1, _> = serde_json::from_str(body);
    match read.ok().and_then(|body| body.value.as_str().map(str::to_owned)) {
        Some(text) => Ok(text),
        None => Err(RestError::parameter("the body", body, allowed)),
    }
}

pub async fn execute(
    State(portal): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: String,
) -> Result<Response, RestError> {
    const ALLOWED: &str = "{\"value\": \"STOP\"} or {\"value\": \"START\"}";
    let text = value(&body, ALLOWED)?;
    let wanted =
        ExecutionType::read(&text).ok_or_else(|| RestError::parameter("value", &text, "STOP or START"))?;
    let run = newest(&caller, &portal.namespace, &id).await?;
    match wanted {
        ExecutionType::Stop => jobs::stop(&caller.server, &run).await?,
        ExecutionType::Start if run.execution() == ExecutionType::Start && !run.state().is_final() => {}
        ExecutionType::Start => {
            jobs::start(&caller.server, &run).await?;
        }
    }
    Ok(accepted(format!("Execute job {id} successfully.")))
}

pub async fn add_tag(State(portal): Shared, caller: Caller, Path(id): Path<String>, body: String) -> Answer {
    let tag = tag(&body)?;
    let run = newest(&caller, &portal.namespace, &id).await?;
    let mut tags = jobs::item(&run).tags;
    if !tags.contains(&tag) {
        if tags.len() >= TAGS_MAX {
            let message = format!("job {id}: found {} tags; allowed: at most {TAGS_MAX}", tags.len());
            return Err(RestError::new(400, "InvalidParametersError", message));
        }
        tags.push(tag.clone());
        jobs::set_tags(&caller.server, &run, &tags).await?;
    }
    Ok(Json(json!({"status": 200, "message": format!("Add tag {tag} for job {id} successfully.")})))
}

pub async fn remove_tag(
    State(portal): Shared,
    caller: Caller,
    Path(id): Path<String>,
    body: String,
) -> Answer {
    let tag = tag(&body)?;
    let run = newest(&caller, &portal.namespace, &id).await?;
    let mut tags = jobs::item(&run).tags;
    let before = tags.len();
    tags.retain(|known| *known != tag);
    if tags.len() == before {
        let message = format!("job {id}: found no tag {tag:?}; allowed: {}", tags.join(", "));
        return Err(RestError::new(404, "NoTagError", message));
    }
    jobs::set_tags(&caller.server, &run, &tags).await?;
    Ok(Json(json!({"status": 200, "message": format!("Delete tag {tag} from job {id} successfully.")})))
}

fn tag(body: &str) -> Result<String, RestError> {
    let tag = value(body, "{\"value\": TAG}")?;
    let fits = (1..=TAG_MAX).contains(&tag.chars().count()) && !tag.contains(',');
    if fits {
        Ok(tag)
    } else {
        Err(RestError::parameter("value", &tag, "1 to 128 characters without a comma"))
    }
}
