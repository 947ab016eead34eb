//! What a pod has written, from the member it runs in, with what the user may read of that member.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, StatusCode, Uri, header};
use maud::html;

use super::{
    answer::{page_response, to_sign_in, trouble_page},
    members::{self, What},
    pods, rights,
    session::Session,
    state::{Shared, Web},
};
use fleet_openpai::server::{AskError, MEMBER_PATIENCE, Server, is_path_part};
use fleet_pages::{
    html::{Frame, frame},
    page::{JobName, log_link},
    pairs::{Pairs, link},
};
use fleet_views::State as JobState;

/// Lines on the page, the last ones; and of a file.
const LINES: usize = 1_000;
const LINES_OF_FILE: usize = 100_000;
/// What is asked of the member at most.
const BYTES: usize = 4 * 1024 * 1024;

/// Which log.
struct Wanted {
    job: JobName,
    pod: String,
    container: String,
    /// Of the container that ran before the last restart.
    is_previous: bool,
}

pub async fn page(
    State(web): Shared,
    Path((namespace, resource, name, pod)): Path<(String, String, String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let pairs = Pairs::read(uri.query().unwrap_or(""));
    let job = JobName::read(&JobName::new(&namespace, &resource, &name).text());
    let names = [pod.as_str(), pairs.get("container")];
    let Some(job) = job.filter(|_| !pod.is_empty() && names.iter().all(|name| is_path_part(name))) else {
        return (StatusCode::NOT_FOUND, "There is no such log.\n").into_response();
    };
    let wanted = Wanted {
        job,
        pod,
        container: pairs.get("container").to_owned(),
        is_previous: pairs.get("previous") == "true",
    };
    let is_file = pairs.get("as") == "file";
    let lines = if is_file { LINES_OF_FILE } else { LINES };
    match read(&web, &session, &wanted, lines).await {
        Ok(Ok(text)) if is_file => as_file(&wanted, text),
        Ok(found) => drawn(&session, &wanted, found.as_deref().map_err(String::as_str)),
        Err(error) => trouble_page(&web, &session, &uri, &error),
    }
}

/// The log, or why it is not shown.
///
/// # Errors
/// The hub does not know the user any more, or does not answer.
async fn read(
    web: &Web,
    session: &Session,
    wanted: &Wanted,
    lines: usize,
) -> Result<Result<String, String>, AskError> {
    let sight = rights::sight(web, session).await?;
    let Some(cluster) = cluster_of(web, &wanted.job).filter(|_| sight.jobs.has(&wanted.job.namespace)) else {
        return Ok(Err("There is no such job that you may see, or it is in no cluster now.".to_owned()));
    };
    let hub = web.server_of(&session.credential);
    let namespace = &wanted.job.namespace;
    let member = match members::reach(web, &hub, &cluster, namespace, What::Logs, MEMBER_PATIENCE).await {
        Ok(member) => member,
        Err(why) => return Ok(Err(format!("The log is in cluster {cluster}, which is not asked: {why}"))),
    };
    Ok(of_member(&hub, &member, wanted, lines).await)
}

/// Where a job is, or ended.
fn cluster_of(web: &Web, job: &JobName) -> Option<String> {
    let (api_version, kind) = crate::kinds::of_resource(&job.resource)?;
    let id = (job.namespace.clone(), fleet_api::names::binding_name(&api_version, &kind, &job.name));
    let known = web.board.known();
    let found = known.job(&id).filter(|job| job.state() != JobState::Waiting)?;
    Some(found.cluster().to_owned()).filter(|cluster| !cluster.is_empty())
}

async fn of_member(hub: &Server, member: &Server, wanted: &Wanted, lines: usize) -> Result<String, String> {
    let namespace = &wanted.job.namespace;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}", wanted.pod);
    // A member gives whoever has its token every log: that the pod is the job's is looked at here.
    let not_shown = |error| format!("The pod is not shown: {error}");
    let (pod, makers) = tokio::join!(member.object(&path), pods::makers(hub, member, &wanted.job));
    let (pod, mut makers) = (pod.map_err(not_shown)?, makers.map_err(not_shown)?);
    if let Some(makers) = &mut makers {
        makers.look_behind(member, namespace, std::slice::from_ref(&pod)).await;
    }
    if !makers.is_some_and(|makers| makers.made(&pod)) {
        return Err(format!("Pod {namespace}/{} is none of this job.", wanted.pod));
    }
    let (lines, bytes) = (lines.to_string(), BYTES.to_string());
    let previous = if wanted.is_previous { "true" } else { "" };
    let query = [
        ("tailLines", lines.as_str()),
        ("limitBytes", bytes.as_str()),
        ("container", wanted.container.as_str()),
        ("previous", previous),
    ];
    let path = link(&format!("{path}/log"), &query);
    member
        .text(&path, 2 * BYTES)
        .await
        .map_err(|error| format!("Cluster {} does not serve this log: {error}", member.name))
}

