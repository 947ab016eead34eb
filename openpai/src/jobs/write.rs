//! Submitting, stopping and starting jobs.
//!
//! The job is created first; its Secrets follow and are owned by it. So one write claims the name, and
//! deleting the job deletes its Secrets. Until the Secrets exist, the hub keeps the job waiting for its
//! dependencies.

use fleet_pai::{
    names,
    native::{self, Native, Submission},
};
use serde_json::{Value, json};

use super::{JobError, Offers, Run, item::RUNS_MAX, label, list_path, object_path, read, runs, text};
use crate::server::{AskError, Server};

/// Longest configuration stored with a job; the API server limits all annotations of an object to 256 KiB.
const CONFIG_MAX: usize = 200 * 1024;

/// The hub's admission policy for virtual clusters with submitters.
const SUBMITTERS_POLICY: &str = "fleet-virtual-cluster-submitters";

/// Who submits, and to which namespace.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    pub user: &'a str,
    pub namespace: &'a str,
}

/// A job that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    pub id: String,
    /// Name of its object.
    pub object: String,
    pub namespace: String,
    /// Settings of the job file that have no effect here.
    pub notices: Vec<String>,
}

/// The objects of a job file, without creating them.
///
/// # Errors
/// Every error in it.
pub fn objects(text: &str, who: Who<'_>, offers: &Offers, now_ms: i64) -> Result<(String, Native), JobError> {
    if !names::is_user(who.user) {
        return Err(JobError::User { user: who.user.to_owned() });
    }
    let file = read(text)?;
    if file.config.len() > CONFIG_MAX {
        let problem = fleet_pai::Problem::new(
            "the document",
            format!("{} KiB", file.config.len() / 1024),
            format!("at most {} KiB; larger things belong into the image or a ConfigMap", CONFIG_MAX / 1024),
        );
        return Err(fleet_pai::Refusal::one(fleet_pai::Code::InvalidProtocol, problem).into());
    }
    let submission = Submission {
        protocol: &file.protocol,
        user: who.user,
        namespace: who.namespace,
        run: 1,
        config: &file.config,
        submitted_ms: now_ms,
    };
    let native = native::native(&submission, &offers.of(&file.protocol.virtual_cluster))?;
    let id = names::id(who.user, &file.protocol.name);
    offers.clone().check(&native.job, &id)?;
    Ok((id, native))
}

/// Submits a job file.
///
/// # Errors
/// Every error in it; a job of that name exists; the hub refuses.
pub async fn submit(
    server: &Server,
    file: &str,
    who: Who<'_>,
    offers: &Offers,
    now_ms: i64,
) -> Result<Submitted, JobError> {
    let (id, native) = objects(file, who, offers, now_ms)?;
    match runs(server, Some(who.namespace), &id).await {
        Ok(runs) => {
            let object = runs.first().map_or(String::new(), |run| run.name().to_owned());
            return Err(JobError::Exists { id, object, namespace: who.namespace.to_owned() });
        }
        Err(JobError::NoJob { .. }) => {}
        Err(error) => return Err(error),
    }
    let job = create_job(server, &id, &native.job).await?;
    for secret in &native.secrets {
        if let Err(error) = create_secret(server, secret, &job).await {
            delete_job(server, &job).await;
            return Err(error.into());
        }
    }
    Ok(Submitted {
        id,
        object: text(&job["metadata"]["name"], "").to_owned(),
        namespace: who.namespace.to_owned(),
        notices: native.notices,
    })
}

