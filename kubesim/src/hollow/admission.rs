//! Admission of pods by a hollow kubelet. Like a real one, it refuses pods that request more than their node
//! has left, in the order in which they arrive.

use std::collections::BTreeMap;

use fleet_resources::{ResourceName, Resources};

use super::{
    options::{HollowNode, Options},
    pod::{Pod, PodKey},
};

#[derive(Debug, Default)]
pub(super) struct Admission {
    /// What each node has left; empty: every pod is admitted.
    left: BTreeMap<String, Resources>,
    taken: BTreeMap<PodKey, (String, Resources)>,
    /// Refused pods, and the resource that was missing.
    refused: BTreeMap<PodKey, String>,
}

impl Admission {
    pub fn new(options: &Options) -> Self {
        let amounts = |node: &HollowNode| {
            let amounts = node.allocatable.iter().map(|(name, text)| (name.as_str(), text.as_str()));
            (node.name.clone(), Resources::parse(amounts).unwrap_or_default())
        };
        let left = options.nodes.iter().filter(|_| options.admission).map(amounts).collect();
        Self { left, ..Self::default() }
    }

    /// Admits a bound pod, or returns the resource that its node lacks.
    pub fn enter(&mut self, pod: &Pod) -> Option<String> {
        let key = pod.key();
        let node = pod.spec.node_name.clone().unwrap_or_default();
        if self.taken.contains_key(&key) {
            return None;
        }
        let left = self.left.get_mut(&node)?;
        let mut requests = requests(pod);
        requests.set(ResourceName::PODS, 1);
        if let Some(short) = requests.shortages(left).first() {
            let short = short.to_string();
            self.refused.insert(key, short.clone());
            return Some(short);
        }
        left.sub(&requests);
        self.taken.insert(key, (node, requests));
        None
    }

    /// Gives an admitted pod what it requests now, or returns the resource that its node lacks for that.
    pub fn resize(&mut self, pod: &Pod) -> Option<String> {
        let (node, before) = self.taken.get_mut(&pod.key())?;
        let left = self.left.get_mut(&*node)?;
        let mut wanted = requests(pod);
        wanted.set(ResourceName::PODS, 1);
        left.add(before);
        if let Some(short) = wanted.shortages(left).first() {
            let short = short.to_string();
            left.sub(before);
            return Some(short);
        }
        left.sub(&wanted);
        *before = wanted;
        None
    }

    pub fn short(&self, key: &PodKey) -> Option<String> {
        self.refused.get(key).cloned()
    }

    /// The pod has ended or was deleted.
    pub fn leave(&mut self, key: &PodKey) {
        self.refused.remove(key);
        let Some((node, requests)) = self.taken.remove(key) else { return };
        if let Some(left) = self.left.get_mut(&node) {
            left.add(&requests);
        }
    }
}

fn requests(pod: &Pod) -> Resources {
    let mut sum = Resources::new();
    for container in &pod.spec.containers {
        for field in ["limits", "requests"] {
            let amounts = container.resources[field].as_object().into_iter().flatten();
            let amounts: Vec<(&str, String)> = amounts
                .filter(|(name, _)| {
                    field == "requests" || container.resources["requests"][name.as_str()].is_null()
                })
                .map(|(name, value)| (name.as_str(), value.as_str().map_or(value.to_string(), str::to_owned)))
                .collect();
            let amounts = amounts.iter().map(|(name, text)| (*name, text.as_str()));
            sum.add(&Resources::parse(amounts).unwrap_or_default());
        }
    }
    sum
}
