//! Pods of a job, from the member it runs in, with what the user may read of that member.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fleet_api::names::{BINDING_UID_LABEL, MANAGED_LABEL, binding_name};
use fleet_views::{amounts::GPU, natural_order};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    members::{self, What},
    state::Web,
};
use fleet_openpai::server::{AskError, Selectors, Server, is_path_part};
use fleet_pages::{
    page::JobName,
    shown::{JobView, PodRow},
};

/// Numbers of the devices that a pod's cells are, as HiveD writes them.
const ISOLATION_ANNOTATION: &str = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation";
/// Pods shown of one job.
const MOST: usize = 200;
/// Pods that a member is asked for: those that failed are shown first, wherever they are in the list.
const MOST_LISTED: usize = 2_000;
/// A member that is slow must not hold up the page.
const MEMBER_ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// The pods of a job that is in a cluster, or has ended there: they stay until their member removes them.
pub async fn of_job(web: &Web, hub: &Server, view: &mut JobView) {
    let Some(row) = view.row.as_ref().filter(|row| !row.cluster.is_empty()) else { return };
    let (cluster, namespace, has_ended) = (&row.cluster, &row.namespace, row.state.is_final());
    let not_shown = |why: String| format!("The pods in {cluster} are not shown: {why}");
    let member = match members::reach(web, hub, cluster, namespace, What::Pods, MEMBER_ANSWERS_WITHIN).await {
        Ok(member) => member,
        Err(why) => {
            view.pods_absent = not_shown(why);
            return;
        }
    };
    let mut pods = match listed(hub, &member, &view.name).await {
        Ok(pods) => pods,
        Err(error) => {
            view.pods_absent = not_shown(error.to_string());
            return;
        }
    };
    // What its first user looks for is above the bound.
    pods.sort_by(|one, other| {
        other.has_failed.cmp(&one.has_failed).then_with(|| natural_order(&one.name, &other.name))
    });
    view.more_pods = pods.len().saturating_sub(MOST);
    pods.truncate(MOST);
    if pods.is_empty() {
        view.pods_absent = match has_ended {
            true => format!("No pod of it is left in {cluster}: exit codes and logs have gone with them."),
            false => format!("There is no pod of it in {cluster} now."),
        };
    }
    view.pods = pods;
}

async fn listed(hub: &Server, member: &Server, job: &JobName) -> Result<Vec<PodRow>, AskError> {
    let Some(mut makers) = makers(hub, member, job).await? else { return Ok(Vec::new()) };
    let path = format!("/api/v1/namespaces/{}/pods", job.namespace);
    let labels = Some(makers.labels.clone());
    let selectors = Selectors { labels, most: Some(MOST_LISTED), ..Selectors::default() };
    let listed = member.list(&path, &selectors, "application/json").await?;
    let items = listed["items"].as_array().map_or(&[][..], Vec::as_slice);
    makers.look_behind(member, &job.namespace, items).await;
    Ok(items.iter().filter(|pod| makers.made(pod)).map(pod).collect())
}

/// What makes the pods of one job in its member. Labels are no proof: anybody in the member can have chosen the same ones, for
/// pods that Fleet knows nothing of.
pub struct Makers {
    /// The job there, and what it has made to make its pods.
    uids: BTreeSet<String>,
    /// Which pods are asked for.
    labels: String,
}

/// Kinds by which others make pods: Deployments, and the launchers of MPIJobs.
const BETWEEN: [(&str, &str); 2] = [("apps/v1", "ReplicaSet"), ("batch/v1", "Job")];
/// How many of them are asked for.
const MOST_BETWEEN: usize = 16;

