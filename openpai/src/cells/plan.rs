//! What a configuration would change: shown before anything is written.

use std::collections::BTreeSet;

use fleet_api::cells::{
    AccessRules, CONFIGURATION_NAME, CellConfigurationSpec, VcAccess, access,
    class::class_name,
    read::{absent_nodes, name_members},
};
use fleet_api::patch::merge_diff;
pub use fleet_cells::PromiseChange;
use fleet_cells::{
    Cells, Unreported,
    config::{ClusterConfig, ConfigErrors},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

use super::{CellsError, Standing, configurations_path, file::Wanted};
use crate::server::{AskError, Server};

/// What a configuration changes, jobs by their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationPlan {
    /// Name of the object that will be written.
    pub name: String,
    /// Guaranteed cells gained and lost, by virtual cluster.
    pub promises: Vec<PromiseChange>,
    pub virtual_clusters_added: Vec<String>,
    pub virtual_clusters_removed: Vec<String>,
    pub nodes_added: Vec<String>,
    pub nodes_removed: Vec<String>,
    /// Jobs that lose their guaranteed cells, or that use devices which no virtual cluster owns any more. All
    /// of them keep running.
    pub jobs: Vec<JobChange>,
    /// Trees whose member is not known: their cells are bad until a member reports them.
    pub unnamed: Vec<String>,
    /// Nodes that their member does not have, with nodes that may be meant: their cells are bad.
    pub absent: Vec<String>,
    /// Virtual clusters whose access rules change, with the new rules.
    pub access: Vec<AccessChange>,
    /// Whether the object itself would change.
    pub is_change: bool,
    #[serde(skip)]
    pub spec: CellConfigurationSpec,
    /// The object as it was read: its generation and spec.
    #[serde(skip)]
    pub before: Option<(i64, Value)>,
}

/// Who may use a virtual cluster; absent: everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessChange {
    pub vc: String,
    pub before: Option<VcAccess>,
    pub after: Option<VcAccess>,
}

/// What happens to a running job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobChange {
    pub job: String,
    pub virtual_cluster: String,
    pub class: String,
    pub becomes: String,
    pub why: String,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Cells(#[from] CellsError),
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The configuration does not fit the fleet.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error("metadata.name: found {found}; allowed: {allowed}, the one CellConfiguration there is")]
    OtherName { found: String, allowed: String },
    #[error("cellconfiguration {name} has changed since the difference was computed; compute it again")]
    Changed { name: String },
}

/// What a file would change on this hub.
///
/// # Errors
/// The configuration does not fit the fleet, or the current state cannot be read.
pub fn plan(standing: &Standing, wanted: &Wanted, now: Timestamp) -> Result<ConfigurationPlan, PlanError> {
    let name = target(standing, wanted)?;
    let (config, unnamed) = name_members(wanted.config.clone(), &standing.members());
    let picture = standing.picture(now)?;
    let difference = match &picture {
        Some(picture) => picture.cells.preview(config.clone(), Unreported::Good, now.as_millisecond())?,
        None => {
            let nothing = Cells::new(ClusterConfig::default(), Unreported::Good)?;
            nothing.preview(config.clone(), Unreported::Good, now.as_millisecond())?
        }
    };
    let names = |cells: &Cells| cells.virtual_clusters().map(str::to_string).collect::<Vec<_>>();
    let before = picture.as_ref().map(|picture| names(&picture.cells)).unwrap_or_default();
    let after: Vec<String> = config.virtual_clusters.keys().cloned().collect();
    let missing = |of: &[String], from: &[String]| -> Vec<String> {
        of.iter().filter(|name| !from.contains(name)).cloned().collect()
    };
    let texts = |nodes: &[fleet_cells::NodeName]| nodes.iter().map(ToString::to_string).collect();
    let jobs = difference.groups.iter().map(|lost| job_change(picture.as_ref(), lost)).collect();
    let object = standing.configurations.iter().find(|object| object.name_any() == name);
    let known = object.map(|object| (object.metadata.generation.unwrap_or(0), json!(object.spec)));
    let mut spec = CellConfigurationSpec::of(&wanted.config);
    let stands = object.map(|object| object.spec.access.clone()).unwrap_or_default();
    spec.access = wanted.access.clone().unwrap_or_else(|| stands.clone());
    access::check(&spec.access, &wanted.config)?;
    let written = json!(spec);
    Ok(ConfigurationPlan {
        name,
        promises: difference.promises,
        virtual_clusters_added: missing(&after, &before),
        virtual_clusters_removed: missing(&before, &after),
        nodes_added: texts(&difference.nodes_added),
        nodes_removed: texts(&difference.nodes_removed),
        jobs,
        unnamed: unnamed.iter().map(ToString::to_string).collect(),
        absent: absent(&config, standing)?,
        access: access_changes(&stands, &spec.access),
        is_change: object.is_none_or(|object| !says(object, &wanted.config, &spec))
            && known.as_ref().is_none_or(|(_, before)| *before != written),
        spec,
        before: known,
    })
}

