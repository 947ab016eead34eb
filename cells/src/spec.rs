//! HiveD's pod scheduling specification, the parsed annotation `hivedscheduler.microsoft.com/pod-scheduling-spec`:
//! version 1, with its old field names, and version 2 with nested groups.

use serde_json::{Map, Value};

use crate::{
    config::{ConfigError, quote},
    request::{AffinityGroup, GroupRequest, MAX_PODS, Member, PodGroup},
};

/// A pod and its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSpec {
    pub request: GroupRequest,
    /// Cells of this pod.
    pub cells: i64,
    /// Places of its group that it may get, by number.
    pub places: Vec<usize>,
}

type Read<T> = Result<T, ConfigError>;

/// How deep groups may be nested; the check of the request is stricter.
const MAX_DEPTH: usize = 32;

impl PodSpec {
    /// Parses a specification. `own` is the group of a pod that names none, e.g. `namespace/pod`.
    ///
    /// # Errors
    /// The first field of the wrong type. Values are checked by [`crate::Cells::schedule_pod`].
    pub fn read(spec: &Value, own: &str) -> Read<Self> {
        let (spec, mistake) = Self::parse(spec, own)?;
        mistake.map_or(Ok(spec), Err)
    }

    /// The same with a mistake in the values beside it, which HiveD answers as the user's error: how many places the pod
    /// has in its groups.
    ///
    /// # Errors
    /// The first field of the wrong type.
    pub fn parse(spec: &Value, own: &str) -> Read<(Self, Option<ConfigError>)> {
        let map = object(spec, "the specification")?;
        match map.get("version").and_then(Value::as_str) {
            None | Some("v1" | "") => Ok((version_1(map, own)?, None)),
            Some("v2") => version_2(map, own),
            Some(other) => Err(wrong("version", quote(other), "v1 or v2")),
        }
    }
}

fn version_1(map: &Map<String, Value>, own: &str) -> Read<PodSpec> {
    known(
        map,
        "",
        &[
            "version",
            "virtualCluster",
            "priority",
            "pinnedCellId",
            "leafCellType",
            "gpuType",
            "leafCellNumber",
            "gpuNumber",
            "gangReleaseEnable",
            "lazyPreemptionEnable",
            "ignoreK8sSuggestedNodes",
            "affinityGroup",
        ],
    )?;
    let cells = number(map, "", &["leafCellNumber", "gpuNumber"])?.unwrap_or(0);
    let mut request = common(map)?;
    request.leaf_cell_type = text(map, "", &["leafCellType", "gpuType"])?;
    request.affinity_group = match map.get("affinityGroup") {
        None | Some(Value::Null) => alone(own, cells, ""),
        Some(group) => {
            let group = object(group, "affinityGroup")?;
            known(group, "affinityGroup.", &["name", "members"])?;
            let name = text(group, "affinityGroup.", &["name"])?;
            AffinityGroup { name, root: PodGroup { members: members(group)?, ..PodGroup::default() } }
        }
    };
    let sizes = request.affinity_group.root.members.iter().flat_map(|member| {
        let pods = usize::try_from(member.pod_number).unwrap_or(0).min(MAX_PODS as usize);
        std::iter::repeat_n(member.leaf_cell_number, pods)
    });
    let places = sizes.enumerate().filter(|(_, size)| *size == cells).map(|(place, _)| place).collect();
    Ok(PodSpec { request, cells, places })
}

/// Members of the same size are one member.
fn members(group: &Map<String, Value>) -> Read<Vec<Member>> {
    let mut merged: Vec<Member> = Vec::new();
    for (index, entry) in list(group, "affinityGroup.", "members")?.iter().enumerate() {
        let path = format!("affinityGroup.members[{index}]");
        let entry = object(entry, &path)?;
        let path = format!("{path}.");
        known(entry, &path, &["podNumber", "leafCellNumber", "gpuNumber"])?;
        let member = Member {
            pod_number: number(entry, &path, &["podNumber"])?.unwrap_or(0),
            leaf_cell_number: number(entry, &path, &["leafCellNumber", "gpuNumber"])?.unwrap_or(0),
            cell_type: String::new(),
        };
        let same =
            |other: &&mut Member| other.leaf_cell_number == member.leaf_cell_number && other.pod_number > 0;
        match merged.iter_mut().find(same) {
            Some(other) if member.pod_number > 0 => {
                other.pod_number = other.pod_number.saturating_add(member.pod_number)
            }
            _ => merged.push(member),
        }
    }
    Ok(merged)
}

