//! Who is signed in: a cookie names a session, the session holds the token that the hub is asked with.
//!
//! Sessions live in memory and end with the process. A token never leaves it but for the hub.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fleet_pages::shown::Visitor;
use fleet_views::Sight;
use http::{HeaderMap, HeaderValue, header};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A day's work.
const LIFE: Duration = Duration::from_secs(8 * 3600);
/// Sessions kept; then nobody else can sign in until one ends. Nobody's session ends for another's.
const MOST: usize = 10_000;
/// Sessions of one owner; then its own oldest makes room.
const MOST_OF_ONE: usize = 200;
/// Pages that are kept up to date for one owner: a tenth of what the portal keeps for all.
const MOST_PAGES_OF_ONE: usize = 400;
pub const COOKIE: &str = "fleet-session";
/// Ties the form of the sign-in page, where there is no session yet, to the browser that asked for it.
const FORM_COOKIE: &str = "fleet-form";

pub struct Session {
    pub id: String,
    pub visitor: Visitor,
    pub credential: HeaderValue,
    /// Whose share of the portal it takes.
    owner: String,
    ends: Instant,
    over: CancellationToken,
    pub rights: Arc<Rights>,
    /// Pages that are kept up to date, of all sessions of the owner.
    pages: Arc<AtomicUsize>,
}

/// As many are signed in as the portal keeps sessions.
#[derive(Debug)]
pub struct Full;

/// A page that is kept up to date for an owner, until it is dropped.
pub struct Followed(Arc<AtomicUsize>);

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Who shares limits: a user, or the service accounts of a namespace, since whoever makes one can make any number. Those of
/// users with passwords are made by administrators, one for each.
fn owner(user: &str) -> String {
    if fleet_openpai::users::names::of_identity(user).is_some() {
        return user.to_owned();
    }
    let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    account.map_or_else(|| user.to_owned(), |(namespace, _)| format!("system:serviceaccounts:{namespace}"))
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
    /// Version of what the board knows at which no namespace was left to ask about: many viewers are woken at once.
    pub whole_at: Option<u64>,
}

impl Session {
    /// One that ends after `life`.
    pub fn new(user: String, credential: HeaderValue, life: Duration) -> Self {
        Self {
            id: secret(),
            owner: owner(&user),
            visitor: Visitor { user, form_key: secret() },
            credential,
            ends: Instant::now() + life,
            over: CancellationToken::new(),
            rights: Arc::default(),
            pages: Arc::default(),
        }
    }

    /// The user's name as labels of jobs have it.
    pub fn label(&self) -> String {
        fleet_pai::names::user(&self.visitor.user)
    }

    /// Returns when the session has run out or was ended.
    pub async fn ended(&self) {
        tokio::select! {
            () = self.over.cancelled() => {}
            () = tokio::time::sleep_until(self.ends) => {}
        }
    }

    /// One more page to keep up to date; `None` if the owner has as many as it may.
    pub fn follow(&self) -> Option<Followed> {
        let followed = Followed(self.pages.clone());
        (self.pages.fetch_add(1, Ordering::Relaxed) < MOST_PAGES_OF_ONE).then_some(followed)
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.ends
    }

