//! Programs that show a token with each request: what the hub said of it, for a while.
//!
//! The hub is asked whose a token is at its first request and every few minutes, and what its owner may see every 30 s,
//! as for who is signed in. Tokens stand here hashed, and within the session that the hub is asked with.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::HeaderValue;
use sha2::{Digest, Sha256};

use super::session::Session;

/// Until the hub is asked again whose a token is.
const LIFE: Duration = Duration::from_secs(300);
/// Callers kept; then all are asked for anew.
const MOST: usize = 2_000;

type Key = [u8; 32];

#[derive(Default)]
pub struct Callers(Mutex<BTreeMap<Key, Arc<Session>>>);

fn key(credential: &HeaderValue) -> Key {
    Sha256::digest(credential.as_bytes()).into()
}

impl Callers {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn of(&self, credential: &HeaderValue) -> Option<Arc<Session>> {
        self.all().get(&key(credential)).filter(|session| !session.is_over()).cloned()
    }

    /// The hub says that this user has the credential.
    pub fn begin(&self, user: String, credential: HeaderValue) -> Arc<Session> {
        let of = key(&credential);
        let session = Arc::new(Session::new(user, credential, LIFE));
        let mut all = self.all();
        if all.len() >= MOST {
            all.retain(|_, session| !session.is_over());
        }
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(of, session.clone());
        session
    }

    pub fn end(&self, session: &Session) {
        self.all().remove(&key(&session.credential));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_known_for_a_while() {
        let callers = Callers::default();
        let token = |text: &str| HeaderValue::from_str(&format!("Bearer {text}")).expect("a header");
        let one = callers.begin("alice".to_owned(), token("a"));
        assert_eq!(callers.of(&token("a")).map(|found| found.visitor.user.clone()), Some("alice".to_owned()));
        assert!(callers.of(&token("b")).is_none());
        callers.end(&one);
        assert!(callers.of(&token("a")).is_none());
        callers.begin("alice".to_owned(), token("a"));
        tokio::time::advance(LIFE).await;
        assert!(callers.of(&token("a")).is_none());
        for number in 0..=MOST {
            callers.begin("many".to_owned(), token(&number.to_string()));
        }
        assert!(callers.all().len() <= MOST);
    }
}
