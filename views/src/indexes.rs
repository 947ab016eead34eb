//! Indexes of jobs beside those of [`crate::known`]: whose they are, where they run, which restart, and who made room for
//! whom. Each change costs a few steps in ordered sets. Deliberately absent: the jobs themselves.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    facts::Id,
    job::{Job, State},
    preemption_message::{PreemptionMessage, is_preempted},
};

/// A run that was preempted: when it ended, of which job, and its epoch. The newest are first.
pub(crate) type Over = (Reverse<i64>, Id, i64);

#[derive(Clone, Debug, Default)]
pub(crate) struct Indexes {
    /// By the user's label, the newest first.
    by_user: BTreeMap<String, BTreeSet<(Reverse<i64>, Id)>>,
    /// Running jobs of a cluster, the longest-running first, and how many of each namespace.
    in_cluster: BTreeMap<String, BTreeSet<(i64, Id)>>,
    counts_in_cluster: BTreeMap<(String, String), usize>,
    /// Jobs that have not ended, most restarts first.
    restarted: BTreeSet<(Reverse<i64>, Id)>,
    preempted: BTreeSet<Over>,
    /// By the name of the job that took the place, `namespace/name`.
    preempted_for: BTreeMap<String, BTreeSet<Over>>,
}

impl Indexes {
    pub fn add(&mut self, job: &Job) {
        let id = &job.id;
        if !job.binding.user.is_empty() {
            let own = self.by_user.entry(job.binding.user.clone()).or_default();
            own.insert((Reverse(job.binding.created_s), id.clone()));
        }
        for cluster in running_in(job) {
            self.in_cluster.entry(cluster.to_owned()).or_default().insert((job.since_s(), id.clone()));
            *self.counts_in_cluster.entry((cluster.to_owned(), id.0.clone())).or_default() += 1;
        }
        if restarts(job) {
            self.restarted.insert((Reverse(job.binding.restarts), id.clone()));
        }
        for (over, taker) in overs(job) {
            if !taker.is_empty() {
                self.preempted_for.entry(taker.to_owned()).or_default().insert(over.clone());
            }
            self.preempted.insert(over);
        }
    }

    pub fn remove(&mut self, job: &Job) {
        let id = &job.id;
        take(&mut self.by_user, &job.binding.user, &(Reverse(job.binding.created_s), id.clone()));
        for cluster in running_in(job) {
            take(&mut self.in_cluster, cluster, &(job.since_s(), id.clone()));
            let key = (cluster.to_owned(), id.0.clone());
            if let Some(count) = self.counts_in_cluster.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.counts_in_cluster.remove(&key);
                }
            }
        }
        self.restarted.remove(&(Reverse(job.binding.restarts), id.clone()));
        for (over, taker) in overs(job) {
            take(&mut self.preempted_for, taker, &over);
            self.preempted.remove(&over);
        }
    }

    pub fn of_user<'i>(&'i self, user: &str) -> impl Iterator<Item = &'i Id> {
        self.by_user.get(user).into_iter().flatten().map(|(_, id)| id)
    }

    pub fn running_in<'i>(&'i self, cluster: &str) -> impl Iterator<Item = &'i Id> {
        self.in_cluster.get(cluster).into_iter().flatten().map(|(_, id)| id)
    }

    /// Namespaces with running jobs in a cluster, and how many.
    pub fn counts_in<'i>(&'i self, cluster: &str) -> impl Iterator<Item = (&'i str, usize)> {
        let from = (cluster.to_owned(), String::new());
        let cluster = cluster.to_owned();
        let here = self.counts_in_cluster.range(from..).take_while(move |((of, _), _)| *of == cluster);
        here.map(|((_, namespace), count)| (namespace.as_str(), *count))
    }

    pub fn restarted(&self) -> impl Iterator<Item = &Id> {
        self.restarted.iter().map(|(_, id)| id)
    }

    pub fn preempted(&self) -> impl Iterator<Item = &Over> {
        self.preempted.iter()
    }

    pub fn preempted_for<'i>(&'i self, taker: &str) -> impl Iterator<Item = &'i Over> {
        self.preempted_for.get(taker).into_iter().flatten()
    }
}

fn take<V: Ord>(index: &mut BTreeMap<String, BTreeSet<V>>, key: &str, value: &V) {
    if let Some(set) = index.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            index.remove(key);
        }
    }
}

fn running_in(job: &Job) -> impl Iterator<Item = &str> {
    let runs = job.state() == State::Running && job.binding.is_job;
    job.clusters().filter(move |_| runs)
}

fn restarts(job: &Job) -> bool {
    job.binding.restarts > 0 && !job.state().is_final()
}

/// The runs of a job that were preempted, with who took their places.
fn overs(job: &Job) -> impl Iterator<Item = (Over, &str)> {
    job.binding.attempts.iter().filter(|attempt| is_preempted(attempt)).map(|attempt| {
        let over = (Reverse(attempt.ended_s), job.id.clone(), attempt.epoch);
        (over, PreemptionMessage::read(&attempt.message).by)
    })
}
