//! Virtual clusters in the world: requests of jobs, and the nodes of members that are their cells, with their
//! health.
//!
//! The cell nodes of each member are in a reservation of their own in its namespace. The member then binds
//! nothing else to them and reports those that are bad. The reservation's name is derived from its content:
//! another set of nodes is another reservation, and the old one is deleted when the new one is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fleet_api::{
    Reservation,
    cell_answers::without_cells,
    cell_places::{CELL_NODES_PREFIX, CellGroup},
    cells::{AccessRules, CellBinding},
    names,
    reservation::ReservationPhase,
};
use fleet_cells::Cells;
use fleet_policies::reason::Reason;
use jiff::Timestamp;
use serde_json::json;

use super::{Scheduler, cluster_of, job_id};
use crate::{
    binding::{API_VERSION, BindingEntry},
    events,
    intents::Intents,
    manifests,
    planner::{CellJob, CellNodes, Held, Waiting},
    queue_place,
    virtual_clusters::Valid,
    world::{Dirty, Key, Object, World},
    writes::{Target, Verb, Write},
};

impl Scheduler {
    /// Sets another configuration of cells, or none.
    pub fn set_cells(&mut self, valid: Option<&Valid>, world: &mut World, intents: &Intents, now: Timestamp) {
        let access = valid.map(|valid| valid.access.clone()).unwrap_or_default();
        let is_other = std::mem::replace(&mut self.cell_access, access) != self.cell_access;
        self.cell_config = valid.map(|valid| valid.config.clone());
        if !self.plan_with_cells(world, intents, now) && is_other {
            self.look_at_all(world, intents, now);
        }
    }

