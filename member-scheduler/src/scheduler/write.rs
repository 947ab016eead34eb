//! The scheduler's writes: bindings, evictions, conditions and events.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, Request},
};
use serde_json::{Value, json};

use super::{
    binding::Binding,
    extender::{self, ExtenderAnswer},
    fresh::FreshCheck,
};
use crate::{
    context::Context,
    notices::{Notice, Notices},
};
use fleet_agent_ground::{Backoff, CallError, call, lean::LeanPod};
use fleet_member_state::{PodKey, devices};

/// Most concurrent bindings of one gang.
const BINDINGS_AT_ONCE: usize = 16;

/// Back-off before a pod whose binding was refused is placed again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Result of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The pod is bound.
    Yes,
    /// It is not bound.
    No,
    /// The pod is gone.
    Gone,
    /// The extender refuses the node; its reason.
    Vetoed(String),
    /// The extender did not answer; the error.
    Unsaid(String),
}

/// Binds all pods of a gang, if the extender allows all of them.
pub(crate) async fn bind(
    context: Arc<Context>,
    notices: Notices,
    bindings: Vec<Binding>,
    look: Option<FreshCheck>,
) -> Vec<(Binding, Bound)> {
    if let Some(look) = look
        && let Some(why) = look.refusal(&context).await
    {
        for binding in &bindings {
            let Binding { pod, uid, scheduler_name, .. } = binding;
            notices.send(Notice::failed_scheduling(pod, uid, scheduler_name, &why));
        }
        // Until the watch has reported it, too.
        tokio::time::sleep(REFUSED_PAUSE).await;
        return bindings.into_iter().map(|binding| (binding, Bound::No)).collect();
    }
    match extender::verdict(&context, &bindings).await {
        ExtenderAnswer::Fine => {}
        ExtenderAnswer::Refused(refused) => {
            let vetoed = |binding: Binding| {
                let bound = refused.get(&binding.pod).map_or(Bound::No, |why| Bound::Vetoed(why.clone()));
                (binding, bound)
            };
            return bindings.into_iter().map(vetoed).collect();
        }
        ExtenderAnswer::Silent(why) => {
            return bindings.into_iter().map(|binding| (binding, Bound::Unsaid(why.clone()))).collect();
        }
    }
    stream::iter(bindings)
        .map(|binding| bind_one(&context, &notices, binding))
        .buffer_unordered(BINDINGS_AT_ONCE)
        .collect()
        .await
}

async fn bind_one(context: &Context, notices: &Notices, binding: Binding) -> (Binding, Bound) {
    let mut backoff = Backoff::new(&binding.uid);
    loop {
        let under_way = context.urgent.begin();
        let posted = post_binding(context, &binding).await;
        drop(under_way);
        let Err(error) = posted else {
            notices.send(Notice::scheduled(&binding));
            return (binding, Bound::Yes);
        };
        tracing::debug!(pod = %binding.pod.name, node = %binding.node, %error, "binding failed");
        // The request may have taken effect; only the pod itself shows that.
        match read_node(context, &binding).await {
            Ok(Some(_)) => return (binding, Bound::Yes),
            Ok(None) if error.code().is_some() => {
                tokio::time::sleep(REFUSED_PAUSE).await;
                return (binding, Bound::No);
            }
            Err(missing) if missing.is_not_found() => return (binding, Bound::Gone),
            _ => backoff.wait().await,
        }
    }
}

async fn post_binding(context: &Context, binding: &Binding) -> Result<(), CallError> {
    let mut body = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": binding.pod.name, "namespace": binding.pod.namespace, "uid": binding.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
    });
    // The API server writes them to the pod together with its node.
    if let Some(devices) = &binding.devices {
        let now = context.clock.now().as_second();
        body["metadata"]["annotations"] = json!(devices::annotations(devices, &binding.node, now));
    }
    for (name, value) in binding.marks.iter().flat_map(|marks| marks.iter()) {
        body["metadata"]["annotations"][name] = json!(value);
    }
    let request = Request::new(Pod::url_path(&(), Some(&binding.pod.namespace)))
        .create_subresource(
            "binding",
            &binding.pod.name,
            &PostParams::default(),
            body.to_string().into_bytes(),
        )
        .map_err(kube::Error::BuildRequest)?;
    call(context.member.client.request_text(request)).await.map(drop)
}

/// The node of the pod that was to be bound.
async fn read_node(context: &Context, binding: &Binding) -> Result<Option<String>, CallError> {
    let pods: Api<LeanPod> = Api::namespaced(context.member.client.clone(), &binding.pod.namespace);
    let pod = call(pods.get(&binding.pod.name)).await?;
    if pod.metadata.uid.as_ref() != Some(&binding.uid) {
        let status = kube::core::Status::failure("another pod has the name", "NotFound").with_code(404);
        return Err(CallError::Api(kube::Error::Api(status.boxed())));
    }
    Ok(pod.spec.node_name.filter(|node| !node.is_empty()))
}

/// Deletes evicted pods. Returns those that could not be deleted.
pub(crate) async fn evict(context: Arc<Context>, pods: Vec<(PodKey, String)>) -> Vec<PodKey> {
    let mut failed = Vec::new();
    for (pod, uid) in pods {
        let api: Api<LeanPod> = Api::namespaced(context.member.client.clone(), &pod.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid), resource_version: None }),
            ..DeleteParams::default()
        };
        if let Err(error) = call(api.delete(&pod.name, &params)).await
            && !error.is_not_found()
        {
            tracing::warn!(pod = %pod.name, namespace = %pod.namespace, %error, "cannot evict the pod");
            failed.push(pod);
        }
    }
    failed
}

/// A pod whose condition is to be updated.
#[derive(Clone, Debug)]
pub(crate) struct WaitingPod {
    pub pod: PodKey,
    pub uid: String,
    pub scheduler_name: String,
}

/// Reports why pods wait. Returns those that could not be updated.
pub(crate) async fn tell(
    context: Arc<Context>,
    notices: Notices,
    pods: Vec<WaitingPod>,
    message: String,
) -> Vec<PodKey> {
    let mut untold = Vec::new();
    for WaitingPod { pod, uid, scheduler_name } in pods {
        let patch = Patch::Strategic(unschedulable(&message, &context.clock.now()));
        let api: Api<Pod> = Api::namespaced(context.member.client.clone(), &pod.namespace);
        match call(api.patch_status(&pod.name, &PatchParams::default(), &patch)).await {
            Ok(_) => notices.send(Notice::failed_scheduling(&pod, &uid, &scheduler_name, &message)),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::debug!(pod = %pod.name, %error, "cannot write the pod's condition");
                untold.push(pod);
            }
        }
    }
    untold
}

fn unschedulable(message: &str, now: &jiff::Timestamp) -> Value {
    json!({"status": {"conditions": [{
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": message,
        "lastTransitionTime": format!("{now:.0}"),
    }]}})
}
