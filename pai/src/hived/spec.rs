//! HiveD's pod scheduling spec, in both versions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Code, Problem, Protocol, Refusal, TaskRole, render::MADE_MAX};

/// The annotation of a pod template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PodSpec {
    V2(SpecV2),
    V1(SpecV1),
}

impl PodSpec {
    /// JSON, which is YAML.
    pub fn text(&self) -> String {
        // Texts, numbers and lists of them can always be serialized.
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecV1 {
    pub virtual_cluster: String,
    pub priority: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_cell_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf_cell_type: Option<String>,
    pub leaf_cell_number: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_release_enable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy_preemption_enable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_k8s_suggested_nodes: Option<bool>,
    /// `None`: the pod is a group of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity_group: Option<AffinityGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AffinityGroup {
    pub name: String,
    pub members: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    pub pod_number: i64,
    pub leaf_cell_number: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecV2 {
    /// `v2`
    pub version: String,
    pub virtual_cluster: String,
    pub priority: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_cell_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell_type: Option<String>,
    pub cell_number: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_release_enable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy_preemption_enable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_root_group: Option<PodGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodGroup {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_one_cell: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodGroupMember>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_groups: Vec<PodGroup>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodGroupMember {
    pub pod_min_number: i64,
    pub pod_max_number: i64,
    pub cells_per_pod: CellsPerPod,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contains_current_pod: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CellsPerPod {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell_type: Option<String>,
    pub cell_number: i64,
}

/// The spec of each role's pods, in the order of roles. `id` is `user~job`.
///
/// # Errors
/// They are larger than [`MADE_MAX`] together: each role's has the names of all roles of its group.
pub(super) fn specs(protocol: &Protocol, id: &str, cells: &[i64]) -> Result<Vec<PodSpec>, Refusal> {
    let roles: Vec<(&TaskRole, i64)> = protocol.task_roles.iter().zip(cells.iter().copied()).collect();
    let groups = groups(protocol, id, &roles);
    let mut specs = Vec::new();
    let mut bytes: usize = 0;
    for role in &roles {
        let spec = match protocol.extras.hived.is_v2 {
            true => PodSpec::V2(second(protocol, id, &roles, *role)),
            false => PodSpec::V1(first(protocol, &groups, *role)),
        };
        bytes = bytes.saturating_add(spec.text().len());
        if bytes > MADE_MAX {
            let found = format!("scheduling specs of more than {} KiB", MADE_MAX / 1024);
            let allowed = "fewer or shorter names of task roles and groups: each task role's spec has those of its group";
            let problem = Problem::new("extras.hivedScheduler", found, allowed);
            return Err(Refusal::one(Code::InvalidProtocol, problem));
        }
        specs.push(spec);
    }
    Ok(specs)
}

/// Roles that name groups are in those; every other task is alone. If no role does, all tasks of a gang are in one
/// group.
fn groups(protocol: &Protocol, id: &str, roles: &[(&TaskRole, i64)]) -> BTreeMap<String, AffinityGroup> {
    let mut found: BTreeMap<String, AffinityGroup> = BTreeMap::new();
    let named = roles.iter().any(|(role, _)| protocol.hived_role(&role.name).affinity_group.is_some());
    for (role, cells) in roles.iter().filter(|(_, cells)| *cells > 0) {
        let group = match protocol.hived_role(&role.name).affinity_group {
            Some(group) => group,
            None if !named && protocol.extras.gang_allocation => "default".to_owned(),
            None => continue,
        };
        let group = found
            .entry(group.clone())
            .or_insert_with(|| AffinityGroup { name: format!("{id}/{group}"), members: Vec::new() });
        group.members.push(Member { pod_number: role.instances, leaf_cell_number: *cells });
    }
    found
}

fn first(
    protocol: &Protocol,
    groups: &BTreeMap<String, AffinityGroup>,
    (role, cells): (&TaskRole, i64),
) -> SpecV1 {
    let hived = &protocol.extras.hived;
    let own = protocol.hived_role(&role.name);
    let group = own.affinity_group.as_deref().unwrap_or("default");
    let is_grouped = own.affinity_group.is_some()
        || (protocol.extras.gang_allocation
            && hived.roles.values().all(|role| role.affinity_group.is_none()));
    SpecV1 {
        virtual_cluster: protocol.virtual_cluster.clone(),
        priority: hived.class.priority(),
        pinned_cell_id: own.pinned_cell_id,
        leaf_cell_type: own.sku_type,
        leaf_cell_number: cells,
        gang_release_enable: own.gang_release.or(hived.gang_release),
        lazy_preemption_enable: own.lazy_preemption.or(hived.lazy_preemption),
        ignore_k8s_suggested_nodes: own.ignore_suggested_nodes.or(hived.ignore_suggested_nodes),
        affinity_group: groups.get(group).filter(|_| is_grouped).cloned(),
    }
}

/// Groups of roles as the file names them. The rest of a gang is one more group. Otherwise a task is alone, or
/// within one cell with its role if the file says so.
fn second(
    protocol: &Protocol,
    id: &str,
    roles: &[(&TaskRole, i64)],
    (role, cells): (&TaskRole, i64),
) -> SpecV2 {
    let hived = &protocol.extras.hived;
    let own = protocol.hived_role(&role.name);
    let is_grouped =
        |name: &str| hived.groups.iter().any(|group| group.roles.iter().any(|role| role == name));
    let named = hived.groups.iter().find(|group| group.roles.contains(&role.name));
    let (name, within, members): (String, Option<String>, Vec<&(&TaskRole, i64)>) = match named {
        Some(group) => (
            format!("{id}/taskRoleGroups/{}", group.roles.join("_")),
            group.within_one.clone(),
            roles.iter().filter(|(role, _)| group.roles.contains(&role.name)).collect(),
        ),
        None if protocol.extras.gang_allocation => (
            format!("{id}/default"),
            None,
            roles.iter().filter(|(role, _)| !is_grouped(&role.name)).collect(),
        ),
        None => (String::new(), None, Vec::new()),
    };
    let child = |(other, cells): &&(&TaskRole, i64)| {
        let of = protocol.hived_role(&other.name);
        PodGroup {
            name: format!("{name}/{}", other.name),
            within_one_cell: of.within_one,
            pod: Some(PodGroupMember {
                pod_min_number: other.instances,
                pod_max_number: other.instances,
                cells_per_pod: CellsPerPod { cell_type: of.sku_type, cell_number: *cells },
                contains_current_pod: other.name == role.name,
            }),
            child_groups: Vec::new(),
        }
    };
    let children: Vec<PodGroup> = members.iter().filter(|(_, cells)| *cells > 0).map(child).collect();
    let root = PodGroup { name: name.clone(), within_one_cell: within, pod: None, child_groups: children };
    SpecV2 {
        version: "v2".to_owned(),
        virtual_cluster: protocol.virtual_cluster.clone(),
        priority: hived.class.priority(),
        pinned_cell_id: own.pinned_cell_id,
        cell_type: own.sku_type,
        cell_number: cells,
        gang_release_enable: own.gang_release.or(hived.gang_release),
        lazy_preemption_enable: own.lazy_preemption.or(hived.lazy_preemption),
        pod_root_group: (!name.is_empty()).then_some(root),
    }
}
