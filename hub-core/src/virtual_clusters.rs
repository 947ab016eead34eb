//! Which CellConfiguration is in force, and the VirtualClusters of it.
//!
//! In force is the oldest valid configuration. If none is valid, the last valid one stays in force. It is
//! kept in `status.inForce` of its object and survives a restart. A configuration too large for the status is
//! lost by a restart while its object is invalid. The planner decides which job gets which cell (`uses`).

mod objects;
mod permits;
mod queues;
#[cfg(test)]
mod tests;
pub mod uses;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fleet_api::{
    CellConfiguration,
    cells::{
        AccessRules, CellConfigurationSpec, access,
        read::{Members, members, name_members, other_claims},
    },
    patch::merge_diff,
};
use fleet_cells::{
    Cells, NodeName, Unreported, VcStatus,
    config::{ClusterConfig, ConfigError, ConfigErrors},
};
use fleet_policies::reason::Reason;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::ResourceExt;
use serde_json::{Value, json};

use crate::{
    events,
    status::{condition, cut, find_condition},
    world::World,
    writes::{Target, Verb, Write},
};

pub use objects::{plan_objects, plan_statuses};
pub use queues::{plan_queue_statuses, plan_queues};

const API: &str = "fleet.dev/v1alpha1";
const SOURCE: &str = "fleet-controller";
const NODES_PERMITTED: &str = "NodesPermitted";
/// Largest configuration that is copied to its status, in bytes of JSON: the limit of an object is near 1 MB.
const MAX_KEPT: usize = 512 * 1024;
/// Mistakes that a condition names; further ones are counted.
const TOLD_ERRORS: usize = 5;

/// The last state of the configuration objects.
#[derive(Default)]
pub struct Configurations {
    readings: BTreeMap<String, Reading>,
    in_force: Option<InForce>,
    /// Why no configuration is in force although one exists.
    trouble: Option<String>,
}

/// One object, parsed at one generation, with the members known at that time.
struct Reading {
    uid: String,
    generation: i64,
    members: Members,
    built: Result<Arc<Valid>, String>,
}

/// A valid configuration.
#[derive(Debug)]
pub struct Valid {
    /// Each tree names its member as soon as it is known.
    pub config: ClusterConfig,
    /// Who may use which virtual cluster.
    pub access: AccessRules,
    /// Trees whose member is unknown.
    unnamed: Vec<ConfigError>,
    /// Positions of the trees for which no administrator has named the member.
    found: Vec<usize>,
    nodes: Vec<NodeName>,
    /// Status of its virtual clusters while they are unused and all nodes are good.
    idle: BTreeMap<String, VcStatus>,
}

/// The configuration by which cells are allocated.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Name of its object.
    pub name: String,
    uid: String,
    pub generation: i64,
    pub valid: Arc<Valid>,
}

/// A change of the configuration in force: `Some(None)` removes it.
pub type ConfigurationChange = Option<Option<Arc<Valid>>>;

impl Configurations {
    /// Parses the configurations and selects the one in force.
    pub fn read(&mut self, world: &World) -> ConfigurationChange {
        let candidates = candidates(world);
        self.read_all(&candidates, world);
        if candidates.is_empty() {
            self.trouble = None;
            return self.in_force.take().map(|_| None);
        }
        let valid = candidates.iter().find_map(|object| {
            let reading = self.readings.get(&object.name_any())?;
            let valid = Arc::clone(reading.built.as_ref().ok()?);
            let (uid, generation) = (reading.uid.clone(), reading.generation);
            Some(InForce { name: object.name_any(), uid, generation, valid })
        });
        let found = valid.or_else(|| {
            // The configuration in force stays if its object is deleted while other, invalid ones exist.
            self.in_force.clone().or_else(|| candidates.iter().find_map(|object| kept(object)))
        });
        self.trouble = match found {
            Some(_) => None,
            None => candidates.iter().find_map(|object| {
                let error = self.readings.get(&object.name_any())?.built.as_ref().err()?;
                Some(format!("{}: {error}", object.name_any()))
            }),
        };
        let found = found?;
        let same = |known: &InForce| {
            known.uid == found.uid
                && known.valid.config == found.valid.config
                && known.valid.access == found.valid.access
        };
        if self.in_force.as_ref().is_some_and(same) {
            self.in_force = Some(found);
            return None;
        }
        let valid = Arc::clone(&found.valid);
        self.in_force = Some(found);
        Some(Some(valid))
    }

    /// The configuration by which cells are allocated.
    pub fn in_force(&self) -> Option<&InForce> {
        self.in_force.as_ref()
    }

