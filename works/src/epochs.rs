//! The newest epoch of each binding that this member has seen. It is stored in the member and outlives the
//! Work and the job: a Work that arrives late, also after a restart of the agent, is refused.
//!
//! Written before a Work's finalizer is removed; until then the Work itself has the epoch. Spread over a few
//! ConfigMaps, so that each write is small. Bounded: the oldest bindings without a Work are dropped first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use fleet_api::names;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

use fleet_agent_ground::{CallError, call};

/// Number of ConfigMaps.
const SHARDS: usize = 16;
/// Most bindings of one ConfigMap: about 60 bytes each.
const SHARD_CAPACITY: usize = 256;
const NAME_PREFIX: &str = "fleet-epochs-";
/// Label that selects them.
const LABEL: &str = "fleet.dev/epochs";

/// The newest epoch of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub number: i64,
    /// The run of this epoch is over in this member and never starts again.
    pub is_closed: bool,
}

impl Epoch {
    /// Form in a ConfigMap: `7`, or `7 closed`.
    fn text(self) -> String {
        if self.is_closed { format!("{} closed", self.number) } else { self.number.to_string() }
    }

    fn read(text: &str) -> Option<Self> {
        let (number, is_closed) = match text.split_once(' ') {
            Some((number, "closed")) => (number, true),
            None => (text, false),
            Some(_) => return None,
        };
        Some(Self { number: number.parse().ok()?, is_closed })
    }
}

pub(crate) struct Epochs {
    member: Client,
    shards: [Shard; SHARDS],
}

/// One ConfigMap. The writer holds `writing` during its call; later changes are written by the next call.
#[derive(Default)]
struct Shard {
    known: Mutex<Known>,
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    epochs: BTreeMap<String, Epoch>,
    /// Order of arrival, oldest first.
    order: Vec<String>,
    /// Bindings whose change is not written yet.
    dirty: BTreeSet<String>,
}

impl Epochs {
    pub fn new(member: Client) -> Self {
        Self { member, shards: Default::default() }
    }

    /// Loads the epochs of previous processes.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn load(&self) -> Result<Vec<(String, Epoch)>, CallError> {
        let mut all = Vec::new();
        for map in call(self.maps().list(&ListParams::default().labels(LABEL))).await?.items {
            for (uid, text) in map.data.into_iter().flatten() {
                let Some(epoch) = Epoch::read(&text) else {
                    tracing::warn!(uid, text, "invalid epoch; it counts as unknown");
                    continue;
                };
                let mut known = self.shard(&uid).lock();
                if known.epochs.insert(uid.clone(), epoch).is_none() {
                    known.order.push(uid.clone());
                }
                all.push((uid, epoch));
            }
        }
        Ok(all)
    }

    /// Stores the epoch of a binding; returns when it is written in the member.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn keep(&self, uid: &str, epoch: Epoch) -> Result<(), CallError> {
        let shard = self.shard(uid);
        {
            let mut known = shard.lock();
            if known.epochs.get(uid) == Some(&epoch) && !known.dirty.contains(uid) {
                return Ok(());
            }
            known.put(uid, epoch);
        }
        self.write(shard_of(uid)).await
    }

    /// The binding is gone, and nothing of it will arrive any more.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn forget(&self, uid: &str) -> Result<(), CallError> {
        {
            let mut known = self.shard(uid).lock();
            if known.epochs.remove(uid).is_none() {
                return Ok(());
            }
            known.order.retain(|one| one != uid);
            known.dirty.insert(uid.to_owned());
        }
        self.write(shard_of(uid)).await
    }

    /// Writes all pending changes of a shard.
    async fn write(&self, at: usize) -> Result<(), CallError> {
        let shard = &self.shards[at];
        let _writing = shard.writing.lock().await;
        let (dirty, data) = {
            let known = shard.lock();
            let dirty = known.dirty.clone();
            let text = |uid: &String| known.epochs.get(uid).map_or(Value::Null, |epoch| epoch.text().into());
            let data: Map<String, Value> = dirty.iter().map(|uid| (uid.clone(), text(uid))).collect();
            (dirty, data)
        };
        if dirty.is_empty() {
            return Ok(());
        }
        self.patch(at, &data).await?;
        let mut known = shard.lock();
        for uid in &dirty {
            // Changed again meanwhile: it is written once more.
            let now = known.epochs.get(uid).map_or(Value::Null, |epoch| epoch.text().into());
            if data.get(uid) == Some(&now) {
                known.dirty.remove(uid);
            }
        }
        Ok(())
    }

    fn shard(&self, uid: &str) -> &Shard {
        &self.shards[shard_of(uid)]
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.member.clone(), names::MEMBER_NAMESPACE)
    }

    async fn patch(&self, at: usize, data: &Map<String, Value>) -> Result<(), CallError> {
        let name = format!("{NAME_PREFIX}{at:x}");
        let params =
            PatchParams { field_manager: Some(names::AGENT_MANAGER.to_owned()), ..PatchParams::default() };
        match call(self.maps().patch(&name, &params, &Patch::Merge(json!({"data": data})))).await {
            Err(error) if error.is_not_found() => {}
            answer => return answer.map(drop),
        }
        let present: Map<String, Value> =
            data.iter().filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect();
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {LABEL: "true"}}, "data": present}))
        .unwrap_or_default();
        let made = call(self.maps().create(&PostParams::default(), &map)).await;
        match made {
            Err(error) if error.is_not_found() => {
                let mut namespace = Namespace::default();
                namespace.metadata.name = Some(names::MEMBER_NAMESPACE.to_owned());
                let namespaces: Api<Namespace> = Api::all(self.member.clone());
                match call(namespaces.create(&PostParams::default(), &namespace)).await {
                    Err(error) if !error.is_conflict() => return Err(error),
                    _ => {}
                }
                call(self.maps().create(&PostParams::default(), &map)).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing under the lock can panic.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn put(&mut self, uid: &str, epoch: Epoch) {
        if self.epochs.insert(uid.to_owned(), epoch).is_none() {
            self.order.push(uid.to_owned());
            if self.order.len() > SHARD_CAPACITY {
                let oldest = self.order.remove(0);
                self.epochs.remove(&oldest);
                self.dirty.insert(oldest);
            }
        }
        self.dirty.insert(uid.to_owned());
    }
}

fn shard_of(uid: &str) -> usize {
    // FNV-1a: the same in every process.
    let hash =
        uid.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // The remainder is below SHARDS.
    (hash % SHARDS as u32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_as_text() {
        for epoch in [Epoch { number: 3, is_closed: false }, Epoch { number: 12, is_closed: true }] {
            assert_eq!(Epoch::read(&epoch.text()), Some(epoch));
        }
        for text in ["", "x", "3 open", "3 closed now"] {
            assert_eq!(Epoch::read(text), None, "{text:?}");
        }
    }

    #[test]
    fn the_oldest_goes_when_a_shard_is_full() {
        let mut known = Known::default();
        for number in 0..=SHARD_CAPACITY as i64 {
            known.put(&format!("uid-{number}"), Epoch { number, is_closed: true });
        }
        assert_eq!(known.epochs.len(), SHARD_CAPACITY);
        assert!(!known.epochs.contains_key("uid-0") && known.epochs.contains_key("uid-1"));
        assert!(known.dirty.contains("uid-0"), "its removal is written");
    }
}
