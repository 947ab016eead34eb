//! What programs may do: submit and stop, with the caller's own credential.

use axum::{
    Json,
    extract::{State, rejection::BytesRejection},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderValue, StatusCode, Uri, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    caller::Caller,
    error::ApiError,
    given::{Given, Parameter, Takes},
    paths::PREFIX,
    reads::{behind, named},
};
use crate::web::{
    act::forget_sight,
    state::Shared,
    stopping::{AT_ONCE, MOST_STOPPED, stop_one},
    submission::{Do, Done, by_text},
};
use fleet_pages::page::JobName;

pub const OF_SUBMIT: [Parameter; 2] = [
    Parameter {
        name: "namespace",
        about: "namespace of a job that names none; the portal's own if left out",
        takes: Takes::Text,
    },
    Parameter {
        name: "dryRun",
        about: "checks the job, says which clusters could hold it, and keeps nothing",
        takes: Takes::Flag,
    },
];

/// A job that was submitted.
#[derive(Serialize, JsonSchema)]
pub struct Submitted {
    pub namespace: String,
    /// Plural name and group of its kind, such as `pytorchjobs.kubeflow.org`.
    pub resource: String,
    pub name: String,
    /// Its path in this API.
    pub path: String,
}

/// Jobs to stop.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// `NAMESPACE/RESOURCE/NAME` of each, such as `team-a/pytorchjobs.kubeflow.org/train`.
    #[schemars(length(min = 1, max = 1000))]
    pub jobs: Vec<String>,
}

/// What became of each.
#[derive(Default, Serialize, JsonSchema)]
pub struct Stopped {
    /// Marked: they are being stopped.
    pub stopped: Vec<String>,
    pub refused: Vec<NotStopped>,
}

#[derive(Serialize, JsonSchema)]
pub struct NotStopped {
    pub job: String,
    pub message: String,
}

fn path_of(job: &JobName) -> String {
    format!("{PREFIX}/jobs/{}", job.text())
}

fn text_of(body: Result<Bytes, BytesRejection>) -> Result<String, ApiError> {
    let bytes = body.map_err(|refused| match refused.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::new(413, "body: found more than 1 MiB; allowed: at most 1 MiB")
        }
        _ => ApiError::new(400, format!("body: {refused}; allowed: one that arrives whole")),
    })?;
    String::from_utf8(bytes.to_vec()).map_err(|_| {
        ApiError::new(400, "body: found bytes that are no text in UTF-8; allowed: text in UTF-8")
    })
}

pub async fn submit(
    State(web): Shared,
    caller: Caller,
    uri: Uri,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let given = Given::read(&uri, &OF_SUBMIT)?;
    let text = text_of(body)?;
    let wanted = if given.is_set("dryRun") { Do::Check } else { Do::Create };
    let done = by_text(&web, &caller.session, &text, given.text("namespace"), wanted).await?;
    forget_sight(&caller.session);
    let job = match done {
        Done::Checked(check) => return Ok(Json(check).into_response()),
        Done::Made(job) => job,
    };
    let path = path_of(&job);
    let place = HeaderValue::from_str(&path).ok();
    let JobName { namespace, resource, name } = job;
    let mut response =
        (StatusCode::CREATED, Json(Submitted { namespace, resource, name, path })).into_response();
    if let Some(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

/// All are tried; the status says whether all were stopped.
pub async fn stop(
    State(web): Shared,
    caller: Caller,
    uri: Uri,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    Given::read(&uri, &[])?;
    let wanted: Stop = serde_json::from_str(&text_of(body)?).map_err(|error| {
        ApiError::new(400, format!("body: {error}; allowed: {{\"jobs\": [\"NAMESPACE/RESOURCE/NAME\", ..]}}"))
    })?;
    let count = wanted.jobs.len();
    if !(1..=MOST_STOPPED).contains(&count) {
        return Err(ApiError::parameter("jobs", &count.to_string(), &format!("1 to {MOST_STOPPED} jobs")));
    }
    let (web, session) = (&web, &caller.session);
    let asked = stream::iter(wanted.jobs).map(|name| async move {
        let stopped = stop_one(web, session, &name).await;
        (name, stopped)
    });
    let answers: Vec<_> = asked.buffered(AT_ONCE).collect().await;
    forget_sight(session);
    let mut shown = Stopped::default();
    for (job, answer) in answers {
        match answer {
            Ok(()) => shown.stopped.push(job),
            Err(error) => shown.refused.push(NotStopped { job, message: error.to_string() }),
        }
    }
    let status = if shown.refused.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    Ok((status, Json(shown)).into_response())
}

pub async fn stop_job(State(web): Shared, caller: Caller, uri: Uri) -> Result<Json<Stopped>, ApiError> {
    Given::read(&uri, &[])?;
    let path = behind(&uri, "/jobs/");
    let job = named(path.strip_suffix("/stop").unwrap_or(path))?;
    stop_one(&web, &caller.session, &job.text()).await?;
    forget_sight(&caller.session);
    Ok(Json(Stopped { stopped: vec![job.text()], refused: Vec::new() }))
}