fn version_2(map: &Map<String, Value>, own: &str) -> Read<(PodSpec, Option<ConfigError>)> {
    known(
        map,
        "",
        &[
            "version",
            "virtualCluster",
            "priority",
            "pinnedCellId",
            "cellType",
            "cellNumber",
            "gangReleaseEnable",
            "lazyPreemptionEnable",
            "ignoreK8sSuggestedNodes",
            "podRootGroup",
        ],
    )?;
    let mut request = common(map)?;
    let cells = number(map, "", &["cellNumber"])?.unwrap_or(0);
    let cell_type = text(map, "", &["cellType"])?;
    let root = match map.get("podRootGroup") {
        None | Some(Value::Null) => {
            request.affinity_group = alone(own, cells, &cell_type);
            return Ok((PodSpec { request, cells, places: vec![0] }, None));
        }
        Some(root) => root,
    };
    let mut reader = Groups { pods: 0, current: Vec::new(), mistake: None };
    let group = reader.group(root, "podRootGroup", 1)?;
    let name = text(object(root, "podRootGroup")?, "podRootGroup.", &["name"])?;
    request.affinity_group = AffinityGroup { name, root: group };
    let mut mistake = reader.mistake;
    let places = match reader.current.as_slice() {
        [places] => places.clone(),
        found => {
            let found = format!("{} pods with containsCurrentPod", found.len());
            mistake.get_or_insert(wrong("podRootGroup", found, "one, which says where this pod belongs"));
            Vec::new()
        }
    };
    Ok((PodSpec { request, cells, places }, mistake))
}

struct Groups {
    pods: usize,
    /// Places of each `pod` that contains the current one.
    current: Vec<Vec<usize>>,
    mistake: Option<ConfigError>,
}

impl Groups {
    fn group(&mut self, value: &Value, path: &str, depth: usize) -> Read<PodGroup> {
        if depth > MAX_DEPTH {
            return Err(wrong(path, "deeper groups", format!("at most {MAX_DEPTH} levels")));
        }
        let map = object(value, path)?;
        let inner = format!("{path}.");
        known(map, &inner, &["name", "withinOneCell", "pod", "childGroups"])?;
        let mut group =
            PodGroup { within_one_cell: text(map, &inner, &["withinOneCell"])?, ..PodGroup::default() };
        if let Some(pod) = map.get("pod").filter(|pod| !pod.is_null()) {
            group.members.push(self.pod(pod, &format!("{path}.pod"))?);
        }
        for (index, child) in list(map, &inner, "childGroups")?.iter().enumerate() {
            group.child_groups.push(self.group(child, &format!("{path}.childGroups[{index}]"), depth + 1)?);
        }
        Ok(group)
    }

    fn pod(&mut self, value: &Value, path: &str) -> Read<Member> {
        let map = object(value, path)?;
        let inner = format!("{path}.");
        known(map, &inner, &["podMinNumber", "podMaxNumber", "cellsPerPod", "containsCurrentPod"])?;
        let least = number(map, &inner, &["podMinNumber"])?.unwrap_or(0);
        let most = number(map, &inner, &["podMaxNumber"])?.unwrap_or(least);
        if least != most {
            let found = format!("{most} beside podMinNumber {least}");
            let path = format!("{inner}podMaxNumber");
            self.mistake.get_or_insert(wrong(path, found, "the same as podMinNumber"));
        }
        let empty = Map::new();
        let cells = match map.get("cellsPerPod") {
            None | Some(Value::Null) => &empty,
            Some(cells) => object(cells, &format!("{path}.cellsPerPod"))?,
        };
        let cells_path = format!("{path}.cellsPerPod.");
        known(cells, &cells_path, &["cellType", "cellNumber"])?;
        let pods = usize::try_from(least).unwrap_or(0).min(MAX_PODS as usize);
        if boolean(map, &inner, "containsCurrentPod", false)? {
            self.current.push((self.pods..self.pods + pods).collect());
        }
        self.pods += pods;
        Ok(Member {
            pod_number: least,
            leaf_cell_number: number(cells, &cells_path, &["cellNumber"])?.unwrap_or(0),
            cell_type: text(cells, &cells_path, &["cellType"])?,
        })
    }
}