fn as_file(wanted: &Wanted, text: String) -> Response {
    let name = format!("attachment; filename=\"{}.log\"", wanted.pod);
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()), (header::CONTENT_DISPOSITION, name)];
    (headers, text).into_response()
}

fn drawn(session: &Session, wanted: &Wanted, found: Result<&str, &str>) -> Response {
    let here = log_link(&wanted.job, &wanted.pod);
    let of = |previous: &str, form: &str| {
        link(&here, &[("container", &wanted.container), ("previous", previous), ("as", form)])
    };
    let previous = if wanted.is_previous { "true" } else { "" };
    let main = html! {
        nav.crumbs aria-label="Above" {
            a href="/jobs" { "Jobs" } " / " a href=(wanted.job.link()) { (wanted.job.namespace) "/" (wanted.job.name) }
        }
        h1 { "Log of " (wanted.pod) }
        @match found {
            Err(why) => p.banner { (why) },
            Ok("") => p.quiet { "It has written nothing." },
            Ok(text) => {
                p.quiet { "The last " (LINES) " lines at most, as they were when this page was asked for." }
                pre.log tabindex="0" { code { (text) } }
            }
        }
        div.actions {
            a.button href=(of(previous, "")) { "Read again" }
            a.button href=(of(previous, "file")) { "As a file" }
            @if wanted.is_previous { a.button href=(of("", "")) { "Of the container that runs" } }
            @else { a.button href=(of("true", "")) { "Of the container before the last restart" } }
        }
    };
    let title = format!("Log of {}", wanted.pod);
    let status = if found.is_ok() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let frame_of = Frame { title: &title, path: "/jobs", visitor: Some(&session.visitor), is_live: false };
    page_response(frame(&frame_of, main), status)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use fleet_api::names::binding_name;
    use http::{Request, Response};
    use kube::Client;

    use super::*;

    /// Hub and member of one job, whose one pod has a log there. Another pod has the job's label.
    fn both() -> Server {
        let service = tower::service_fn(|request: Request<kube::client::Body>| async move {
            let at = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
            let pod = |owner: &str| {
                format!(
                    r#"{{"metadata": {{"labels": {{"volcano.sh/job-name": "mine"}},
                        "ownerReferences": [{{"uid": "{owner}", "controller": true}}]}}}}"#
                )
            };
            let job = r#"{"metadata": {"name": "mine", "uid": "j",
                "labels": {"fleet.dev/managed": "true", "fleet.dev/binding-uid": "b"}}}"#;
            let binding = binding_name("batch.volcano.sh/v1alpha1", "Job", "mine");
            let binding = format!("/apis/fleet.dev/v1alpha1/namespaces/a/resourcebindings/{binding}");
            let (status, body) = match at.as_str() {
                at if at == binding => (200, r#"{"metadata": {"uid": "b"}}"#.to_owned()),
                "/apis/batch.volcano.sh/v1alpha1/namespaces/a/jobs/mine" => (200, job.to_owned()),
                "/api/v1/namespaces/a/pods/mine-0" => (200, pod("j")),
                "/api/v1/namespaces/a/pods/other-0" => (200, pod("other")),
                "/api/v1/namespaces/a/pods/mine-0/log?tailLines=10&limitBytes=4194304&container=main" => {
                    (200, "epoch 1\n<b>epoch 2".to_owned())
                }
                _ => (404, format!(r#"{{"kind": "Status", "code": 404, "message": "no {at}"}}"#)),
            };
            Response::builder().status(status).body(Body::from(body))
        });
        let name = "east".to_owned();
        Server {
            client: Client::new(service, "default"),
            url: name.clone(),
            name,
            patience: Duration::from_secs(5),
        }
    }

    fn wanted(pod: &str, is_previous: bool) -> Wanted {
        let job = JobName::new("a", "jobs.batch.volcano.sh", "mine");
        Wanted { job, pod: pod.to_owned(), container: "main".to_owned(), is_previous }
    }

    #[tokio::test]
    async fn a_log_is_that_of_a_pod_of_the_job() {
        let read =
            async |pod: &str, is_previous| of_member(&both(), &both(), &wanted(pod, is_previous), 10).await;
        assert_eq!(read("mine-0", false).await, Ok("epoch 1\n<b>epoch 2".to_owned()));
        let told = read("other-0", false).await.expect_err("another job's");
        assert_eq!(told, "Pod a/other-0 is none of this job.");
        assert!(read("gone-0", false).await.is_err_and(|why| why.starts_with("The pod is not shown: ")));
        let told = read("mine-0", true).await.expect_err("no restart");
        assert!(
            told.starts_with("Cluster east does not serve this log: ") && told.contains("previous=true"),
            "{told}"
        );
    }

    #[test]
    fn a_pod_in_a_path_is_a_name() {
        for odd in ["a/b", "..", "a..b", "A", "a?b", "a b", "%2e", &"x".repeat(254)] {
            assert!(!is_path_part(odd), "{odd}");
        }
        assert!(is_path_part("train-worker-0") && is_path_part("a.b"));
    }
}
