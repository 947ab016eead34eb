//! How much one job may ask of this process.
//!
//! A number in a spec is not an amount of work: a pass creates and deletes a fixed number of pods and the next one goes
//! on. Nothing that is planned has the size of `replicas`. Pure.

use std::collections::BTreeMap;

use fleet_policies::workload::{HOSTS_MAX, PODS_MAX};
use serde_json::Value;

/// Most pods that one pass creates, and most that it deletes, as in Kubernetes' own controllers.
pub(crate) const BURST: usize = 500;
/// About the memory of the pods that one pass creates: a template may be as large as a request.
const BURST_BYTES: usize = 4 << 20;
/// Pods to create in this pass.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Burst {
    pods: Vec<Value>,
    bytes: usize,
}

impl Burst {
    pub fn is_full(&self) -> bool {
        self.pods.len() >= BURST || self.bytes >= BURST_BYTES
    }

    pub fn push(&mut self, pod: Value) {
        self.bytes = self.bytes.saturating_add(size(&pod));
        self.pods.push(pod);
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

impl std::ops::Deref for Burst {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.pods
    }
}

impl<'b> IntoIterator for &'b Burst {
    type Item = &'b Value;
    type IntoIter = std::slice::Iter<'b, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.pods.iter()
    }
}

/// About the bytes of a value in memory.
fn size(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, field)| name.len() + size(field)).sum(),
        _ => 0,
    };
    inner + size_of::<Value>()
}

/// Most pods of one job.
pub(crate) fn most(lists_hosts: bool) -> i64 {
    if lists_hosts { HOSTS_MAX } else { PODS_MAX }
}

/// Why a job of so many pods is not run, if it is not.
pub(crate) fn too_many(field: &str, pods: i64, lists_hosts: bool) -> Option<String> {
    let most = most(lists_hosts);
    let why = if lists_hosts { ", since its pods get a list of the addresses of all" } else { "" };
    (pods > most).then(|| format!("field {field}: found {pods} pods; allowed: at most {most} in all{why}"))
}

/// Pods by the index in their names: how many there are, and whether one of them has not ended.
pub(crate) fn by_index<'p>(
    pods: impl Iterator<Item = (i64, &'p fleet_agent_ground::Pod)>,
) -> BTreeMap<i64, (usize, bool)> {
    let mut found: BTreeMap<i64, (usize, bool)> = BTreeMap::new();
    for (index, pod) in pods {
        let (attempts, runs) = found.entry(index).or_default();
        *attempts += 1;
        *runs |= !pod.is_ended();
    }
    found
}
