//! Jobs that Fleet created in this member and that have held places: provided by the watches of `works`, read
//! by the core to identify the pods that other controllers create.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fleet_api::names::{ON_CELLS_ANNOTATION, RESERVATION_ANNOTATION};
use fleet_mirror::Change;
use fleet_policies::WorkloadKind;
use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use tokio::sync::Notify;

/// A job and the reservation whose places its pods take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedJob {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub reservation: String,
    /// Its pods run on the cells of the reservation and nowhere else.
    pub on_cells: bool,
    /// When it was created: pods of an earlier run are older.
    pub created: Option<Timestamp>,
}

/// Shared by the writer and the readers.
#[derive(Clone, Debug, Default)]
pub struct Owned {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Known {
    /// By kind, then by uid.
    jobs: BTreeMap<(String, String), BTreeMap<String, Arc<OwnedJob>>>,
    /// Changes since [`Owned::news`], by uid.
    news: BTreeMap<String, Option<Arc<OwnedJob>>>,
}

impl Owned {
    /// Applies a change of the objects of a kind that Fleet created.
    pub fn take(&self, api_version: &str, kind: &str, change: &Change<DynamicObject>) {
        if !WorkloadKind::of(api_version, kind).is_job() {
            return;
        }
        let mut known = self.lock();
        let Known { jobs, news } = &mut *known;
        let jobs = jobs.entry((api_version.to_owned(), kind.to_owned())).or_default();
        if change.is_listing() {
            let stand: BTreeSet<Option<String>> = change.objects().iter().map(ResourceExt::uid).collect();
            jobs.retain(|uid, _| {
                let stays = stand.contains(&Some(uid.clone()));
                if !stays {
                    news.insert(uid.clone(), None);
                }
                stays
            });
        }
        let is_end = matches!(change, Change::Delete(_));
        for object in change.objects() {
            let Some(uid) = object.uid() else { continue };
            match read(object).filter(|_| !is_end) {
                Some(job) if jobs.get(&uid).is_some_and(|known| **known == job) => {}
                Some(job) => {
                    let job = Arc::new(job);
                    jobs.insert(uid.clone(), job.clone());
                    news.insert(uid, Some(job));
                }
                None if jobs.remove(&uid).is_some() => drop(news.insert(uid, None)),
                None => {}
            }
        }
        if !news.is_empty() {
            self.inner.changed.notify_one();
        }
    }

    /// Changes since the last call: a job, or its end.
    pub fn news(&self) -> BTreeMap<String, Option<Arc<OwnedJob>>> {
        std::mem::take(&mut self.lock().news)
    }

    /// Waits until there may be changes.
    pub async fn changed(&self) {
        self.inner.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing under the lock can panic.
        self.inner.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(object: &DynamicObject) -> Option<OwnedJob> {
    Some(OwnedJob {
        uid: object.uid()?,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        reservation: object.annotations().get(RESERVATION_ANNOTATION)?.clone(),
        on_cells: object.annotations().get(ON_CELLS_ANNOTATION).is_some_and(|value| value == "true"),
        created: object.creation_timestamp().map(|time| time.0),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(uid: &str, reservation: Option<&str>) -> DynamicObject {
        let annotations = reservation.map(|name| json!({RESERVATION_ANNOTATION: name}));
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "n", "uid": uid,
            "annotations": annotations}}))
        .unwrap()
    }

    #[test]
    fn jobs_with_places_come_and_go() {
        let owned = Owned::default();
        let told = |change: Change<DynamicObject>| {
            owned.take("kubeflow.org/v1", "PyTorchJob", &change);
            let news = owned.news().into_iter();
            news.map(|(uid, job)| (uid, job.map(|job| job.reservation.clone()))).collect::<Vec<_>>()
        };
        let at = |uid: &str, reservation: &str| (uid.to_owned(), Some(reservation.to_owned()));
        assert_eq!(told(Change::Apply(job("u1", None))), []);
        assert_eq!(told(Change::Apply(job("u1", Some("r1")))), [at("u1", "r1")]);
        assert_eq!(told(Change::Answer(job("u1", Some("r1")))), []);
        assert_eq!(
            told(Change::reset(vec![job("u2", Some("r2"))])),
            [("u1".to_owned(), None), at("u2", "r2")]
        );
        assert_eq!(told(Change::Delete(job("u2", Some("r2")))), [("u2".to_owned(), None)]);
        owned.take("v1", "ConfigMap", &Change::Apply(job("u3", Some("r3"))));
        assert!(owned.news().is_empty());
        for value in ["true", "false"] {
            let mut marked = job("u4", Some("r4"));
            marked.annotations_mut().insert(ON_CELLS_ANNOTATION.to_owned(), value.to_owned());
            owned.take("batch/v1", "Job", &Change::Apply(marked));
            let news: Vec<_> = owned.news().into_values().flatten().map(|job| job.on_cells).collect();
            assert_eq!(news, [value == "true"]);
        }
    }
}
