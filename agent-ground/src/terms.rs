//! The newest term of a leader of the hub that this member has seen: what a former leader writes late is refused.
//!
//! Persisted in the member before anything is done for it. A term that a reservation brought is persisted with the
//! copy of that reservation.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fleet_api::names;
use fleet_informer::Source;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::call::{CallError, call};

/// ConfigMap in the member that keeps who the agent of this installation is.
pub const IDENTITY_CONFIG_MAP: &str = "fleet-agent";
/// Keys of the ConfigMap that keeps who the agent is: the term, and the incarnation of the hub that it was seen in.
const TERM_KEY: &str = "term";
const INCARNATION_KEY: &str = "hub-incarnation";

pub struct Terms {
    member: Client,
    hub: Source,
    /// Name of the cluster, for logs.
    cluster: String,
    known: Mutex<Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    newest: i64,
    persisted: i64,
    /// How often the hub's terms have begun anew.
    beginnings: u64,
}

impl Terms {
    /// `hub` says which incarnation of the hub a term was seen in.
    pub fn new(member: Client, hub: Source, cluster: &str) -> Self {
        Self { member, hub, cluster: cluster.to_owned(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing under the lock can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn newest(&self) -> i64 {
        self.known().newest
    }

    /// How often the hub's terms have begun anew: those seen before count no longer.
    pub fn beginnings(&self) -> u64 {
        self.known().beginnings
    }

    /// Takes in a term, without persisting it.
    pub fn note(&self, term: i64) {
        let mut known = self.known();
        known.newest = known.newest.max(term);
    }

    /// Reads what a former process has persisted.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn load(&self) -> Result<(), CallError> {
        let map = call(self.maps().get_opt(IDENTITY_CONFIG_MAP)).await?;
        let text = map.and_then(|map| map.data?.remove(TERM_KEY));
        // What cannot be read was not written by an agent.
        let term = text.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut known = self.known();
        known.newest = known.newest.max(term);
        known.persisted = term;
        Ok(())
    }

    /// Puts what is remembered to the hub's incarnation: a hub that was restored counts its leaders from an older number.
    /// The ConfigMap stands once there is something to remember.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn begin(&self) -> Result<(), CallError> {
        let Some(map) = call(self.maps().get_opt(IDENTITY_CONFIG_MAP)).await? else { return Ok(()) };
        let seen_in = map.data.and_then(|mut data| data.remove(INCARNATION_KEY));
        let Some(now) = self.hub.incarnation().filter(|now| Some(now) != seen_in.as_ref()) else {
            return Ok(());
        };
        if seen_in.is_none() {
            return self.write(json!({INCARNATION_KEY: now})).await;
        }
        self.write(json!({TERM_KEY: null, INCARNATION_KEY: now})).await?;
        tracing::info!(cluster = %self.cluster, "the hub was restored: its terms begin anew");
        let mut known = self.known();
        *known = Known { beginnings: known.beginnings + 1, ..Known::default() };
        Ok(())
    }

    /// Takes in a term and persists the newest one. `Err` of the inner result: the term is older than this one.
    ///
    /// # Errors
    /// The member does not answer; then the term must not be acted on.
    pub async fn see(&self, term: i64) -> Result<Result<(), i64>, CallError> {
        self.note(term);
        let known = *self.known();
        if known.newest > known.persisted {
            self.write(json!({TERM_KEY: known.newest.to_string()})).await?;
            let mut now = self.known();
            now.persisted = now.persisted.max(known.newest);
        }
        Ok(if term < known.newest { Err(known.newest) } else { Ok(()) })
    }

    async fn write(&self, data: Value) -> Result<(), CallError> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": IDENTITY_CONFIG_MAP, "namespace": names::MEMBER_NAMESPACE}, "data": data});
        let params =
            PatchParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..Default::default() };
        match call(self.maps().patch(IDENTITY_CONFIG_MAP, &params, &Patch::Merge(&map))).await {
            Err(error) if error.is_not_found() => {
                let mut map = map;
                if let Some(data) = map["data"].as_object_mut() {
                    data.retain(|_, value| !value.is_null());
                }
                let map = serde_json::from_value(map).unwrap_or_default();
                call(self.maps().create(&Default::default(), &map)).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.member.clone(), names::MEMBER_NAMESPACE)
    }
}
