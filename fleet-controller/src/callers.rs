//! Authorization of HTTP callers: the hub decides for each request, with the caller's token.
//!
//! A TokenReview authenticates the caller, a SubjectAccessReview checks whether he may `get` the path.
//! Deliberately absent: a cache of answers, so a revoked right is gone at once.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use tokio::sync::Semaphore;

/// Most concurrent reviews; other callers wait, within the same timeout.
const AT_ONCE: usize = 8;
/// Timeout for both answers of the hub.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: StatusCode,
    pub message: String,
}

fn refusal(status: StatusCode, message: impl Into<String>) -> Refusal {
    Refusal { status, message: message.into() }
}

/// Authorizes callers through the hub.
#[derive(Clone)]
pub struct Callers {
    hub: Client,
    turns: Arc<Semaphore>,
}

impl Callers {
    pub fn new(hub: Client) -> Self {
        Self { hub, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Whether the caller with these headers may read the path.
    ///
    /// # Errors
    /// 401 without a token that the hub accepts, 403 without the right, 503 if the hub does not answer.
    pub async fn may_get(&self, headers: &HeaderMap, path: &str) -> Result<(), Refusal> {
        let token = token(headers)?;
        let unsaid = |why: String| {
            tracing::warn!("callers of {path} cannot be authorized: {why}");
            refusal(StatusCode::SERVICE_UNAVAILABLE, "the hub does not authorize callers at the moment")
        };
        let asked = async {
            let _turn = self.turns.acquire().await.map_err(|error| unsaid(error.to_string()))?;
            let user = self.user(token).await.map_err(|error| unsaid(error.to_string()))?;
            let Some(user) = user else {
                return Err(refusal(StatusCode::UNAUTHORIZED, "the hub does not accept this token"));
            };
            let name = user.username.clone().unwrap_or_default();
            match self.allows(user, path).await.map_err(|error| unsaid(error.to_string()))? {
                true => Ok(()),
                false => Err(refusal(
                    StatusCode::FORBIDDEN,
                    format!(
                        "user {name:?} may not get {path}; allowed: users with ClusterRole fleet-view-reader"
                    ),
                )),
            }
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(unsaid(format!("no answer within {PATIENCE:?}"))),
        }
    }

    async fn user(&self, token: &str) -> kube::Result<Option<UserInfo>> {
        let spec = TokenReviewSpec { token: token.to_string(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.hub.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    async fn allows(&self, user: UserInfo, path: &str) -> kube::Result<bool> {
        let question = NonResourceAttributes { path: Some(path.to_string()), verb: Some("get".to_string()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra.map(|extra| extra.into_iter().collect::<BTreeMap<_, _>>()),
            non_resource_attributes: Some(question),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.hub.clone());
        let status = reviews.create(&PostParams::default(), &review).await?.status;
        Ok(status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

/// The token of `Authorization: Bearer TOKEN`.
fn token(headers: &HeaderMap) -> Result<&str, Refusal> {
    let missing = || {
        refusal(
            StatusCode::UNAUTHORIZED,
            "Authorization: found no token; allowed: Bearer TOKEN of a user of the hub",
        )
    };
    let text =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).ok_or_else(missing)?;
    let (scheme, token) = text.split_once(' ').ok_or_else(missing)?;
    let token = token.trim();
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty();
    is_bearer.then_some(token).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_bearers() {
        let read = |value: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(header::AUTHORIZATION, value.parse().expect("a header"));
            }
            token(&headers).map(str::to_string).map_err(|refusal| refusal.status)
        };
        assert_eq!(read(Some("Bearer abc")), Ok("abc".to_string()));
        assert_eq!(read(Some("bearer  abc ")), Ok("abc".to_string()));
        for wrong in [None, Some("Bearer"), Some("Bearer "), Some("Basic abc"), Some("abc")] {
            assert_eq!(read(wrong), Err(StatusCode::UNAUTHORIZED), "{wrong:?}");
        }
    }
}
