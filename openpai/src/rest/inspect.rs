//! HiveD's inspect API: groups and cells as they stand on the hub, in HiveD's words.

use std::collections::BTreeMap;

use axum::{Json, extract::Path};
use fleet_cells::{CellStatus, GroupStatus};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{caller::Caller, error::RestError};
use crate::cells::{Picture, Standing};

type Answer = Result<Json<Value>, RestError>;

/// What there is to ask for.
pub async fn paths() -> Json<Value> {
    Json(json!({"paths": [
        "/v1/inspect/affinitygroups/",
        "/v1/inspect/clusterstatus",
        "/v1/inspect/clusterstatus/physicalcluster",
        "/v1/inspect/clusterstatus/virtualclusters/",
    ]}))
}

async fn picture(caller: &Caller) -> Result<Picture, RestError> {
    let standing = Standing::read(&caller.server).await?;
    let picture = standing.picture(Timestamp::now())?;
    let missing =
        || RestError::new(404, "NoCellsError", "found no configuration of cells in force; allowed: one");
    picture.ok_or_else(missing)
}

/// `GET affinitygroups/`.
pub async fn groups(caller: Caller) -> Answer {
    let picture = picture(&caller).await?;
    Ok(Json(json!({"items": all_shown(&picture)})))
}

/// `GET affinitygroups/{name}`; names have slashes in them.
pub async fn group(caller: Caller, Path(name): Path<String>) -> Answer {
    let picture = picture(&caller).await?;
    let missing = || {
        let message = format!("group: found {name:?}; allowed: the name of a group that has cells");
        RestError::new(404, "NoGroupError", message)
    };
    let group = picture.cells.group(&name).or_else(|| own_name(&picture, &name)).ok_or_else(missing)?;
    Ok(Json(shown(&group, promised(&picture, &group.vc).remove(&group.name))))
}

/// A group by the name that its job gave it, as `alice~mnist/default`: here the job's own name comes before it. None if
/// jobs of several namespaces have such a group.
fn own_name(picture: &Picture, name: &str) -> Option<GroupStatus> {
    let end = format!("/{name}");
    let mut found = picture.cells.groups().into_iter().filter(|group| group.name.ends_with(&end));
    found.next().filter(|_| found.next().is_none())
}

/// `GET clusterstatus`.
pub async fn cluster(caller: Caller) -> Answer {
    let picture = picture(&caller).await?;
    Ok(Json(json!({
        "physicalCluster": picture.cells.physical_cells(),
        "virtualClusters": all_virtual(&picture),
    })))
}

/// `GET clusterstatus/physicalcluster`.
pub async fn physical(caller: Caller) -> Answer {
    Ok(Json(json!(picture(&caller).await?.cells.physical_cells())))
}

/// `GET clusterstatus/virtualclusters/`.
pub async fn virtual_clusters(caller: Caller) -> Answer {
    Ok(Json(json!(all_virtual(&picture(&caller).await?))))
}

/// `GET clusterstatus/virtualclusters/{vc}`.
pub async fn virtual_cluster(caller: Caller, Path(vc): Path<String>) -> Answer {
    let picture = picture(&caller).await?;
    let missing = || {
        let known: Vec<&str> = picture.cells.virtual_clusters().collect();
        let message = format!("virtual cluster: found {vc:?}; allowed: {}", known.join(", "));
        RestError::new(404, "NoVirtualClusterError", message)
    };
    Ok(Json(json!(picture.cells.virtual_cells(&vc).ok_or_else(missing)?)))
}

fn all_virtual(picture: &Picture) -> BTreeMap<String, Vec<CellStatus>> {
    let cells = &picture.cells;
    cells.virtual_clusters().filter_map(|vc| Some((vc.to_string(), cells.virtual_cells(vc)?))).collect()
}

/// Leaves that groups have of the promises of one virtual cluster: by group, then by the promise's address.
type Promised = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn promised(picture: &Picture, vc: &str) -> Promised {
    let mut found = Promised::new();
    for top in picture.cells.virtual_cells(vc).unwrap_or_default() {
        if !top.cell_address.ends_with("-opp") {
            leaves_of(&top, &top.cell_address, &mut found);
        }
    }
    found
}

