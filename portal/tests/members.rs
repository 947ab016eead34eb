//! Pods and logs of jobs, from a member that the portal reaches over TLS.

use fleet_api::crds::{Side, definitions};
use fleet_apiserver::{ApiServer, Config, ServeOptions, Server};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::hub::{BINDINGS, Browser, Hub, JOBS};

/// A member `east` with a node, which the hub knows by the Secret that `fleet join` writes.
struct Member {
    admin: Client,
    _serves: Server,
    _server: ApiServer,
}

impl Member {
    async fn join(hub: &Hub) -> Self {
        let server = Config { crds: definitions(Side::Member), ..Config::default() };
        let server = ApiServer::open(server).await.expect("a server in memory");
        let serves = server.serve(ServeOptions::default()).await.expect("a socket");
        let (url, ca) = (format!("https://{}", serves.local_addr()), serves.ca_pem());
        hub.create("/api/v1/namespaces", json!({"metadata": {"name": "fleet-east"}})).await;
        let secret = json!({"metadata": {"name": "member-access"}, "stringData": {"token": server.admin_token(), "caBundle": ca}});
        hub.create("/api/v1/namespaces/fleet-east/secrets", secret).await;
        let cluster = json!({"apiVersion": "fleet.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "east"}, "spec": {
            "apiEndpoint": url, "secretRef": {"namespace": "fleet-east", "name": "member-access"}}});
        hub.create("/apis/fleet.dev/v1alpha1/clusters", cluster).await;
        let member =
            Self { admin: Client::new(server.router(), "default"), _serves: serves, _server: server };
        for namespace in ["a", "b"] {
            member.create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        }
        member.create("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await;
        hub.until(|known| known.clusters().contains_key("east")).await;
        member
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).expect("a request");
        self.admin.request(request).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The job as the agent makes it there for the hub's binding.
    async fn run(&self, hub: &Hub, namespace: &str, name: &str) -> Value {
        let binding = format!("{}/{name}-pytorchjob", BINDINGS.replace("NS", namespace));
        let binding = Request::get(binding).body(Vec::new()).expect("a request");
        let binding: Value = hub.admin.request(binding).await.expect("the binding");
        let container = json!({"name": "pytorch", "image": "i"});
        let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name,
            "labels": {"fleet.dev/managed": "true", "fleet.dev/binding-uid": binding["metadata"]["uid"]}},
            "spec": {"pytorchReplicaSpecs": {"Master": {"template": {"spec": {"containers": [container]}}}}}});
        self.create(&JOBS.replace("NS", namespace), job).await
    }

    /// A pod that has ended with this code, of a job or of nobody.
    async fn pod(&self, namespace: &str, name: &str, (job, made): (&str, Option<&Value>), code: i64) {
        let pods = format!("/api/v1/namespaces/{namespace}/pods");
        let owner = |job: &Value| {
            json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job["metadata"]["name"],
                "uid": job["metadata"]["uid"], "controller": true})
        };
        let owners: Vec<Value> = made.map(owner).into_iter().collect();
        let pod = json!({"metadata": {"name": name, "labels": {"training.kubeflow.org/job-name": job},
                "ownerReferences": owners},
            "spec": {"nodeName": "n1", "containers": [{"name": "pytorch", "image": "i"}]}});
        self.create(&pods, pod).await;
        let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
        let status = json!({"status": {"phase": phase, "containerStatuses": [{"name": "pytorch", "image": "i",
            "imageID": "i", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "reason": reason}}}]}});
        let request = Request::patch(format!("{pods}/{name}/status"));
        let request = request.header("content-type", "application/merge-patch+json");
        let request = request.body(status.to_string().into_bytes()).expect("a request");
        let _: Value = self.admin.request(request).await.expect("a status");
    }

    async fn delete(&self, namespace: &str, pod: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}?gracePeriodSeconds=0");
        let request = Request::delete(path).body(Vec::new()).expect("a request");
        let _: Value = self.admin.request(request).await.expect("deleted");
    }
}

/// A job that has failed in `east`, as its own controller says.
async fn failed(hub: &Hub, namespace: &str, name: &str) {
    hub.job(namespace, name, "waits").await;
    let binding = format!("{}/{name}-pytorchjob", BINDINGS.replace("NS", namespace));
    let said = json!({"type": "Failed", "status": "True", "reason": "PyTorchJobFailed",
        "message": "1 of 1 master replicas failed"});
    hub.status(
        &binding,
        json!({"result": {"outcome": "Failed", "cluster": "east", "epoch": 1, "recordedAt": "2026-01-01T00:10:00Z"},
            "aggregatedStatus": [{"clusterName": "east", "applied": true, "status": {"conditions": [said]}}]}),
    )
    .await;
    let id = (namespace.to_owned(), format!("{name}-pytorchjob"));
    hub.until(|known| known.job(&id).is_some_and(|job| job.state().is_final())).await;
}

const TRAIN: &str = "/jobs/a/pytorchjobs.kubeflow.org/train";

