//! Places for pods that do not exist yet: the hub asks before it sends a job.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::stopped::Stopped;
use crate::cluster::Cluster;
use crate::group::{GroupInput, Topology};
use crate::ids::{GroupId, NodeId, PodId};
use crate::pod::{PodInput, PodSpec, Status};

/// Name of the group of pods that are only asked about.
const ASKED: &str = "asked";
/// Most pods in one question.
const MAX_ASKED: i64 = 200_000;

/// Why there are no places.
#[derive(Clone, Debug, PartialEq)]
pub struct NoPlaces {
    pub refusal: fleet_placement::Refusal,
    /// There is capacity, but not within one domain.
    pub domains: Option<String>,
}

impl NoPlaces {
    /// One sentence.
    pub fn sentence(&self) -> String {
        self.domains.clone().unwrap_or_else(|| self.refusal.sentence())
    }
}

impl Cluster {
    /// Finds places for pods that do not exist yet, by component, and takes none. A hard topology constraint is
    /// kept whatever plugins are on.
    ///
    /// # Errors
    /// What is missing for each component, or that no topology domain is large enough.
    pub fn find_places(
        &mut self,
        components: &[(String, Arc<PodSpec>, i64)],
        topology: Option<Topology>,
    ) -> Result<BTreeMap<String, Vec<String>>, NoPlaces> {
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
            |components, domains| NoPlaces { refusal: fleet_placement::Refusal { components }, domains };
        let answer;
        if total > MAX_ASKED {
            let component =
                |(name, _, wanted): &(String, Arc<PodSpec>, i64)| fleet_placement::ComponentRefusal {
                    name: name.clone(),
                    fit: 0,
                    wanted: *wanted,
                    nodes: self.nodes.iter().count() as i64,
                    admitted: 0,
                    lacks: Vec::new(),
                };
            answer = Err(refused(components.iter().map(component).collect(), None));
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
            let topology = topology.filter(|wish| wish.hard || self.policy.prefers_domains());
            match self.place_asked(group, &pods, topology) {
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
                Err(domains) => answer = Err(refused(self.refusals_of(group, &pods), domains)),
            }
        }
        self.remove_group(group);
        answer
    }

    /// The error says what is wrong with the topology, if that is the reason.
    fn place_asked(
        &mut self,
        group: GroupId,
        pods: &[PodId],
        topology: Option<Topology>,
    ) -> Result<Vec<(PodId, NodeId)>, Option<String>> {
        match topology {
            None => self.place_exactly(group, pods).map_err(|_| None),
            Some(topology) => {
                self.refresh();
                self.refresh_shares();
                self.place_in_domains(group, topology).map_err(|stopped| match stopped {
                    Stopped::Queue(domains) => Some(domains),
                    Stopped::Pod(_) => None,
                })
            }
        }
    }
}
