//! Submitting: by the form, as YAML of any kind, or as an OpenPAI job file; first as a dry run by the hub.

use axum::{extract::State, response::Response};
use bytes::Bytes;
use fleet_api::yaml;
use http::{HeaderMap, StatusCode, Uri};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    act::{checked, forget_sight},
    answer::{see, to_sign_in, trouble_page, whole},
    form::{Form, Trouble, clone_of, read_yaml},
    page::{JobName, Page},
    pairs::Pairs,
    rights,
    session::Session,
    shown::{Check, SubmitView, View},
    state::{Shared, Web},
    view::{choices, would_go},
};
use crate::{
    jobs::{self, Offers, Who},
    kinds,
    server::{AskError, Server},
};

/// What the form's button asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Do {
    Create,
    Check,
}

pub async fn page(State(web): Shared, headers: HeaderMap, uri: Uri) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let pairs = Pairs::read(uri.query().unwrap_or(""));
    let mut draft = Draft::new(Form::new(&web.namespace));
    if pairs.get("mode") == "yaml" {
        draft.yaml = Some(String::new());
    }
    if let Some(name) = JobName::read(pairs.get("clone")) {
        match copy_of(&web, &session, &name).await {
            Ok(text) => draft.yaml = Some(text),
            Err(error) => draft.troubles.push(Trouble::new("", format!("The job cannot be cloned: {error}"))),
        }
    }
    draft
        .show(&web, &session, StatusCode::OK)
        .await
        .unwrap_or_else(|error| trouble_page(&web, &session, &uri, &error))
}

async fn copy_of(web: &Web, session: &Session, name: &JobName) -> Result<String, AskError> {
    let missing = || AskError::Refused { code: 404, message: format!("found no kind {}", name.resource) };
    let (api_version, kind) = kinds::of_resource(&name.resource).ok_or_else(missing)?;
    let path = format!("{}/{}", kinds::path(&api_version, &kind, &name.namespace), name.name);
    let object = web.server_of(&session.credential).object(&path).await?;
    // What it was submitted as, where it was an OpenPAI job.
    let config = object["metadata"]["annotations"][fleet_pai::names::CONFIG_ANNOTATION].as_str();
    Ok(config.map_or_else(|| yaml::write(&clone_of(&object)).unwrap_or_default(), str::to_owned))
}

