//! Hashes of passwords: argon2id, as the PHC text form, in a Secret of the user.
//!
//! A hash takes 19 MiB and some 30 ms of a core, so that guessing is dear. Few are computed at once, and few callers wait
//! for their turn; the others are told to come again.

use std::sync::{Arc, OnceLock};

use argon2::{
    Argon2,
    password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString, rand_core::OsRng},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::{error::UserError, names::text};

/// Entry of the Secret.
pub const KEY: &str = "hash";
/// Type of the Secret.
pub const SECRET_TYPE: &str = "fleet.dev/pai-password";
/// As in OpenPAI.
const SHORTEST: usize = 6;
/// More bytes make no password better.
const LONGEST: usize = 256;
/// Hashes computed at once: about 40 MiB, and two cores.
const AT_ONCE: usize = 2;
/// Callers that wait for their turn; the last of them for about a second.
const WAITING: usize = 64;

/// # Errors
/// A password that nobody may have.
pub fn check(password: &str) -> Result<(), UserError> {
    if (SHORTEST..=LONGEST).contains(&password.len()) {
        return Ok(());
    }
    let allowed = format!("{SHORTEST} to {LONGEST} bytes");
    Err(UserError::invalid("password", format!("{} bytes", password.len()), allowed))
}

/// The hash in a user's Secret.
pub(super) fn stored(secret: &Value) -> Option<String> {
    let data = text(&secret["data"][KEY], "");
    String::from_utf8(STANDARD.decode(data).ok()?).ok().filter(|hash| !hash.is_empty())
}

/// Computes hashes, few at once.
pub struct Hasher {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Default for Hasher {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), places: Arc::new(Semaphore::new(AT_ONCE + WAITING)) }
    }
}

impl Hasher {
    /// Computes on a thread of its own, in turn.
    async fn compute<T: Send + 'static>(
        &self,
        what: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, UserError> {
        let full = || UserError::TooMany("too many passwords are being checked".to_owned(), 1);
        let place = self.places.clone().try_acquire_owned().map_err(|_| full())?;
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| full())?;
        // Both are held until the thread has ended, also when the caller goes.
        let computing = tokio::task::spawn_blocking(move || {
            let done = what();
            drop((place, turn));
            done
        });
        computing.await.map_err(|_| full())
    }

    /// # Errors
    /// Too many are being computed.
    pub async fn hash(&self, password: &str) -> Result<String, UserError> {
        let password = password.to_owned();
        let hashed = self.compute(move || hash(&password)).await?;
        // Its parameters are constants, and a salt of the right length.
        hashed.ok_or_else(|| UserError::NotKept("a password could not be hashed".to_owned()))
    }

    /// Whether a password has this hash. Without a hash another one is computed, which takes as long.
    ///
    /// # Errors
    /// Too many are being computed.
    pub async fn verify(&self, stored: Option<String>, password: &str) -> Result<bool, UserError> {
        let password = password.to_owned();
        self.compute(move || {
            let is_known = stored.is_some();
            let stored = stored.unwrap_or_else(|| nobodys().to_owned());
            verify(&stored, &password) && is_known
        })
        .await
    }
}

fn hash(password: &str) -> Option<String> {
    let salt = SaltString::generate(&mut OsRng);
    Argon2::default().hash_password(password.as_bytes(), &salt).ok().map(|hash| hash.to_string())
}

/// A hash without a user, to compare with.
fn nobodys() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| hash("nobody").unwrap_or_default())
}

fn verify(stored: &str, password: &str) -> bool {
    let Ok(stored) = PasswordHash::new(stored) else { return false };
    // Only what is hashed here: a stored text does not say how much memory the portal takes.
    let is_own = stored.algorithm == argon2::ARGON2ID_IDENT
        && argon2::Params::try_from(&stored).is_ok_and(|params| {
            params.m_cost() <= argon2::Params::DEFAULT_M_COST
                && params.t_cost() <= argon2::Params::DEFAULT_T_COST
                && params.p_cost() <= argon2::Params::DEFAULT_P_COST
        });
    is_own
        && password.len() <= LONGEST
        && Argon2::default().verify_password(password.as_bytes(), &stored).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_kept_as_a_salted_argon2id_hash() {
        let hasher = Hasher::default();
        let (one, other) = (hasher.hash("s3cret").await.unwrap(), hasher.hash("s3cret").await.unwrap());
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && !one.contains("s3cret"), "{one}");
        assert_ne!(one, other);
        assert!(hasher.verify(Some(one.clone()), "s3cret").await.unwrap());
        assert!(!hasher.verify(Some(one), "S3cret").await.unwrap());
        // Nobody has the password of nobody, and a text that is no hash of ours is that of no password.
        assert!(!hasher.verify(None, "nobody").await.unwrap());
        let costly = hash("s3cret").unwrap().replace("m=19456", "m=4000000");
        for stored in [String::new(), "s3cret".to_owned(), costly] {
            assert!(!hasher.verify(Some(stored), "s3cret").await.unwrap());
        }
    }

    #[tokio::test]
    async fn only_some_are_hashed_at_once_and_only_some_wait() {
        let hasher = Arc::new(Hasher::default());
        let held = hasher.turns.clone().acquire_many_owned(2).await.unwrap();
        let ask = || {
            tokio::spawn({
                let hasher = hasher.clone();
                async move { hasher.verify(None, "x").await.map_err(|error| error.status()) }
            })
        };
        let waiting: Vec<_> = (0..AT_ONCE + WAITING).map(|_| ask()).collect();
        while hasher.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(ask().await.unwrap(), Err(429));
        for one in &waiting[1..] {
            one.abort();
        }
        drop(held);
        assert_eq!(waiting.into_iter().next().unwrap().await.unwrap(), Ok(false));
        while hasher.places.available_permits() < AT_ONCE + WAITING {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn passwords_have_a_least_and_a_most_length() {
        assert!(check("12345").is_err() && check("123456").is_ok());
        assert!(check(&"x".repeat(256)).is_ok() && check(&"x".repeat(257)).is_err());
        let told = check("12345").unwrap_err();
        assert_eq!(told.to_string(), "password: found 5 bytes; allowed: 6 to 256 bytes");
    }
}
