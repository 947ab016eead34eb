//! The admission webhook of a member. It refuses objects that are invalid because of other objects or of
//! their previous version: a Job or PodGroup whose queue does not exist, is not open or has queues below it;
//! a queue with an invalid place in the tree, or that others depend on; a change of a Job that no pod would
//! follow. It also refuses mistakes within one object that CRD rules cannot express: cycles of any length,
//! patterns that do not compile, annotations.
//!
//! The schemas refuse what they can express, with or without the webhook. The webhook fails open: without the
//! agent such objects are created, wait, and report why (`fleet_scheduler::queue`). The same holds for
//! objects that Fleet or a controller creates, because nobody reads the answers to their requests.
//! Deliberately absent: mutation; defaults are in the schemas.

mod certificate;
mod queues;
mod review;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fleet_informer::{Selection, Source};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::options::{Options, Reach, Webhook};
use fleet_agent_ground::{Backoff, CallError, Link, Object, call, show};
use fleet_api::{names::AGENT_MANAGER, ordered};

use queues::Queues;
use server::Server;

/// Name of the ValidatingWebhookConfiguration.
const CONFIGURATION: &str = "fleet-member-agent";
/// Name of the only webhook in it, as refusals show it.
const WEBHOOK: &str = "volcano.fleet.dev";
const PATH: &str = "/validate";
/// Longer than the webhook takes to answer ([`review::READ_TIMEOUT`]).
const TIMEOUT_S: u64 = 5;

/// The registration of this process's server, once it listens.
#[derive(Clone)]
pub(crate) struct Registration(Arc<ordered::Sender<Option<Value>>>);

impl Default for Registration {
    fn default() -> Self {
        Self(Arc::new(ordered::Sender::new(None)))
    }
}

/// Answers reviews until the agent stops. Agents that stand by answer too: behind a Service nobody knows which one
/// leads.
///
/// # Errors
/// It cannot listen on the address.
pub(crate) async fn answer(
    member: Client,
    options: Options,
    registration: Registration,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Some(webhook) = options.webhook else { return Ok(()) };
    while !shutdown.is_cancelled() {
        let stop = shutdown.child_token();
        let link = Link::new(member.clone(), Source::unasked(&options.cluster), &options.cluster);
        let serving = serve(&link, &webhook, &registration, stop.clone());
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            biased;
            served = &mut serving => served?,
            // What was seen of the member may be wrong: it is listed again.
            () = link.source.restored() => {
                stop.cancel();
                serving.await?;
            }
        }
    }
    Ok(())
}

async fn serve(
    link: &Link,
    webhook: &Webhook,
    registration: &Registration,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let binding = Server::bind(webhook, &link.client);
    let Some(server) = stop.run_until_cancelled(binding).await else { return Ok(()) };
    let server = server?;
    let queues = Arc::new(Queues::new(link.client.clone()));
    let seen = queues.clone();
    let feed = Api::<Object>::all_with(link.client.clone(), &fleet_agent_ground::volcano::queues());
    let feed = link.feed(feed, Selection::default(), "webhook/queues");
    let following = show(feed, stop.clone(), move |change| seen.change(change));
    registration.0.send_replace(Some(configuration(webhook, &server)));
    let (answered, ()) = tokio::join!(server.run(queues, stop), following);
    answered
}

/// Keeps the webhook registered; retries until that succeeds.
pub(crate) async fn register(registration: Registration, member: Client, cluster: String) {
    let mut registration = registration.0.subscribe();
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
    let api: Api<DynamicObject> = Api::all_with(member, &ApiResource::from_gvk(&kind));
    let params = PatchParams::apply(AGENT_MANAGER).force();
    let mut backoff = Backoff::new(&format!("{cluster}/webhook"));
    loop {
        let wanted = registration.borrow_and_update().clone();
        if let Some(wanted) = wanted {
            let said: Result<_, CallError> =
                call(api.patch(CONFIGURATION, &params, &Patch::Apply(&wanted))).await;
            if let Err(error) = said {
                tracing::warn!(%cluster, %error, "cannot register the admission webhook; retrying");
                backoff.wait().await;
                continue;
            }
            backoff.reset();
        }
        // The process owns the sender, and ends with it.
        if registration.changed().await.is_err() {
            return;
        }
    }
}

fn configuration(webhook: &Webhook, server: &Server) -> Value {
    use base64::Engine;
    let bundle = base64::engine::general_purpose::STANDARD.encode(server.certificate_pem());
    let client = match &webhook.reach {
        Reach::Listener => json!({"url": format!("https://{}{PATH}", server.address()), "caBundle": bundle}),
        Reach::Service { namespace, name } => {
            json!({"service": {"namespace": namespace, "name": name, "path": PATH}, "caBundle": bundle})
        }
    };
    let rule = |group: &str, version: &str, resource: &str, operations: &[&str]| {
        json!({"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations,
            "scope": "*"})
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION},
        "webhooks": [{
            "name": WEBHOOK,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": TIMEOUT_S,
            "clientConfig": client,
            "rules": [
                rule("batch.volcano.sh", "v1alpha1", "jobs", &["CREATE", "UPDATE"]),
                rule("scheduling.volcano.sh", "v1beta1", "podgroups", &["CREATE"]),
                rule("flow.volcano.sh", "v1alpha1", "jobflows", &["CREATE", "UPDATE"]),
                rule("topology.volcano.sh", "v1alpha1", "hypernodes", &["CREATE", "UPDATE"]),
                rule("scheduling.volcano.sh", "v1beta1", "queues", &["CREATE", "UPDATE", "DELETE"]),
            ],
        }],
    })
}