    /// Whether it has neither run out nor been ended.
    pub fn goes_on(&self) -> bool {
        !self.over.is_cancelled() && !self.is_over()
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

    /// Begins a session, in place of the oldest of the same owner if it has many.
    ///
    /// # Errors
    /// There is no place for one more.
    pub fn begin(&self, user: String, credential: HeaderValue) -> Result<Arc<Session>, Full> {
        let mut session = Session::new(user, credential, LIFE);
        let mut all = self.all();
        all.retain(|_, session| !session.is_over());
        if let Some(same) = all.values().find(|other| other.credential == session.credential) {
            session.rights = same.rights.clone();
        }
        let own: Vec<&Arc<Session>> = all.values().filter(|other| other.owner == session.owner).collect();
        if let Some(other) = own.first() {
            session.pages = other.pages.clone();
        }
        let oldest = own.iter().min_by_key(|session| session.ends).map(|oldest| (*oldest).clone());
        if let Some(oldest) = oldest.filter(|_| own.len() >= MOST_OF_ONE) {
            oldest.over.cancel();
            all.remove(&oldest.id);
        }
        if all.len() >= MOST {
            return Err(Full);
        }
        let session = Arc::new(session);
        all.insert(session.id.clone(), session.clone());
        Ok(session)
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
        session.over.cancel();
        self.all().remove(&session.id);
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
        let credential = || HeaderValue::from_static("Bearer t");
        let begin = || sessions.begin("alice".to_owned(), credential()).expect("a place");
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
        assert!(sessions.of(&headers(&one)).is_none() && !one.goes_on());
        let two = begin();
        assert_ne!((&one.id, &one.visitor.form_key), (&two.id, &two.visitor.form_key));
        tokio::time::advance(LIFE).await;
        assert!(sessions.of(&headers(&two)).is_none() && !two.goes_on());
    }

    #[tokio::test]
    async fn sessions_share_the_rights_of_their_token() {
        let sessions = Sessions::default();
        let begin = |token: &'static str| {
            sessions.begin("x".to_owned(), HeaderValue::from_static(token)).expect("a place")
        };
        let (one, other, same) = (begin("Bearer t"), begin("Bearer u"), begin("Bearer t"));
        assert!(Arc::ptr_eq(&one.rights, &same.rights) && !Arc::ptr_eq(&one.rights, &other.rights));
        assert_ne!(one.visitor.form_key, same.visitor.form_key);
    }

    /// Whoever signs in again and again ends his own sessions; and who fills the portal keeps others out, not signed out.
    #[tokio::test(start_paused = true)]
    async fn nobody_is_signed_out_by_another() {
        let sessions = Sessions::default();
        let begin = |user: &str| sessions.begin(user.to_owned(), HeaderValue::from_static("x"));
        let victim = begin("victim").expect("a place");
        tokio::time::advance(Duration::from_secs(1)).await;
        let first = begin("greedy").expect("a place");
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..MOST {
            begin("greedy").expect("in place of an own one");
        }
        assert_eq!(sessions.all().len(), MOST_OF_ONE + 1);
        assert!(victim.goes_on() && !first.goes_on());
        // Accounts of one namespace are one owner.
        for number in 0..MOST_OF_ONE * 2 {
            begin(&format!("system:serviceaccount:team-a:sa-{number}")).expect("in place of an own one");
        }
        assert_eq!(sessions.all().len(), 2 * MOST_OF_ONE + 1);
        let of_users =
            ["alice", "bob"].map(|name| owner(&format!("system:serviceaccount:fleet-pai-users:{name}")));
        assert_ne!(of_users[0], of_users[1]);
        let mut number = 0;
        while begin(&format!("user-{number}")).is_ok() {
            number += 1;
        }
        assert_eq!(sessions.all().len(), MOST);
        assert!(victim.goes_on() && begin("late").is_err());
        assert!(begin("greedy").is_ok(), "in place of an own one");
        sessions.end(&victim);
        assert!(begin("late").is_ok());
    }

    #[tokio::test]
    async fn an_owner_follows_as_many_pages_as_he_may() {
        let sessions = Sessions::default();
        let begin =
            |user: &str| sessions.begin(user.to_owned(), HeaderValue::from_static("x")).expect("a place");
        let (one, other) = (begin("greedy"), begin("greedy"));
        let mut followed: Vec<_> = (0..MOST_PAGES_OF_ONE).filter_map(|_| one.follow()).collect();
        assert_eq!(followed.len(), MOST_PAGES_OF_ONE);
        assert!(one.follow().is_none() && other.follow().is_none() && begin("alice").follow().is_some());
        followed.pop();
        assert!(other.follow().is_some());
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