    /// Why no configuration is in force although one exists; names the object.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn read_all(&mut self, candidates: &[&CellConfiguration], world: &World) {
        self.readings.retain(|known, _| candidates.iter().any(|object| object.name_any() == *known));
        let members = self.members(candidates, world);
        for object in candidates {
            let (name, (uid, generation)) = (object.name_any(), id(object));
            let is_known = |known: &Reading| {
                known.uid == uid
                    && known.generation == generation
                    && (known.members == members || known.built.as_ref().is_ok_and(|v| v.names_members()))
            };
            if !self.readings.get(&name).is_some_and(is_known) {
                let built = build(&object.spec, &members).map(Arc::new);
                self.readings.insert(name, Reading { uid, generation, members: members.clone(), built });
            }
        }
    }

    /// Members with their known nodes: from their reports, and from the configuration in force.
    fn members(&self, candidates: &[&CellConfiguration], world: &World) -> Members {
        let kept = || candidates.iter().find_map(|object| kept(object)).map(|kept| kept.valid);
        let before = self.in_force.as_ref().map(|known| Arc::clone(&known.valid)).or_else(kept);
        members(world.clusters.values(), before.iter().flat_map(|valid| &valid.nodes))
    }

    /// Conditions and warning events of every configuration object, and the configuration in force.
    pub fn plan_conditions(&self, world: &World, now: Timestamp) -> Vec<Write> {
        let alive = world.cell_configurations.values();
        let alive = alive.filter(|object| object.metadata.deletion_timestamp.is_none());
        alive.filter_map(|object| self.status(object, world, now)).collect()
    }

    /// Status, reason and message of the condition `Valid`.
    fn valid_condition(&self, object: &CellConfiguration, world: &World) -> (&'static str, Reason, String) {
        let name = object.name_any();
        let known = self.in_force.as_ref();
        match self.readings.get(&name).map(|reading| &reading.built) {
            Some(Err(error)) => {
                let message = format!("{error}; {}", in_force_instead(known, &name));
                ("False", Reason::CellConfigurationInvalid, message)
            }
            Some(Ok(valid)) if known.is_some_and(|known| known.name == name) => {
                ("True", Reason::CellConfigurationInForce, valid.remarks(world))
            }
            _ => {
                let first = known.map_or("none", |known| known.name.as_str());
                let message =
                    format!("metadata.name: found {name}; allowed: one configuration; {first} is in force");
                ("False", Reason::CellConfigurationInvalid, message)
            }
        }
    }

    fn status(&self, object: &CellConfiguration, world: &World, now: Timestamp) -> Option<Write> {
        let (status, reason, message) = self.valid_condition(object, world);
        let conditions = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
        let own = self.in_force.as_ref().filter(|known| known.name == object.name_any());
        let was_set = find_condition(conditions, NODES_PERMITTED).is_some();
        let permitted = own.and_then(|_| permits::nodes_permitted(world, was_set));
        let (valid, moved) = renewed(object, ("Valid", status, reason, &message), now);
        let permitted = permitted.map(|(status, message)| {
            renewed(object, (NODES_PERMITTED, status, Reason::NotPermitted, &message), now).0
        });
        let all: Vec<Value> = [valid].into_iter().chain(permitted).collect();
        let before = object.status.as_ref().map_or(Value::Null, |status| json!(status));
        let mut after = json!({"conditions": all});
        if let Some(known) = own {
            after["virtualClusters"] = json!(known.valid.config.virtual_clusters.len());
            after["nodes"] = json!(known.valid.nodes.len());
            // The planner's report is added to it.
            if let Some(bad) = before.get("badNodes") {
                after["badNodes"] = bad.clone();
            }
            if let Some(kept) = known.kept() {
                after["inForce"] = kept;
            }
        }
        let patch = merge_diff(&before, &after)?;
        let name = object.name_any();
        let body = json!({"status": patch});
        let write = Write::new(Target::CellConfiguration, "", &name, Verb::MergeStatus(body));
        if !moved || status == "True" {
            return Some(write);
        }
        let uid = object.uid().unwrap_or_default();
        let subject = events::Subject {
            api_version: API,
            kind: "CellConfiguration",
            namespace: "",
            name: &name,
            uid: &uid,
        };
        Some(write.then([events::warning(&subject, SOURCE, reason, &message, now)]))
    }
}

/// The desired condition of the object, and whether it differs: type, status, reason, message.
fn renewed(
    object: &CellConfiguration,
    (name, status, reason, message): (&str, &str, Reason, &str),
    now: Timestamp,
) -> (Value, bool) {
    let generation = object.metadata.generation;
    let conditions = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let known = find_condition(conditions, name);
    let is_same = |known: &&Condition| {
        known.status == status && known.message == cut(message) && known.observed_generation == generation
    };
    if let Some(known) = known.filter(is_same) {
        return (json!(known), false);
    }
    let mut fresh = condition(name, status, reason, message, known, now);
    fresh["observedGeneration"] = json!(generation);
    (fresh, true)
}

fn in_force_instead(known: Option<&InForce>, own: &str) -> String {
    match known {
        Some(known) if known.name == own => {
            format!("generation {} of it stays in force", known.generation)
        }
        Some(known) => format!("{} is in force", known.name),
        None => "no configuration is in force".to_string(),
    }
}

