//! A stream of events ends when who follows it no longer may: a right taken, an account deleted or a token that has
//! ended stop what was opened before, too.
//!
//! Absent on purpose: certificates, which are judged at the handshake.

use axum::body::Body;
use fleet_apiserver_admission::access::rbac::Question;
use fleet_apiserver_admission::access::user::{Certified, Door};
use fleet_apiserver_admission::call::Core;
use futures::StreamExt;
use http::{HeaderMap, Response};
use std::sync::Arc;
use std::time::Duration;

/// How often a follower is asked again; the longest that one whose rights are gone goes on.
const EVERY: Duration = Duration::from_secs(60);

/// Who follows, as the request said, and what was asked.
pub struct Follower {
    pub core: Arc<Core>,
    pub door: Door,
    pub headers: HeaderMap,
    pub certificate: Option<Certified>,
    pub question: Question,
}

impl Follower {
    fn still_may(&self) -> bool {
        let Self { core, door, headers, certificate, question } = self;
        let caller = core.auth.identify(core, *door, headers, certificate.as_ref());
        let user = caller.and_then(|caller| core.auth.impersonate(core, caller, headers));
        user.is_ok_and(|user| core.auth.trusts(&user) || core.auth.allow(core, &user, question).is_ok())
    }

    /// The response, which ends as a watch does whose time is over.
    pub fn bound(self, response: Response<Body>) -> Response<Body> {
        let ended = async move {
            tokio::time::sleep(EVERY).await;
            while self.still_may() {
                tokio::time::sleep(EVERY).await;
            }
        };
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(ended))))
    }
}
