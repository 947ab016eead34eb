//! HiveD's annotation on pod templates, version 1 and 2: pods of one affinity group over all templates of the job.

use std::collections::BTreeMap;

use fleet_api::names::POD_SCHEDULING_SPEC_ANNOTATION;
use fleet_cells::{GroupRequest, PodSpec};
use serde_json::Value;

use super::fields::{CellRequestError, Role, quote, wrong};
use fleet_planner::CellGroupAsk;

/// Name of the group of a pod whose specification names none; no name of a user's can be it.
const OWN: &str = "";

pub(super) fn annotation(template: &Value) -> Option<&str> {
    template["metadata"]["annotations"][POD_SCHEDULING_SPEC_ANNOTATION]
        .as_str()
        .filter(|text| !text.is_empty())
}

/// Whether the annotation has the virtual cluster's name in plain words, however they are quoted and spaced. The admission
/// policy of the chart asks the same of the text, for it cannot read YAML.
pub(super) fn names_plainly(text: &str, vc: &str) -> bool {
    let ends = |c: char| matches!(c, '\n' | ',' | '}' | '#');
    let kept = text.chars().filter(|c| !matches!(c, '"' | '\'' | ' ' | '\t' | '\r'));
    let words: String = kept.map(|c| if ends(c) { ';' } else { c }).chain([';']).collect();
    words.contains(&format!("virtualCluster:{vc};"))
}

fn path(role: &Role<'_>) -> String {
    format!("{}.metadata.annotations[{POD_SCHEDULING_SPEC_ANNOTATION}]", role.path)
}

struct Group {
    request: GroupRequest,
    /// The pod of each place that has one.
    pods: BTreeMap<usize, (String, i64)>,
    /// By the first of some places, which all are of one template or of several, the next that no pod has.
    next: BTreeMap<usize, usize>,
}

