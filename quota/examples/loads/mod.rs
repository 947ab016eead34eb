//! Random numbers for loads that are the same in each run: of `share_speed` and of the simulator's `fair_share`.

/// Leaves of the tree. Low ones get more jobs.
pub const LEAVES: u64 = 20;

/// A xorshift generator with a fixed seed.
pub struct Draw(u64);

impl Draw {
    pub fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    pub fn of(&mut self, values: &[i64]) -> i64 {
        values[self.below(values.len() as u64) as usize]
    }

    pub fn leaf(&mut self) -> u64 {
        self.below(LEAVES) * self.below(LEAVES) / LEAVES
    }
}