/// Fields that both versions have.
fn common(map: &Map<String, Value>) -> Read<GroupRequest> {
    let priority = number(map, "", &["priority"])?.unwrap_or(0);
    let mut request = GroupRequest::new("", &text(map, "", &["virtualCluster"])?, 0, 1, 1);
    // Beyond an i32 it is out of the allowed range in any case.
    request.priority = i32::try_from(priority).unwrap_or(if priority < 0 { i32::MIN } else { i32::MAX });
    request.pinned_cell_id = text(map, "", &["pinnedCellId"])?;
    request.lazy_preemption_enable = boolean(map, "", "lazyPreemptionEnable", false)?;
    request.ignore_k8s_suggested_nodes = boolean(map, "", "ignoreK8sSuggestedNodes", true)?;
    request.gang_release_enable = boolean(map, "", "gangReleaseEnable", true)?;
    Ok(request)
}

fn alone(name: &str, cells: i64, cell_type: &str) -> AffinityGroup {
    let member = Member { pod_number: 1, leaf_cell_number: cells, cell_type: cell_type.to_string() };
    AffinityGroup { name: name.to_string(), root: PodGroup { members: vec![member], ..PodGroup::default() } }
}

fn wrong(path: impl Into<String>, found: impl Into<String>, allowed: impl Into<String>) -> ConfigError {
    ConfigError { path: path.into(), found: found.into(), allowed: allowed.into() }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::String(text) => quote(text),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        other => other.to_string(),
    }
}

fn object<'v>(value: &'v Value, path: &str) -> Read<&'v Map<String, Value>> {
    value.as_object().ok_or_else(|| wrong(path, shown(value), "an object"))
}

fn known(map: &Map<String, Value>, prefix: &str, fields: &[&str]) -> Read<()> {
    match map.keys().find(|key| !fields.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(wrong(format!("{prefix}{key}"), "an unknown field", fields.join(", "))),
    }
}

/// The first of several names that is present.
fn field<'v>(map: &'v Map<String, Value>, names: &[&str]) -> Option<(String, &'v Value)> {
    names
        .iter()
        .find_map(|name| Some(((*name).to_string(), map.get(*name).filter(|value| !value.is_null())?)))
}

fn text(map: &Map<String, Value>, prefix: &str, names: &[&str]) -> Read<String> {
    match field(map, names) {
        None => Ok(String::new()),
        Some((_, Value::String(text))) => Ok(text.clone()),
        Some((_, Value::Number(number))) => Ok(number.to_string()),
        Some((name, other)) => Err(wrong(format!("{prefix}{name}"), shown(other), "text")),
    }
}

fn number(map: &Map<String, Value>, prefix: &str, names: &[&str]) -> Read<Option<i64>> {
    match field(map, names) {
        None => Ok(None),
        Some((name, value)) => match value.as_i64() {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(format!("{prefix}{name}"), shown(value), "an integer")),
        },
    }
}

fn boolean(map: &Map<String, Value>, prefix: &str, name: &str, default: bool) -> Read<bool> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(wrong(format!("{prefix}{name}"), shown(other), "true or false")),
    }
}

fn list<'v>(map: &'v Map<String, Value>, prefix: &str, name: &str) -> Read<&'v [Value]> {
    match map.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(other) => Err(wrong(format!("{prefix}{name}"), shown(other), "a list")),
    }
}
