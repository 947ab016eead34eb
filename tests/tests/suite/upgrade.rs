//! Releases follow each other under load, without a release in between: this one goes on with what an earlier one has stored, and
//! leaves alone what a later one has added.
//!
//! `tests/earlier` has the objects of a hub and three members with jobs that run, have moved, wait and have ended, as they were
//! before bindings had `spec.queue`, `spec.admitted` and `spec.runningEdits`, and pods on cells the annotation
//! `fleet.dev/on-cells`. A field that becomes a must, or a name that is made in another way, shows here.

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::crds::{self, Side};
use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, TestFleet,
    fleet::Stored,
    objects::{
        self, BINDING, CLUSTER, Kind, PYTORCH_JOB, QUEUE_UNIT, RESERVATION, VIRTUAL_CLUSTER, WORK, name_of,
    },
    repository,
};
use serde_json::{Value, json};

/// Jobs that run: where, under which epoch, and with how many pods.
const RUNNING: [(&str, &str, i64, usize); 4] =
    [("cells", "north", 1, 1), ("moved", "north", 2, 2), ("solo", "west", 2, 2), ("train", "east", 1, 4)];
/// Jobs that wait for a job less, in the order of their queue, which is that of neither names nor creation.
const WAITING: [&str; 3] = ["z-first", "m-middle", "a-last"];
/// A field that no release has.
const LATER: &str = "later";

fn earlier() -> anyhow::Result<Stored> {
    Stored::read(&repository().join("tests/tests/earlier"))
}

async fn start_from(stored: &Stored) -> anyhow::Result<TestFleet> {
    let spec = FleetSpec::of("east 2x8, north 2x8, west 2x8").run_time(RunTime::Forever);
    spec.start_from(stored).await
}

fn binding_of(job: &str) -> String {
    format!("{job}-pytorchjob")
}

/// One job less runs, so the others start one after the other.
async fn end_one(fleet: &TestFleet) -> anyhow::Result<()> {
    let solo = fleet.binding(PYTORCH_JOB, "solo").await?;
    assert_eq!((&solo["spec"]["epoch"], &solo["spec"]["clusters"][0]["name"]), (&json!(2), &json!("west")));
    fleet.delete(PYTORCH_JOB, "default", "solo").await?;
    for job in WAITING {
        fleet.wait_state(PYTORCH_JOB, job, "Succeeded").await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_an_earlier_release_has_started_runs_on_and_what_waits_starts_in_order() -> anyhow::Result<()> {
    let stored = earlier()?;
    let fleet = start_from(&stored).await?;
    end_one(&fleet).await?;
    each_run_is_the_same(&fleet);
    let waiting = WAITING.map(binding_of);
    let mut order = fleet.history().bound_in_order();
    order.retain(|name| waiting.contains(name));
    assert_eq!(order, waiting);
    for job in WAITING {
        assert_eq!(fleet.binding(PYTORCH_JOB, job).await?["spec"]["epoch"], 1, "{job} ran once");
    }
    // What had ended is not run again, and its result is the recorded one.
    let is_done = |object: &&Value| object["kind"] == BINDING.kind && name_of(object) == binding_of("done");
    let recorded = stored.hub.iter().find(is_done).cloned().unwrap_or_default();
    assert_eq!(recorded["status"]["result"]["outcome"], "Succeeded");
    let done = fleet.binding(PYTORCH_JOB, "done").await?;
    assert_eq!(done["status"]["result"], recorded["status"]["result"]);
    let serve = fleet.get(BINDING, "default", "serve-deployment").await?.unwrap_or_default();
    assert_eq!(serve["spec"]["epoch"], 3, "a Deployment stays where it is: {}", serve["spec"]["clusters"]);
    fleet.finish().await
}

/// In all that happened, each job that runs has had one binding with one target and the stored attempts, and its pods were
/// neither ended nor made again.
fn each_run_is_the_same(fleet: &TestFleet) {
    let history = fleet.history();
    for (job, cluster, epoch, count) in RUNNING {
        let name = binding_of(job);
        let mut runs = BTreeSet::new();
        let mut pods: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for change in &history.changes {
            let object = &change.object;
            let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
            match &change.cluster {
                None if name_of(object) == name && object["metadata"]["deletionTimestamp"].is_null() => {
                    let (spec, attempts) = (&object["spec"], object["status"]["attempts"].as_array());
                    let at = spec["clusters"][0]["name"].as_str().unwrap_or_default();
                    runs.insert((uid, spec["epoch"].as_i64(), at, attempts.map_or(0, Vec::len) as i64));
                }
                Some(_) if object["metadata"]["ownerReferences"][0]["name"] == job => {
                    assert!(!change.gone || job == "solo", "{} has gone", name_of(object));
                    pods.entry(name_of(object)).or_default().insert(uid);
                }
                _ => {}
            }
        }
        let run = runs.first().map(|(_, epoch, at, attempts)| (*epoch, *at, *attempts));
        assert_eq!((runs.len(), run), (1, Some((Some(epoch), cluster, epoch - 1))), "{job}: {runs:?}");
        assert!(pods.len() == count && pods.values().all(|uids| uids.len() == 1), "{job}: {pods:?}");
    }
}

/// Kinds that controller and agents write.
const WRITTEN: [Kind; 6] = [BINDING, QUEUE_UNIT, WORK, RESERVATION, VIRTUAL_CLUSTER, CLUSTER];

/// The definitions of these kinds, as a later release may have them: with fields that this one does not know.
fn of_a_later_release() -> Vec<Value> {
    let is_written = |definition: &Value| {
        WRITTEN.iter().any(|kind| {
            let group = kind.api_version.split_once('/').map_or("", |(group, _)| group);
            crds::name(definition) == format!("{}.{group}", kind.plural)
        })
    };
    crds::definitions(Side::Hub).into_iter().filter(is_written).collect()
}

/// The part of a definition that describes `spec` or `status`.
fn schema<'d>(definitions: &'d [Value], kind: Kind, part: &str) -> &'d Value {
    let of_kind = |definition: &&Value| definition["spec"]["names"]["kind"] == kind.kind;
    let definition = definitions.iter().find(of_kind).unwrap_or(&Value::Null);
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
}

