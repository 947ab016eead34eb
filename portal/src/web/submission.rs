//! A job handed to the hub with its user's token: an object of any kind of job, or a job file of OpenPAI; or only
//! checked, as a dry run.

use fleet_api::names::USER_LABELS;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    rights,
    session::Session,
    state::Web,
    view::{queue_outlook, would_go},
};
use crate::kinds;
use fleet_openpai::{
    jobs::{self, JobError, Offers, Who},
    server::{AskError, Server},
};
use fleet_pages::{
    form::{Trouble, read_yaml},
    page::JobName,
    shown::Check,
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Do {
    Create,
    Check,
}

pub enum Done {
    Made(JobName),
    Checked(Check),
}

/// Why there is no job, with a status of HTTP.
#[derive(Debug)]
pub struct Refusal {
    pub code: u16,
    pub message: String,
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Self {
        Self { code: error.status(), message: error.to_string() }
    }
}

impl From<JobError> for Refusal {
    fn from(error: JobError) -> Self {
        Self { code: error.status(), message: error.to_string() }
    }
}

impl From<Vec<Trouble>> for Refusal {
    fn from(troubles: Vec<Trouble>) -> Self {
        let messages: Vec<String> = troubles.into_iter().map(|trouble| trouble.message).collect();
        Self { code: 400, message: messages.join("; ") }
    }
}

/// `namespace` is that of a job that names none; empty: the portal's own.
///
/// # Errors
/// The text is no job, or the hub refuses it.
pub async fn by_text(
    web: &Web,
    session: &Session,
    text: &str,
    namespace: &str,
    wanted: Do,
) -> Result<Done, Refusal> {
    let namespace = if namespace.is_empty() { web.namespace.as_str() } else { namespace };
    let mut object = read_yaml(text)?;
    if !object["protocolVersion"].is_null() {
        return by_protocol(web, session, text, namespace, wanted).await;
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
        return Err(Refusal { code: 400, message: format!("kind: found {found}; allowed: {allowed}") });
    }
    make(web, session, object, wanted).await
}

async fn by_protocol(
    web: &Web,
    session: &Session,
    text: &str,
    namespace: &str,
    wanted: Do,
) -> Result<Done, Refusal> {
    let server = web.server_of(&session.credential);
    let user = jobs::user_of(&server).await?;
    let who = Who { user: &user, namespace };
    let now_ms = Timestamp::now().as_millisecond();
    let offers = Offers::read(&server).await?;
    if wanted == Do::Check {
        let (_, native) = jobs::native_objects(text, who, &offers, now_ms)?;
        let mut check = dry_run(web, session, &server, &native.job).await?;
        check.notices.extend(native.notices);
        return Ok(Done::Checked(check));
    }
    let taken = jobs::submit(&server, text, who, &offers, now_ms).await?;
    Ok(Done::Made(JobName::new(&taken.namespace, "jobs.batch.volcano.sh", &taken.object)))
}

/// # Errors
/// The hub refuses the object.
pub async fn make(web: &Web, session: &Session, mut object: Value, wanted: Do) -> Result<Done, Refusal> {
    name_user(&mut object, &session.visitor.user);
    let server = web.server_of(&session.credential);
    if wanted == Do::Check {
        return Ok(Done::Checked(dry_run(web, session, &server, &object).await?));
    }
    let made = server.create(&format!("{}?fieldValidation=Strict", path_of(&object)), &object).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let resource = kinds::resource(&text(&made["apiVersion"]), &text(&made["kind"]));
    let metadata = &made["metadata"];
    Ok(Done::Made(JobName::new(&text(&metadata["namespace"]), &resource, &text(&metadata["name"]))))
}

/// People find their jobs by the label. A job that has one keeps it.
fn name_user(object: &mut Value, user: &str) {
    let user = fleet_pai::names::user(user);
    let labels = &object["metadata"]["labels"];
    let is_named = USER_LABELS.iter().any(|label| labels[*label].is_string());
    if !user.is_empty()
        && !is_named
        && object["metadata"].is_object()
        && (labels.is_null() || labels.is_object())
    {
        object["metadata"]["labels"][USER_LABELS[0]] = json!(user);
    }
}

fn path_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = fleet_pages::pairs::encode(&text(&object["metadata"]["namespace"]));
    kinds::path(&text(&object["apiVersion"]), &text(&object["kind"]), &namespace)
}

/// Everything the hub checks, without keeping the object; and which clusters could hold it now.
async fn dry_run(web: &Web, session: &Session, server: &Server, object: &Value) -> Result<Check, AskError> {
    let path = format!("{}?dryRun=All&fieldValidation=Strict", path_of(object));
    let taken = server.create(&path, object).await?;
    let sight = rights::sight(web, session).await?;
    let verdicts = would_go(web, &sight, &taken);
    let mut notices = vec!["Its fields are right, and you may create it.".to_owned()];
    let outlook = queue_outlook(web, &sight, &taken);
    let never = outlook.iter().any(|said| said.starts_with("It would never start"));
    if !verdicts.is_empty() && !verdicts.iter().any(|verdict| verdict.fits) && !never {
        notices.push("No cluster can hold the whole job now: it would wait.".to_owned());
    }
    notices.extend(outlook);
    Ok(Check { notices, verdicts })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::name_user;

    #[test]
    fn a_job_says_who_submitted_it() {
        let check = |metadata: Value, expected: Value| {
            let mut object = json!({"metadata": metadata});
            name_user(&mut object, "system:serviceaccount:team:alice");
            assert_eq!(object["metadata"]["labels"], expected);
        };
        check(json!({"name": "a"}), json!({"fleet.dev/user": "alice"}));
        check(json!({"labels": {"a": "b"}}), json!({"a": "b", "fleet.dev/user": "alice"}));
        check(json!({"labels": {"fleet.dev/user": "bob"}}), json!({"fleet.dev/user": "bob"}));
        check(json!({"labels": {"pai.fleet.dev/user": "bob"}}), json!({"pai.fleet.dev/user": "bob"}));
        // The hub says what is wrong with these.
        check(json!({"labels": "odd"}), json!("odd"));
        check(json!("odd"), Value::Null);
    }
}
