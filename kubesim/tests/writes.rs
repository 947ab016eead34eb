//! What a job costs its API servers, counted by the servers: hub and one member, on an idle fleet and in a queue.

use std::{collections::BTreeMap, time::Duration};

use fleet_kubesim::{FleetSpec, LocalFleet, MemberSpec, Requests, RunTime};
use futures::future::join_all;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
};
use serde_json::{Value, json};

const WITHIN: Duration = Duration::from_secs(120);
const JOBS: usize = 30;
/// What is written at a pace of its own, whatever jobs do.
const BACKGROUND: [&str; 9] = [
    "leases.coordination.k8s.io",
    "clusters.fleet.dev",
    "elasticquotatrees.scheduling.sigs.k8s.io",
    "queues.scheduling.x-k8s.io",
    "queues.scheduling.volcano.sh",
    "configmaps",
    "nodes",
    "namespaces",
    "clusterpropagationpolicies.policy.one.alibabacloud.com",
];

fn kind(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

async fn make(client: &Client, object: Value) {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_string();
    let resource = kind(&text("/apiVersion"), &text("/kind"));
    let api: Api<DynamicObject> = match text("/metadata/namespace").as_str() {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    };
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
}

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{
            "name": "main", "image": "registry.example.com/train:v1",
            "resources": {"requests": {"cpu": "4"}}}]}}}})
}

/// Jobs one at a time fit the quota.
async fn prepare(hub: &Client) {
    make(
        hub,
        json!({"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree",
            "metadata": {"name": "tree", "namespace": "kube-system"},
            "spec": {"root": {"name": "root", "min": {"cpu": 4}, "max": {"cpu": 4}, "children": [
                {"name": "team", "namespaces": ["default"], "min": {"cpu": 4}, "max": {"cpu": 4}}]}}}),
    )
    .await;
    make(
        hub,
        json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "ClusterPropagationPolicy",
            "metadata": {"name": "all"},
            "spec": {"resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
                "suspension": {"scheduling": true},
                "placement": {"replicaScheduling": {
                    "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}}}}),
    )
    .await;
}

async fn list(client: &Client, api_version: &str, of: &str) -> Vec<DynamicObject> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind(api_version, of));
    api.list(&ListParams::default()).await.expect("a list").items
}

/// The job and all that was made for it have come to rest: the hub has its end, and the member's job is let go of.
async fn at_rest(fleet: &LocalFleet, names: &[String]) {
    let (hub, member) = (fleet.hub(), fleet.member("east").expect("a member"));
    let rest = async {
        loop {
            let units = list(&hub, "scheduling.x-k8s.io/v1alpha1", "QueueUnit").await;
            let ended = units.iter().filter(|unit| unit.data["status"]["phase"] == "Succeed");
            let ended = ended
                .filter(|unit| names.iter().any(|n| unit.metadata.name == Some(format!("{n}-job-rb-qu"))));
            let held = list(&member, "batch/v1", "Job").await;
            let is_held = |job: &DynamicObject| {
                !job.metadata.finalizers.iter().flatten().collect::<Vec<_>>().is_empty()
            };
            let reserved = list(&hub, "fleet.dev/v1alpha1", "Reservation").await.len()
                + list(&member, "fleet.dev/v1alpha1", "Reservation").await.len();
            if ended.count() == names.len() && !held.iter().any(is_held) && reserved == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WITHIN, rest).await.expect("the jobs end");
}

/// Writes of the hub and of the member, a job: by object and verb.
struct Cost {
    rows: BTreeMap<(&'static str, String), f64>,
    refused: Vec<String>,
}

impl Cost {
    async fn read(fleet: &LocalFleet) -> [Requests; 2] {
        let servers = [fleet.hub(), fleet.member("east").expect("a member")];
        join_all(servers.iter().map(Requests::read))
            .await
            .into_iter()
            .collect::<anyhow::Result<Vec<_>>>()
            .expect("counts")
            .try_into()
            .expect("two servers")
    }

    fn between(before: &[Requests; 2], after: &[Requests; 2]) -> Self {
        let mut cost = Self { rows: BTreeMap::new(), refused: Vec::new() };
        for (server, (before, after)) in ["hub", "member"].into_iter().zip(before.iter().zip(after)) {
            let writes = after.since(before).0.into_iter();
            for (asked, count) in writes.filter(|(asked, _)| asked.is_write()) {
                if BACKGROUND.contains(&asked.object()) {
                    continue;
                }
                if asked.code >= 400 {
                    cost.refused.push(format!("{count} of {server} {asked:?}"));
                }
                let row = (server, format!("{} {}", asked.resource, asked.verb));
                *cost.rows.entry(row).or_default() += count as f64 / JOBS as f64;
            }
        }
        cost
    }

    fn of(&self, server: &str, start: &str) -> f64 {
        let rows = self.rows.iter().filter(|((of, row), _)| *of == server && row.starts_with(start));
        rows.map(|(_, count)| count).sum()
    }

    fn total(&self) -> f64 {
        self.rows.values().sum()
    }

    fn table(&self) -> String {
        let rows = self.rows.iter().map(|((server, row), count)| format!("{server} {row}: {count:.2}\n"));
        format!("{}total {:.2}; refused {:?}", rows.collect::<String>(), self.total(), self.refused)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_written_no_more_often_than_it_must() {
    let spec = FleetSpec {
        members: MemberSpec::many(1, 2, 0, "64", "512Gi"),
        default_run_time: RunTime::For(Duration::from_millis(100)),
        ..FleetSpec::default()
    };
    let fleet = LocalFleet::start(spec).await.expect("starts");
    fleet.ready(WITHIN).await.expect("ready");
    let hub = fleet.hub();
    prepare(&hub).await;

    // One after the other: nothing waits.
    let before = Cost::read(&fleet).await;
    for n in 0..JOBS {
        let name = format!("idle-{n}");
        make(&hub, job(&name)).await;
        at_rest(&fleet, &[name]).await;
    }
    let idle = Cost::between(&before, &Cost::read(&fleet).await);
    println!("idle:\n{}", idle.table());

    // All at once, with quota for one.
    let before = Cost::read(&fleet).await;
    let names: Vec<String> = (0..JOBS).map(|n| format!("queued-{n}")).collect();
    join_all(names.iter().map(|name| make(&hub, job(name)))).await;
    at_rest(&fleet, &names).await;
    let queued = Cost::between(&before, &Cost::read(&fleet).await);
    println!("queued:\n{}", queued.table());
    fleet.shutdown().await;

    for (cost, most, reasons) in [(&idle, 28.0, 0.0), (&queued, 31.0, 1.2)] {
        assert!(cost.total() <= most, "at most {most} writes a job:\n{}", cost.table());
        let at_most = |server: &str, row: &str, most: f64| {
            let found = cost.of(server, row);
            assert!(found <= most + 0.3, "at most {most} a job of {server} {row}:\n{}", cost.table());
        };
        at_most("hub", "jobs.batch", 3.0);
        at_most("hub", "resourcebindings", 4.0 + reasons);
        at_most("hub", "queueunits", 3.0 + reasons);
        at_most("hub", "reservations", 3.0);
        at_most("hub", "works", 4.0);
        at_most("hub", "events", 1.0);
        at_most("member", "reservations", 2.0);
        at_most("member", "jobs.batch", 4.0);
        at_most("member", "pods", 3.0);
        at_most("member", "events", 0.0);
        assert!(cost.refused.is_empty(), "nothing is written in vain:\n{}", cost.table());
    }
}
