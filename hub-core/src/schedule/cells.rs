//! Virtual clusters in the world: what jobs wish of them, which nodes of members are their cells, and whether these
//! are good.
//!
//! The nodes of cells stand in a reservation of their own in each member's namespace. The member then binds nothing else
//! to them and says which of them are of no use. Its name carries its content: another set of nodes is another
//! reservation, and the old one goes once the new one is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_api::{
    Reservation,
    cell_places::{CELL_NODES_PREFIX, CellGroup},
    cells::{AccessRules, CellBinding},
    names,
    reservation::ReservationPhase,
};
use fleet_cells::{
    Cells, GroupRequest, Unreported,
    config::{ClusterConfig, PhysicalCell, PhysicalCluster},
};
use fleet_policies::reason::Reason;
use jiff::Timestamp;
use serde_json::json;

use super::{Scheduler, cluster_of, job_id};
use crate::{
    binding::{API_VERSION, BindingEntry},
    intents::Intents,
    planner::{CellGroupAsk, CellJob, CellNodes, Held, Waiting},
    virtual_clusters::Valid,
    wishes,
    world::{Key, Object, World},
    writes::{Target, Verb, Write},
};

impl Scheduler {
    /// Another configuration of cells, or none.
    pub fn set_cells(&mut self, valid: Option<&Valid>, world: &mut World, intents: &Intents, now: Timestamp) {
        let access = valid.map(|valid| valid.access.clone()).unwrap_or_default();
        let is_other = std::mem::replace(&mut self.cell_access, access) != self.cell_access;
        self.cell_config = valid.map(|valid| valid.config.clone());
        if !self.resolve_cells(world, intents, now) && is_other {
            self.look_at_all(world, intents, now);
        }
    }

    /// Who may use which virtual cluster.
    pub fn cell_access(&self) -> &AccessRules {
        &self.cell_access
    }

    fn look_at_all(&mut self, world: &mut World, intents: &Intents, now: Timestamp) {
        let keys: Vec<Key> = world.bindings.keys().cloned().collect();
        for key in keys {
            self.look(world, intents, &key, now);
        }
        world.schedule = true;
    }

    /// Gives each tree of cells its member, and tells the planner when that changed something.
    pub(super) fn resolve_cells(&mut self, world: &mut World, intents: &Intents, now: Timestamp) -> bool {
        let resolved = self.cell_config.as_ref().map(|config| resolve(config, world));
        if self.planner.cells().map(Cells::config) == resolved.as_ref() {
            return false;
        }
        // Only a configuration that holds together is in force.
        if self.planner.set_cells(resolved, now.as_millisecond()).is_err() {
            return false;
        }
        for name in world.clusters.keys().cloned().collect::<Vec<_>>() {
            world.mark(crate::world::Dirty::Cluster(name));
        }
        self.look_at_all(world, intents, now);
        true
    }

    /// What a job asks of its virtual cluster; `None` where it has none.
    ///
    /// # Errors
    /// Why it cannot be said how many cells it takes, or the virtual cluster does not take it.
    pub(super) fn cell_job(
        &self,
        key: &Key,
        entry: &BindingEntry,
        object: &Object,
    ) -> Result<Option<Arc<CellJob>>, Waiting> {
        let Some(config) = self.planner.cells().map(Cells::config) else { return Ok(None) };
        let leaf_vc = self.vc_of_leaf(key, object);
        if leaf_vc.is_none() && !wishes::speaks_of_cells(entry.workload, &object.value) {
            return Ok(None);
        }
        let invalid = |error: wishes::WishError| Waiting::new(Reason::InvalidWorkload, error.to_string());
        let wish = wishes::read(entry.workload, &object.value).map_err(invalid)?;
        let Some(vc) = wish.vc.clone().or(leaf_vc) else { return Ok(None) };
        self.admit(key, entry, object, &wish, &vc)?;
        let groups = wish.groups(job_id(key).as_str(), &vc, config).map_err(invalid)?;
        Ok(Some(Arc::new(CellJob { vc, class: wish.class, whole: wish.whole, groups })))
    }

