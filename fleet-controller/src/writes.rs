//! Sends the writes of a plan.
//!
//! The server's answer comes back as an observation, so the world knows the result before the watch reports
//! it.

#[cfg(test)]
mod tests;

use std::time::Duration;

use fleet_api::{
    CellConfiguration, Cluster, ClusterPropagationPolicy, ElasticQuotaTree, PropagationPolicy, Queue,
    QueueUnit, Reservation, ResourceBinding, VirtualCluster, Work, names,
};
use k8s_openapi::{
    ClusterResourceScope, NamespaceResourceScope,
    api::{
        coordination::v1::Lease,
        core::v1::{Event, Namespace},
    },
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::{DynamicObject, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use fleet_informer::without_managers;

use fleet_hub_core::observation::{Change, Observation};
pub use fleet_hub_core::writes::{Target, Verb, Write};

/// Timeout of one request.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a write did not happen, as far as the plan needs it.
#[derive(Debug)]
pub enum Refused {
    /// Conflict: the object exists already, or has changed. Reconcile again.
    Stale,
    /// The object or its namespace does not exist, or the namespace is terminating. Reconcile again.
    Absent,
    /// The server refused the write for good; its message.
    Rejected(String),
    /// The controller lacks the right: an early retry is useless.
    Forbidden(String),
    /// The server was busy and did nothing: retry later.
    Passing(String),
    /// Unknown outcome: no answer, or one after which the write may still take effect.
    Unknown(String),
}

/// Result of a write.
pub struct Sent {
    /// The current object on the server.
    pub observation: Option<Observation>,
    pub refused: Option<Refused>,
}

impl From<Result<Option<Observation>, Refused>> for Sent {
    fn from(answer: Result<Option<Observation>, Refused>) -> Self {
        match answer {
            Ok(observation) => Self { observation, refused: None },
            Err(refused) => Self { observation: None, refused: Some(refused) },
        }
    }
}

/// First back-off before a write with an unknown outcome is sent again; doubles up to the longest one.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(100);
const UNKNOWN_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Most failed reads, for lack of a right, after a write with an unknown outcome: by then the watch has
/// reported the object.
const FORBIDDEN_READS: u32 = 12;

/// Sends a write until its outcome is known: quota and places that it takes must not be given to another job
/// while it may still take effect. It ends with the process at the latest. The write must be idempotent.
/// After a conflict the current object is returned as well.
pub async fn send_until_known(client: &Client, write: Write) -> Sent {
    let mut pause = UNKNOWN_PAUSE;
    let mut sent_before = false;
    let mut reads_left = FORBIDDEN_READS;
    loop {
        let (message, undone) = match send(client, write.clone()).await {
            Err(Refused::Unknown(message)) => (message, false),
            // This answer says nothing about the previous request, which may still be in flight.
            Err(Refused::Passing(message)) if sent_before => (message, true),
            Err(refused @ (Refused::Stale | Refused::Absent)) => match read(client, &write).await {
                Ok(found) if sent_before && found.as_ref().is_some_and(|found| found.shows(&write.verb)) => {
                    return Sent::from(Ok(found.map(|found| found.observation)));
                }
                Ok(found) => {
                    let observation = found.map(|found| found.observation);
                    return Sent { observation, refused: Some(refused) };
                }
                Err(NotRead::Forbidden(message)) if !sent_before || reads_left == 0 => {
                    return Err(Refused::Forbidden(message)).into();
                }
                Err(NotRead::Forbidden(message)) => {
                    reads_left -= 1;
                    (message, true)
                }
                Err(NotRead::Unknown(message)) => (message, true),
            },
            answer => return answer.into(),
        };
        sent_before |= !undone;
        tracing::warn!(target = ?write.target, name = %write.name, %message, "unknown outcome of a write; sending it again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(UNKNOWN_PAUSE_MAX);
    }
}

/// An object that was read, as an observation and as JSON.
struct ReadObject {
    observation: Observation,
    object: Value,
}

impl ReadObject {
    fn new<K: Resource + Serialize>(object: K, wrap: impl FnOnce(Change<K>) -> Observation) -> Self {
        let object = without_managers(object);
        let json = serde_json::to_value(&object).unwrap_or_default();
        Self { observation: wrap(Change::Answer(object)), object: json }
    }

    /// Whether the object has everything that a JSON patch sets.
    fn shows(&self, verb: &Verb) -> bool {
        let Verb::Patch(Value::Array(operations)) = verb else { return false };
        let mut sets = operations.iter().filter(|operation| operation["op"] != "test");
        sets.all(|operation| {
            let path = operation["path"].as_str().unwrap_or_default();
            self.object.pointer(path) == Some(&operation["value"])
        })
    }
}

/// Why the current object is unknown.
enum NotRead {
    Forbidden(String),
    Unknown(String),
}

/// The object that a reservation or a bind was to write; `None` if there is none.
async fn read(client: &Client, write: &Write) -> Result<Option<ReadObject>, NotRead> {
    let (namespace, name) = (&write.namespace, &write.name);
    let asked = async {
        Ok(match write.target {
            Target::Binding => namespaced::<ResourceBinding>(client, namespace)
                .get_opt(name)
                .await?
                .map(|object| ReadObject::new(object, Observation::Binding)),
            Target::Reservation => namespaced::<Reservation>(client, namespace)
                .get_opt(name)
                .await?
                .map(|object| ReadObject::new(object, Observation::Reservation)),
            _ => None,
        })
    };
    match tokio::time::timeout(WRITE_TIMEOUT, asked).await {
        Ok(answer) => answer.map_err(|error: kube::Error| match error {
            kube::Error::Api(status) if status.code == 403 => NotRead::Forbidden(status.message.clone()),
            other => NotRead::Unknown(other.to_string()),
        }),
        Err(_) => Err(NotRead::Unknown(format!("no answer within {} s", WRITE_TIMEOUT.as_secs()))),
    }
}

/// Sends one write.
pub async fn send(client: &Client, write: Write) -> Result<Option<Observation>, Refused> {
    let patched = matches!(write.verb, Verb::Patch(_));
    match tokio::time::timeout(WRITE_TIMEOUT, dispatch(client, write)).await {
        Ok(Ok(observation)) => Ok(observation),
        Ok(Err(error)) => Err(classify(error, patched)),
        Err(_) => Err(Refused::Unknown(format!("no answer within {} s", WRITE_TIMEOUT.as_secs()))),
    }
}

fn classify(error: kube::Error, patched: bool) -> Refused {
    match error {
        kube::Error::Api(status) => match status.code {
            404 | 410 => Refused::Absent,
            409 => Refused::Stale,
            // A `test` operation of a JSON patch failed.
            422 if patched => Refused::Stale,
            403 if is_of_ending_namespace(&status) => Refused::Absent,
            403 => Refused::Forbidden(status.message.clone()),
            429 => Refused::Passing(status.message.clone()),
            500..=599 => Refused::Unknown(status.message.clone()),
            _ => Refused::Rejected(status.message.clone()),
        },
        other => Refused::Unknown(other.to_string()),
    }
}

/// Whether a namespace is about to be gone with all its objects: no right is missing, and there is nothing to grant.
fn is_of_ending_namespace(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

async fn dispatch(client: &Client, write: Write) -> kube::Result<Option<Observation>> {
    let Write { target, namespace, name, verb, then: _ } = write;
    let delete = matches!(verb, Verb::Delete { .. });
    // The watch reports the end of a deletion; other writes return the object.
    macro_rules! apply {
        ($api:expr, $wrap:expr) => {{
            let object = perform($api, &name, verb).await?;
            Ok(if delete { None } else { object.map(without_managers).map(Change::Answer).map($wrap) })
        }};
    }
    match target {
        Target::Binding => apply!(namespaced::<ResourceBinding>(client, &namespace), Observation::Binding),
        Target::Unit => apply!(namespaced::<QueueUnit>(client, &namespace), Observation::Unit),
        Target::Queue => apply!(namespaced::<Queue>(client, &namespace), Observation::Queue),
        Target::Tree => apply!(namespaced::<ElasticQuotaTree>(client, &namespace), Observation::Tree),
        Target::Reservation => {
            apply!(namespaced::<Reservation>(client, &namespace), Observation::Reservation)
        }
        Target::Work => apply!(namespaced::<Work>(client, &namespace), Observation::Work),
        Target::Policy => apply!(namespaced::<PropagationPolicy>(client, &namespace), Observation::Policy),
        Target::CellConfiguration => {
            apply!(scoped::<CellConfiguration>(client), Observation::CellConfiguration)
        }
        Target::VirtualCluster => apply!(scoped::<VirtualCluster>(client), Observation::VirtualCluster),
        Target::Cluster => apply!(scoped::<Cluster>(client), Observation::Cluster),
        Target::ClusterPolicy => {
            apply!(scoped::<ClusterPropagationPolicy>(client), Observation::ClusterPolicy)
        }
        Target::Namespace => apply!(scoped::<Namespace>(client), Observation::Namespace),
        Target::Lease => apply!(namespaced::<Lease>(client, &namespace), Observation::Lease),
        Target::Event => {
            perform(namespaced::<Event>(client, &namespace), &name, verb).await?;
            Ok(None)
        }
        Target::Object(kind) => {
            let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kind.resource());
            apply!(api, |change| Observation::Object(kind.clone(), change))
        }
    }
}

fn namespaced<K>(client: &Client, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), namespace)
}

fn scoped<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
{
    Api::all(client.clone())
}

async fn perform<K>(api: Api<K>, name: &str, verb: Verb) -> kube::Result<Option<K>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let manager = Some(names::CONTROLLER_MANAGER.to_string());
    match verb {
        Verb::Create(body) => {
            let params = PostParams { field_manager: manager, ..PostParams::default() };
            let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
            create_raw(api, &params, body).await.map(Some)
        }
        Verb::Merge(patch) => {
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            api.patch(name, &params, &Patch::Merge(patch)).await.map(Some)
        }
        Verb::Patch(operations) => {
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            let patch = serde_json::from_value(operations).map_err(kube::Error::SerdeError)?;
            api.patch(name, &params, &Patch::<()>::Json(patch)).await.map(Some)
        }
        Verb::MergeStatus(patch) => {
            let params = PatchParams { field_manager: manager, ..PatchParams::default() };
            api.patch_status(name, &params, &Patch::Merge(patch)).await.map(Some)
        }
        Verb::Delete { uid } => {
            let mut params = DeleteParams::background();
            if !uid.is_empty() {
                params = params.preconditions(Preconditions { uid: Some(uid), ..Preconditions::default() });
            }
            api.delete(name, &params).await?;
            Ok(None)
        }
    }
}

/// Creates an object from JSON without converting it to the typed form.
async fn create_raw<K>(api: Api<K>, params: &PostParams, body: Vec<u8>) -> kube::Result<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let request = kube::core::Request::new(api.resource_url());
    let request = request.create(params, body).map_err(kube::Error::BuildRequest)?;
    api.into_client().request(request).await
}
