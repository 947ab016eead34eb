//! Tenants who use the same nodes: they create pods of random sizes for the cluster's own scheduler, which
//! run for a random time and are deleted.

use std::time::Duration;

use fleet_api::names::SIM_RUNTIME_ANNOTATION;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Label on their pods.
const TENANT_LABEL: &str = "tenant";

/// How much load they create.
#[derive(Clone, Debug)]
pub struct Tenants {
    pub namespace: String,
    /// Pods at one time.
    pub pods: usize,
    /// Most GPUs of one.
    pub gpus: u64,
    /// Longest run time.
    pub run_time: Duration,
    /// Wait between two rounds.
    pub pause: Duration,
    pub seed: u64,
}

/// Fills and empties nodes until `shutdown` is cancelled.
pub fn run(
    client: Client,
    tenants: Tenants,
    shutdown: CancellationToken,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(async move {
        shutdown.run_until_cancelled(work(client, tenants)).await;
        Ok(())
    })
}

async fn work(client: Client, tenants: Tenants) {
    let pods: Api<Pod> = Api::namespaced(client, &tenants.namespace);
    let labels = ListParams::default().labels(&format!("{TENANT_LABEL}=true"));
    let mut random = tenants.seed | 1;
    // A linear congruential generator is random enough and reproducible.
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % below.max(1)
    };
    let mut number = 0_u64;
    loop {
        tokio::time::sleep(tenants.pause).await;
        let Ok(stand) = pods.list(&labels).await else { continue };
        let is_over = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let (over, live): (Vec<Pod>, Vec<Pod>) = stand.items.into_iter().partition(is_over);
        for pod in over {
            // Deleted already.
            let _ = pods.delete(&pod.name_any(), &DeleteParams::default()).await;
        }
        for _ in live.len()..tenants.pods {
            number += 1;
            let gpus = (1 + next(tenants.gpus)).to_string();
            let millis = 1 + next(u64::try_from(tenants.run_time.as_millis()).unwrap_or(u64::MAX));
            let pod = json!({
                "metadata": {"name": format!("tenant-{}-{number}", tenants.seed), "labels": {TENANT_LABEL: "true"},
                    "annotations": {SIM_RUNTIME_ANNOTATION: format!("{millis}ms")}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example.com/c:1",
                    "resources": {"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}}}]},
            });
            let Ok(pod) = serde_json::from_value(pod) else { continue };
            if let Err(error) = pods.create(&PostParams::default(), &pod).await {
                tracing::debug!(%error, "a tenant's pod is not made");
            }
        }
    }
}
