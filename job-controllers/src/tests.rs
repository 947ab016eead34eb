//! The controllers against an embedded API server; the test plays the kubelet.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use fleet_agent_fixture::Fixture;
use fleet_agent_ground::{Admissions, Clock, JobController, LeaseClock};
use fleet_api::crds::{self, Side};

async fn start(controllers: &[JobController]) -> Fixture {
    start_with(controllers, Admissions::default()).await
}

async fn start_with(controllers: &[JobController], admissions: Admissions) -> Fixture {
    let fixture = Fixture::new(controllers).await;
    run_on(&fixture, controllers, admissions);
    fixture
}

fn run_on(fixture: &Fixture, controllers: &[JobController], admissions: Admissions) {
    let handles = super::Handles {
        member: fixture.member_link(),
        clock: Clock::start(),
        lease: Some(LeaseClock::held()),
        admissions: Some(admissions),
        places: None,
    };
    tokio::spawn(super::run(handles, &controllers.iter().copied().collect(), fixture.shutdown.clone()));
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn pytorch(name: &str, policy: Value) -> Value {
    let role = |replicas| json!({"replicas": replicas, "restartPolicy": "OnFailure", "template": template()});
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": role(1), "Worker": role(2)}}})
}

async fn submit(fixture: &Fixture, object: Value) {
    let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => panic!("a group"),
    };
    let plural = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    fixture.create(&fixture.member, &group, &version, &plural, object).await;
}

const PODS: [&str; 3] = ["a-master-0", "a-worker-0", "a-worker-1"];

#[tokio::test]
async fn a_pytorch_job_runs_and_succeeds() {
    let fixture = start(&[JobController::PyTorchJob]).await;
    submit(&fixture, pytorch("a", json!({"cleanPodPolicy": "Running"}))).await;
    for pod in PODS {
        fixture.wait_for("pods", pod).await;
    }
    fixture.wait_for("services", "a-master-0").await;
    fixture.wait_state("pytorchjobs", "a", "Created").await;
    for pod in PODS {
        fixture.set_phase(pod, "Running", 0).await;
    }
    fixture.wait_state("pytorchjobs", "a", "Running").await;
    fixture.set_phase("a-master-0", "Succeeded", 0).await;
    let job = fixture.wait_state("pytorchjobs", "a", "Succeeded").await;
    let status = &job.data["status"];
    assert_eq!(status["replicaStatuses"]["Master"]["succeeded"], 1, "{status:#}");
    assert!(status["completionTime"].is_string());
    fixture.wait_gone("pods", "a-worker-0").await;
    fixture.wait_gone("pods", "a-worker-1").await;
    assert!(fixture.of_member("pods").get_opt("a-master-0").await.unwrap().is_some(), "ended pods stay");
}

