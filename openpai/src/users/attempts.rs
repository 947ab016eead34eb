//! How often somebody may guess: failed attempts by user and address, by address, and by user.
//!
//! An attempt counts as failed from its beginning until its password was right, so that many at once are not more. A user's
//! own limit by address is small; that over all addresses is large, so that a stranger does not lock a user out by
//! guessing. Deliberately absent: anything that outlives the process.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::error::UserError;

/// How long a failure counts.
const WINDOW: Duration = Duration::from_secs(300);
/// Failures of a user from one address.
const OF_BOTH: u32 = 10;
/// Failures from one address, also of names that no user has.
const OF_ADDRESS: u32 = 100;
/// Failures of a user from all addresses.
const OF_USER: u32 = 100;
/// Most keys that are counted. Then the oldest goes.
const MOST: usize = 10_000;
/// Longer names are no user's.
const LONGEST_NAME: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Both(String, IpAddr),
    Address(IpAddr),
    User(String),
}

impl Key {
    fn limit(&self) -> u32 {
        match self {
            Self::Both(..) => OF_BOTH,
            Self::Address(_) => OF_ADDRESS,
            Self::User(_) => OF_USER,
        }
    }
}

struct Count {
    failures: u32,
    since: Instant,
}

#[derive(Default)]
pub struct Attempts(Mutex<BTreeMap<Key, Count>>);

/// An attempt that was let through.
#[must_use]
pub struct Attempt(Vec<Key>);

impl Attempts {
    /// Begins an attempt, which counts as failed unless [`Self::succeeded`] is called.
    ///
    /// # Errors
    /// There were too many.
    pub fn begin(&self, user: &str, address: Option<IpAddr>) -> Result<Attempt, UserError> {
        let user: String = user.chars().take(LONGEST_NAME).collect();
        let mut keys = vec![Key::User(user.clone())];
        keys.extend(address.into_iter().flat_map(|address| {
            let address = network(address);
            [Key::Both(user.clone(), address), Key::Address(address)]
        }));
        let now = Instant::now();
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &keys {
            let Some(count) = counts.get(key) else { continue };
            let ends = count.since + WINDOW;
            if count.failures >= key.limit() && ends > now {
                let told = "too many attempts with a wrong name or password".to_owned();
                return Err(UserError::TooMany(told, (ends - now).as_secs() + 1));
            }
        }
        for key in &keys {
            let count = counts.entry(key.clone()).or_insert(Count { failures: 0, since: now });
            if count.since + WINDOW <= now {
                *count = Count { failures: 0, since: now };
            }
            count.failures += 1;
        }
        if counts.len() > MOST {
            counts.retain(|_, count| count.since + WINDOW > now);
        }
        while counts.len() > MOST {
            let oldest = counts.iter().min_by_key(|(_, count)| count.since).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            counts.remove(&oldest);
        }
        Ok(Attempt(keys))
    }

    /// The password was right: the attempt was no failure.
    pub fn succeeded(&self, attempt: Attempt) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for key in attempt.0 {
            if let Some(count) = counts.get_mut(&key) {
                count.failures = count.failures.saturating_sub(1);
                if count.failures == 0 {
                    counts.remove(&key);
                }
            }
        }
    }
}

/// What one sender has: an address, or the 64 bits of a network of version 6, whose other bits he chooses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = u128::from(address) & (u128::MAX << 64);
            IpAddr::V6(bits.into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    fn fail(attempts: &Attempts, user: &str, from: Option<IpAddr>) -> Result<(), u16> {
        attempts.begin(user, from).map(drop).map_err(|error| error.status())
    }

    #[tokio::test(start_paused = true)]
    async fn who_guesses_waits_and_others_do_not() {
        let attempts = Attempts::default();
        for _ in 0..OF_BOTH {
            assert_eq!(fail(&attempts, "alice", address(1)), Ok(()));
        }
        assert_eq!(fail(&attempts, "alice", address(1)), Err(429));
        assert_eq!(fail(&attempts, "bob", address(1)), Ok(()));
        // The user herself, from elsewhere.
        for _ in 0..3 * OF_BOTH {
            let attempt = attempts.begin("alice", address(2)).expect("not locked out");
            attempts.succeeded(attempt);
        }
        tokio::time::advance(WINDOW).await;
        assert_eq!(fail(&attempts, "alice", address(1)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn neither_many_names_nor_many_addresses_help() {
        let attempts = Attempts::default();
        for number in 0..OF_ADDRESS {
            assert_eq!(fail(&attempts, &format!("user{number}"), address(1)), Ok(()));
        }
        assert_eq!(fail(&attempts, "another", address(1)), Err(429));
        for number in 0..OF_USER {
            let from = Some(IpAddr::from([10, 1, 0, u8::try_from(number).expect("small")]));
            assert_eq!(fail(&attempts, "alice", from), Ok(()));
        }
        assert_eq!(fail(&attempts, "alice", address(200)), Err(429));
        // All addresses of a network of version 6 are one sender's.
        for number in 0..=OF_BOTH {
            let from: IpAddr = format!("2001:db8::{number:x}").parse().expect("an address");
            assert_eq!(fail(&attempts, "carol", Some(from)).is_ok(), number < OF_BOTH);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_number_of_names_fills_the_memory() {
        let attempts = Attempts::default();
        for number in 0..MOST + 500 {
            let _ = fail(&attempts, &format!("user{number}"), None);
        }
        assert_eq!(attempts.0.lock().expect("free").len(), MOST);
    }
}
