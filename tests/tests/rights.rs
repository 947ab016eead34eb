//! What a member can do on the hub with its agent's real credential: its own work, and nothing else.

use fleet_api::{
    crds::{Side, definitions},
    names, yaml,
};
use fleet_apiserver::{Access, ApiServer, Config, ServeOptions, Server};
use fleet_tests::{
    ApiServers, Look, objects,
    objects::{CLUSTER, Kind, LEASE, POLICY, PYTORCH_JOB, RESERVATION, SECRET, WORK},
    servers::{Door, client_of, install_crypto},
    wait_for,
};
use k8s_openapi::api::authentication::v1::TokenRequest;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(30);
const ACCESS: &str = include_str!("../../charts/member-agent/hub-access.yaml");

/// A hub that asks who may do what.
struct Hub {
    server: ApiServer,
    served: Server,
    client: Client,
}

impl Hub {
    async fn start() -> anyhow::Result<Self> {
        install_crypto();
        let config = Config { crds: definitions(Side::Hub), access: Access::Rbac, ..Config::default() };
        let server = ApiServer::open(config).await?;
        let client = Client::new(server.router(), "default");
        let served = server.serve(ServeOptions::default()).await?;
        Ok(Self { server, served, client })
    }

    async fn stop(self) {
        self.served.shutdown().await;
        self.server.shutdown().await;
    }
}

/// A client with the token of that cluster's agent, over the network.
async fn agent_of(hub: &Hub, cluster: &str) -> anyhow::Result<Client> {
    for object in yaml::read_all::<Value>(&ACCESS.replace("CLUSTER", cluster))? {
        objects::apply(&hub.client, &object).await?;
    }
    let namespace = names::cluster_namespace(cluster);
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(hub.client.clone(), &namespace);
    let asked: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let granted = accounts.create_token_request("member-agent", &PostParams::default(), &asked).await?;
    let token = granted.status.and_then(|status| status.token).unwrap_or_default();
    let mut kubeconfig: Value = yaml::read(&hub.served.kubeconfig("hub"))?;
    // In the place of the administrator's credential, whatever it is.
    kubeconfig["users"][0]["user"] = json!({"token": token});
    client_of(&kubeconfig.to_string()).await
}

fn work(namespace: &str) -> Value {
    json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Work", "metadata": {"name": "w", "namespace": namespace},
        "spec": {"binding": {"namespace": "default", "name": "b", "uid": "u"}, "epoch": 1,
            "workload": {"manifests": []}}})
}

fn reservation(namespace: &str) -> Value {
    json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Reservation", "metadata": {"name": "r", "namespace": namespace},
        "spec": {"binding": {"namespace": "default", "name": "b", "uid": "u"}, "epoch": 1, "components": [],
            "ttlSeconds": 60}})
}

fn refused<T: std::fmt::Debug>(what: &str, answer: Result<T, kube::Error>) {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => {}
        other => panic!("{what}: found {other:?}, allowed is 403"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_writes_in_its_own_namespace_only() -> anyhow::Result<()> {
    let hub = Hub::start().await?;
    let east = agent_of(&hub, "east").await?;
    agent_of(&hub, "west").await?;
    for namespace in ["fleet-east", "fleet-west"] {
        objects::create(&hub.client, &work(namespace)).await?;
        objects::create(&hub.client, &reservation(namespace)).await?;
    }
    let (params, post) = (PatchParams::default(), PostParams::default());
    let status = Patch::Merge(json!({"status": {"observedEpoch": 1}}));
    let phase = Patch::Merge(json!({"status": {"phase": "Refused"}}));
    let api = |kind: Kind, namespace: &str| kind.api(&east, namespace);

    api(WORK, "fleet-east").patch_status("w", &params, &status).await?;
    api(RESERVATION, "fleet-east").patch_status("r", &params, &phase).await?;
    api(CLUSTER, "")
        .patch_status("east", &params, &Patch::Merge(json!({"status": {"reportSequence": 1}})))
        .await?;

    refused("a Work's status elsewhere", api(WORK, "fleet-west").patch_status("w", &params, &status).await);
    refused("a Work elsewhere", api(WORK, "fleet-west").patch("w", &params, &status).await);
    refused("Works elsewhere", api(WORK, "fleet-west").list(&ListParams::default()).await);
    refused(
        "a Reservation's status elsewhere",
        api(RESERVATION, "fleet-west").patch_status("r", &params, &phase).await,
    );
    let body = |value: Value| serde_json::from_value::<DynamicObject>(value).expect("an object");
    let mut other = work("fleet-east");
    other["metadata"]["name"] = "mine".into();
    refused("a Work of its own making", api(WORK, "fleet-east").create(&post, &body(other)).await);
    let mut other = reservation("fleet-east");
    other["metadata"]["name"] = "mine".into();
    refused(
        "a Reservation of its own making",
        api(RESERVATION, "fleet-east").create(&post, &body(other)).await,
    );
    refused(
        "another Cluster",
        api(CLUSTER, "")
            .patch_status("west", &params, &Patch::Merge(json!({"status": {"reportSequence": 1}})))
            .await,
    );
    refused("jobs", api(PYTORCH_JOB, "default").list(&ListParams::default()).await);
    refused("policies", api(POLICY, "default").list(&ListParams::default()).await);
    refused("Secrets elsewhere", api(SECRET, "fleet-west").list(&ListParams::default()).await);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "member-agent"}});
    refused("another cluster's lease", api(LEASE, "fleet-west").create(&post, &body(lease)).await);
    hub.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_rights_are_all_that_an_agent_needs() -> anyhow::Result<()> {
    let hub = Hub::start().await?;
    let member = ApiServers::Embedded.start("east", Side::Member, Door::InProcess).await?;
    let east = agent_of(&hub, "east").await?;
    let stop = CancellationToken::new();
    let agent =
        member_agent::run(east, member.client.clone(), member_agent::Options::new("east"), stop.clone());
    let agent = tokio::spawn(agent);
    let mut asked = reservation("fleet-east");
    asked["spec"]["components"] =
        json!([{"name": "worker", "replicas": 1, "request": {"nvidia.com/gpu": "1"}}]);
    objects::create(&hub.client, &asked).await?;
    let mut sent = work("fleet-east");
    sent["metadata"]["finalizers"] = json!([names::WORK_FINALIZER]);
    sent["spec"]["workload"]["manifests"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default"}, "data": {"k": "v"}}]);
    objects::create(&hub.client, &sent).await?;
    wait_for("an answer, a report and an applied Work", WITHIN, async || {
        let answer = objects::get(&hub.client, RESERVATION, "fleet-east", "r").await?.unwrap_or_default();
        let cluster = objects::get(&hub.client, CLUSTER, "", "east").await?.unwrap_or_default();
        let work = objects::get(&hub.client, WORK, "fleet-east", "w").await?.unwrap_or_default();
        let applied = objects::condition(&work, "Applied").is_some_and(|c| c["status"] == "True");
        let done =
            answer["status"]["phase"] == "Refused" && cluster["status"]["reportSequence"].is_i64() && applied;
        Ok(Look::at(done, || format!("{} {} {}", answer["status"], cluster["status"], work["status"])))
    })
    .await?;
    objects::delete(&hub.client, WORK, "fleet-east", "w").await?;
    wait_for("the Work to be cleaned up", WITHIN, async || {
        let left = objects::get(&hub.client, WORK, "fleet-east", "w").await?;
        Ok(Look::at(left.is_none(), || "it stands".to_string()))
    })
    .await?;
    stop.cancel();
    agent.await??;
    hub.stop().await;
    member.stop().await;
    Ok(())
}