/// What the first user of a failed job looks for: why, which pod, with which code, and its log.
#[tokio::test]
async fn a_failed_job_shows_its_reason_its_pods_and_their_logs() {
    let hub = Hub::start().await;
    let member = Member::join(&hub).await;
    failed(&hub, "a", "train").await;
    let run = member.run(&hub, "a", "train").await;
    let of_run = ("train", Some(&run));
    for index in 0..201 {
        member.pod("a", &format!("train-worker-{index}"), of_run, 0).await;
    }
    member.pod("a", "train-worker-201", of_run, 3).await;
    let mut root = hub.sign_in("token-r").await;
    let page = hub.get(&mut root, TRAIN).await.body;
    for says in [
        "PyTorchJobFailed",
        "1 of 1 master replicas failed",
        "3 (Error)",
        "/logs/train-worker-201\"",
        "2 more are not listed",
    ] {
        assert!(page.contains(says), "{says} in {page}");
    }
    assert!(page.find("train-worker-201") < page.find("train-worker-0"), "what failed is first");
    let log = hub.get(&mut root, &format!("{TRAIN}/logs/train-worker-201")).await;
    assert!(log.status == 200 && log.body.contains("train-worker-201 is simulated"), "{}", log.body);
    // The list has the reason, too.
    assert!(hub.get(&mut root, "/jobs").await.body.contains("PyTorchJobFailed"));
    for index in 0..202 {
        member.delete("a", &format!("train-worker-{index}")).await;
    }
    let page = hub.get(&mut root, TRAIN).await.body;
    assert!(page.contains("No pod of it is left in east"), "{page}");
}

/// A tenant may not read the Secret of a member. The portal may, and shows him pods and logs of his own jobs alone.
#[tokio::test]
async fn tenants_read_pods_and_logs_of_their_own_jobs_and_of_no_others() {
    let mut hub = Hub::start().await;
    hub.read_members().await;
    let member = Member::join(&hub).await;
    failed(&hub, "a", "train").await;
    failed(&hub, "b", "of-bob").await;
    let (run, of_bob) = (member.run(&hub, "a", "train").await, member.run(&hub, "b", "of-bob").await);
    member.pod("a", "train-master-0", ("train", Some(&run)), 3).await;
    member.pod("a", "other-0", ("other", None), 4).await;
    // Of the member's own users, with the labels of her job.
    member.pod("a", "alike-0", ("train", None), 6).await;
    member.pod("b", "of-bob-master-0", ("of-bob", Some(&of_bob)), 5).await;
    let (mut alice, mut bob) = (hub.sign_in("token-a").await, hub.sign_in("token-b").await);
    let log = async |browser: &mut Browser, job: &str, pod: &str| {
        hub.get(browser, &format!("/jobs/{job}/logs/{pod}")).await
    };
    let (of_alice, of_bob) = ("a/pytorchjobs.kubeflow.org/train", "b/pytorchjobs.kubeflow.org/of-bob");
    // Without the right to get pods the portal reads nothing for her.
    let page = hub.get(&mut alice, TRAIN).await.body;
    assert!(page.contains("the hub does not let you get pods in namespace a"), "{page}");
    assert!(!page.contains("train-master-0"), "{page}");
    let pods = |resources: &[&str]| json!({"apiGroups": [""], "resources": resources, "verbs": ["get"]});
    hub.allow("a", "alice", pods(&["pods"])).await;
    hub.allow("b", "bob", pods(&["pods", "pods/log"])).await;
    let page = hub.get(&mut alice, TRAIN).await.body;
    assert!(page.contains("train-master-0") && page.contains("3 (Error)"), "{page}");
    assert!(!page.contains("other-0"), "a pod of another job: {page}");
    assert!(!page.contains("alike-0"), "a pod that no job of hers has made: {page}");
    // Logs are a right of their own.
    let answer = log(&mut alice, of_alice, "train-master-0").await;
    assert!(answer.status == 404 && answer.body.contains("let you get pods/log"), "{}", answer.body);
    hub.allow("a", "alice", pods(&["pods/log"])).await;
    let answer = log(&mut alice, of_alice, "train-master-0").await;
    assert!(answer.status == 200 && answer.body.contains("train-master-0 is simulated"), "{}", answer.body);
    let answer = log(&mut bob, of_bob, "of-bob-master-0").await;
    assert!(answer.status == 200 && answer.body.contains("of-bob-master-0 is simulated"), "{}", answer.body);
    // Neither another's job, nor a pod that is none of the own job's.
    let answer = log(&mut alice, of_bob, "of-bob-master-0").await;
    assert!(answer.status == 404 && answer.body.contains("no such job that you may see"), "{}", answer.body);
    for pod in ["other-0", "alike-0"] {
        let answer = log(&mut alice, of_alice, pod).await;
        assert!(answer.status == 404 && answer.body.contains("is none of this job"), "{}", answer.body);
    }
    let answer = log(&mut alice, of_alice, "of-bob-master-0").await;
    assert!(answer.status == 404 && !answer.body.contains("is simulated"), "{}", answer.body);
    assert_eq!(hub.get(&mut alice, "/jobs/b/pytorchjobs.kubeflow.org/of-bob").await.status, 404);
    // Programs get the same.
    let request = Request::get(format!("/api/fleet/v1{TRAIN}")).header("authorization", "Bearer token-a");
    let answer = hub.send(&mut Browser::default(), request, "").await;
    let found: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(found["pods"].as_array().map(Vec::len), Some(1), "{found}");
    assert_eq!(
        (&found["pods"][0]["exit"], &found["pods"][0]["hasFailed"]),
        (&json!("3 (Error)"), &json!(true))
    );
}