#[tokio::test]
async fn a_failed_pod_is_replaced_until_the_limit() {
    let fixture = start(&[JobController::PyTorchJob]).await;
    submit(&fixture, pytorch("a", json!({"backoffLimit": 1}))).await;
    let pods = fixture.of_member("pods");
    let mut uid = None;
    for _ in 0..2 {
        let found = fixture.wait(&pods, "a-worker-0", "made anew", |pod| {
            pod.is_some_and(|pod| pod.metadata.uid != uid && pod.metadata.deletion_timestamp.is_none())
        });
        uid = found.await.unwrap().metadata.uid;
        fixture.set_phase("a-worker-0", "Failed", 1).await;
    }
    let job = fixture.wait_state("pytorchjobs", "a", "Failed").await;
    let last = job.data["status"]["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["message"], "PyTorchJob a has failed because it has reached the specified backoff limit");
}

#[tokio::test]
async fn a_deleted_job_leaves_nothing_and_its_name_is_free() {
    let fixture = start(&[JobController::PyTorchJob]).await;
    submit(&fixture, pytorch("a", json!({}))).await;
    let first = fixture.wait_for("pods", "a-worker-1").await;
    fixture.of_member("pytorchjobs").delete("a", &DeleteParams::background()).await.unwrap();
    fixture.wait_gone("pytorchjobs", "a").await;
    submit(&fixture, pytorch("a", json!({}))).await;
    let pods = fixture.of_member("pods");
    for pod in PODS {
        fixture
            .wait(&pods, pod, "of the new job", |pod| {
                pod.is_some_and(|pod| {
                    pod.metadata.owner_references.as_ref().unwrap()[0].uid
                        != first.metadata.owner_references.as_ref().unwrap()[0].uid
                })
            })
            .await;
    }
}

#[tokio::test]
async fn suspended_and_resumed() {
    let fixture = start(&[JobController::PyTorchJob]).await;
    submit(&fixture, pytorch("a", json!({"suspend": true}))).await;
    fixture.wait_state("pytorchjobs", "a", "Suspended").await;
    assert!(fixture.of_member("pods").list(&ListParams::default()).await.unwrap().items.is_empty());
    let patch = kube::api::Patch::Merge(json!({"spec": {"runPolicy": {"suspend": false}}}));
    fixture.of_member("pytorchjobs").patch("a", &Default::default(), &patch).await.unwrap();
    fixture.wait_for("pods", "a-worker-1").await;
}

#[tokio::test]
async fn a_tf_job_and_an_mpi_job() {
    let fixture = start(&[JobController::TFJob, JobController::MPIJob]).await;
    let role = |replicas| json!({"replicas": replicas, "template": template()});
    let tf = json!({"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "t", "namespace": "default"},
        "spec": {"tfReplicaSpecs": {"PS": role(1), "Worker": role(2)}}});
    submit(&fixture, tf).await;
    let pod = fixture.wait_for("pods", "t-worker-1").await;
    let config = pod.data["spec"]["containers"][0]["env"][0]["value"].as_str().unwrap().to_owned();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["task"], json!({"type": "worker", "index": 1}));
    assert_eq!(config["cluster"]["ps"], json!(["t-ps-0.default.svc:2222"]));
    fixture.wait_for("services", "t-ps-0").await;
    for pod in ["t-ps-0", "t-worker-0", "t-worker-1"] {
        fixture.wait_for("pods", pod).await;
        fixture.set_phase(pod, "Running", 0).await;
    }
    fixture.wait_state("tfjobs", "t", "Running").await;
    fixture.set_phase("t-worker-0", "Succeeded", 0).await;
    fixture.wait_state("tfjobs", "t", "Succeeded").await;

    let mpi = json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m", "namespace": "default"},
        "spec": {"slotsPerWorker": 2, "mpiReplicaSpecs": {"Launcher": role(1), "Worker": role(2)}}});
    submit(&fixture, mpi).await;
    for pod in ["m-launcher-0", "m-worker-0", "m-worker-1"] {
        fixture.wait_for("pods", pod).await;
        fixture.set_phase(pod, "Running", 0).await;
    }
    let config = fixture.wait_for("configmaps", "m-config").await;
    assert_eq!(
        config.data["data"]["hostfile"],
        "m-worker-0.m.default.svc slots=2\nm-worker-1.m.default.svc slots=2\n"
    );
    fixture.wait_state("mpijobs", "m", "Running").await;
    fixture.set_phase("m-launcher-0", "Succeeded", 0).await;
    fixture.wait_state("mpijobs", "m", "Succeeded").await;
}

#[tokio::test]
async fn an_indexed_batch_job() {
    let fixture = start(&[JobController::BatchJob]).await;
    let mut template = template();
    template["spec"]["restartPolicy"] = "Never".into();
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b", "namespace": "default"},
        "spec": {"parallelism": 2, "completions": 3, "completionMode": "Indexed", "template": template}});
    submit(&fixture, job).await;
    for pod in ["b-0", "b-1", "b-2"] {
        fixture.wait_for("pods", pod).await;
        fixture.set_phase(pod, "Succeeded", 0).await;
    }
    let jobs = fixture.of_member("jobs");
    let job = fixture.wait(&jobs, "b", "complete", |job| {
        job.is_some_and(|job| job.data["status"]["completionTime"].is_string())
    });
    let status = job.await.unwrap().data["status"].clone();
    assert_eq!((&status["succeeded"], &status["completedIndexes"]), (&json!(3), &json!("0-2")), "{status:#}");
    assert_eq!(status["conditions"].as_array().unwrap().last().unwrap()["type"], "Complete");
}

