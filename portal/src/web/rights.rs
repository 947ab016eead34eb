//! What a user may see, as the hub's own RBAC says it: by access reviews with the user's token.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use fleet_api::names::QUOTA_NAMESPACE;
use fleet_views::{Namespaces, Sight};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    session::{Rights, Seen, Session},
    state::Web,
};
use fleet_openpai::server::{AskError, Server};

/// How long an answer is believed: a right that was taken away is gone from pages then.
const BELIEVED: Duration = Duration::from_secs(30);
/// After an answer that was none.
const TRY_AGAIN: Duration = Duration::from_secs(3);
/// Reviews under way at once, for one user.
const AT_ONCE: usize = 16;
/// Namespaces that are asked about one by one.
const MOST_NAMESPACES: usize = 2_000;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// What this user may see now.
///
/// # Errors
/// The hub does not know the token, or does not answer and has never been asked.
pub async fn sight(web: &Web, session: &Session) -> Result<Arc<Sight>, AskError> {
    sight_with(web, session, BTreeSet::new()).await
}

/// The same, asked also about namespaces that have neither jobs nor a queue now.
///
/// # Errors
/// As [`sight`].
pub async fn sight_with(
    web: &Web,
    session: &Session,
    more: BTreeSet<String>,
) -> Result<Arc<Sight>, AskError> {
    let rights = &session.rights;
    if let Some(sight) = believed(web, rights, &more) {
        return Ok(sight);
    }
    let _asking = rights.asking.lock().await;
    // Somebody else may have asked meanwhile.
    if let Some(sight) = believed(web, rights, &more) {
        return Ok(sight);
    }
    let mut asked: BTreeSet<String> = web.board.known().namespaces().take(MOST_NAMESPACES).cloned().collect();
    let left = MOST_NAMESPACES.saturating_sub(asked.len());
    asked.extend(more.into_iter().take(left));
    let keep = |sight: &Arc<Sight>, life| {
        let until = Instant::now() + life;
        let seen = Seen { until, sight: sight.clone(), asked: Arc::new(asked.clone()), whole_at: None };
        *rights.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    };
    match ask(&web.server_of(&session.credential), &asked).await {
        Ok(sight) => {
            let sight = Arc::new(sight);
            keep(&sight, BELIEVED);
            Ok(sight)
        }
        Err(error @ AskError::Refused { code: 401, .. }) => Err(error),
        // While the hub is away, what was known last is shown to whom it was shown before.
        Err(error) => {
            let seen = rights.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let sight = seen.map(|seen| seen.sight).ok_or(error)?;
            keep(&sight, TRY_AGAIN);
            Ok(sight)
        }
    }
}

/// What is known and need not be asked again. Every viewer wants it whenever its page changes: no name is copied.
fn believed(web: &Web, rights: &Rights, more: &BTreeSet<String>) -> Option<Arc<Sight>> {
    let mut seen = rights.seen.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = seen.as_mut().filter(|seen| Instant::now() < seen.until)?;
    let known = web.board.known();
    let was_whole = more.is_empty() && seen.whole_at == Some(known.version());
    let mut wanted = known.namespaces().chain(more).take(MOST_NAMESPACES);
    let is_whole =
        seen.sight.jobs == Namespaces::All || was_whole || wanted.all(|name| seen.asked.contains(name));
    if is_whole && more.is_empty() {
        seen.whole_at = Some(known.version());
    }
    is_whole.then(|| seen.sight.clone())
}

async fn ask(server: &Server, namespaces: &BTreeSet<String>) -> Result<Sight, AskError> {
    let (queues, clusters, virtual_clusters, cells, everywhere) = tokio::try_join!(
        may(server, list("scheduling.sigs.k8s.io", "elasticquotatrees"), QUOTA_NAMESPACE),
        may(server, list("fleet.dev", "clusters"), ""),
        may(server, list("fleet.dev", "virtualclusters"), ""),
        may(server, list("fleet.dev", "cellconfigurations"), ""),
        may_list_jobs(server, ""),
    )?;
    if everywhere {
        return Ok(Sight { jobs: Namespaces::All, queues, clusters, virtual_clusters, cells });
    }
    let asked = stream::iter(namespaces.iter().cloned()).map(|namespace| async move {
        let may = may_list_jobs(server, &namespace).await?;
        Ok::<_, AskError>(may.then_some(namespace))
    });
    let answers: Vec<Result<Option<String>, AskError>> = asked.buffer_unordered(AT_ONCE).collect().await;
    let seen: Result<BTreeSet<String>, AskError> =
        answers.into_iter().filter_map(Result::transpose).collect();
    Ok(Sight { jobs: Namespaces::Only(seen?), queues, clusters, virtual_clusters, cells })
}

/// What somebody wants to do with objects of one kind.
#[derive(Clone, Copy)]
pub struct Deed {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
}

const fn list(group: &'static str, resource: &'static str) -> Deed {
    Deed { verb: "list", group, resource, subresource: "" }
}

/// Whether the hub lets a user list jobs of a namespace, which may have none yet.
///
/// # Errors
/// The hub does not answer, or does not know the user any more.
pub async fn may_list_jobs(server: &Server, namespace: &str) -> Result<bool, AskError> {
    may(server, list("fleet.dev", "resourcebindings"), namespace).await
}

/// Whether the hub lets a user do it; in all namespaces, where none is named.
///
/// # Errors
/// The hub does not answer, or does not know the user any more.
pub async fn may(server: &Server, deed: Deed, namespace: &str) -> Result<bool, AskError> {
    let Deed { verb, group, resource, subresource } = deed;
    let attributes = json!({"verb": verb, "group": group, "resource": resource, "subresource": subresource,
        "namespace": namespace});
    let review: Value = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    let answer = server.create(REVIEWS, &review).await?;
    Ok(answer["status"]["allowed"] == true)
}
