//! Namespace and name of a pod.

use fleet_agent_ground::lean::LeanPod;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
}

impl PodKey {
    pub fn of(pod: &LeanPod) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self { namespace: text(&pod.metadata.namespace), name: text(&pod.metadata.name) }
    }
}