impl InForce {
    /// The copy for the status; `None` if it is too large.
    fn kept(&self) -> Option<Value> {
        let spec = CellConfigurationSpec::of(&self.valid.config);
        let mut kept = json!({
            "generation": self.generation,
            "physicalCluster": spec.physical_cluster,
            "virtualClusters": spec.virtual_clusters,
        });
        if !self.valid.access.is_empty() {
            kept["access"] = json!(self.valid.access);
        }
        (kept.to_string().len() <= MAX_KEPT).then_some(kept)
    }

    /// Status of each virtual cluster while it is unused.
    pub fn idle(&self) -> &BTreeMap<String, VcStatus> {
        &self.valid.idle
    }
}

impl Valid {
    fn of(
        config: ClusterConfig,
        access: AccessRules,
        unnamed: Vec<ConfigError>,
        found: Vec<usize>,
    ) -> Result<Self, ConfigErrors> {
        access::check(&access, &config)?;
        let cells = Cells::new(config, Unreported::Good)?;
        let statuses = cells.virtual_clusters().filter_map(|vc| Some((vc.to_string(), cells.vc_status(vc)?)));
        let idle = statuses.collect();
        let nodes = cells.nodes().cloned().collect();
        Ok(Self { config: cells.config().clone(), access, unnamed, found, nodes, idle })
    }

    fn names_members(&self) -> bool {
        self.config.physical_cluster.physical_cells.iter().all(|tree| !tree.cluster.is_empty())
    }

    /// Remarks on a configuration in force.
    fn remarks(&self, world: &World) -> String {
        let trees = self.config.physical_cluster.physical_cells.iter();
        let absent: BTreeSet<&str> = trees
            .map(|tree| tree.cluster.as_str())
            .filter(|cluster| !cluster.is_empty() && !world.clusters.contains_key(*cluster))
            .collect();
        let mut remarks = "the configuration is in force".to_string();
        if !absent.is_empty() {
            let names = absent.into_iter().collect::<Vec<_>>().join(", ");
            remarks.push_str(&format!("; its cells are bad because these members have not joined: {names}"));
        }
        if let Some(absent) = permits::absent(world, &self.nodes) {
            remarks.push_str(&format!("; {absent}"));
        }
        if !self.unnamed.is_empty() {
            remarks
                .push_str(&format!("; bad until a member reports their nodes: {}", sentence(&self.unnamed)));
        }
        let claims = other_claims(&self.config, &self.found, world.clusters.values());
        for claim in claims.iter().take(TOLD_ERRORS) {
            remarks.push_str(&format!("; spec.{claim}"));
        }
        remarks
    }
}

fn build(spec: &CellConfigurationSpec, members: &Members) -> Result<Valid, String> {
    let build = || {
        let written = spec.config()?;
        let trees = written.physical_cluster.physical_cells.iter().enumerate();
        let without: Vec<usize> =
            trees.filter(|(_, tree)| tree.cluster.is_empty()).map(|(at, _)| at).collect();
        let (config, unnamed) = name_members(written, members);
        let is_found = |at: &usize| !config.physical_cluster.physical_cells[*at].cluster.is_empty();
        let found = without.into_iter().filter(is_found).collect();
        Valid::of(config, spec.access.clone(), unnamed, found)
    };
    build().map_err(|errors: ConfigErrors| sentence(&errors.0))
}

/// The first mistakes, each with its path in the object.
fn sentence(errors: &[ConfigError]) -> String {
    let mut parts: Vec<String> =
        errors.iter().take(TOLD_ERRORS).map(|error| format!("spec.{error}")).collect();
    let more = errors.len().saturating_sub(TOLD_ERRORS);
    if more > 0 {
        parts.push(format!("and {more} more mistakes"));
    }
    parts.join("; ")
}

/// The configuration that was in force before a restart.
fn kept(object: &CellConfiguration) -> Option<InForce> {
    let kept = object.status.as_ref()?.in_force.as_ref()?;
    let valid = Valid::of(kept.config().ok()?, kept.access.clone(), Vec::new(), Vec::new()).ok()?;
    let uid = object.uid().unwrap_or_default();
    Some(InForce { name: object.name_any(), uid, generation: kept.generation, valid: Arc::new(valid) })
}

fn id(object: &CellConfiguration) -> (String, i64) {
    (object.uid().unwrap_or_default(), object.metadata.generation.unwrap_or(0))
}

/// Configurations that may come into force, the oldest first.
fn candidates(world: &World) -> Vec<&CellConfiguration> {
    let all = world.cell_configurations.values();
    let mut alive: Vec<&CellConfiguration> =
        all.filter(|object| object.metadata.deletion_timestamp.is_none()).collect();
    alive.sort_by_cached_key(|object| (object.creation_timestamp().map(|time| time.0), object.name_any()));
    alive
}
