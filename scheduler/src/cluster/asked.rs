//! Places for pods that do not exist: what the hub asks before it sends a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Cluster;
use crate::group::GroupInput;
use crate::pod::{PodId, PodInput, PodSpec, Status};

/// Name of the group of pods that are only asked about.
const ASKED: &str = "asked";
/// Most pods that are asked about at once.
const MAX_ASKED: i64 = 200_000;

impl Cluster {
    /// Finds places for pods that do not exist yet, by component, and takes none of them.
    ///
    /// # Errors
    /// What is missing, per component.
    pub fn find_places(
        &mut self,
        components: &[(String, Arc<PodSpec>, i64)],
    ) -> Result<BTreeMap<String, Vec<String>>, fleet_placement::Refusal> {
        let total: i64 = components.iter().map(|(_, _, count)| (*count).max(0)).sum();
        let group = self.put_group(GroupInput {
            name: ASKED.into(),
            min_member: total,
            no_gate: true,
            manual: true,
            ..GroupInput::default()
        });
        let mut pods: Vec<PodId> = Vec::new();
        let (mut places, mut names) = (BTreeMap::new(), Vec::new());
        let refused =
            |components: Vec<fleet_placement::ComponentRefusal>| fleet_placement::Refusal { components };
        let answer;
        if total > MAX_ASKED {
            let component =
                |(name, _, wanted): &(String, Arc<PodSpec>, i64)| fleet_placement::ComponentRefusal {
                    name: name.clone(),
                    fit: 0,
                    wanted: *wanted,
                    nodes: self.nodes.iter().count() as i64,
                    admitted: 0,
                    lacking: 0,
                    short: Vec::new(),
                };
            answer = Err(refused(components.iter().map(component).collect()));
        } else {
            for (name, spec, count) in components {
                places.entry(name.clone()).or_insert_with(Vec::new);
                for _ in 0..*count {
                    let input = PodInput {
                        group,
                        spec: spec.clone(),
                        role: name.as_str().into(),
                        ..PodInput::default()
                    };
                    pods.push(self.add_pod(input));
                    names.push(name);
                }
            }
            match self.place_exactly(group, &pods) {
                Ok(placed) => {
                    let of: BTreeMap<PodId, &String> = pods.iter().copied().zip(names).collect();
                    for (pod, node) in &placed {
                        let Some(name) = of.get(pod) else { continue };
                        places
                            .entry((*name).clone())
                            .or_default()
                            .push(self.nodes.get(*node).name.to_string());
                    }
                    placed.iter().for_each(|(pod, _)| self.set_place(*pod, Status::Pending, None));
                    places.values_mut().for_each(|names| names.sort_unstable());
                    answer = Ok(places);
                }
                Err(_) => answer = Err(refused(self.refusals_of(group, &pods))),
            }
        }
        self.remove_group(group);
        answer
    }
}
