//! Whether the lease holds, from what was read of it and when. Pure: times are durations since a fixed moment of
//! one monotonic clock.
//!
//! A restart loses what was seen: the watchdog waits for a renewal again.

use std::time::Duration;

/// How long a watchdog that has just started waits for its first renewal: longer than the time between two
/// renewals.
pub const FIRST_PATIENCE: Duration = Duration::from_secs(40);

/// What one renewal of the lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Tells two renewals apart: `spec.renewTime` as text. It is not parsed as a time.
    pub mark: String,
    /// How long it holds.
    pub duration: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseVerdict {
    /// No renewal was seen to happen yet.
    Waiting,
    /// The lease holds.
    Content,
    /// It lapsed: no container may run.
    Lapsed,
}

/// Counts from before the request whose answer first showed a renewal. The renewal happened after that, so the
/// count ends no later than the renewal's own duration after it.
#[derive(Clone, Debug)]
pub struct Judge {
    started: Duration,
    seen: Option<Renewal>,
    /// When the last answered request was sent.
    asked: Duration,
    content_until: Option<Duration>,
    /// Since when the lease holds again after it lapsed, and how long it must hold before a container may run.
    recovering: Option<(Duration, Duration)>,
    verdict: LeaseVerdict,
}

impl Judge {
    pub fn new(now: Duration) -> Self {
        Self {
            started: now,
            seen: None,
            asked: now,
            content_until: None,
            recovering: None,
            verdict: LeaseVerdict::Waiting,
        }
    }

    /// The answer to the request sent at `asked`.
    pub fn read(&mut self, asked: Duration, renewal: Renewal) {
        // The age of the first renewal cannot be known.
        if self.seen.as_ref().is_some_and(|seen| seen.mark != renewal.mark) {
            let until = self.asked + renewal.duration;
            let before =
                self.content_until.replace(self.content_until.map_or(until, |known| known.max(until)));
            if self.verdict == LeaseVerdict::Lapsed && before.is_none_or(|before| before <= asked) {
                self.recovering = Some((asked, renewal.duration));
            }
        }
        self.seen = Some(renewal);
        self.asked = asked;
    }

    /// The verdict at `now`, which must not be before what was read. Lapsed lasts until the lease has held for a
    /// whole duration, so that whoever deletes the pods has time.
    pub fn verdict(&mut self, now: Duration) -> LeaseVerdict {
        let holds = self.content_until.is_some_and(|until| now < until);
        self.verdict = match (self.verdict, holds) {
            (LeaseVerdict::Waiting, false)
                if self.content_until.is_none() && now < self.started + FIRST_PATIENCE =>
            {
                LeaseVerdict::Waiting
            }
            (_, false) => {
                self.recovering = None;
                LeaseVerdict::Lapsed
            }
            (LeaseVerdict::Lapsed, true) => match self.recovering {
                Some((since, wait)) if now >= since + wait => LeaseVerdict::Content,
                Some(_) => LeaseVerdict::Lapsed,
                None => {
                    let wait = self.seen.as_ref().map_or(FIRST_PATIENCE, |seen| seen.duration);
                    self.recovering = Some((now, wait));
                    LeaseVerdict::Lapsed
                }
            },
            (_, true) => LeaseVerdict::Content,
        };
        self.verdict
    }

    /// When the verdict may change by itself.
    pub fn next_change(&self) -> Duration {
        match (self.verdict, self.content_until, self.recovering) {
            (LeaseVerdict::Waiting, None, _) => self.started + FIRST_PATIENCE,
            (LeaseVerdict::Content | LeaseVerdict::Waiting, Some(until), _) => until,
            (_, _, Some((since, wait))) => since + wait,
            _ => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn renewal(mark: &str, seconds: u64) -> Renewal {
        Renewal { mark: mark.to_owned(), duration: s(seconds) }
    }

    #[test]
    fn only_a_renewal_that_was_seen_to_happen_counts() {
        let mut judge = Judge::new(s(0));
        judge.read(s(1), renewal("a", 30));
        assert_eq!(judge.verdict(s(2)), LeaseVerdict::Waiting, "its age is not known");
        judge.read(s(3), renewal("a", 30));
        judge.read(s(5), renewal("b", 30));
        assert_eq!(judge.verdict(s(5)), LeaseVerdict::Content);
        // Renewed after the question of second 3: it may have been then.
        assert_eq!(judge.next_change(), s(33));
        assert_eq!(judge.verdict(s(32)), LeaseVerdict::Content);
        assert_eq!(judge.verdict(s(33)), LeaseVerdict::Lapsed);
    }

    #[test]
    fn without_any_renewal_it_lapses_after_its_patience() {
        let mut judge = Judge::new(s(100));
        assert_eq!(judge.verdict(s(100) + FIRST_PATIENCE - s(1)), LeaseVerdict::Waiting);
        assert_eq!(judge.next_change(), s(100) + FIRST_PATIENCE);
        assert_eq!(judge.verdict(s(100) + FIRST_PATIENCE), LeaseVerdict::Lapsed);
    }

    #[test]
    fn a_shorter_renewal_does_not_shorten_one_that_holds() {
        let mut judge = Judge::new(s(0));
        for (at, mark, seconds) in [(1, "a", 30), (2, "b", 30), (3, "c", 1)] {
            judge.read(s(at), renewal(mark, seconds));
        }
        assert_eq!(judge.verdict(s(30)), LeaseVerdict::Content);
        assert_eq!(judge.verdict(s(31)), LeaseVerdict::Lapsed);
    }

    #[test]
    fn lapsed_ends_after_a_whole_duration() {
        let mut judge = Judge::new(s(0));
        judge.read(s(1), renewal("a", 10));
        judge.read(s(2), renewal("b", 10));
        assert_eq!(judge.verdict(s(20)), LeaseVerdict::Lapsed);
        judge.read(s(21), renewal("b", 10));
        judge.read(s(22), renewal("c", 10));
        assert_eq!(judge.verdict(s(22)), LeaseVerdict::Lapsed);
        judge.read(s(28), renewal("d", 10));
        assert_eq!((judge.verdict(s(31)), judge.next_change()), (LeaseVerdict::Lapsed, s(32)));
        judge.read(s(31), renewal("e", 10));
        assert_eq!(judge.verdict(s(32)), LeaseVerdict::Content);
        // Silence while it recovers begins the count anew.
        assert_eq!(judge.verdict(s(60)), LeaseVerdict::Lapsed);
        judge.read(s(61), renewal("f", 10));
        judge.read(s(62), renewal("g", 10));
        assert_eq!(judge.verdict(s(63)), LeaseVerdict::Lapsed);
    }
}
