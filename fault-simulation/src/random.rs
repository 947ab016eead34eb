//! Pseudo-random choices, the same for the same seed.

use std::time::Duration;

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for one purpose: what it draws does not depend on how often others have drawn.
    pub fn branch(seed: u64, purpose: &str) -> Self {
        let mixed = purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, b| {
            (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Self(mixed);
        random.number();
        random
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, not including, `below`, which must not be 0.
    pub fn below(&mut self, below: u64) -> u64 {
        self.number() % below
    }

    /// From `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True in so many of 1000 cases.
    pub fn per_mille(&mut self, rate: u32) -> bool {
        rate > 0 && self.below(1000) < u64::from(rate)
    }

    /// One of these, which must not be none.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    pub fn time(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(self.between(from_ms, to_ms))
    }
}