#[tokio::test]
async fn a_deployment_keeps_its_replicas_and_rolls() {
    let fixture = start(&[JobController::Deployment]).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template()}});
    submit(&fixture, deployment).await;
    let deployments = fixture.of_member("deployments");
    let replicas = |n: i64| {
        move |d: Option<&kube::api::DynamicObject>| d.is_some_and(|d| d.data["status"]["replicas"] == n)
    };
    fixture.wait(&deployments, "d", "of two replicas", replicas(2)).await;
    let run_all = async || {
        for pod in fixture.of_member("pods").list(&ListParams::default()).await.unwrap().items {
            if pod.metadata.deletion_timestamp.is_none() {
                fixture.set_phase(&pod.metadata.name.unwrap(), "Running", 0).await;
            }
        }
    };
    run_all().await;
    let ready = |n: i64| {
        move |d: Option<&kube::api::DynamicObject>| {
            d.is_some_and(|d| d.data["status"]["availableReplicas"] == n && d.data["status"]["replicas"] == n)
        }
    };
    fixture.wait(&deployments, "d", "available", ready(2)).await;
    let patch = kube::api::Patch::Merge(
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}}),
    );
    deployments.patch("d", &Default::default(), &patch).await.unwrap();
    fixture.wait(&deployments, "d", "growing", replicas(4)).await;
    run_all().await;
    fixture
        .wait(&deployments, "d", "rolled", |d| {
            d.is_some_and(|d| d.data["status"]["updatedReplicas"] == 2 && d.data["status"]["replicas"] == 2)
        })
        .await;
    deployments.delete("d", &DeleteParams::background()).await.unwrap();
    for pod in fixture.of_member("pods").list(&ListParams::default()).await.unwrap().items {
        fixture.wait_gone("pods", &pod.metadata.name.unwrap()).await;
    }
}

/// Every write to the embedded server raises its revision by one.
#[tokio::test]
async fn few_writes_bring_a_job_to_run() {
    let fixture = start(&[JobController::PyTorchJob]).await;
    let revision = async || {
        let list = fixture.of_member("pods").list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap().parse::<u64>().unwrap()
    };
    let before = revision().await;
    submit(&fixture, pytorch("a", json!({}))).await;
    for pod in PODS {
        fixture.wait_for("pods", pod).await;
    }
    for pod in PODS {
        fixture.set_phase(pod, "Running", 0).await;
    }
    let jobs = fixture.of_member("pytorchjobs");
    let running = fixture.wait(&jobs, "a", "running with all pods", |job| {
        job.is_some_and(|job| job.data["status"]["replicaStatuses"]["Worker"]["active"] == 2)
    });
    running.await;
    // The job, three pods, one service, three phases by the test; the status at most once for Created and
    // once per pod that began to run.
    let writes = revision().await - before;
    assert!((8..=12).contains(&writes), "{writes} writes");
}

#[tokio::test]
async fn hosts_of_a_volcano_job_follow_its_size() {
    let admissions = Admissions::default();
    let fixture = start_with(&[JobController::VolcanoJob], admissions.clone()).await;
    let job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"minAvailable": 1, "plugins": {"svc": [], "ssh": []},
            "tasks": [{"name": "w", "replicas": 3, "template": template()}]}});
    let job = fixture.create(&fixture.member, "batch.volcano.sh", "v1alpha1", "jobs", job).await;
    admissions.set(&job.metadata.uid.unwrap(), Some(Ok(())));
    fixture.wait_for("pods", "a-w-2").await;
    let secret = fixture.wait_for("secrets", "a-ssh").await;
    let hosts = |count: usize| (0..count).map(|i| format!("a-w-{i}.a")).collect::<Vec<_>>().join("\n");
    let is = async |count: usize| {
        let maps = fixture.of_member("configmaps");
        fixture
            .wait(&maps, "a-svc", "of the new size", |map| {
                map.is_some_and(|map| {
                    map.data["data"]["w.host"] == hosts(count)
                        && map.data["data"]["VC_W_NUM"].as_str().and_then(|n| n.parse().ok()) == Some(count)
                })
            })
            .await;
    };
    is(3).await;
    for count in [2, 1, 3] {
        let patch = kube::api::Patch::Merge(json!({"spec": {"tasks": [
            {"name": "w", "replicas": count, "template": template()}]}}));
        fixture.of_member("vcjobs").patch("a", &Default::default(), &patch).await.unwrap();
        is(count).await;
        let secrets = fixture.of_member("secrets");
        let found = fixture.wait(&secrets, "a-ssh", "of the new size", |now| {
            now.is_some_and(|now| {
                let config = now.data["data"]["config"].as_str().unwrap_or_default();
                let config = String::from_utf8(STANDARD.decode(config).unwrap()).unwrap();
                config.matches("HostName").count() == count
            })
        });
        assert_eq!(
            found.await.unwrap().data["data"]["id_rsa"],
            secret.data["data"]["id_rsa"],
            "the keys stay"
        );
    }
}

