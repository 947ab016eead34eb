//! Choices that look random and are the same for the same seed.

use std::time::Duration;

/// Names the seed of a test that draws its moments.
const SEED: &str = "FLEET_SEED";

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Random {
    pub seed: u64,
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// The seed of `FLEET_SEED`, else `seed`; printed, so that a failure can be repeated.
    pub fn from_env(seed: u64) -> Self {
        let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(seed);
        println!("{SEED}={seed}");
        Self::new(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of these, which must not be none.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[(self.number() % all.len() as u64) as usize]
    }

    /// A time from `from_ms` up to `to_ms`.
    pub fn pause(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.number() % (to_ms - from_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_choices() {
        let draw = |seed| (0..8).map(|_| ()).scan(Random::new(seed), |random, ()| Some(random.number()));
        let (once, again): (Vec<u64>, Vec<u64>) = (draw(7).collect(), draw(7).collect());
        assert_eq!(once, again);
        assert_ne!(once, draw(8).collect::<Vec<_>>());
    }
}
