//! Members that renew their lease and leave reservations unanswered.
//!
//! Such a member may report free capacity, and is then asked first by every job. A job gives its reservation up after
//! a while. A member that leaves jobs of two namespaces unanswered gets no new work for a while: of one namespace
//! alone it would not, because a tenant might write a job that an honest member cannot answer. A restart forgets all
//! of this, and asks again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::world::Key;

/// How long a member may answer nothing. One that works answers within a second.
const SILENT_FOR: SignedDuration = SignedDuration::from_secs(15);
/// How long one reservation may take while the member answers others: it may have many to answer.
const ANSWER_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// How long a silent member gets no new work at first; doubles each time, up to [`LONGEST`].
const FIRST: SignedDuration = SignedDuration::from_secs(15);
const LONGEST: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Silence {
    /// The reservation for whose answer a job waits, by its uid, and since when.
    asked: BTreeMap<Key, (String, Timestamp)>,
    members: BTreeMap<String, Member>,
    /// Members to be counted again.
    changed: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Member {
    answered_at: Option<Timestamp>,
    /// Namespaces of jobs that it has not answered, since its last answer.
    unanswered: BTreeSet<String>,
    /// It gets no new work until then.
    muted_until: Option<Timestamp>,
    times_muted: u32,
}

impl Silence {
    /// When a job gives up the reservation that it waits for. The count begins with the first call.
    pub fn due(&mut self, job: &Key, uid: Option<&str>, cluster: &str, now: Timestamp) -> Timestamp {
        let uid = uid.unwrap_or_default();
        let (known, since) = self.asked.entry(job.clone()).or_insert_with(|| (uid.to_string(), now));
        if known != uid || *since > now {
            (*known, *since) = (uid.to_string(), now);
        }
        let answered_at = self.members.get(cluster).and_then(|member| member.answered_at);
        let last = answered_at.filter(|at| *at <= now).map_or(*since, |at| at.max(*since));
        (last + SILENT_FOR).min(*since + ANSWER_WITHIN)
    }

    /// A job waits for no answer any more.
    pub fn forget(&mut self, job: &Key) {
        self.asked.remove(job);
    }

    /// A member has not answered the reservation of a job.
    pub fn missed(&mut self, job: &Key, cluster: &str, now: Timestamp) {
        self.asked.remove(job);
        let is_muted = self.is_muted(cluster, now);
        let member = self.members.entry(cluster.to_string()).or_default();
        member.unanswered.insert(job.0.clone());
        let is_silent = member.answered_at.is_none_or(|at| at + SILENT_FOR <= now);
        // Reservations that were requested together count once.
        if member.unanswered.len() > 1 && is_silent && !is_muted {
            member.muted_until = Some(now + (FIRST * (1 << member.times_muted.min(10))).min(LONGEST));
            member.times_muted += 1;
            self.changed.insert(cluster.to_string());
        }
    }

    /// A member has answered the reservation of a job.
    pub fn answered(&mut self, job: &Key, cluster: &str, now: Timestamp) {
        self.asked.remove(job);
        let member = Member { answered_at: Some(now), ..Member::default() };
        let before = self.members.insert(cluster.to_string(), member);
        if before.is_some_and(|member| member.muted_until.is_some()) {
            self.changed.insert(cluster.to_string());
        }
    }

    pub fn is_muted(&self, cluster: &str, now: Timestamp) -> bool {
        self.members.get(cluster).and_then(|member| member.muted_until).is_some_and(|until| now < until)
    }

    /// Members that were muted, or no longer are, since the last call.
    pub fn take_changed(&mut self, now: Timestamp) -> BTreeSet<String> {
        for (cluster, member) in &mut self.members {
            if member.muted_until.take_if(|until| *until <= now).is_some() {
                member.unanswered.clear();
                self.changed.insert(cluster.clone());
            }
        }
        std::mem::take(&mut self.changed)
    }

    /// When the next muted member may be asked again.
    pub fn next_end(&self) -> Option<Timestamp> {
        self.members.values().filter_map(|member| member.muted_until).min()
    }
}

#[cfg(test)]
mod tests;
