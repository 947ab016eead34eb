//! Members that renew their lease and leave reservations unanswered, or jobs where they were sent.
//!
//! Such a member may report free capacity, and is then asked first by every job. A job gives its reservation up after
//! a while. A member that leaves jobs of two namespaces unanswered gets no new work for a while: of one namespace
//! alone it would not, because a tenant might write a job that an honest member cannot answer. A restart forgets all
//! of this, and asks again.
//!
//! A member that grants reservations and then does nothing would catch job after job, because its places stay free. It
//! gets no new work while jobs of two namespaces, or many of one, have been there for a while without a word, until it
//! takes one of them up. An honest agent says of each Work what became of it, also if it cannot apply it. Times are in
//! milliseconds.

use std::collections::{BTreeMap, BTreeSet};

/// Namespace and name of a job.
type Key = (String, String);

/// How long a member may answer nothing. One that works answers within a second.
const SILENT_FOR: i64 = 15_000;
/// How long one reservation may take while the member answers others: it may have many to answer.
const ANSWER_WITHIN: i64 = 120_000;
/// How long a silent member gets no new work at first; doubles each time, up to [`LONGEST`].
const FIRST: i64 = 15_000;
const LONGEST: i64 = 300_000;
/// How long a member may say nothing of any Work that was sent to it.
const TAKES_UP_WITHIN: i64 = 60_000;
/// From so many on, Works of one namespace suffice.
const LEFT_TOO_MANY: usize = 8;

#[derive(Debug, Default)]
pub struct Silence {
    /// The reservation for whose answer a job waits, by its uid, and since when.
    asked: BTreeMap<Key, (String, i64)>,
    members: BTreeMap<String, Member>,
    /// Works of which their member has said nothing yet, by job.
    sent: BTreeMap<Key, Sent>,
    /// When each member has last taken up a Work.
    took_up_at: BTreeMap<String, i64>,
    /// Members that take up nothing.
    idle: BTreeSet<String>,
    /// Members to be counted again.
    changed: BTreeSet<String>,
}

#[derive(Debug)]
struct Sent {
    cluster: String,
    /// Of the Work.
    uid: String,
    since: i64,
}

#[derive(Debug, Default)]
struct Member {
    answered_at: Option<i64>,
    /// Namespaces of jobs that it has not answered, since its last answer.
    unanswered: BTreeSet<String>,
    /// It gets no new work until then.
    muted_until: Option<i64>,
    times_muted: u32,
}

impl Silence {
    /// When a job gives up the reservation that it waits for. The count begins with the first call.
    pub fn due(&mut self, job: &Key, uid: Option<&str>, cluster: &str, now: i64) -> i64 {
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
    pub fn missed(&mut self, job: &Key, cluster: &str, now: i64) {
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
    pub fn answered(&mut self, job: &Key, cluster: &str, now: i64) {
        self.asked.remove(job);
        let member = Member { answered_at: Some(now), ..Member::default() };
        let before = self.members.insert(cluster.to_string(), member);
        if before.is_some_and(|member| member.muted_until.is_some()) {
            self.changed.insert(cluster.to_string());
        }
    }

    /// The member has a Work of the job and has said nothing of it.
    pub fn sent(&mut self, job: &Key, cluster: &str, uid: &str, now: i64) {
        let known = self.sent.get(job).filter(|sent| sent.cluster == cluster && sent.uid == uid);
        if known.is_none_or(|sent| sent.since > now) {
            let sent = Sent { cluster: cluster.to_string(), uid: uid.to_string(), since: now };
            self.sent.insert(job.clone(), sent);
        }
    }

    /// The job waits for no word of a member: it has come, or there is no Work.
    pub fn heard(&mut self, job: &Key, from: Option<&str>, now: i64) {
        if self.sent.remove(job).is_some_and(|sent| from == Some(&sent.cluster)) {
            self.took_up_at.extend(from.map(|cluster| (cluster.to_string(), now)));
        }
    }

    fn due_of(&self, sent: &Sent) -> i64 {
        let took_up_at = self.took_up_at.get(&sent.cluster).copied();
        took_up_at.map_or(sent.since, |at| at.max(sent.since)) + TAKES_UP_WITHIN
    }

    fn find_idle(&mut self, now: i64) {
        let mut left: BTreeMap<&String, (BTreeSet<&String>, usize)> = BTreeMap::new();
        for (job, sent) in self.sent.iter().filter(|(_, sent)| self.due_of(sent) <= now) {
            let (namespaces, number) = left.entry(&sent.cluster).or_default();
            namespaces.insert(&job.0);
            *number += 1;
        }
        left.retain(|_, (namespaces, number)| namespaces.len() > 1 || *number >= LEFT_TOO_MANY);
        let idle: BTreeSet<String> = left.into_keys().cloned().collect();
        self.changed.extend(idle.symmetric_difference(&self.idle).cloned());
        self.idle = idle;
    }

    pub fn is_muted(&self, cluster: &str, now: i64) -> bool {
        self.idle.contains(cluster)
            || self
                .members
                .get(cluster)
                .and_then(|member| member.muted_until)
                .is_some_and(|until| now < until)
    }

    /// Members that were muted, or no longer are, since the last call.
    pub fn take_changed(&mut self, now: i64) -> BTreeSet<String> {
        self.find_idle(now);
        for (cluster, member) in &mut self.members {
            if member.muted_until.take_if(|until| *until <= now).is_some() {
                member.unanswered.clear();
                self.changed.insert(cluster.clone());
            }
        }
        std::mem::take(&mut self.changed)
    }

    /// When the next muted member may be asked again, or a member has been silent for too long; only what is after `now`.
    pub fn next_end(&self, now: i64) -> Option<i64> {
        let ends = self.members.values().filter_map(|member| member.muted_until);
        let dues = self.sent.values().map(|sent| self.due_of(sent)).filter(|due| *due > now);
        ends.chain(dues).min()
    }
}

#[cfg(test)]
mod tests;
