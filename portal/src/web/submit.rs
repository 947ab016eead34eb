//! Submitting: by the form, as YAML of any kind, or as an OpenPAI job file; first as a dry run by the hub.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use fleet_api::yaml;
use http::{HeaderMap, StatusCode, Uri, header};

use super::{
    act::{checked, forget_sight},
    answer::{see, to_sign_in, trouble_page, whole},
    rights,
    session::Session,
    state::{Shared, Web},
    submission::{Do, Done, by_text, make},
    view::{Choices, choices},
};
use crate::kinds;
use fleet_openpai::server::AskError;
use fleet_pages::{
    form::{Form, Trouble, clone_of},
    page::{JobName, Page},
    pairs::Pairs,
    shown::{Check, SubmitView, View},
};

pub async fn page(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let pairs = Pairs::read(uri.query().unwrap_or(""));
    let mut draft = Draft::new(Form::new(&web.namespace));
    if pairs.get("mode") == "yaml" {
        draft.yaml = Some(String::new());
    }
    if let Some(name) = JobName::read(pairs.get("clone")) {
        match copy_of(&web, &session, &name).await {
            Ok((Some(form), _)) if pairs.get("mode") != "yaml" => draft.form = form,
            Ok((_, text)) => draft.yaml = Some(text),
            Err(error) => draft.troubles.push(Trouble::new("", format!("The job cannot be cloned: {error}"))),
        }
    }
    draft
        .show(&web, &session, StatusCode::OK)
        .await
        .unwrap_or_else(|error| trouble_page(&web, &session, &uri, &error))
}

/// A job to be submitted again: in the form, where that says everything of it, and as text.
async fn copy_of(web: &Web, session: &Session, name: &JobName) -> Result<(Option<Form>, String), AskError> {
    let missing = || AskError::Refused { code: 404, message: format!("found no kind {}", name.resource) };
    let (api_version, kind) = kinds::of_resource(&name.resource).ok_or_else(missing)?;
    let path = format!("{}/{}", kinds::path(&api_version, &kind, &name.namespace), name.name);
    let object = web.server_of(&session.credential).object(&path).await?;
    // What it was submitted as, where it was an OpenPAI job.
    if let Some(config) = object["metadata"]["annotations"][fleet_pai::names::CONFIG_ANNOTATION].as_str() {
        return Ok((None, config.to_owned()));
    }
    let copy = clone_of(&object);
    Ok((Form::of(&copy), yaml::write(&copy).unwrap_or_default()))
}

pub async fn post(State(web): Shared, headers: HeaderMap, uri: Uri, body: Bytes) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let pairs = match checked(&session, &body) {
        Ok(pairs) => pairs,
        Err(refusal) => return *refusal,
    };
    let wanted = if pairs.get("do") == "check" { Do::Check } else { Do::Create };
    let mut draft = Draft::new(Form::read(&pairs));
    if pairs.get("do") == "export" {
        match exported(&pairs, &draft.form) {
            Ok(text) => return as_file(&draft.form.name, text),
            Err(troubles) => draft.troubles = troubles,
        }
    }
    let done = if pairs.get("mode") == "yaml" {
        // Browsers end lines with CR LF.
        let text = pairs.get("yaml").replace("\r\n", "\n");
        draft.yaml = Some(text.clone());
        let done = by_text(&web, &session, &text, &draft.form.namespace, wanted).await;
        done.map(Some).map_err(|refusal| vec![Trouble::new("yaml", refusal.message)])
    } else if !draft.troubles.is_empty() {
        Err(std::mem::take(&mut draft.troubles))
    } else if pairs.get("do") == "yaml" {
        match draft.form.object() {
            Ok(object) => draft.yaml = Some(yaml::write(&object).unwrap_or_default()),
            Err(troubles) => draft.troubles = troubles,
        }
        Ok(None)
    } else {
        match draft.form.object() {
            Ok(object) => {
                let done = make(&web, &session, object, wanted).await;
                done.map(Some).map_err(|refusal| {
                    vec![Trouble::new(&draft.form.field_of(&refusal.message), refusal.message)]
                })
            }
            Err(troubles) => Err(troubles),
        }
    };
    forget_sight(&session);
    let status = match done {
        Ok(Some(Done::Made(name))) => return see(&name.link()),
        Ok(Some(Done::Checked(check))) => {
            draft.check = Some(check);
            StatusCode::OK
        }
        Ok(None) => StatusCode::OK,
        Err(troubles) => {
            draft.troubles = troubles;
            StatusCode::UNPROCESSABLE_ENTITY
        }
    };
    draft
        .show(&web, &session, status)
        .await
        .unwrap_or_else(|error| trouble_page(&web, &session, &uri, &error))
}

/// The job as a file.
fn exported(pairs: &Pairs, form: &Form) -> Result<String, Vec<Trouble>> {
    match pairs.get("mode") {
        "yaml" => Ok(pairs.get("yaml").replace("\r\n", "\n")),
        _ => Ok(yaml::write(&form.object()?).unwrap_or_default()),
    }
}

fn as_file(name: &str, text: String) -> Response {
    // A name that is no name of a job could say more than a name in the header.
    let name = if fleet_pages::form::is_name(name) { name } else { "job" };
    let headers = [
        (header::CONTENT_TYPE, "application/yaml; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.yaml\"")),
    ];
    (headers, text).into_response()
}

struct Draft {
    form: Form,
    yaml: Option<String>,
    troubles: Vec<Trouble>,
    check: Option<Check>,
}

impl Draft {
    fn new(form: Form) -> Self {
        Self { form, yaml: None, troubles: Vec::new(), check: None }
    }

    async fn show(self, web: &Web, session: &Session, status: StatusCode) -> Result<Response, AskError> {
        let sight = rights::sight(web, session).await?;
        let Choices { queues, virtual_clusters, classes } = choices(web, session, &sight).await;
        let Self { form, yaml, troubles, check } = self;
        let shown = SubmitView { form, yaml, troubles, check, queues, virtual_clusters, classes };
        let view = View::Submit(Box::new(shown));
        Ok(whole(web, session, &Page::Submit(Pairs::default()), "/submit", &view, status))
    }
}
