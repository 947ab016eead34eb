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
            concerned.extend(self.claimants.get(&key).into_iter().flatten().cloned());
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
            self.claim(&key, &mut entry);
            self.put_pod(key, entry);
        }
    }

    /// Finds the places for a pod without an annotation.
    pub(super) fn claim(&self, key: &PodKey, entry: &mut PodEntry) {
        let Some(claim) = entry.claim.clone().filter(|_| entry.reservation.is_none()) else { return };
        let name = (key.namespace.clone(), claim.job.clone());
        let jobs = self.jobs_by_name.get(&name).into_iter().flatten().filter_map(|uid| self.jobs.get(uid));
        let job = jobs.into_iter().find(|job| claim.is_of(job, entry.created));
        entry.reservation = job.map(|job| job.reservation.clone());
        entry.on_cells = job.is_some_and(|job| job.on_cells);
    }

    pub(super) fn note_claimant(&mut self, key: &PodKey, entry: &PodEntry) {
        if let Some(claim) = &entry.claim {
            let name = (key.namespace.clone(), claim.job.clone());
            self.claimants.entry(name).or_default().insert(key.clone());
        }
    }

    pub(super) fn forget_claimant(&mut self, key: &PodKey, entry: &PodEntry) {
        let Some(claim) = &entry.claim else { return };
        let name = (key.namespace.clone(), claim.job.clone());
        if let Some(pods) = self.claimants.get_mut(&name) {
            pods.remove(key);
            if pods.is_empty() {
                self.claimants.remove(&name);
            }
        }
    }
}