/// The event of a job whose pods are refused, once it has been counted this often.
async fn failed_create(fixture: &Fixture, job: &str, count: i64) -> String {
    let found = fixture.of_member("jobs").get(job).await.unwrap();
    let uid: String = found.metadata.uid.unwrap().chars().take(8).collect();
    let events = fixture.api(&fixture.member, "", "v1", "events", "Event");
    let event = fixture
        .wait(&events, &format!("{job}.{uid}.failedcreate"), "counted", |event| {
            event.is_some_and(|event| event.data["count"].as_i64() >= Some(count))
        })
        .await
        .unwrap();
    assert_eq!((&event.data["reason"], &event.data["type"]), (&json!("FailedCreate"), &json!("Warning")));
    assert_eq!(event.data["involvedObject"]["kind"], "Job");
    event.data["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn pods_that_the_server_refuses_are_told_on_the_job() {
    let fixture = start(&[JobController::BatchJob]).await;
    let mut template = template();
    template["spec"]["priorityClassName"] = json!("nosuch");
    template["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"template": template}});
    submit(&fixture, job).await;
    // Retried, and counted instead of repeated.
    let message = failed_create(&fixture, "a", 2).await;
    assert!(message.contains("nosuch"), "{message}");
    let jobs = fixture.of_member("jobs");
    let told = |job: Option<&kube::api::DynamicObject>| {
        job.is_some_and(|job| job.data["status"]["conditions"][0]["reason"] == "FailedCreate")
    };
    let job = fixture.wait(&jobs, "a", "told", told).await.unwrap();
    assert!(job.data["status"]["conditions"].to_string().contains("nosuch"), "{:#}", job.data["status"]);
    // Once the server takes them, the job no longer says so.
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "nosuch"},
        "value": 1});
    fixture.create(&fixture.member, "scheduling.k8s.io", "v1", "priorityclasses", class).await;
    let silent = |job: Option<&kube::api::DynamicObject>| {
        job.is_some_and(|job| !job.data["status"]["conditions"].to_string().contains("FailedCreate"))
    };
    fixture.wait(&jobs, "a", "silent again", silent).await;
}

/// Its state is that as well, as long as it has no other.
#[tokio::test]
async fn a_kubeflow_job_says_that_its_pods_are_refused() {
    let fixture = start(&[JobController::PyTorchJob]).await;
    let mut job = pytorch("a", json!({}));
    job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = json!("nosuch");
    submit(&fixture, job).await;
    let job = fixture.wait_state("pytorchjobs", "a", "FailedCreate").await;
    let told = job.data["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(told.contains("no PriorityClass with name nosuch was found"), "{told}");
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "nosuch"},
        "value": 1});
    fixture.create(&fixture.member, "scheduling.k8s.io", "v1", "priorityclasses", class).await;
    let job = fixture.wait_state("pytorchjobs", "a", "Created").await;
    assert_eq!(job.data["status"]["conditions"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_deployment_says_that_its_pods_are_refused() {
    let fixture = start(&[JobController::Deployment]).await;
    let mut template = template();
    template["metadata"]["labels"] = json!({"app": "d"});
    template["spec"]["priorityClassName"] = json!("nosuch");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template}});
    submit(&fixture, deployment).await;
    let deployments = fixture.of_member("deployments");
    let failure = |deployment: &kube::api::DynamicObject| {
        let conditions = deployment.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "ReplicaFailure")
    };
    let told =
        |deployment: Option<&kube::api::DynamicObject>| deployment.is_some_and(|d| failure(d).is_some());
    let found = fixture.wait(&deployments, "d", "told", told).await.unwrap();
    let failure = failure(&found).unwrap();
    assert_eq!((&failure["status"], &failure["reason"]), (&json!("True"), &json!("FailedCreate")));
    assert!(failure["message"].as_str().unwrap().contains("nosuch"), "{failure}");
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "nosuch"},
        "value": 1});
    fixture.create(&fixture.member, "scheduling.k8s.io", "v1", "priorityclasses", class).await;
    let silent = |deployment: Option<&kube::api::DynamicObject>| {
        deployment.is_some_and(|d| !d.data["status"]["conditions"].to_string().contains("FailedCreate"))
    };
    fixture.wait(&deployments, "d", "silent again", silent).await;
}

