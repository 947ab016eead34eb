//! Assigns pods of other controllers to the places of their job; jobs and pods arrive in any order.

use std::{collections::BTreeSet, sync::Arc};

use fleet_agent_ground::OwnedJob;

use super::{MemberState, PodEntry, PodKey};

impl MemberState {
    /// A job with held places was created, changed or deleted: its pods take its places, whoever creates
    /// them.
    pub fn set_job(&mut self, uid: &str, job: Option<Arc<OwnedJob>>) {
        let known = match &job {
            Some(job) => self.jobs.insert(uid.to_owned(), job.clone()),
            None => self.jobs.remove(uid),
        };
        let mut concerned = BTreeSet::new();
        for job in known.iter().chain(&job) {
            let key = (job.namespace.clone(), job.name.clone());
            concerned.extend(self.pods_by_job.get(&key).into_iter().flatten().cloned());
            let uids = self.jobs_by_name.entry(key.clone()).or_default();
            uids.remove(uid);
            if self.jobs.contains_key(uid) {
                uids.insert(uid.to_owned());
            }
            if uids.is_empty() {
                self.jobs_by_name.remove(&key);
            }
        }
        for key in concerned {
            let Some(mut entry) = self.pods.get(&key).cloned() else { continue };
            entry.reservation = None;
            self.assign_reservation(&key, &mut entry);
            self.put_pod(key, entry);
        }
    }

    /// Finds the places for a pod without an annotation.
    pub(super) fn assign_reservation(&self, key: &PodKey, entry: &mut PodEntry) {
        let Some(pod_owner) = entry.pod_owner.clone().filter(|_| entry.reservation.is_none()) else {
            return;
        };
        let name = (key.namespace.clone(), pod_owner.job.clone());
        let jobs = self.jobs_by_name.get(&name).into_iter().flatten().filter_map(|uid| self.jobs.get(uid));
        let job = jobs.into_iter().find(|job| pod_owner.is_of(job, entry.created));
        entry.reservation = job.map(|job| job.reservation.clone());
        entry.on_cells = job.is_some_and(|job| job.on_cells);
    }

    pub(super) fn note_pod_of_job(&mut self, key: &PodKey, entry: &PodEntry) {
        if let Some(pod_owner) = &entry.pod_owner {
            let name = (key.namespace.clone(), pod_owner.job.clone());
            self.pods_by_job.entry(name).or_default().insert(key.clone());
        }
    }

    pub(super) fn forget_pod_of_job(&mut self, key: &PodKey, entry: &PodEntry) {
        let Some(pod_owner) = &entry.pod_owner else { return };
        let name = (key.namespace.clone(), pod_owner.job.clone());
        if let Some(pods) = self.pods_by_job.get_mut(&name) {
            pods.remove(key);
            if pods.is_empty() {
                self.pods_by_job.remove(&name);
            }
        }
    }
}
