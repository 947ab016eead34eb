//! Back-off between attempts, without a clock: the caller sleeps for the delay.

use core::time::Duration;

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Delays that double from 50 ms to 10 s. Each is drawn from its upper half by a seeded generator, so processes do
/// not retry in step and a run can be repeated.
#[derive(Clone, Debug)]
pub struct Backoff {
    seed: u64,
    attempt: u32,
}

impl Backoff {
    /// `name` gives the seed.
    pub fn new(name: &str) -> Self {
        // FNV-1a: stable over versions of the standard library.
        let seed = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Self { seed, attempt: 0 }
    }

    pub fn reset(&mut self) {
        self.attempt = 0;
    }

    pub fn next_delay(&mut self) -> Duration {
        let whole = FIRST_DELAY.saturating_mul(1 << self.attempt.min(16)).min(LONGEST_DELAY);
        self.attempt = self.attempt.saturating_add(1);
        self.seed = split_mix(self.seed);
        // A delay is at most 10 s, so half of it in microseconds fits u64.
        let half = whole.as_micros() as u64 / 2;
        Duration::from_micros(half + self.seed % half.max(1))
    }
}

/// One step of the splitmix64 generator.
fn split_mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_repeat_with_the_seed_and_stay_in_bounds() {
        let mut one = Backoff::new("east/pods");
        let mut two = Backoff::new("east/pods");
        let mut other = Backoff::new("west/pods");
        let delays: Vec<Duration> = (0..20).map(|_| one.next_delay()).collect();
        assert!((0..20).all(|i| two.next_delay() == delays[i]));
        assert!((0..20).any(|i| other.next_delay() != delays[i]));
        assert!(delays[0] >= FIRST_DELAY / 2 && delays[0] < FIRST_DELAY);
        assert!(delays.iter().all(|delay| *delay < LONGEST_DELAY));
    }
}
