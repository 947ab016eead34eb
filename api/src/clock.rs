//! Wall-clock time that follows tokio's clock.
//!
//! The wall clock is read once, at the start. From then on time passes as tokio's clock does, so a simulation
//! on a paused clock also reaches its deadlines. A simulation also chooses the start and the drift of each
//! process's clock.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

const PARTS: i128 = 1_000_000;

/// Wall-clock time of one process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base: Timestamp,
    at: Instant,
    /// Parts per million by which this clock runs fast.
    drift_ppm: i32,
}

impl Clock {
    /// The machine's time from now on.
    pub fn start() -> Self {
        Self::from(Timestamp::now(), 0)
    }

    /// `base` now, and from then on `drift_ppm` millionths faster than tokio's clock (slower when negative).
    pub fn from(base: Timestamp, drift_ppm: i32) -> Self {
        Self { base, at: Instant::now(), drift_ppm }
    }

    pub fn now(&self) -> Timestamp {
        self.base.checked_add(self.drifted(self.at.elapsed())).unwrap_or(Timestamp::MAX)
    }

    /// The instant of the monotonic clock at `time`; a time in the past gives now.
    pub fn instant_of(&self, time: Timestamp) -> Instant {
        let ahead = time.duration_since(self.now());
        Instant::now() + Duration::try_from(ahead).unwrap_or(Duration::ZERO)
    }

    fn drifted(&self, passed: Duration) -> Duration {
        if self.drift_ppm == 0 {
            return passed;
        }
        // The nanoseconds of any real run fit into i128.
        let nanoseconds = passed.as_nanos() as i128 * (PARTS + i128::from(self.drift_ppm)) / PARTS;
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_clock_follows_tokio() {
        let clock = Clock::start();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(clock.now().duration_since(before).as_secs(), 60);
        let later = before.checked_add(Duration::from_secs(90)).unwrap();
        assert_eq!((clock.instant_of(later) - Instant::now()).as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_clock_gains_what_its_drift_says() {
        let base: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (fast, slow) = (Clock::from(base, 1000), Clock::from(base, -1000));
        tokio::time::advance(Duration::from_secs(1000)).await;
        assert_eq!(fast.now().to_string(), "2026-01-01T00:16:41Z");
        assert_eq!(slow.now().to_string(), "2026-01-01T00:16:39Z");
    }
}