/// The groups of the job's annotations; none when no template has one.
pub(super) fn groups(roles: &[Role<'_>]) -> Result<Option<Vec<CellGroupAsk>>, CellRequestError> {
    if roles.iter().all(|role| annotation(role.template).is_none()) {
        return Ok(None);
    }
    let mut named: BTreeMap<String, Group> = BTreeMap::new();
    let mut found = Vec::new();
    for role in roles.iter().filter(|role| role.component.replicas > 0) {
        let spec = spec(role)?;
        if spec.request.name() == OWN {
            for index in 0..role.component.replicas {
                let mut request = spec.request.clone();
                request.affinity_group.name = format!("{}-{index}", role.component.name);
                found.push(CellGroupAsk { request, pods: vec![(role.component.name.clone(), index)] });
            }
            continue;
        }
        let name = spec.request.name().to_owned();
        let group = named.entry(name.clone()).or_insert_with(|| Group {
            request: spec.request.clone(),
            pods: BTreeMap::new(),
            next: BTreeMap::new(),
        });
        if group.request != spec.request {
            let allowed = format!("the same as on the other templates of group {}", quote(&name));
            return Err(wrong(path(role), format!("another group of the name {}", quote(&name)), allowed));
        }
        seat(group, &spec, role)?;
    }
    for (name, group) in named {
        let missing = places(&group.request).saturating_sub(group.pods.len());
        if missing > 0 {
            let found = format!("{missing} pods more than the job has in group {}", quote(&name));
            let at = roles.first().map(path).unwrap_or_default();
            return Err(wrong(at, found, "as many pods as the job's templates make"));
        }
        found.push(CellGroupAsk { request: group.request, pods: group.pods.into_values().collect() });
    }
    Ok(Some(found))
}

fn places(request: &GroupRequest) -> usize {
    fn count(group: &fleet_cells::PodGroup) -> i64 {
        let own = group.members.iter().map(|member| member.pod_number.max(0)).fold(0, i64::saturating_add);
        group.child_groups.iter().map(count).fold(own, i64::saturating_add)
    }
    usize::try_from(count(&request.affinity_group.root)).unwrap_or(usize::MAX)
}

/// Cells of all pods.
pub(super) fn cells(groups: &[CellGroupAsk]) -> i64 {
    fn of(group: &fleet_cells::PodGroup) -> i64 {
        let own = group.members.iter().map(|m| m.pod_number.max(0).saturating_mul(m.leaf_cell_number));
        own.chain(group.child_groups.iter().map(of)).fold(0, i64::saturating_add)
    }
    groups.iter().map(|group| of(&group.request.affinity_group.root)).fold(0, i64::saturating_add)
}

fn spec(role: &Role<'_>) -> Result<PodSpec, CellRequestError> {
    let text = annotation(role.template)
        .ok_or_else(|| wrong(path(role), "nothing", "a specification, as the job's other templates have"))?;
    let value: Value =
        fleet_api::yaml::read(text).map_err(|error| wrong(path(role), error.to_string(), "YAML"))?;
    let read = PodSpec::read(&value, OWN);
    let spec = read.map_err(|e| wrong(format!("{}.{}", path(role), e.path), e.found, e.allowed))?;
    let field = |name: &str| format!("{}.{name}", path(role));
    if spec.request.vc.is_empty() {
        return Err(wrong(field("virtualCluster"), "nothing", "the name of a virtual cluster"));
    }
    if !(fleet_cells::OPPORTUNISTIC..=fleet_cells::MAX_PRIORITY).contains(&spec.request.priority) {
        let found = value["priority"].to_string();
        return Err(wrong(field("priority"), found, "-1 (opportunistic), or 0 to 1000"));
    }
    if spec.cells <= 0 {
        let name = if value["version"] == "v2" { "cellNumber" } else { "leafCellNumber" };
        return Err(wrong(field(name), spec.cells.to_string(), "1 or more"));
    }
    if spec.request.name() == OWN && named_group(&value) {
        return Err(wrong(field("affinityGroup.name"), "nothing", "a name"));
    }
    Ok(spec)
}

fn named_group(value: &Value) -> bool {
    !value["affinityGroup"].is_null() || !value["podRootGroup"].is_null()
}

/// Each pod of a template takes the first place of its size that no other has. Templates of one group have the same
/// places or none in common.
fn seat(group: &mut Group, spec: &PodSpec, role: &Role<'_>) -> Result<(), CellRequestError> {
    let next = group.next.entry(spec.places.start).or_insert(spec.places.start);
    for index in 0..role.component.replicas {
        if *next >= spec.places.end {
            let found = format!("{} pods of {} cells", role.component.replicas, spec.cells);
            let allowed = format!("as many as group {} declares", quote(spec.request.name()));
            return Err(wrong(path(role), found, allowed));
        }
        group.pods.insert(*next, (role.component.name.clone(), index));
        *next += 1;
    }
    Ok(())
}

/// One job is one entry of the queue: its groups are of one virtual cluster and class, as its labels say.
pub(super) fn agreed(
    label: Option<String>,
    class: Option<i32>,
    groups: &[CellGroupAsk],
) -> Result<(String, i32), CellRequestError> {
    let at =
        |field: &str| format!("pod template: metadata.annotations[{POD_SCHEDULING_SPEC_ANNOTATION}].{field}");
    let first = groups.first().map(|group| (group.request.vc.clone(), group.request.priority));
    let (first_vc, first_class) = first.unwrap_or_default();
    let (vc, class) = (label.unwrap_or(first_vc), class.unwrap_or(first_class));
    for group in groups {
        if group.request.vc != vc {
            let allowed = format!("{}, as the job's label or its other pods say", quote(&vc));
            return Err(wrong(at("virtualCluster"), quote(&group.request.vc), allowed));
        }
        if group.request.priority != class {
            let allowed = format!("{class}, as the job's label or its other pods say");
            return Err(wrong(at("priority"), group.request.priority.to_string(), allowed));
        }
    }
    Ok((vc, class))
}
