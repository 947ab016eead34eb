//! The newest term of a leader of the hub that this member has seen: late writes of a former leader are
//! refused.
//!
//! A term is persisted in the member before anything is done for it. The term of a reservation is persisted
//! with the copy of that reservation.

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

/// ConfigMap in the member with the identity of this installation.
pub const IDENTITY_CONFIG_MAP: &str = "fleet-agent";
/// Keys of that ConfigMap: the term, and the hub's incarnation in which it was seen.
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
    /// How often the counting of the hub's terms was restarted.
    beginnings: u64,
}

impl Terms {
    /// `hub` provides the hub's incarnation.
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

    /// How often the counting of the hub's terms was restarted; earlier terms no longer count.
    pub fn beginnings(&self) -> u64 {
        self.known().beginnings
    }

    /// Records a term without persisting it.
    pub fn note(&self, term: i64) {
        let mut known = self.known();
        known.newest = known.newest.max(term);
    }

    /// Loads the term of the previous process.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn load(&self) -> Result<(), CallError> {
        let map = call(self.maps().get_opt(IDENTITY_CONFIG_MAP)).await?;
        let text = map.and_then(|map| map.data?.remove(TERM_KEY));
        // An invalid value was not written by an agent.
        let term = text.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut known = self.known();
        known.newest = known.newest.max(term);
        known.persisted = term;
        Ok(())
    }

    /// Aligns the state with the hub's incarnation: a restored hub counts terms from an older number. The
    /// ConfigMap is created when there is something to store.
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
        tracing::info!(cluster = %self.cluster, "the hub was restored; its terms are counted anew");
        let mut known = self.known();
        *known = Known { beginnings: known.beginnings + 1, ..Known::default() };
        Ok(())
    }

    /// Records a term and persists the newest one. The inner result is `Err` if the term is older.
    ///
    /// # Errors
    /// The member does not answer; the term must then not be used.
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
