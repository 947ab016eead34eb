//! Who is signed in: a cookie names a session, the session holds the token that the hub is asked with.
//!
//! Sessions live in memory and end with the process. A token never leaves it but for the hub.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet_pages::shown::Visitor;
use fleet_views::Sight;
use http::{HeaderMap, HeaderValue, header};
use tokio::time::Instant;
use uuid::Uuid;

/// A day's work.
const LIFE: Duration = Duration::from_secs(8 * 3600);
/// Sessions kept; then the one that ends first makes room.
const MOST: usize = 10_000;
pub const COOKIE: &str = "fleet-session";
/// Ties the form of the sign-in page, where there is no session yet, to the browser that asked for it.
const FORM_COOKIE: &str = "fleet-form";

pub struct Session {
    pub id: String,
    pub visitor: Visitor,
    pub credential: HeaderValue,
    ends: Instant,
    pub rights: Arc<Rights>,
}

/// What the hub said of the rights of a token; sessions with the same token share it.
#[derive(Default)]
pub struct Rights {
    pub seen: Mutex<Option<Seen>>,
    /// Held while the hub is asked, so that it is asked once.
    pub asking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
pub struct Seen {
    /// How long it is believed.
    pub until: Instant,
    pub sight: Arc<Sight>,
    /// Namespaces it was asked about.
    pub asked: Arc<std::collections::BTreeSet<String>>,
}

impl Session {
    /// One that ends after `life`.
    pub fn new(user: String, credential: HeaderValue, life: Duration) -> Self {
        Self {
            id: secret(),
            visitor: Visitor { user, form_key: secret() },
            credential,
            ends: Instant::now() + life,
            rights: Arc::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }
}

#[derive(Default)]
pub struct Sessions(Mutex<BTreeMap<String, Arc<Session>>>);

/// 244 bits from the system's source of randomness.
pub fn secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Session>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn begin(&self, user: String, credential: HeaderValue) -> Arc<Session> {
        let mut session = Session::new(user, credential, LIFE);
        let mut all = self.all();
        all.retain(|_, session| !session.is_over());
        if let Some(same) = all.values().find(|other| other.credential == session.credential) {
            session.rights = same.rights.clone();
        }
        let session = Arc::new(session);
        if all.len() >= MOST
            && let Some(first) = all.values().min_by_key(|session| session.ends).map(|one| one.id.clone())
        {
            all.remove(&first);
        }
        all.insert(session.id.clone(), session.clone());
        session
    }

    pub fn of(&self, headers: &HeaderMap) -> Option<Arc<Session>> {
        let id = cookie(headers, COOKIE)?;
        self.all().get(id).filter(|session| !session.is_over()).cloned()
    }

    /// How many have not run out.
    pub fn count(&self) -> usize {
        self.all().values().filter(|session| !session.is_over()).count()
    }

    pub fn end(&self, session: &Session) {
        self.all().remove(&session.id);
    }

    /// Whether it has neither run out nor been ended.
    pub fn has(&self, session: &Session) -> bool {
        !session.is_over() && self.all().contains_key(&session.id)
    }
}

/// The value of a cookie that the browser sends.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).find_map(|pair| {
        let (found, value) = pair.trim().split_once('=')?;
        (found == name).then_some(value)
    })
}

pub fn form_cookie(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, FORM_COOKIE)
}

/// A proxy with TLS before the portal says so, and then the browser sends the cookie by TLS only.
fn set(headers: &HeaderMap, name: &str, value: &str, life: Duration) -> String {
    let by_tls = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    let secure = if by_tls { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}", life.as_secs())
}

pub fn session_cookie(headers: &HeaderMap, session: &Session) -> String {
    set(headers, COOKIE, &session.id, LIFE)
}

pub fn no_session_cookie(headers: &HeaderMap) -> String {
    set(headers, COOKIE, "", Duration::ZERO)
}

pub fn new_form_cookie(headers: &HeaderMap, value: &str) -> String {
    set(headers, FORM_COOKIE, value, Duration::from_secs(3600))
}

/// Compares in the same time wherever they differ.
pub fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_by_itself_and_by_its_user() {
        let sessions = Sessions::default();
        let begin = || sessions.begin("alice".to_owned(), HeaderValue::from_static("Bearer t"));
        let one = begin();
        let headers = |session: &Session| {
            let mut headers = HeaderMap::new();
            let text = format!("a=b; fleet-session={}; c=d", session.id);
            headers.insert(header::COOKIE, text.parse().expect("a header"));
            headers
        };
        assert_eq!(
            sessions.of(&headers(&one)).map(|found| found.visitor.user.clone()),
            Some("alice".to_owned())
        );
        assert!(sessions.of(&HeaderMap::new()).is_none());
        sessions.end(&one);
        assert!(sessions.of(&headers(&one)).is_none() && !sessions.has(&one));
        let two = begin();
        assert_ne!((&one.id, &one.visitor.form_key), (&two.id, &two.visitor.form_key));
        tokio::time::advance(LIFE).await;
        assert!(sessions.of(&headers(&two)).is_none() && !sessions.has(&two));
    }

    #[tokio::test]
    async fn sessions_share_the_rights_of_their_token() {
        let sessions = Sessions::default();
        let begin = |token: &'static str| sessions.begin("x".to_owned(), HeaderValue::from_static(token));
        let (one, other, same) = (begin("Bearer t"), begin("Bearer u"), begin("Bearer t"));
        assert!(Arc::ptr_eq(&one.rights, &same.rights) && !Arc::ptr_eq(&one.rights, &other.rights));
        assert_ne!(one.visitor.form_key, same.visitor.form_key);
    }

    #[tokio::test]
    async fn sessions_are_bounded() {
        let sessions = Sessions::default();
        let first = sessions.begin("first".to_owned(), HeaderValue::from_static("x"));
        for _ in 0..MOST {
            sessions.begin("more".to_owned(), HeaderValue::from_static("x"));
        }
        assert_eq!(sessions.all().len(), MOST);
        assert!(!sessions.has(&first));
    }

    #[test]
    fn cookies_are_kept_from_scripts_and_other_sites() {
        let plain = new_form_cookie(&HeaderMap::new(), "x");
        assert_eq!(plain, "fleet-form=x; Path=/; HttpOnly; SameSite=Strict; Max-Age=3600");
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-proto", HeaderValue::from_static("https"));
        assert!(new_form_cookie(&headers, "x").ends_with("; Secure"));
        assert!(is_same("abc", "abc") && !is_same("abc", "abd") && !is_same("abc", "ab"));
    }
}