    /// Whether the virtual cluster takes the job, by its administrator's rules.
    fn admit(
        &self,
        key: &Key,
        entry: &BindingEntry,
        object: &Object,
        wish: &wishes::Wish,
        vc: &str,
    ) -> Result<(), Waiting> {
        let Some(access) = self.cell_access.get(vc) else { return Ok(()) };
        let refused = |message| Waiting::new(Reason::NotAdmittedToVirtualCluster, message);
        access.admit(vc, &key.0, wish.class).map_err(refused)?;
        // Of a leaf that names it, the leaf's Queue has the submitters.
        let is_hidden = access.submitters.is_some()
            && wish.vc.is_some()
            && !wishes::names_for_admission(entry.workload, &object.value, vc);
        if is_hidden {
            return Err(refused(format!(
                "virtual cluster {vc} has submitters, and the job names it in a way that the hub's admission policy \
                 cannot read; allowed: label {}: {vc}, or virtualCluster: {vc} in {}",
                names::VIRTUAL_CLUSTER_LABEL,
                names::POD_SCHEDULING_SPEC_ANNOTATION,
            )));
        }
        Ok(())
    }

    /// The virtual cluster that the job's leaf of the quota tree names.
    fn vc_of_leaf(&self, key: &Key, object: &Object) -> Option<String> {
        let tree = self.planner.quota()?.tree();
        let labels: BTreeMap<String, String> = fleet_quota::QUOTA_LABELS
            .iter()
            .filter_map(|label| object.labels.get_key_value(*label))
            .map(|(label, value)| (label.clone(), value.clone()))
            .collect();
        let leaf = tree.leaf_for(&labels, &key.0).ok()?;
        tree.node(leaf).attributes.get(names::VIRTUAL_CLUSTER_LABEL).filter(|vc| !vc.is_empty()).cloned()
    }