/// Lets all objects that a schema describes have further fields.
fn open(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(open);
        fields.insert("x-kubernetes-preserve-unknown-fields".to_string(), true.into());
    }
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).into_iter().for_each(open);
    }
}

/// Adds a field to each object that the schema describes.
fn mark(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields.iter_mut() {
                let known = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                mark(inner, known);
            }
            if schema["properties"].is_object() {
                fields.insert(LATER.to_string(), "kept".into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mark(item, &schema["items"])),
        _ => {}
    }
}

/// Paths of the objects that the schema describes and that have lost the field. Lists are left out: they are written whole.
fn lost(value: &Value, schema: &Value, path: &str) -> Vec<String> {
    let Some(fields) = value.as_object() else { return Vec::new() };
    let known =
        fields.iter().filter_map(|(name, inner)| Some((name, inner, schema["properties"].get(name)?)));
    let mut found: Vec<String> =
        known.flat_map(|(name, inner, schema)| lost(inner, schema, &format!("{path}.{name}"))).collect();
    if schema["properties"].is_object() && !fields.contains_key(LATER) {
        found.push(path.to_string());
    }
    found
}

#[tokio::test]
async fn fields_of_a_later_release_outlive_this_one_and_its_jobs_run_on() -> anyhow::Result<()> {
    let mut stored = earlier()?;
    let mut definitions = of_a_later_release();
    assert_eq!(definitions.len(), WRITTEN.len());
    for object in &mut stored.hub {
        let Some(kind) = WRITTEN.into_iter().find(|kind| object["kind"] == kind.kind) else { continue };
        for part in ["spec", "status"] {
            if object[part].is_object() {
                mark(&mut object[part], schema(&definitions, kind, part));
            }
        }
    }
    for definition in &mut definitions {
        let fields = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            open(&mut fields[part]);
        }
    }
    stored.definitions.clone_from(&definitions);
    let fleet = start_from(&stored).await?;
    end_one(&fleet).await?;
    each_run_is_the_same(&fleet);

    let stays = |name: &str| {
        name == "vision" || ["cells-", "moved-", "train-"].iter().any(|job| name.starts_with(job))
    };
    let mut looked_at = 0;
    for kind in WRITTEN {
        for object in objects::list(&fleet.hub(), kind).await? {
            let name = name_of(&object);
            if stays(name) {
                let mut found = lost(&object["spec"], schema(&definitions, kind, "spec"), "spec");
                found.extend(lost(&object["status"], schema(&definitions, kind, "status"), "status"));
                assert!(found.is_empty(), "{} {name} has lost fields: {found:?}", kind.kind);
                looked_at += 1;
            }
            // Those that were written again and again keep what stands beside that.
            if kind == CLUSTER || WAITING.map(binding_of).iter().any(|binding| name == binding) {
                assert_eq!(
                    (&object["spec"][LATER], &object["status"][LATER]),
                    (&json!("kept"), &json!("kept")),
                    "{name}"
                );
                looked_at += 1;
            }
        }
    }
    // A binding, a unit, a Work and a reservation of three jobs, a virtual cluster; three bindings, three clusters.
    assert_eq!(looked_at, 3 * 4 + 1 + 3 + 3);
    fleet.finish().await
}