/// What makes the pods of the job's run, as the hub and the member see it; `None` without a run of it there.
///
/// # Errors
/// Hub or member do not answer, or do not let the user see it.
pub async fn makers(hub: &Server, member: &Server, job: &JobName) -> Result<Option<Makers>, AskError> {
    let Some((api_version, kind)) = crate::kinds::of_resource(&job.resource) else { return Ok(None) };
    let name = binding_name(&api_version, &kind, &job.name);
    let at_hub = format!("/apis/fleet.dev/v1alpha1/namespaces/{}/resourcebindings/{name}", job.namespace);
    let at_member = format!("{}/{}", crate::kinds::path(&api_version, &kind, &job.namespace), job.name);
    let (binding, live) = tokio::join!(hub.object(&at_hub), member.object(&at_member));
    match (binding, live) {
        (Ok(binding), Ok(live)) => Ok(Makers::of(&api_version, &binding, &live)),
        (Err(error), _) | (_, Err(error)) if error.is_not_found() => Ok(None),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

impl Makers {
    /// Of a job in the member, if Fleet has made it for this binding.
    fn of(api_version: &str, binding: &Value, live: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (of, labels) = (text(&binding["metadata"]["uid"])?, &live["metadata"]["labels"]);
        let is_own = labels[MANAGED_LABEL] == "true" && labels[BINDING_UID_LABEL] == of.as_str();
        let uid = text(&live["metadata"]["uid"]).filter(|_| is_own)?;
        let name = text(&live["metadata"]["name"])?;
        let labels = match label(api_version) {
            Some(label) => format!("{label}={name}"),
            None => {
                let chosen = live["spec"]["selector"]["matchLabels"].as_object();
                let pairs = chosen.into_iter().flatten();
                let pairs = pairs.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
                pairs.collect::<Vec<_>>().join(",")
            }
        };
        Some(Self { uids: [uid].into(), labels })
    }

    /// Whether a pod is of the run.
    pub fn made(&self, pod: &Value) -> bool {
        controller(pod).is_some_and(|owner| owner["uid"].as_str().is_some_and(|uid| self.uids.contains(uid)))
    }

    /// Asks the member who has made what makes these pods, where it is not the job itself.
    pub async fn look_behind(&mut self, member: &Server, namespace: &str, pods: &[Value]) {
        let mut between: BTreeMap<String, &Value> = BTreeMap::new();
        for owner in pods.iter().filter_map(controller) {
            let is_known = owner["uid"].as_str().is_none_or(|uid| self.uids.contains(uid));
            if !is_known && let Some(path) = path_between(owner, namespace) {
                between.insert(path, owner);
            }
        }
        for (path, owner) in between.into_iter().take(MOST_BETWEEN) {
            if let Ok(found) = member.object(&path).await {
                self.learn(owner, &found);
            }
        }
    }

    /// What was found behind an owner is the run's, if it is that object, and the run has made it.
    fn learn(&mut self, owner: &Value, found: &Value) {
        let uid = found["metadata"]["uid"].as_str().filter(|uid| owner["uid"] == *uid);
        if let Some(uid) = uid.filter(|_| self.made(found)) {
            self.uids.insert(uid.to_owned());
        }
    }
}

/// The owner that has made an object.
fn controller(object: &Value) -> Option<&Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)
}

/// Where an owner stands that is neither pod nor job; `None` of others.
fn path_between(owner: &Value, namespace: &str) -> Option<String> {
    let (api_version, kind) = BETWEEN
        .into_iter()
        .find(|(api_version, kind)| owner["apiVersion"] == *api_version && owner["kind"] == *kind)?;
    let name = owner["name"].as_str().filter(|name| is_path_part(name))?;
    Some(format!("{}/{name}", crate::kinds::path(api_version, kind, namespace)))
}

/// The label with the job's name on its pods; `None` of kinds whose pods have what the object selects.
fn label(api_version: &str) -> Option<&'static str> {
    match api_version {
        "batch.volcano.sh/v1alpha1" => Some("volcano.sh/job-name"),
        "batch/v1" => Some("batch.kubernetes.io/job-name"),
        "apps/v1" => None,
        _ => Some("training.kubeflow.org/job-name"),
    }
}

/// What its containers may use together.
fn gpus(spec: &Value) -> i64 {
    let containers = spec["containers"].as_array().into_iter().flatten();
    let amount = |one: &Value| match &one["resources"]["limits"][GPU] {
        Value::String(text) => text.parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    };
    containers.map(amount).fold(0, i64::saturating_add)
}