    /// What keeps nodes of a member for cells.
    pub fn keep_cell_nodes(&self, world: &World, cluster: &str) -> Vec<Write> {
        let namespace = names::cluster_namespace(cluster);
        let wanted = self.wanted_nodes(world, cluster);
        let name = format!("{CELL_NODES_PREFIX}{:016x}", hash(&wanted));
        let standing: Vec<(&Key, &Reservation)> = standing(world, cluster).collect();
        let mut writes = Vec::new();
        let own = standing.iter().find(|((_, known), _)| *known == name).map(|(_, reservation)| *reservation);
        if own.is_none() && !wanted.is_empty() {
            let mut body = json!({
                "apiVersion": API_VERSION,
                "kind": "Reservation",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "binding": {"namespace": "", "name": "", "uid": ""},
                    "epoch": 0,
                    "components": [],
                    "ttlSeconds": 0,
                    "cellNodes": wanted,
                },
            });
            if let Some(term) = world.term {
                body["spec"]["term"] = json!(term);
            }
            writes.push(Write::new(Target::Reservation, &namespace, &name, Verb::Create(body)));
        }
        // Asked in a term that the member had seen the end of, it is asked again.
        let is_closed = |reservation: &Reservation| {
            let phase = reservation.status.as_ref().and_then(|status| status.phase);
            phase.is_some_and(|phase| phase != ReservationPhase::Reserved)
        };
        if let Some(closed) = own.filter(|own| is_closed(own) && own.metadata.deletion_timestamp.is_none()) {
            let uid = closed.metadata.uid.clone().unwrap_or_default();
            writes.push(Write::new(Target::Reservation, &namespace, &name, Verb::Delete { uid }));
        }
        let answered = wanted.is_empty() || own.is_some_and(is_reserved);
        for (key, reservation) in standing.iter().filter(|((_, known), _)| *known != name && answered) {
            if reservation.metadata.deletion_timestamp.is_none() {
                let uid = reservation.metadata.uid.clone().unwrap_or_default();
                writes.push(Write::new(Target::Reservation, &key.0, &key.1, Verb::Delete { uid }));
            }
        }
        writes
    }

    fn wanted_nodes(&self, world: &World, cluster: &str) -> Vec<String> {
        let Some(cells) = self.planner.cells() else { return Vec::new() };
        // Trees without a member are asked of each, which says what of them it has.
        let asked = world.clusters.len() > 1;
        let of =
            |node: &&fleet_cells::NodeName| node.cluster == cluster || (asked && node.cluster.is_empty());
        let nodes: BTreeSet<String> = cells.nodes().filter(of).map(|node| node.node.clone()).collect();
        nodes.into_iter().collect()
    }

    /// What a member says of its nodes that are cells.
    pub(super) fn tell_cell_nodes(&mut self, world: &World, cluster: &str) {
        let answered: Vec<&Reservation> =
            standing(world, cluster).map(|(_, reservation)| reservation).filter(|r| is_reserved(r)).collect();
        let mut good = BTreeSet::new();
        for reservation in &answered {
            good.extend(reservation.spec.cell_nodes.iter().cloned());
        }
        for status in answered.iter().filter_map(|reservation| reservation.status.as_ref()) {
            for bad in status.bad_nodes.iter().chain(&status.unknown_nodes) {
                good.remove(bad);
            }
        }
        self.planner.set_cell_nodes(cluster, (!answered.is_empty()).then_some(CellNodes { good }));
    }

    /// Writes the cells of a job that runs into its reservation, which its member reads, and its binding.
    pub(super) fn regroup(&self, world: &World, key: &Key, cluster: &str) -> Vec<Write> {
        let Some(entry) = world.bindings.get(key) else { return Vec::new() };
        let epoch = entry.object.spec.epoch + i64::from(!entry.is_bound());
        let own = world.reservations_of(key).find(|(place, reservation)| {
            cluster_of(&place.0) == cluster
                && reservation.spec.epoch == epoch
                && reservation.spec.binding.uid == entry.uid()
                && reservation.metadata.deletion_timestamp.is_none()
        });
        let mut writes = Vec::new();
        let groups = self.planner.cell_groups(&job_id(key));
        if let Some((place, reservation)) = own
            && groups != reservation.spec.cells
            // Without any it would be a reservation of any places.
            && !groups.is_empty()
        {
            let patch = json!({
                "metadata": {"resourceVersion": reservation.metadata.resource_version},
                "spec": {"cells": groups},
            });
            writes.push(Write::new(Target::Reservation, &place.0, &place.1, Verb::Merge(patch)));
        }
        let cells = self.cell_binding(key).filter(|cells| entry.object.spec.cells.as_ref() != Some(cells));
        if let Some(cells) = cells.filter(|_| entry.is_bound()) {
            let version = entry.object.metadata.resource_version.as_deref();
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"cells": cells}});
            writes.push(Write::new(Target::Binding, &key.0, &key.1, Verb::Merge(patch)));
        }
        writes
    }

    /// The job's cells as its binding says them.
    pub(super) fn cell_binding(&self, key: &Key) -> Option<CellBinding> {
        let bound = self.planner.bound_groups(&job_id(key));
        let groups: Vec<_> = bound.iter().map(fleet_api::cells::CellGroup::of).collect();
        (!groups.is_empty()).then_some(CellBinding { groups })
    }
}

/// What a job that holds cells asks for. A run keeps the virtual cluster and class that it was admitted with: an edit of
/// them counts from the next run on, and where the virtual cluster takes the job no longer, the run gets no further cells.
pub(super) fn as_admitted(asked: Option<Arc<CellJob>>, held: &Held) -> Option<Arc<CellJob>> {
    let Some(first) = held.cells.first() else { return asked };
    let is_same = |job: &Arc<CellJob>| (&job.vc, job.class) == (&first.virtual_cluster, first.priority);
    if let Some(asked) = asked.filter(is_same) {
        return Some(asked);
    }
    let ask = |group: &CellGroup| {
        let pods = group.places.iter().map(|place| (place.component.clone(), place.index)).collect();
        let request: GroupRequest = serde_json::from_value(group.request.clone()).ok()?;
        Some(CellGroupAsk { request, pods })
    };
    let groups: Vec<CellGroupAsk> = held.cells.iter().filter_map(ask).collect();
    let whole = groups.len() == 1;
    let (vc, class) = (first.virtual_cluster.clone(), first.priority);
    Some(Arc::new(CellJob { vc, class, whole, groups }))
}