    /// All configurations have been read. `trouble`: why none is in force although one exists. Then jobs that ask for cells
    /// wait, because without them they would run anywhere.
    pub fn cells_read(
        &mut self,
        trouble: Option<&str>,
        world: &mut World,
        intents: &Intents,
        now: Timestamp,
    ) {
        if trouble.is_none() && !std::mem::replace(&mut self.are_cells_known, true) {
            mark_clusters(world);
        }
        if self.cell_trouble.as_deref() != trouble {
            self.cell_trouble = trouble.map(str::to_string);
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

    /// Updates the planner if the configuration changed. Each tree has its member by now, or none: what members answer
    /// to reservations assigns nothing.
    fn plan_with_cells(&mut self, world: &mut World, intents: &Intents, now: Timestamp) -> bool {
        if self.planner.cells().map(Cells::config) == self.cell_config.as_ref() {
            return false;
        }
        // Only a valid configuration comes into force.
        if self.planner.set_cells(self.cell_config.clone(), now.as_millisecond()).is_err() {
            return false;
        }
        mark_clusters(world);
        self.look_at_all(world, intents, now);
        true
    }

    /// The request of a job to its virtual cluster; `None` if it has none. That of a run is read from what was sent.
    ///
    /// # Errors
    /// Why its number of cells cannot be determined, or why the virtual cluster does not admit it.
    pub(super) fn cell_job(
        &self,
        world: &World,
        key: &Key,
        entry: &BindingEntry,
        object: &Object,
    ) -> Result<Option<Arc<CellJob>>, Waiting> {
        let config = self.planner.cells().map(Cells::config);
        if config.is_none() && self.cell_trouble.is_none() {
            return Ok(None);
        }
        let leaf_vc = self.vc_of_leaf(key, object);
        let value = manifests::as_running(world, key, entry, object);
        if leaf_vc.is_none() && !fleet_cell_requests::speaks_of_cells(entry.workload, &value) {
            return Ok(None);
        }
        let Some(config) = config else {
            let trouble = self.cell_trouble.as_deref().unwrap_or_default();
            let message = format!("no CellConfiguration is in force: {trouble}");
            return Err(Waiting::new(Reason::InvalidCells, message));
        };
        let invalid = |error: fleet_cell_requests::CellRequestError| {
            Waiting::new(Reason::InvalidWorkload, error.to_string())
        };
        let request = fleet_cell_requests::read(entry.workload, &value).map_err(invalid)?;
        if !entry.is_bound() && !queue_place::knows_cells(entry, request.vc.as_deref(), request.named()) {
            let message = "the job was changed; its new request for cells is being counted";
            return Err(Waiting::new(Reason::Edited, message));
        }
        let Some(vc) = request.vc.clone().or(leaf_vc) else { return Ok(None) };
        self.admit(key, entry, object, &request, &vc)?;
        let groups = request.groups(job_id(key).as_str(), &vc, config).map_err(invalid)?;
        Ok(Some(Arc::new(CellJob { vc, class: request.class, whole: request.whole, groups })))
    }

    /// Whether the virtual cluster admits the job by its access rules.
    fn admit(
        &self,
        key: &Key,
        entry: &BindingEntry,
        object: &Object,
        request: &fleet_cell_requests::CellRequest,
        vc: &str,
    ) -> Result<(), Waiting> {
        let Some(access) = self.cell_access.get(vc) else { return Ok(()) };
        let refused = |message| Waiting::new(Reason::NotAdmittedToVirtualCluster, message);
        access.admit(vc, &key.0, request.class).map_err(refused)?;
        // For a leaf that names it, the leaf's Queue has the submitters.
        let is_hidden = access.submitters.is_some()
            && request.vc.is_some()
            && !fleet_cell_requests::names_for_admission(entry.workload, &object.value, vc);
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

    /// Whether the virtual cluster that a run was admitted to still admits it, whatever its job names by now.
    pub(super) fn admits_run(&self, key: &Key, held: &Held) -> bool {
        held.cells.first().is_none_or(|first| {
            let access = self.cell_access.get(&first.virtual_cluster);
            access.is_none_or(|access| access.admit(&first.virtual_cluster, &key.0, first.priority).is_ok())
        })
    }

    /// The virtual cluster that the job's leaf of the quota tree names.
    fn vc_of_leaf(&self, key: &Key, object: &Object) -> Option<String> {
        let tree = self.planner.quota()?.tree();
        let leaf = tree.leaf_for(&queue_place::quota_labels(&object.labels), &key.0).ok()?;
        tree.node(leaf).attributes.get(names::VIRTUAL_CLUSTER_LABEL).filter(|vc| !vc.is_empty()).cloned()
    }

    /// The reservations that keep nodes of a member for cells. After a restart all nodes that are kept stay so until it is
    /// known which configuration is in force.
    pub fn keep_cell_nodes(&self, world: &World, cluster: &str) -> Vec<Write> {
        if !self.are_cells_known {
            return Vec::new();
        }
        let namespace = names::cluster_namespace(cluster);
        let wanted = self.wanted_nodes(cluster);
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
        // Requested under a term that the member refused, it is requested again.
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

    fn wanted_nodes(&self, cluster: &str) -> Vec<String> {
        let Some(cells) = self.planner.cells() else { return Vec::new() };
        // Nodes of trees without a member are nobody's.
        let of = cells.nodes().filter(|node| node.cluster == cluster);
        let nodes: BTreeSet<String> = of.map(|node| node.node.clone()).collect();
        nodes.into_iter().collect()
    }

    /// A member's report on its cell nodes.
    pub(super) fn tell_cell_nodes(&mut self, world: &World, cluster: &str) {
        let answered: Vec<&Reservation> =
            standing(world, cluster).map(|(_, reservation)| reservation).filter(|r| is_reserved(r)).collect();
        let mut good = BTreeSet::new();
        for reservation in &answered {
            good.extend(reservation.spec.cell_nodes.iter().cloned());
        }
        let mut unknown = BTreeSet::new();
        for status in answered.iter().filter_map(|reservation| reservation.status.as_ref()) {
            for bad in status.bad_nodes.iter().chain(&status.unknown_nodes) {
                good.remove(bad);
            }
            unknown.extend(status.unknown_nodes.iter().cloned());
        }
        let nodes = CellNodes { good, unknown };
        self.planner.set_cell_nodes(cluster, (!answered.is_empty()).then_some(nodes));
    }

    /// Writes the cells of a running job to its reservation, which its member reads, and to its binding.
    pub(super) fn regroup(&self, world: &World, key: &Key, cluster: &str, now: Timestamp) -> Vec<Write> {
        let Some(entry) = world.bindings.get(key) else { return Vec::new() };
        let epoch = entry.object.spec.epoch + i64::from(!entry.is_bound());
        let own = world.reservations_of(key).find(|(place, reservation)| {
            cluster_of(&place.0) == cluster
                && reservation.spec.epoch == epoch
                && reservation.spec.binding.uid == entry.uid()
                && reservation.metadata.deletion_timestamp.is_none()
        });
        let mut writes = Vec::new();
        let mut groups = self.planner.cell_groups(&job_id(key));
        if groups.is_empty()
            && let Some((_, reservation)) = &own
        {
            groups = without_cells(reservation);
        }
        if let Some((place, reservation)) = own
            && groups != reservation.spec.cells
        {
            let patch = json!({
                "metadata": {"resourceVersion": reservation.metadata.resource_version},
                "spec": {"cells": groups},
            });
            let told = preempted(entry, &groups, &reservation.spec.cells, now);
            writes.push(Write::new(Target::Reservation, &place.0, &place.1, Verb::Merge(patch)).then(told));
        }
        let cells = self.cell_binding(key).filter(|cells| entry.object.spec.cells.as_ref() != Some(cells));
        if let Some(cells) = cells.filter(|_| entry.is_bound()) {
            let version = entry.object.metadata.resource_version.as_deref();
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"cells": cells}});
            writes.push(Write::new(Target::Binding, &key.0, &key.1, Verb::Merge(patch)));
        }
        writes
    }

    /// What of [`Self::regroup`] was refused and is still to be written.
    pub fn regroup_again(&self, world: &World, key: &Key, now: Timestamp) -> Vec<Write> {
        let Some(entry) = world.bindings.get(key).filter(|entry| entry.is_bound() && !entry.is_finished())
        else {
            return Vec::new();
        };
        match (&entry.object.spec.cells, entry.object.spec.clusters.first()) {
            (Some(_), Some(target)) if !self.planner.cell_groups(&job_id(key)).is_empty() => {
                self.regroup(world, key, &target.name, now)
            }
            _ => Vec::new(),
        }
    }

    /// Whether a bind may be written for a reservation of cells: it names them, or the run would be sent as one without
    /// cells. A controller that starts reads the reservation before the configuration.
    pub(super) fn knows_cells_of(&mut self, key: &Key, now: Timestamp) -> bool {
        self.planner.recover_cells(now.as_millisecond());
        let is_off = self.are_cells_known && self.cell_config.is_none();
        is_off || !self.planner.bound_groups(&job_id(key)).is_empty()
    }

    /// The job's cells in the form of its binding.
    pub(super) fn cell_binding(&self, key: &Key) -> Option<CellBinding> {
        let bound = self.planner.bound_groups(&job_id(key));
        let groups: Vec<_> = bound.iter().map(fleet_api::cells::CellGroup::of).collect();
        (!groups.is_empty()).then_some(CellBinding { groups })
    }
}

fn mark_clusters(world: &mut World) {
    for name in world.clusters.keys().cloned().collect::<Vec<_>>() {
        world.mark(Dirty::Cluster(name));
    }
}

/// Events about pods that are preempted from now on while others of their job run on.
fn preempted(entry: &BindingEntry, groups: &[CellGroup], before: &[CellGroup], now: Timestamp) -> Vec<Write> {
    let before: BTreeMap<&str, &CellGroup> =
        before.iter().map(|group| (group.name.as_str(), group)).collect();
    let known = |group: &CellGroup| {
        before.get(group.name.as_str()).is_some_and(|before| before.preempted == group.preempted)
    };
    let news = groups
        .iter()
        .filter(|group| !known(group))
        .filter_map(|group| Some((group, group.preempted.as_ref()?)));
    news.map(|(group, preempted)| {
        let pods: Vec<String> =
            group.places.iter().map(|place| format!("{}-{}", place.component, place.index)).collect();
        let message = format!(
            "{} preempted by {} (VirtualCluster); the other pods run on",
            pods.join(", "),
            preempted.by
        );
        events::warning(&entry.object_subject(), entry.source(), Reason::Preempted, &message, now)
    })
    .collect()
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