fn pod(object: &Value) -> PodRow {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = &object["status"];
    let containers = || status["containerStatuses"].as_array().into_iter().flatten();
    let ends = |when: &'static str| {
        containers().filter_map(move |one| one[when]["terminated"].as_object()).map(|end| {
            let code = end.get("exitCode").and_then(Value::as_i64).unwrap_or(0);
            (code, end.get("reason").and_then(Value::as_str))
        })
    };
    let exits = |when: &'static str| {
        let exits = ends(when).map(|(code, reason)| match reason {
            Some(reason) => format!("{code} ({reason})"),
            None => code.to_string(),
        });
        exits.collect::<Vec<_>>().join(", ")
    };
    let exit = match (exits("state"), exits("lastState")) {
        (now, before) if now.is_empty() && !before.is_empty() => format!("{before}, before its last restart"),
        (now, _) => now,
    };
    let waiting = containers().find_map(|one| one["state"]["waiting"]["reason"].as_str());
    let phase = text(&status["phase"]);
    let has_failed = phase == "Failed" || ends("state").any(|(code, _)| code != 0);
    let state = match (waiting, status["reason"].as_str()) {
        (Some(waiting), _) => waiting.to_owned(),
        (None, Some(reason)) => format!("{phase} ({reason})"),
        (None, None) => phase,
    };
    PodRow {
        name: text(&object["metadata"]["name"]),
        node: text(&object["spec"]["nodeName"]),
        state,
        exit,
        has_failed,
        gpus: gpus(&object["spec"]),
        gpu_numbers: text(&object["metadata"]["annotations"][ISOLATION_ANNOTATION]),
        restarts: containers().filter_map(|one| one["restartCount"].as_i64()).fold(0, i64::saturating_add),
        created_s: object["metadata"]["creationTimestamp"]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
            .map(Timestamp::as_second),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(by: (&str, &str, &str)) -> Value {
        json!({"metadata": {"labels": {"app": "web", "training.kubeflow.org/job-name": "train"}, "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "job"},
            {"apiVersion": by.0, "kind": by.1, "name": "o", "uid": by.2, "controller": true}]}})
    }

    #[test]
    fn a_pod_is_of_the_job_that_made_it() {
        let binding = json!({"metadata": {"uid": "b1"}});
        let live = |managed: &str, of: &str| {
            json!({"metadata": {"name": "train", "uid": "job",
                "labels": {"fleet.dev/managed": managed, "fleet.dev/binding-uid": of}}})
        };
        let makers = Makers::of("kubeflow.org/v1", &binding, &live("true", "b1")).expect("it is Fleet's");
        assert_eq!(makers.labels, "training.kubeflow.org/job-name=train");
        assert!(makers.made(&owned(("kubeflow.org/v1", "PyTorchJob", "job"))));
        // Its labels alone make no pod the job's, nor does an owner that has not made it.
        assert!(!makers.made(&owned(("kubeflow.org/v1", "TFJob", "other"))));
        assert!(!makers.made(&json!({"metadata": {"labels": {"training.kubeflow.org/job-name": "train"}}})));
        // A job of the same name that Fleet has not made, or has made for another binding.
        for (managed, of) in [("", "b1"), ("true", "b0"), ("true", "")] {
            assert!(Makers::of("kubeflow.org/v1", &binding, &live(managed, of)).is_none(), "{managed} {of}");
        }
        assert!(Makers::of("kubeflow.org/v1", &json!({}), &live("true", "")).is_none());
    }

    #[test]
    fn what_a_deployment_has_made_makes_its_pods() {
        let binding = json!({"metadata": {"uid": "b1"}});
        let live = json!({"metadata": {"name": "web", "uid": "job",
            "labels": {"fleet.dev/managed": "true", "fleet.dev/binding-uid": "b1"}},
            "spec": {"selector": {"matchLabels": {"app": "web", "tier": "front"}}}});
        let mut makers = Makers::of("apps/v1", &binding, &live).expect("it is Fleet's");
        assert_eq!(makers.labels, "app=web,tier=front");
        let pod = owned(("apps/v1", "ReplicaSet", "rs"));
        assert!(!makers.made(&pod));
        let owner = controller(&pod).expect("an owner");
        assert_eq!(path_between(owner, "a").as_deref(), Some("/apis/apps/v1/namespaces/a/replicasets/o"));
        let set = |uid: &str, by: &str| {
            let mut set = owned(("apps/v1", "Deployment", by));
            set["metadata"]["uid"] = uid.into();
            set
        };
        // Another Deployment with pods of the same labels, and another ReplicaSet that has the name now.
        makers.learn(owner, &set("rs", "another"));
        makers.learn(owner, &set("rs2", "job"));
        assert!(!makers.made(&pod));
        makers.learn(owner, &set("rs", "job"));
        assert!(makers.made(&pod));
        assert_eq!(path_between(&json!({"apiVersion": "v1", "kind": "Node", "name": "n"}), "a"), None);
        let odd = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "../x"});
        assert_eq!(path_between(&odd, "a"), None);
    }

    #[test]
    fn no_number_of_a_member_overflows() {
        let object = json!({
            "spec": {"containers": [
                {"resources": {"limits": {GPU: i64::MAX.to_string()}}}, {"resources": {"limits": {GPU: i64::MAX}}}]},
            "status": {"containerStatuses": [{"restartCount": i64::MAX}, {"restartCount": i64::MAX}]},
        });
        assert_eq!((pod(&object).gpus, pod(&object).restarts), (i64::MAX, i64::MAX));
    }

    #[test]
    fn a_pod_says_how_it_ended() {
        let check = |status: Value, expected: (&str, &str, bool)| {
            let row = pod(&json!({"metadata": {"name": "p"}, "status": status}));
            assert_eq!((row.state.as_str(), row.exit.as_str(), row.has_failed), expected, "{status}");
        };
        let ended = |code: i64| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        check(
            json!({"phase": "Failed", "containerStatuses": [{"state": ended(3)}]}),
            ("Failed", "3 (Error)", true),
        );
        check(json!({"phase": "Failed", "reason": "Evicted"}), ("Failed (Evicted)", "", true));
        check(
            json!({"phase": "Running", "containerStatuses": [{"state": {"running": {}}, "lastState": ended(137)}]}),
            ("Running", "137 (Error), before its last restart", false),
        );
        check(
            json!({"phase": "Running", "containerStatuses": [
                {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(1)}]}),
            ("CrashLoopBackOff", "1 (Error), before its last restart", false),
        );
    }
}