/// Places of a reservation that the member does not give, and why: it says which nodes are at fault.
pub(super) fn ungiven(reservation: &Reservation) -> (BTreeSet<(String, i64)>, &[String]) {
    let Some(status) = reservation.status.as_ref().filter(|status| !status.bad_nodes.is_empty()) else {
        return (BTreeSet::new(), &[]);
    };
    if status.phase != Some(ReservationPhase::Reserved) {
        return (BTreeSet::new(), &status.bad_nodes);
    }
    let given = |component: &str, index: i64| {
        let nodes = status.nodes.get(component);
        let node = usize::try_from(index).ok().and_then(|index| nodes?.get(index));
        node.is_some_and(|node| !node.is_empty())
    };
    let places = reservation.spec.cells.iter().flat_map(|group: &CellGroup| &group.places);
    let missing = places
        .filter(|place| !place.node.is_empty() && !given(&place.component, place.index))
        .map(|place| (place.component.clone(), place.index));
    (missing.collect(), &status.bad_nodes)
}

fn standing<'w>(world: &'w World, cluster: &str) -> impl Iterator<Item = (&'w Key, &'w Reservation)> {
    let namespace = names::cluster_namespace(cluster);
    // They belong to no binding.
    let of_nobody = (String::new(), String::new());
    let found: Vec<_> = world.reservations_of(&of_nobody).collect();
    found.into_iter().filter(move |(key, _)| key.0 == namespace && key.1.starts_with(CELL_NODES_PREFIX))
}

fn is_reserved(reservation: &Reservation) -> bool {
    let status = reservation.status.as_ref();
    status.is_some_and(|status| status.phase == Some(ReservationPhase::Reserved))
        && reservation.metadata.deletion_timestamp.is_none()
}

/// FNV-1a over the names.
fn hash(names: &[String]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0]));
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The configuration with a member for each tree that names none: the only one, or the only one that has its nodes.
fn resolve(config: &ClusterConfig, world: &World) -> ClusterConfig {
    let mut resolved = config.clone();
    let mut members: Vec<String> = world.clusters.keys().cloned().collect();
    members.sort();
    for tree in resolved.physical_cluster.physical_cells.iter_mut().filter(|tree| tree.cluster.is_empty()) {
        let found: Vec<&String> = match members.as_slice() {
            [only] => vec![only],
            many => {
                let nodes = nodes_of(config, tree);
                many.iter().filter(|member| !nodes.is_empty() && has_all(world, member, &nodes)).collect()
            }
        };
        if let [member] = found.as_slice() {
            tree.cluster = (*member).clone();
        }
    }
    resolved
}

fn nodes_of(config: &ClusterConfig, tree: &PhysicalCell) -> BTreeSet<String> {
    let alone = ClusterConfig {
        physical_cluster: PhysicalCluster {
            physical_cells: vec![tree.clone()],
            ..config.physical_cluster.clone()
        },
        virtual_clusters: BTreeMap::new(),
    };
    let cells = Cells::new(alone, Unreported::Bad);
    cells.map(|cells| cells.nodes().map(|node| node.node.clone()).collect()).unwrap_or_default()
}

/// Whether a member has said that it has these nodes.
fn has_all(world: &World, member: &str, nodes: &BTreeSet<String>) -> bool {
    let mut known = BTreeSet::new();
    for (_, reservation) in standing(world, member).filter(|(_, reservation)| is_reserved(reservation)) {
        let unknown = reservation.status.as_ref().map_or(&[][..], |status| &status.unknown_nodes);
        known.extend(reservation.spec.cell_nodes.iter().filter(|node| !unknown.contains(node)));
    }
    nodes.iter().all(|node| known.contains(&node))
}