pub async fn post(State(web): Shared, headers: HeaderMap, uri: Uri, body: Bytes) -> Response {
    let Some(session) = web.sessions.of(&headers) else { return to_sign_in(&uri) };
    let pairs = match checked(&session, &body) {
        Ok(pairs) => pairs,
        Err(refusal) => return *refusal,
    };
    let wanted = if pairs.get("do") == "check" { Do::Check } else { Do::Create };
    let mut draft = Draft::new(Form::read(&pairs));
    let done = if pairs.get("mode") == "yaml" {
        // Browsers end lines with CR LF.
        let text = pairs.get("yaml").replace("\r\n", "\n");
        draft.yaml = Some(text.clone());
        by_text(&web, &session, &text, &draft.form.namespace, wanted).await
    } else if pairs.get("do") == "yaml" {
        match draft.form.object() {
            Ok(object) => draft.yaml = Some(yaml::write(&object).unwrap_or_default()),
            Err(troubles) => draft.troubles = troubles,
        }
        Ok(None)
    } else {
        by_form(&web, &session, &draft.form, wanted).await
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

enum Done {
    Made(JobName),
    Checked(Check),
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
        let (queues, classes) = choices(web, session, &sight).await;
        let Self { form, yaml, troubles, check } = self;
        let view = View::Submit(Box::new(SubmitView { form, yaml, troubles, check, queues, classes }));
        Ok(whole(web, session, &Page::Submit(Pairs::default()), "/submit", &view, status))
    }
}

async fn by_form(
    web: &Web,
    session: &Session,
    form: &Form,
    wanted: Do,
) -> Result<Option<Done>, Vec<Trouble>> {
    let object = form.object()?;
    let place = |error: AskError| {
        let message = error.to_string();
        vec![Trouble::new(form.field_of(&message), message)]
    };
    make(web, session, object, wanted).await.map_err(place)
}

async fn by_text(
    web: &Web,
    session: &Session,
    text: &str,
    namespace: &str,
    wanted: Do,
) -> Result<Option<Done>, Vec<Trouble>> {
    let in_text = |message: String| vec![Trouble::new("yaml", message)];
    let namespace = if namespace.is_empty() { web.namespace.as_str() } else { namespace };
    let mut object = read_yaml(text)?;
    if !object["protocolVersion"].is_null() {
        return by_protocol(web, session, text, namespace, wanted).await.map_err(in_text);
    }
    if object["metadata"].is_object() && object["metadata"]["namespace"].is_null() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let known = object["apiVersion"].as_str().zip(object["kind"].as_str());
    let is_job =
        known.is_some_and(|(version, kind)| kinds::of_resource(&kinds::resource(version, kind)).is_some());
    if !is_job {
        let found = format!(
            "{} {}",
            object["apiVersion"].as_str().unwrap_or("no apiVersion"),
            object["kind"].as_str().unwrap_or("and no kind")
        );
        let allowed = "PyTorchJob, TFJob, MPIJob, a Volcano Job, a batch Job, Deployment, StatefulSet, or an OpenPAI job file";
        return Err(in_text(format!("kind: found {found}; allowed: {allowed}")));
    }
    make(web, session, object, wanted).await.map_err(|error| in_text(error.to_string()))
}

async fn by_protocol(
    web: &Web,
    session: &Session,
    text: &str,
    namespace: &str,
    wanted: Do,
) -> Result<Option<Done>, String> {
    let server = web.server_of(&session.credential);
    let user = jobs::user_of(&server).await.map_err(|error| error.to_string())?;
    let who = Who { user: &user, namespace };
    let now_ms = Timestamp::now().as_millisecond();
    let offers = Offers::read(&server).await.map_err(|error| error.to_string())?;
    if wanted == Do::Check {
        let (_, native) =
            jobs::native_objects(text, who, &offers, now_ms).map_err(|error| error.to_string())?;
        let mut check =
            dry_run(web, session, &server, &native.job).await.map_err(|error| error.to_string())?;
        check.notices.extend(native.notices);
        return Ok(Some(Done::Checked(check)));
    }
    let taken = jobs::submit(&server, text, who, &offers, now_ms).await.map_err(|error| error.to_string())?;
    Ok(Some(Done::Made(JobName::new(&taken.namespace, "jobs.batch.volcano.sh", &taken.object))))
}

async fn make(web: &Web, session: &Session, object: Value, wanted: Do) -> Result<Option<Done>, AskError> {
    let server = web.server_of(&session.credential);
    if wanted == Do::Check {
        return Ok(Some(Done::Checked(dry_run(web, session, &server, &object).await?)));
    }
    let made = server.create(&format!("{}?fieldValidation=Strict", path_of(&object)), &object).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = kinds::resource(&text(&made["apiVersion"]), &text(&made["kind"]));
    let metadata = &made["metadata"];
    Ok(Some(Done::Made(JobName::new(&text(&metadata["namespace"]), &resource, &text(&metadata["name"])))))
}

fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = super::pairs::encode(&text(&object["metadata"]["namespace"]));
    kinds::path(&text(&object["apiVersion"]), &text(&object["kind"]), &namespace)
}

/// Everything the hub checks, without keeping the object; and which clusters could hold it now.
async fn dry_run(web: &Web, session: &Session, server: &Server, object: &Value) -> Result<Check, AskError> {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", path_of(object));
    let taken = server.create(&path, object).await?;
    let sight = rights::sight(web, session).await?;
    let verdicts = would_go(web, &sight, &taken);
    let mut notices = vec!["Its fields are right, and you may create it.".to_owned()];
    if !verdicts.is_empty() && !verdicts.iter().any(|verdict| verdict.fits) {
        notices.push("No cluster can hold the whole job now: it would wait.".to_owned());
    }
    Ok(Check { notices, verdicts })
}