/// All groups. The promises of a virtual cluster are looked through once, whatever number of groups it has.
fn all_shown(picture: &Picture) -> Vec<Value> {
    let mut known: BTreeMap<String, Promised> = BTreeMap::new();
    let shown = |group: &GroupStatus| {
        let of_vc = known.entry(group.vc.clone()).or_insert_with(|| promised(picture, &group.vc));
        shown(group, of_vc.remove(&group.name))
    };
    picture.cells.groups().iter().map(shown).collect()
}

fn shown(group: &GroupStatus, promised: Option<BTreeMap<String, Vec<String>>>) -> Value {
    let mut physical: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for pod in group.placement.pods.iter().filter(|pod| !pod.leaf_cells.is_empty()) {
        physical.entry(&pod.node).or_default().extend(&pod.leaf_cells);
    }
    let lazy = group.lazy_preemption_status.as_ref();
    json!({
        "metadata": {"name": group.name},
        "status": {
            "vc": group.vc,
            "priority": group.priority,
            "state": group.state,
            "physicalPlacement": physical,
            "virtualPlacement": promised.unwrap_or_default(),
            "allocatedPods": group.pods,
            "preemptingPods": [],
            "lazyPreemptionStatus": lazy.map(|lazy| json!({
                "preemptor": lazy.preemptor,
                "preemptionTime": Timestamp::from_millisecond(lazy.at_ms).ok().map(|at| at.to_string()),
            })),
        },
    })
}

fn leaves_of(cell: &CellStatus, top: &str, into: &mut Promised) {
    if cell.cell_children.is_empty() && !cell.group.is_empty() {
        let of_group = into.entry(cell.group.clone()).or_default();
        of_group.entry(top.to_owned()).or_default().push(cell.cell_address.clone());
    }
    cell.cell_children.iter().for_each(|child| leaves_of(child, top, into));
}

#[cfg(test)]
mod tests {
    use fleet_api::cells::LazilyPreempted;

    use super::*;
    use crate::cells::tests::{now, standing};

    /// Of a group with promised cells, an opportunistic one, and one that has lost its promise.
    #[test]
    fn groups_have_hiveds_shape() {
        let mut standing = standing(&[("prod", "vc1", 100), ("oppo", "vc1", -1)]);
        let picture = standing.picture(now()).expect("valid").expect("one in force");
        let show = |picture: &Picture, name: &str| {
            let found = all_shown(picture).into_iter().find(|group| group["metadata"]["name"] == name);
            found.expect("it runs")
        };
        let promised = show(&picture, "default/prod");
        assert_eq!(
            promised,
            json!({"metadata": {"name": "default/prod"}, "status": {
                "vc": "vc1", "priority": 100, "state": "Allocated",
                "physicalPlacement": {"hostname-dan": [0]},
                "virtualPlacement": {"vc1/0": ["vc1/0/0"]},
                "allocatedPods": ["0"], "preemptingPods": [], "lazyPreemptionStatus": null}})
        );
        let borrowed = show(&picture, "default/oppo");
        assert_eq!(borrowed["status"]["physicalPlacement"], json!({"hostname-carol": [0]}));
        assert_eq!(
            (&borrowed["status"]["priority"], &borrowed["status"]["virtualPlacement"]),
            (&json!(-1), &json!({}))
        );

        let groups = &mut standing.bindings[0].spec.cells.as_mut().expect("cells").groups;
        groups[0].lazily_preempted =
            Some(LazilyPreempted { preemptor: "the configuration".to_owned(), at_ms: 1_767_323_045_000 });
        let picture = standing.picture(now()).expect("valid").expect("one in force");
        let lost = show(&picture, "default/prod")["status"].clone();
        let told = json!({"preemptor": "the configuration", "preemptionTime": "2026-01-02T03:04:05Z"});
        assert_eq!((&lost["lazyPreemptionStatus"], &lost["virtualPlacement"]), (&told, &json!({})));
        assert_eq!(lost["physicalPlacement"], json!({"hostname-dan": [0]}));
        let own = own_name(&picture, "oppo").expect("one");
        assert_eq!(own.name, "default/oppo");
        assert!(own_name(&picture, "x").is_none());
    }
}
