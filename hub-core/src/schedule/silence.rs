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
        let member = self.members.entry(cluster.to_string()).or_default();
        member.unanswered.insert(job.0.clone());
        let is_muted = member.muted_until.is_some_and(|until| now < until);
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
        let was_muted = self.members.get(cluster).is_some_and(|member| member.muted_until.is_some());
        self.members.insert(cluster.to_string(), Member { answered_at: Some(now), ..Member::default() });
        if was_muted {
            self.changed.insert(cluster.to_string());
        }
    }

    pub fn is_muted(&self, cluster: &str, now: Timestamp) -> bool {
        let until = self.members.get(cluster).and_then(|member| member.muted_until);
        until.is_some_and(|until| now < until)
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
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a time")
    }

    fn job(namespace: &str) -> Key {
        (namespace.to_string(), "job".to_string())
    }

    #[test]
    fn an_answer_is_waited_for_only_so_long() {
        let (mut silence, job) = (Silence::default(), job("team"));
        let mut due = |uid, now| silence.due(&job, Some(uid), "east", at(now));
        assert_eq!((due("a", 100), due("a", 110)), (at(115), at(115)));
        assert_eq!(due("b", 112), at(127), "another reservation");
        assert_eq!(due("b", 50), at(65), "a clock that was set back");
        silence.forget(&job);
        assert_eq!(silence.due(&job, Some("b"), "east", at(120)), at(135));
    }

    #[test]
    fn a_member_that_answers_others_may_take_longer() {
        let mut silence = Silence::default();
        assert_eq!(silence.due(&job("slow"), None, "east", at(100)), at(115));
        silence.answered(&job("other"), "east", at(110));
        assert_eq!(silence.due(&job("slow"), None, "east", at(111)), at(125));
        silence.answered(&job("other"), "east", at(215));
        assert_eq!(silence.due(&job("slow"), None, "east", at(216)), at(220), "but not for ever");
    }

    #[test]
    fn a_silent_member_is_asked_ever_less_often_until_it_answers() {
        let mut silence = Silence::default();
        let missed =
            |silence: &mut Silence, now| ["a", "b"].map(|n| silence.missed(&job(n), "east", at(now)));
        missed(&mut silence, 100);
        missed(&mut silence, 101);
        assert_eq!(silence.next_end(), Some(at(115)), "asked together");
        assert_eq!(silence.take_changed(at(101)).len(), 1);
        assert!(silence.is_muted("east", at(114)) && !silence.is_muted("east", at(115)));
        assert!(silence.take_changed(at(114)).is_empty());
        assert_eq!((silence.take_changed(at(115)).len(), silence.take_changed(at(115)).len()), (1, 0));
        assert_eq!(silence.next_end(), None);
        missed(&mut silence, 130);
        assert_eq!(silence.next_end(), Some(at(160)));
        for now in 1..20 {
            silence.take_changed(at(1_000 * now));
            missed(&mut silence, 1_000 * now);
        }
        assert_eq!(silence.next_end(), Some(at(19_300)), "five minutes at most");
        silence.answered(&job("a"), "east", at(19_001));
        assert!(!silence.is_muted("east", at(19_001)));
        missed(&mut silence, 30_000);
        assert_eq!(silence.next_end(), Some(at(30_015)));
    }

    /// A job that an honest member cannot answer keeps no other tenant out of it.
    #[test]
    fn one_namespace_alone_mutes_no_member() {
        let mut silence = Silence::default();
        for now in 1..20 {
            silence.missed(&job("a"), "east", at(100 * now));
        }
        assert_eq!((silence.next_end(), silence.take_changed(at(2_000)).len()), (None, 0));
        silence.answered(&job("b"), "east", at(2_000));
        silence.missed(&job("a"), "east", at(2_001));
        silence.missed(&job("b"), "east", at(2_002));
        assert!(!silence.is_muted("east", at(2_003)), "it answered a moment ago");
    }
}
