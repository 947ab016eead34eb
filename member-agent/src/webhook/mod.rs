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

mod queues;
mod review;
mod server;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fleet_informer::Selection;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::{Value, json};

use crate::{
    context::Context,
    options::{Reach, Webhook},
};
use fleet_agent_ground::{Backoff, CallError, Object, call, show};
use fleet_api::names::AGENT_MANAGER;

use queues::Queues;
use server::Server;

/// Name of the ValidatingWebhookConfiguration.
const CONFIGURATION: &str = "fleet-member-agent";
/// Name of the only webhook in it, as refusals show it.
const WEBHOOK: &str = "volcano.fleet.dev";
const PATH: &str = "/validate";
/// Longer than the webhook takes to answer ([`review::READ_TIMEOUT`]).
const TIMEOUT_S: u64 = 5;

/// Answers reviews until the agent stops.
///
/// # Errors
/// It cannot listen on the address.
pub(crate) async fn run(context: Arc<Context>) -> anyhow::Result<()> {
    let Some(webhook) = context.options.webhook.clone() else { return Ok(()) };
    let server = Server::bind(&webhook).await?;
    let queues = Arc::new(Queues::new(context.member.clone()));
    let seen = queues.clone();
    let feed = Api::<Object>::all_with(context.member.clone(), &fleet_agent_ground::volcano::queues());
    let feed = context.member_link().feed(feed, Selection::default(), "webhook/queues");
    let following = show(feed, context.shutdown.clone(), move |change| seen.change(change));
    let configuration = configuration(&webhook, &server);
    let registering = register(&context, &configuration);
    let (answered, (), ()) =
        tokio::join!(server.run(queues, context.shutdown.clone()), following, registering);
    answered
}

/// Registers the webhook; retries until that succeeds or the agent stops.
async fn register(context: &Context, configuration: &Value) {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration");
    let api: Api<DynamicObject> = Api::all_with(context.member.clone(), &ApiResource::from_gvk(&kind));
    let params = PatchParams::apply(AGENT_MANAGER).force();
    let mut backoff = Backoff::new(&format!("{}/webhook", context.options.cluster));
    loop {
        let said: Result<_, CallError> =
            call(api.patch(CONFIGURATION, &params, &Patch::Apply(configuration))).await;
        let Err(error) = said else { return };
        tracing::warn!(cluster = context.options.cluster, %error, "cannot register the admission webhook; retrying");
        if context.shutdown.run_until_cancelled(backoff.wait()).await.is_none() {
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
