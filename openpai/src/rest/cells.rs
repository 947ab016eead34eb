//! Virtual clusters and SKU types as OpenPAI's clients ask for them, from the VirtualClusters and the configuration in
//! force.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Path, Query as Parameters},
};
use fleet_api::{
    VirtualCluster,
    cells::{VcAmounts, status::amounts},
};
use fleet_cells::{Cells, Unreported, config::ClusterConfig};
use serde_json::{Map, Value, json};

use super::{caller::Caller, error::RestError};
use crate::{
    cells::{self, CellsError},
    server::AskError,
};

type Answer = Result<Json<Value>, RestError>;

impl From<CellsError> for RestError {
    fn from(error: CellsError) -> Self {
        let (status, code) = match &error {
            CellsError::Ask(AskError::Refused { code: 401, .. }) => (401, "UnauthorizedUserError"),
            CellsError::Ask(AskError::Refused { code: 403, .. }) => (403, "ForbiddenUserError"),
            CellsError::Ask(AskError::Away { .. }) => (503, "UnknownError"),
            _ => (500, "UnknownError"),
        };
        Self::new(status, code, error.to_string())
    }
}

/// `GET /virtual-clusters`.
pub async fn virtual_clusters(caller: Caller) -> Answer {
    let (found, whole) = read(&caller).await?;
    let shown = found.iter().map(|vc| (vc.spec.name.clone(), shown(vc, whole)));
    Ok(Json(Value::Object(shown.collect())))
}

/// `GET /virtual-clusters/{vc}`.
pub async fn virtual_cluster(caller: Caller, Path(name): Path<String>) -> Answer {
    let (found, whole) = read(&caller).await?;
    let vc = found.iter().find(|vc| vc.spec.name == name).ok_or_else(|| no_vc(&name, &found))?;
    Ok(Json(shown(vc, whole)))
}

/// `GET /cluster/sku-types?vc=`.
pub async fn sku_types(caller: Caller, Parameters(given): Parameters<BTreeMap<String, String>>) -> Answer {
    let found = cells::virtual_clusters(&caller.server).await?;
    let Some(config) = config(&caller).await? else { return Ok(Json(json!({}))) };
    let types: Vec<String> = match given.get("vc") {
        None => leaf_types(&config),
        Some(name) => {
            let vc = found.iter().find(|vc| vc.spec.name == *name).ok_or_else(|| no_vc(name, &found))?;
            let status = vc.status.iter().flat_map(|status| &status.leaf_cells);
            status.filter(|leaves| leaves.guaranteed > 0).map(|leaves| leaves.cell_type.clone()).collect()
        }
    };
    let sku = |name: String| {
        let one = amounts(&config, &name);
        (name, json!({"gpu": one.gpu, "cpu": one.cpu, "memory": one.memory_mb}))
    };
    Ok(Json(Value::Object(types.into_iter().map(sku).collect())))
}

fn no_vc(name: &str, found: &[VirtualCluster]) -> RestError {
    let known: Vec<&str> = found.iter().map(|vc| vc.spec.name.as_str()).collect();
    let message = format!("virtual cluster: found {name:?}; allowed: {}", known.join(", "));
    RestError::new(404, "NoVirtualClusterError", message)
}

/// The virtual clusters, and GPUs of the whole fleet's cells.
async fn read(caller: &Caller) -> Result<(Vec<VirtualCluster>, i64), RestError> {
    let found = cells::virtual_clusters(&caller.server).await?;
    let promised = || found.iter().map(|vc| resources(vc, "total").gpu).sum();
    let whole = config(caller).await?.and_then(|config| gpus(&config));
    Ok((found.clone(), whole.unwrap_or_else(promised)))
}

/// The configuration in force; none there, or none that this caller may see.
async fn config(caller: &Caller) -> Result<Option<ClusterConfig>, RestError> {
    match cells::configurations(&caller.server).await {
        Ok(objects) => Ok(cells::config_in_force(&objects)?),
        Err(CellsError::Ask(AskError::Refused { code: 403, .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Types of the leaf cells that there are. A virtual cluster has some of them, whether `skuTypes` says their size or not.
fn leaf_types(config: &ClusterConfig) -> Vec<String> {
    let cells = Cells::new(config.clone(), Unreported::Good);
    cells.map(|cells| cells.leaves_by_type().into_keys().map(str::to_owned).collect()).unwrap_or_default()
}

/// GPUs of all physical cells.
fn gpus(config: &ClusterConfig) -> Option<i64> {
    let cells = Cells::new(config.clone(), Unreported::Good).ok()?;
    let mut sum: i64 = 0;
    for (leaf_type, count) in cells.leaves_by_type() {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        sum = sum.saturating_add(amounts(config, leaf_type).gpu.saturating_mul(count));
    }
    Some(sum)
}

fn resources(vc: &VirtualCluster, which: &str) -> VcAmounts {
    let known = vc.status.as_ref().and_then(|status| status.resources.clone()).unwrap_or_default();
    match which {
        "used" => known.used,
        "guaranteed" => known.guaranteed,
        _ => known.total,
    }
}

fn shown(vc: &VirtualCluster, whole: i64) -> Value {
    let written = |amounts: VcAmounts| {
        json!({
            "cpu": amounts.cpu, "memory": amounts.memory_mb, "gpu": amounts.gpu,
            "vCores": amounts.cpu, "GPUs": amounts.gpu,
        })
    };
    let share = |gpus: i64| if whole <= 0 { 0.0 } else { gpus as f64 * 100.0 / whole as f64 };
    let (used, guaranteed, total) =
        (resources(vc, "used"), resources(vc, "guaranteed"), resources(vc, "total"));
    let mut map = Map::new();
    map.insert("capacity".into(), json!(share(total.gpu)));
    // Opportunistic jobs may use whatever is idle.
    map.insert("maxCapacity".into(), json!(100.0));
    map.insert("usedCapacity".into(), json!(share(used.gpu)));
    map.insert("dedicated".into(), json!(false));
    map.insert("resourcesUsed".into(), written(used));
    map.insert("resourcesGuaranteed".into(), written(guaranteed));
    map.insert("resourcesTotal".into(), written(total));
    Value::Object(map)
}