#[tokio::test]
async fn a_job_that_is_too_large_says_so_until_it_is_small() {
    let fixture = start(&[JobController::Deployment]).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"replicas": i32::MAX, "selector": {"matchLabels": {"app": "x"}}, "template": template()}});
    submit(&fixture, deployment).await;
    let deployments = fixture.of_member("deployments");
    let told = |deployment: &kube::api::DynamicObject| {
        let conditions = deployment.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let failure = conditions.into_iter().find(|one| one["type"] == "ReplicaFailure");
        failure.map(|one| one["message"].as_str().unwrap_or_default().to_owned())
    };
    let why = "Not creating pods: field spec.replicas: found 2147483647 pods; allowed: at most 100000 in all";
    fixture.wait(&deployments, "d", why, |found| found.and_then(told).as_deref() == Some(why)).await;
    assert!(fixture.of_member("pods").list(&ListParams::default()).await.unwrap().items.is_empty());
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": 0}}));
    deployments.patch("d", &Default::default(), &patch).await.unwrap();
    fixture
        .wait(&deployments, "d", "no longer", |found| found.is_some_and(|found| told(found).is_none()))
        .await;
}

/// Without the agent's webhook, which refuses them: the definitions follow a chain for three steps.
#[tokio::test]
async fn a_cycle_behind_a_long_chain_is_told_of_a_job_and_of_a_flow() {
    let controllers = [JobController::VolcanoJob];
    let fixture = Fixture::new(&controllers).await;
    let kinds = ["jobflows.flow.volcano.sh", "jobtemplates.flow.volcano.sh", "cronjobs.batch.volcano.sh"];
    for definition in
        crds::definitions(Side::Member).into_iter().filter(|one| kinds.contains(&crds::name(one)))
    {
        let plural = "customresourcedefinitions";
        fixture.create(&fixture.member, "apiextensions.k8s.io", "v1", plural, definition).await;
    }
    run_on(&fixture, &controllers, Admissions::default());
    let needs = [
        ("t0", vec![]),
        ("t1", vec!["t0"]),
        ("t2", vec!["t1"]),
        ("t3", vec!["t2"]),
        ("x", vec!["t3", "z"]),
        ("y", vec!["x"]),
        ("z", vec!["y"]),
    ];
    let items = |field: &str, template: Option<Value>| -> Vec<Value> {
        let item = |(name, needs): &(&str, Vec<&str>)| {
            let mut item = json!({"name": name});
            if !needs.is_empty() {
                item["dependsOn"] = json!({field: needs});
            }
            if let Some(template) = &template {
                item["template"] = template.clone();
            }
            item
        };
        needs.iter().map(item).collect()
    };
    let metadata = json!({"name": "a", "namespace": "default"});
    let job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata,
        "spec": {"minAvailable": 1, "tasks": items("name", Some(template()))}});
    let flow = json!({"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "metadata": metadata,
        "spec": {"flows": items("targets", None)}});
    let events = fixture.api(&fixture.member, "", "v1", "events", "Event");
    for (group, plural, field, object) in
        [("batch.volcano.sh", "jobs", "tasks", job), ("flow.volcano.sh", "jobflows", "flows", flow)]
    {
        let kind = object["kind"].clone();
        let made = fixture.create(&fixture.member, group, "v1alpha1", plural, object).await;
        let uid: String = made.metadata.uid.unwrap().chars().take(8).collect();
        let why = format!(
            "field spec.{field}: found the cycle x -> z -> y -> x; allowed: dependsOn without a cycle"
        );
        let api = fixture.api(&fixture.member, group, "v1alpha1", plural, kind.as_str().unwrap());
        let told = |object: Option<&kube::api::DynamicObject>| {
            object.is_some_and(|object| object.data["status"]["state"]["message"] == why.as_str())
        };
        fixture.wait(&api, "a", &why, told).await;
        // Before the status, once.
        let event = events.get(&format!("a.{uid}.invalidspec")).await.unwrap().data;
        assert_eq!((&event["reason"], &event["type"]), (&json!("InvalidSpec"), &json!("Warning")));
        assert_eq!((&event["message"], &event["count"]), (&json!(why), &json!(1)));
        assert_eq!(event["involvedObject"]["kind"], kind);
    }
}
