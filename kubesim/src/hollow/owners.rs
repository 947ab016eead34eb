//! The annotations of the jobs that own pods, read once per job.
//!
//! Bounded: the oldest entry is dropped first; reading it again costs one request.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};

use fleet_simulator::run_plan::Annotations;

/// Jobs remembered; with more jobs alive at once, some are read twice.
const REMEMBERED: usize = 4096;

/// Answers by owner uid. Cheap to clone; all clones share the answers.
#[derive(Clone, Default)]
pub struct Owners {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    answers: HashMap<String, Arc<Annotations>>,
    order: VecDeque<String>,
}

impl Owners {
    /// The annotations of `owner`; none if it was deleted or is of an unknown kind.
    ///
    /// # Errors
    /// The server did not answer; the caller retries.
    pub async fn annotations(
        &self,
        client: &Client,
        namespace: &str,
        owner: &OwnerReference,
    ) -> Result<Arc<Annotations>, kube::Error> {
        if let Some(known) = self.lock().answers.get(&owner.uid) {
            return Ok(known.clone());
        }
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &owner.kind));
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let annotations = match api.get_metadata_opt(&owner.name).await? {
            Some(found) if found.metadata.uid.as_deref() == Some(&owner.uid) => {
                found.metadata.annotations.unwrap_or_default()
            }
            _ => Annotations::default(),
        };
        let annotations = Arc::new(annotations);
        self.remember(&owner.uid, annotations.clone());
        Ok(annotations)
    }

    fn remember(&self, uid: &str, annotations: Arc<Annotations>) {
        let mut known = self.lock();
        if known.answers.insert(uid.to_string(), annotations).is_none() {
            known.order.push_back(uid.to_string());
        }
        while known.order.len() > REMEMBERED {
            if let Some(oldest) = known.order.pop_front() {
                known.answers.remove(&oldest);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        // A poisoned lock holds at worst one answer too few.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
