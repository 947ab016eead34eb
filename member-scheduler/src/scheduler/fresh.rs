//! A last check before a gang is bound on nodes that other schedulers also use: their pods are listed again,
//! because the watch may lag.

use std::{collections::BTreeMap, sync::Arc};

use fleet_resources::{ResourceName, Resources};
use futures::{StreamExt, stream};
use kube::{Api, api::ListParams};

use super::binding::Binding;
use crate::context::Context;
use fleet_agent_ground::{CallError, call, lean::LeanPod};
use fleet_member_state::MemberState;

/// Most nodes checked concurrently.
const NODES_AT_ONCE: usize = 16;

/// Requests of a gang on each of its nodes, and their capacity.
#[derive(Clone, Debug)]
pub(crate) struct FreshCheck {
    nodes: BTreeMap<String, Wanted>,
}

#[derive(Clone, Debug)]
struct Wanted {
    allocatable: Resources,
    max_pods: i64,
    requests: Resources,
    uids: Vec<String>,
}

impl FreshCheck {
    pub fn of(state: &MemberState, bindings: &[Binding]) -> Self {
        let mut nodes: BTreeMap<String, Wanted> = BTreeMap::new();
        for binding in bindings {
            let (Some(node), Some(pod)) = (state.nodes().get(&binding.node), state.pod(&binding.pod)) else {
                continue;
            };
            let wanted = nodes.entry(binding.node.clone()).or_insert_with(|| Wanted {
                allocatable: node.allocatable.clone(),
                max_pods: node.max_pods,
                requests: Resources::new(),
                uids: Vec::new(),
            });
            wanted.requests.add(pod.requests());
            wanted.uids.push(binding.uid.clone());
        }
        Self { nodes }
    }

    /// Why the gang must not be bound there now; `None`: it may be.
    pub async fn refusal(self, context: &Arc<Context>) -> Option<String> {
        let looks = self.nodes.into_iter().map(|(node, wanted)| async move {
            match pods_on(context, &node).await {
                Ok(pods) => wanted.short(&pods).map(|short| {
                    format!("node {node}: {short} was taken by pods of other schedulers a moment ago")
                }),
                Err(error) => Some(format!("node {node}: its pods cannot be listed: {error}")),
            }
        });
        let mut looks = stream::iter(looks).buffer_unordered(NODES_AT_ONCE);
        while let Some(answer) = looks.next().await {
            if answer.is_some() {
                return answer;
            }
        }
        None
    }
}

impl Wanted {
    /// The resources that are short beside the bound pods.
    fn short(&self, pods: &[LeanPod]) -> Option<String> {
        let (mut used, mut count) = (self.requests.clone(), self.uids.len() as i64);
        let is_over = |pod: &&LeanPod| {
            matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
                || pod.metadata.uid.as_ref().is_some_and(|uid| self.uids.contains(uid))
        };
        for pod in pods.iter().filter(|pod| !is_over(pod)) {
            count += 1;
            // A pod that cannot be parsed counts as in the watch: as nothing.
            if let Ok(shape) = fleet_member_state::shape(&pod.spec) {
                used.add(&shape.requests);
            }
        }
        let asked = self.requests.iter().map(|(name, _)| name);
        let mut short: Vec<&str> = asked
            .filter(|name| used.get(name.as_str()) > self.allocatable.get(name.as_str()))
            .map(ResourceName::as_str)
            .collect();
        if self.max_pods > 0 && count > self.max_pods {
            short.push(ResourceName::PODS);
        }
        (!short.is_empty()).then(|| short.join(", "))
    }
}

async fn pods_on(context: &Context, node: &str) -> Result<Vec<LeanPod>, CallError> {
    let pods: Api<LeanPod> = Api::all(context.member.client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    Ok(call(pods.list(&params)).await?.items)
}

#[cfg(test)]
mod tests {
    use fleet_member_state::testing::{key, node, pod, state};

    use super::*;

    #[test]
    fn a_gang_fits_beside_what_is_bound_or_says_what_is_short() {
        let mut state = state(&["n1 8"]);
        state.apply_node(&node("n1 8"));
        state.apply_pod(&pod("a: gpu=4"));
        let binding = Binding {
            pod: key("a"),
            uid: "uid-a".into(),
            node: "n1".into(),
            scheduler_name: "fleet".into(),
            devices: None,
            check: None,
            marks: None,
        };
        let look = FreshCheck::of(&state, &[binding]);
        let short = |pods: &[&str]| {
            let pods: Vec<LeanPod> = pods.iter().map(|text| pod(text)).collect();
            look.nodes["n1"].short(&pods)
        };
        assert_eq!(short(&["b: gpu=4 node=n1"]), None);
        // Its own binding may have arrived, and what has ended takes nothing.
        assert_eq!(short(&["b: gpu=4 node=n1", "a: gpu=4 node=n1", "c: gpu=8 node=n1 phase=Failed"]), None);
        assert_eq!(short(&["b: gpu=5 node=n1"]), Some("nvidia.com/gpu".to_owned()));
        let many: Vec<String> = (0..10).map(|i| format!("p{i}: node=n1")).collect();
        assert_eq!(short(&many.iter().map(String::as_str).collect::<Vec<_>>()), Some("pods".to_owned()));
    }
}
