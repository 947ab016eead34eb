//! CustomResourceDefinitions: serving their resources, and deleting them.
//!
//! Inputs: CRD objects. Everything is done inside the request, so a new kind is served when the POST returns.
//! Absent on purpose: what a CRD may say (see `schema::crd`).

use crate::verbs::{api_services, removal};
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_ground::store::{Obj, Range, Refused, Write};
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::builtins;
use fleet_apiserver_schema::crd::{accept_names, admit, resources};
use fleet_apiserver_schema::error::ApiResult;
use fleet_apiserver_schema::registry::{Registry, ServedResource};
use serde_json::{Value, json};
use std::sync::Arc;

const TABLE: &str = "apiextensions.k8s.io/customresourcedefinitions";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The names of all CRDs that are stored, each with its group, as a CRD has them.
pub fn all(core: &Core) -> Vec<Value> {
    let names = |crd: &Arc<Obj>| {
        json!({"metadata": {"name": crd.meta_text("name")}, "spec": {"group": crd.text(&["spec", "group"])},
            "status": {"acceptedNames": crd.at(&["status", "acceptedNames"])}})
    };
    core.store.table(TABLE).objects().iter().map(names).collect()
}

/// Accepts names that have become free.
fn accept_free_names(core: &Core) -> ApiResult<()> {
    let table = core.store.table(TABLE);
    let waits = |crd: &Obj| {
        let conditions = crd.list(&["status", "conditions"]);
        let refused =
            |c: &Value| tree::text(c, &["type"]) == "NamesAccepted" && tree::text(c, &["status"]) == "False";
        conditions.iter().any(refused)
    };
    for prev in table.objects().into_iter().filter(|crd| waits(crd)) {
        let mut value = prev.full();
        if accept_names(&mut value, &all(core), &core.clock.stamp()) {
            match core.store.commit(vec![Write::Update { table: table.clone(), prev, value }]) {
                // Who changed it meanwhile has looked at its names too.
                Ok(_) | Err(Refused::Changed(_)) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(())
}

/// Rebuilds the served resources from the CRDs in the store, keeping the compiled form of unchanged ones.
pub fn refresh(core: &Core) {
    let table = core.store.table(TABLE);
    let current = core.registry.load();
    let mut custom = Vec::new();
    for crd in table.objects() {
        let before = custom.len();
        let kept = current.all().iter().map(|e| &e.resource).filter(|r| r.custom && r.crd_revision == crd.rv);
        custom.extend(kept.cloned());
        if custom.len() == before {
            custom.extend(resources(&crd.value(), crd.rv).into_iter().map(Arc::new));
        }
    }
    let revision = current.revision + 1;
    core.registry.store(Arc::new(Registry::new(&core.store, custom, revision)));
    api_services::keep(core);
}

/// Deletes the custom resources of a CRD that is being deleted, then the CRD itself once none is left.
pub async fn finish_delete(core: &Arc<Core>, name: &str) -> ApiResult<()> {
    let crds = core.store.table(TABLE);
    let guard = core.crd_lock.lock().await;
    refresh(core);
    let Some(crd) = core.store.read(&crds, name).await? else { return Ok(()) };
    if !crd.deleting() {
        return Ok(());
    }
    let entry: Option<ServedResource> = resources(&crd.value(), crd.rv)
        .into_iter()
        .next()
        .map(|r| ServedResource { table: core.store.table(&r.table), resource: Arc::new(r) });
    if let Some(entry) = &entry {
        let page = core.store.page(&entry.table, Range::default()).await?;
        for obj in page.map(|p| p.items).unwrap_or_default() {
            let o = removal::Options { propagation: "Background".into(), ..removal::Options::default() };
            match removal::delete_object(core, &entry.resource, &entry.table, &obj.key, &o).await {
                Err(e) if e.code() != 404 => return Err(e),
                _ => {}
            }
        }
        if !entry.table.is_empty() {
            // Finalizers hold some back: the background worker finishes once they are gone.
            return Ok(());
        }
    }
    loop {
        let Some(crd) = core.store.read(&crds, name).await? else { break };
        let mut value = crd.full();
        let mut left = tree::list(&value, &["metadata", "finalizers"]).to_vec();
        left.retain(|f| f != CLEANUP);
        let write = if left.is_empty() {
            Write::Delete { table: crds.clone(), prev: crd.clone(), value: None }
        } else {
            tree::meta(&mut value).insert("finalizers".into(), Value::Array(left));
            Write::Update { table: crds.clone(), prev: crd.clone(), value }
        };
        match core.store.commit(vec![write]) {
            Ok(objs) => {
                core.store.wait(objs[0].rv).await?;
                break;
            }
            Err(Refused::Changed(_)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    accept_free_names(core)?;
    refresh(core);
    drop(guard);
    Ok(())
}

/// Creates a CRD at start, or replaces it when its spec differs.
pub fn ensure(core: &Arc<Core>, mut crd: Value) -> Result<(), String> {
    let table = core.store.table(TABLE);
    let r = builtins::find("apiextensions.k8s.io", "customresourcedefinitions");
    let name = tree::meta_text(&crd, "name").to_string();
    tree::object(&mut crd).insert("kind".into(), "CustomResourceDefinition".into());
    tree::object(&mut crd).insert("apiVersion".into(), "apiextensions.k8s.io/v1".into());
    let mut report = fleet_apiserver_schema::decode::Report::default();
    fleet_apiserver_schema::decode::builtin(&r.schema, &mut crd, &mut report);
    let old = table.get(&name);
    admit(old.as_ref().map(|o| o.value()).as_ref(), &mut crd, &all(core), &core.clock.stamp())
        .map_err(|e| e.message().to_string())?;
    let now = core.clock.stamp();
    let write = match old {
        Some(old) if old.at(&["spec"]).as_ref() == crd.get("spec") => return Ok(()),
        Some(old) => {
            let generation = old.number(&["metadata", "generation"]) + 1;
            let mut value = old.full();
            tree::put(tree::object(&mut value), "spec", crd.get("spec").cloned());
            tree::put(tree::object(&mut value), "status", crd.get("status").cloned());
            tree::meta(&mut value).insert("generation".into(), generation.into());
            Write::Update { table, prev: old, value }
        }
        None => {
            let meta = tree::meta(&mut crd);
            meta.insert("uid".into(), core.ids.uuid().to_string().into());
            meta.insert("creationTimestamp".into(), now.into());
            meta.insert("generation".into(), 1.into());
            Write::Create { table, key: name, value: crd }
        }
    };
    core.store.commit(vec![write]).map(|_| ()).map_err(|e| format!("{e:?}"))
}