fn absent(config: &ClusterConfig, standing: &Standing) -> Result<Vec<String>, ConfigErrors> {
    let cells = Cells::new(config.clone(), Unreported::Good)?;
    let nodes: Vec<fleet_cells::NodeName> = cells.nodes().cloned().collect();
    Ok(absent_nodes(&nodes, &standing.clusters).iter().map(ToString::to_string).collect())
}

fn access_changes(before: &AccessRules, after: &AccessRules) -> Vec<AccessChange> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let change = |vc: &String| AccessChange {
        vc: vc.clone(),
        before: before.get(vc).cloned(),
        after: after.get(vc).cloned(),
    };
    names.into_iter().map(change).filter(|change| change.before != change.after).collect()
}

fn says(object: &fleet_api::CellConfiguration, config: &ClusterConfig, spec: &CellConfigurationSpec) -> bool {
    object.spec.access == spec.access && object.spec.config().is_ok_and(|known| known == *config)
}

/// Name of the object to write: the existing one, if there is one.
fn target(standing: &Standing, wanted: &Wanted) -> Result<String, PlanError> {
    let known = standing.in_force().map(|view| view.object).or_else(|| standing.configurations.first());
    match (known.map(ResourceExt::name_any), &wanted.name) {
        (Some(known), Some(found)) if known != *found => {
            Err(PlanError::OtherName { found: found.clone(), allowed: known })
        }
        (Some(known), _) => Ok(known),
        (None, Some(found)) => Ok(found.clone()),
        (None, None) => Ok(CONFIGURATION_NAME.to_string()),
    }
}

fn job_change(picture: Option<&super::Picture>, lost: &fleet_cells::Recovered) -> JobChange {
    let asked = picture.and_then(|picture| picture.asked(&lost.group));
    let class = asked.map_or(0, |(_, priority)| priority);
    let nodes = |cells: &[(fleet_cells::NodeName, i32)]| {
        let list: Vec<String> = cells.iter().map(|(node, leaf)| format!("{node} {leaf}")).collect();
        list.join(", ")
    };
    let (becomes, why) = match lost.promise_lost {
        Some(reason) => ("opportunistic", promise_sentence(reason, &lost.vc)),
        None if lost.unknown_cells.is_empty() => {
            ("without its place", format!("another job has {}", nodes(&lost.taken_cells)))
        }
        None => ("without its place", format!("no cell any more: {}", nodes(&lost.unknown_cells))),
    };
    JobChange {
        job: picture.map_or_else(|| lost.group.clone(), |picture| picture.job(&lost.group)),
        virtual_cluster: lost.vc.clone(),
        class: class_name(class),
        becomes: becomes.to_string(),
        why,
    }
}

fn promise_sentence(reason: fleet_cells::PromiseLost, vc: &str) -> String {
    use fleet_cells::PromiseLost as Lost;
    match reason {
        Lost::VcGone => format!("virtual cluster {vc} is gone"),
        Lost::PinnedCellGone => format!("{vc} no longer has the pinned cell"),
        Lost::TypeGone => "the chain has no cells of the promised type any more".to_string(),
        Lost::NotInVc => format!("{vc} has no such cells of the chain any more"),
        Lost::TooFewCells => format!("{vc} has fewer such cells, and others have them"),
        Lost::CellsPromisedElsewhere => "its cells are promised otherwise".to_string(),
    }
}

/// Writes a plan, if the object has not changed since. Returns `created` or `configured`.
///
/// # Errors
/// The object has changed since the plan was made, or the hub refuses.
pub async fn apply(server: &Server, plan: &ConfigurationPlan) -> Result<&'static str, PlanError> {
    let spec = json!(plan.spec);
    let path = configurations_path();
    let changed = || PlanError::Changed { name: plan.name.clone() };
    let Some((generation, before)) = &plan.before else {
        let object = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "CellConfiguration",
            "metadata": {"name": plan.name}, "spec": spec});
        return match server.create(&path, &object).await {
            Ok(_) => Ok("created"),
            Err(error) if error.is_conflict() => Err(changed()),
            Err(error) => Err(error.into()),
        };
    };
    let path = format!("{path}/{}", plan.name);
    // Statuses are written all the time. Only the spec must still be the one that was compared.
    for _ in 0..TRIES {
        let now = server.object(&path).await?;
        if now["metadata"]["generation"].as_i64() != Some(*generation) {
            return Err(changed());
        }
        let Some(patch) = merge_diff(before, &spec) else { return Ok("unchanged") };
        let body =
            json!({"metadata": {"resourceVersion": now["metadata"]["resourceVersion"]}, "spec": patch});
        match server.merge(&path, &body).await {
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok("configured"),
        }
    }
    Err(changed())
}

/// Attempts for writes that conflict with a concurrent status write.
const TRIES: usize = 5;
