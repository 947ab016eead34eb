//! Uids and generated names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where uids and generated names come from.
#[derive(Clone, Debug, Default)]
pub struct Ids(Option<Arc<AtomicU64>>);

impl Ids {
    /// The same ids in the same order for the same seed, so that a simulation can be repeated. For one process
    /// that hands out few ids: they are as unlikely to meet as random ones only within one seed.
    pub fn seeded(seed: u64) -> Self {
        Ids(Some(Arc::new(AtomicU64::new(seed))))
    }

    /// The next id.
    pub fn uuid(&self) -> uuid::Uuid {
        let Some(state) = &self.0 else { return uuid::Uuid::new_v4() };
        let high = mix(state.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN));
        let low = mix(high ^ GOLDEN);
        uuid::Builder::from_random_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
            .into_uuid()
    }
}

/// Step of SplitMix64 (Steele, Lea and Flood, 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A name that starts with `base`, cut so that the whole fits a label.
pub fn generated(ids: &Ids, base: &str) -> String {
    // The alphabet has no vowels, so that no words come out.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = ids.uuid();
    let mut out: String = base.chars().take(58).collect();
    for b in random.as_bytes().iter().take(5) {
        out.push(char::from(ALPHABET[usize::from(*b) % ALPHABET.len()]));
    }
    out
}
