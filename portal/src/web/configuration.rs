//! Another configuration of the cells: written or pasted, looked at as a difference, and applied only as it was looked at.

use axum::{extract::State, response::Response};
use bytes::Bytes;
use fleet_api::yaml;
use http::{HeaderMap, StatusCode, Uri};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    act::checked,
    answer::{page_response, see, to_sign_in, trouble_page},
    rights::{Deed, may},
    session::Session,
    state::Shared,
};
use fleet_openpai::{
    cells::{
        CellsError, Standing, file,
        plan::{self, ConfigurationPlan, PlanError},
    },
    server::{AskError, Server},
};
use fleet_pages::{
    html::{Frame, configuration as draw, frame},
    shown::ConfigurationView,
};

const TITLE: &str = "Configuration of cells";
/// The page that shows what was done.
const DONE: &str = "/virtual-clusters";

pub async fn page(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let server = web.server_of(&session.credential);
    let shown = match Standing::read(&server).await {
        Ok(standing) => ConfigurationView { text: present(&standing), ..ConfigurationView::default() },
        Err(error) if is_unknown(&error) => return unknown(&web, &session, &uri),
        Err(error) => {
            let absent = format!("The configuration is not shown: {error}");
            ConfigurationView { absent, ..ConfigurationView::default() }
        }
    };
    drawn(&session, &shown, StatusCode::OK)
}

pub async fn post(State(web): Shared, headers: HeaderMap, uri: Uri, body: Bytes) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let form = match checked(&session, &body) {
        Ok(form) => form,
        Err(refusal) => return *refusal,
    };
    // Browsers end lines with CR LF.
    let text = form.get("yaml").replace("\r\n", "\n");
    let server = web.server_of(&session.credential);
    let mut view = ConfigurationView { text, ..ConfigurationView::default() };
    match looked(&server, &view.text).await {
        Ok(plan) => {
            view.seen = mark(&plan);
            view.may_apply = plan.is_change && may_write(&server, &plan).await;
            let is_same = form.get("seen") == view.seen;
            match form.get("do") {
                "apply" if is_same => match plan::apply(&server, &plan).await {
                    Ok(_) => return see(DONE),
                    Err(error) => view.troubles.push(error.to_string()),
                },
                "apply" => view.troubles.push(
                    "It was not applied: the text or the fleet has changed since the difference was shown. This is the difference now."
                        .to_owned(),
                ),
                _ => {}
            }
            view.plan = Some(plan);
        }
        Err(Wrong::Unknown) => return unknown(&web, &session, &uri),
        Err(Wrong::Troubles(troubles)) => view.troubles = troubles,
    }
    let status = if view.troubles.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    drawn(&session, &view, status)
}

enum Wrong {
    /// The hub does not know the user any more.
    Unknown,
    Troubles(Vec<String>),
}

async fn looked(server: &Server, text: &str) -> Result<ConfigurationPlan, Wrong> {
    let wanted = file::read(text).map_err(|errors| Wrong::Troubles(errors.0))?;
    let standing = Standing::read(server).await.map_err(|error| match is_unknown(&error) {
        true => Wrong::Unknown,
        false => Wrong::Troubles(vec![error.to_string()]),
    })?;
    plan::plan(&standing, &wanted, Timestamp::now()).map_err(|error| match error {
        PlanError::Config(errors) => Wrong::Troubles(errors.0.iter().map(ToString::to_string).collect()),
        other => Wrong::Troubles(vec![other.to_string()]),
    })
}

fn is_unknown(error: &CellsError) -> bool {
    matches!(error, CellsError::Ask(AskError::Refused { code: 401, .. }))
}

fn unknown(web: &super::Web, session: &Session, uri: &Uri) -> Response {
    let message = "the hub does not know the token any more".to_owned();
    trouble_page(web, session, uri, &AskError::Refused { code: 401, message })
}

/// The configuration that stands, to be changed; empty where there is none.
fn present(standing: &Standing) -> String {
    let Some(view) = standing.in_force() else { return String::new() };
    let object = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration",
        "metadata": {"name": view.object.name_any()}, "spec": view.object.spec});
    yaml::write(&object).unwrap_or_default()
}

/// Of everything that the difference says and of what it was compared with.
fn mark(plan: &ConfigurationPlan) -> String {
    let before = plan.before.as_ref().map(|(generation, spec)| json!([generation, spec]));
    let digest = Sha256::digest(json!([plan, plan.spec, before]).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn may_write(server: &Server, plan: &ConfigurationPlan) -> bool {
    let verb = if plan.before.is_some() { "patch" } else { "create" };
    let deed = Deed { verb, group: "fleet.dev", resource: "cellconfigurations", subresource: "" };
    may(server, deed, "").await.unwrap_or(false)
}

fn drawn(session: &Session, view: &ConfigurationView, status: StatusCode) -> Response {
    let of =
        Frame { title: TITLE, path: "/virtual-clusters", visitor: Some(&session.visitor), is_live: false };
    page_response(frame(&of, draw(view, &session.visitor)), status)
}