async fn create_job(server: &Server, id: &str, job: &Value) -> Result<Value, JobError> {
    let namespace = text(&job["metadata"]["namespace"], "");
    match server.create(&list_path(Some(namespace)), job).await {
        Ok(made) => Ok(made),
        Err(error) if error.is_conflict() => Err(JobError::Exists {
            id: id.to_owned(),
            object: text(&job["metadata"]["name"], "").to_owned(),
            namespace: namespace.to_owned(),
        }),
        Err(AskError::Refused { code: 404, message }) => {
            // The namespace or the kind does not exist.
            Err(match message.contains("namespace") {
                true => AskError::Refused { code: 404, message }.into(),
                false => JobError::NoKind { url: server.url.clone() },
            })
        }
        Err(AskError::Refused { message, .. }) if message.contains(SUBMITTERS_POLICY) => {
            let vc = label(job, fleet_api::names::VIRTUAL_CLUSTER_LABEL);
            let told = message.rsplit_once("denied request: ").map_or(message.as_str(), |(_, told)| told);
            Err(super::offers::forbidden(vc, told).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// A Secret left over from an earlier job of the same name is replaced.
async fn create_secret(server: &Server, secret: &Value, job: &Value) -> Result<(), AskError> {
    let mut secret = secret.clone();
    let path = format!("/api/v1/namespaces/{}/secrets", text(&secret["metadata"]["namespace"], ""));
    secret["metadata"]["ownerReferences"] = json!([owner(job)]);
    match server.create(&path, &secret).await {
        Err(error) if error.is_conflict() => {}
        made => return made.map(|_| ()),
    }
    let name = text(&secret["metadata"]["name"], "").to_owned();
    let own = format!("{path}/{name}");
    let there = server.object(&own).await?;
    if label(&there, names::JOB_LABEL) != label(&secret, names::JOB_LABEL) {
        let message = format!("secret {name} exists and belongs to no job; allowed: no Secret of that name");
        return Err(AskError::Refused { code: 409, message });
    }
    server.delete(&own).await?;
    server.create(&path, &secret).await.map(|_| ())
}

fn owner(job: &Value) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
    })
}

/// Deletes a job whose Secrets could not be created. If that fails too, the job's state shows it: the job
/// waits for its dependencies.
async fn delete_job(server: &Server, job: &Value) {
    let path = object_path(text(&job["metadata"]["namespace"], ""), text(&job["metadata"]["name"], ""));
    if let Err(error) = server.delete(&format!("{path}?propagationPolicy=Background")).await {
        let _ = error;
    }
}

/// Requests that a job stops. One that has ended stays as it is.
///
/// # Errors
/// The hub refuses.
pub async fn stop(server: &Server, run: &Run) -> Result<(), JobError> {
    if run.state().is_final() {
        return Ok(());
    }
    let patch = json!({"metadata": {"annotations": {fleet_api::names::STOP_ANNOTATION: "true"}}});
    server.merge(&object_path(run.namespace(), run.name()), &patch).await?;
    Ok(())
}

/// Wants a job to run: one that is being stopped goes on if nothing has been done about it yet, one that has ended
/// runs once more, as a new object beside that of its last run. Returns the number of the run.
///
/// # Errors
/// The hub refuses, or somebody else has just started it.
pub async fn start(server: &Server, run: &Run) -> Result<i64, JobError> {
    if !run.state().is_final() {
        let patch = json!({"metadata": {"annotations": {fleet_api::names::STOP_ANNOTATION: null}}});
        server.merge(&object_path(run.namespace(), run.name()), &patch).await?;
        return Ok(run.number);
    }
    if run.number >= RUNS_MAX {
        return Err(JobError::Conflict(format!(
            "job {}: found run {}; allowed: runs up to {RUNS_MAX}; submit it under another name",
            run.id, run.number
        )));
    }
    let mut next = native::rerun(&run.object, run.number + 1);
    let annotations = next["metadata"]["annotations"].as_object_mut();
    annotations.map(|annotations| annotations.remove(fleet_api::names::STOP_ANNOTATION));
    let made = create_job(server, &run.id, &next).await?;
    // Its Secrets live as long as any of its runs, where the caller may read Secrets; else as long as the first.
    let selector = format!("{}={}", names::JOB_LABEL, label(&run.object, names::JOB_LABEL));
    let selectors = crate::server::Selectors { labels: Some(selector), ..Default::default() };
    let path = format!("/api/v1/namespaces/{}/secrets", run.namespace());
    let secrets = match server.list(&path, &selectors, "application/json").await {
        Err(error) if error.is_forbidden() => return Ok(run.number + 1),
        listed => listed?,
    };
    for secret in secrets["items"].as_array().into_iter().flatten() {
        let mut owners = secret["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.push(owner(&made));
        let patch = json!({"metadata": {"ownerReferences": owners}});
        server.merge(&format!("{path}/{}", text(&secret["metadata"]["name"], "")), &patch).await?;
    }
    Ok(run.number + 1)
}

/// Writes the tags of a job.
///
/// # Errors
/// The hub refuses, or the job was changed meanwhile.
pub async fn set_tags(server: &Server, run: &Run, tags: &[String]) -> Result<(), JobError> {
    let patch = json!({"metadata": {
        // Two who tag at once do not take each other's tags away.
        "resourceVersion": run.object["metadata"]["resourceVersion"],
        "annotations": {names::TAGS_ANNOTATION: json!(tags).to_string()},
    }});
    match server.merge(&object_path(run.namespace(), run.name()), &patch).await {
        Err(error) if error.is_conflict() => {
            Err(JobError::Conflict(format!("job {} was changed at the same time; try again", run.id)))
        }
        done => Ok(done.map(|_| ())?),
    }
}

/// Who the hub says one is, as an owner of jobs.
///
/// # Errors
/// The hub does not answer, or does not know the caller.
pub async fn user_of(server: &Server) -> Result<String, JobError> {
    Ok(names::user(&identity(server).await?))
}

/// Who the hub says one is.
///
/// # Errors
/// As [`user_of`].
pub async fn identity(server: &Server) -> Result<String, JobError> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = server.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
    Ok(text(&answer["status"]["userInfo"]["username"], "").to_owned())
}
