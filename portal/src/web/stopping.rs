//! Stopping jobs: one mark on the job's own object, written with the user's token.

use fleet_api::names::STOP_ANNOTATION;
use serde_json::json;

use super::{session::Session, state::Web};
use crate::kinds;
use fleet_openpai::server::AskError;
use fleet_pages::page::JobName;

/// Jobs stopped by one request, and writes under way at once.
pub const MOST_STOPPED: usize = 1_000;
pub const AT_ONCE: usize = 16;

/// Marks one job, named as [`JobName::read`] takes it.
///
/// # Errors
/// There is no such job, or the hub does not let this user stop it.
pub async fn stop_one(web: &Web, session: &Session, name: &str) -> Result<(), AskError> {
    let refused = |code: u16, message: String| AskError::Refused { code, message };
    let not_named = || refused(400, "found no job of that form; allowed: NAMESPACE/RESOURCE/NAME".to_owned());
    let job = JobName::read(name).ok_or_else(not_named)?;
    let no_kind = || refused(404, format!("found the kind {}, which Fleet does not run", job.resource));
    let kind = kinds::of_resource(&job.resource).or_else(|| of_known(web, &job));
    let (api_version, kind) = kind.ok_or_else(no_kind)?;
    let path = format!("{}/{}", kinds::path(&api_version, &kind, &job.namespace), job.name);
    let patch = json!({"metadata": {"annotations": {STOP_ANNOTATION: "true"}}});
    let server = web.server_of(&session.credential);
    server.merge(&path, &patch).await.map(|_| ())
}

/// The kind of a job that the board has a binding of.
fn of_known(web: &Web, job: &JobName) -> Option<(String, String)> {
    let known = web.board.known();
    let found = &kinds::named(&known, job)?.binding;
    Some((found.api_version.clone(), found.kind.clone()))
}
