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
    session::{Seen, Session},
    state::Web,
};
use crate::server::{AskError, Server};

/// How long an answer is believed: a right that was taken away is gone from pages then.
const BELIEVED: Duration = Duration::from_secs(30);
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
    let known: BTreeSet<String> = web.board.known().counts().keys().take(MOST_NAMESPACES).cloned().collect();
    let seen = session.sight.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(seen) = &seen {
        let is_complete = seen.sight.jobs == Namespaces::All || known.is_subset(&seen.asked);
        if seen.at.elapsed() < BELIEVED && is_complete {
            return Ok(seen.sight.clone());
        }
    }
    let server = web.server_of(&session.credential);
    match ask(&server, &known).await {
        Ok(sight) => {
            let sight = Arc::new(sight);
            let fresh = Seen { at: Instant::now(), sight: sight.clone(), asked: Arc::new(known) };
            *session.sight.lock().unwrap_or_else(PoisonError::into_inner) = Some(fresh);
            Ok(sight)
        }
        // While the hub is away, what was known last is shown to whom it was shown before.
        Err(error @ AskError::Refused { code: 401, .. }) => Err(error),
        Err(error) => seen.map(|seen| seen.sight).ok_or(error),
    }
}

async fn ask(server: &Server, namespaces: &BTreeSet<String>) -> Result<Sight, AskError> {
    let (queues, clusters, everywhere) = tokio::try_join!(
        may(server, "scheduling.sigs.k8s.io", "elasticquotatrees", QUOTA_NAMESPACE),
        may(server, "fleet.dev", "clusters", ""),
        may(server, "fleet.dev", "resourcebindings", ""),
    )?;
    if everywhere {
        return Ok(Sight { jobs: Namespaces::All, queues, clusters });
    }
    let asked = stream::iter(namespaces.iter().cloned()).map(|namespace| async move {
        let may = may(server, "fleet.dev", "resourcebindings", &namespace).await?;
        Ok::<_, AskError>(may.then_some(namespace))
    });
    let answers: Vec<Result<Option<String>, AskError>> = asked.buffer_unordered(AT_ONCE).collect().await;
    let seen: Result<BTreeSet<String>, AskError> =
        answers.into_iter().filter_map(Result::transpose).collect();
    Ok(Sight { jobs: Namespaces::Only(seen?), queues, clusters })
}

async fn may(server: &Server, group: &str, resource: &str, namespace: &str) -> Result<bool, AskError> {
    let attributes = json!({"verb": "list", "group": group, "resource": resource, "namespace": namespace});
    let review: Value = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    let answer = server.create(REVIEWS, &review).await?;
    Ok(answer["status"]["allowed"] == true)
}
