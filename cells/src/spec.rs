//! HiveD's pod scheduling specification, the parsed annotation `hivedscheduler.microsoft.com/pod-scheduling-spec`:
//! version 1, with its old field names, and version 2 with nested groups.

use std::{collections::BTreeMap, ops::Range};

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
    /// Places of its group that it may get, by number; fewer than [`MAX_PODS`].
    pub places: Range<usize>,
}

type Read<T> = Result<T, ConfigError>;

/// How deep groups may be nested; the check of the request is stricter.
const MAX_DEPTH: usize = 32;
/// Longest text, in bytes, as names in Kubernetes are: each of the pods may get a copy.
const MAX_TEXT: usize = 253;

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
    /// has in its groups, and how many these have.
    ///
    /// # Errors
    /// The first field of the wrong type.
    pub fn parse(spec: &Value, own: &str) -> Read<(Self, Option<ConfigError>)> {
        let map = object(spec, "the specification")?;
        match map.get("version").and_then(Value::as_str) {
            None | Some("v1" | "") => version_1(map, own),
            Some("v2") => version_2(map, own),
            Some(other) => Err(wrong("version", quote(short(other)), "v1 or v2")),
        }
    }
}

fn version_1(map: &Map<String, Value>, own: &str) -> Read<(PodSpec, Option<ConfigError>)> {
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
    let (mut pods, mut places) = (Pods::default(), 0..0);
    for member in &request.affinity_group.root.members {
        let own = pods.add(member.pod_number, "affinityGroup.members");
        if member.leaf_cell_number == cells && !own.is_empty() {
            places = own;
        }
    }
    Ok((PodSpec { request, cells, places }, pods.mistake))
}

/// Members of the same size are one member.
fn members(group: &Map<String, Value>) -> Read<Vec<Member>> {
    let mut merged: Vec<Member> = Vec::new();
    // By the number of cells, where a member with pods is in the list.
    let mut with_pods: BTreeMap<i64, usize> = BTreeMap::new();
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
        let same = with_pods.get(&member.leaf_cell_number).filter(|_| member.pod_number > 0);
        if let Some(same) = same.and_then(|at| merged.get_mut(*at)) {
            same.pod_number = same.pod_number.saturating_add(member.pod_number);
            continue;
        }
        if member.pod_number > 0 {
            with_pods.insert(member.leaf_cell_number, merged.len());
        }
        merged.push(member);
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
            return Ok((PodSpec { request, cells, places: 0..1 }, None));
        }
        Some(root) => root,
    };
    let mut reader = Groups::default();
    let group = reader.group(root, "podRootGroup", 1)?;
    let name = text(object(root, "podRootGroup")?, "podRootGroup.", &["name"])?;
    request.affinity_group = AffinityGroup { name, root: group };
    let Groups { mut pods, current, places } = reader;
    if current != 1 {
        let found = format!("{current} pods with containsCurrentPod");
        pods.mistake.get_or_insert(wrong("podRootGroup", found, "one, which says where this pod belongs"));
    }
    let places = if current == 1 { places } else { 0..0 };
    Ok((PodSpec { request, cells, places }, pods.mistake))
}

/// The places of a group, counted as its parts are read.
#[derive(Default)]
struct Pods {
    /// At most [`MAX_PODS`].
    number: usize,
    mistake: Option<ConfigError>,
}

impl Pods {
    /// The places of a part with so many pods; those beyond [`MAX_PODS`] are a mistake, and left out.
    fn add(&mut self, pods: i64, path: &str) -> Range<usize> {
        let most = MAX_PODS as usize;
        let (start, pods) = (self.number, usize::try_from(pods).unwrap_or(0));
        let end = start.saturating_add(pods);
        if end > most && self.mistake.is_none() {
            self.mistake = Some(wrong(path, format!("{end} pods in all"), format!("at most {most} pods")));
        }
        self.number = end.min(most);
        start..self.number
    }
}

#[derive(Default)]
struct Groups {
    pods: Pods,
    /// How many `pod`s contain the current one, and the places of the last of these.
    current: usize,
    places: Range<usize>,
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
            self.pods.mistake.get_or_insert(wrong(path, found, "the same as podMinNumber"));
        }
        let empty = Map::new();
        let cells = match map.get("cellsPerPod") {
            None | Some(Value::Null) => &empty,
            Some(cells) => object(cells, &format!("{path}.cellsPerPod"))?,
        };
        let cells_path = format!("{path}.cellsPerPod.");
        known(cells, &cells_path, &["cellType", "cellNumber"])?;
        let places = self.pods.add(least, path);
        if boolean(map, &inner, "containsCurrentPod", false)? {
            self.current += 1;
            self.places = places;
        }
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

/// The beginning of a text, for a message.
fn short(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::String(text) => quote(short(text)),
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
        Some(key) => Err(wrong(format!("{prefix}{}", short(key)), "an unknown field", fields.join(", "))),
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
        Some((name, Value::String(text))) if text.len() > MAX_TEXT => {
            let allowed = format!("at most {MAX_TEXT} bytes");
            Err(wrong(format!("{prefix}{name}"), format!("{} bytes", text.len()), allowed))
        }
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
