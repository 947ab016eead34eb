//! Volcano's jobs in a member without Volcano, and through the hub.

use std::path::Path;

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Look, TestFleet,
    objects::{self, COMMAND, CONFIG_MAP, POD, POD_GROUP, SECRET, SERVICE, VOLCANO_JOB, VOLCANO_QUEUE},
};
use kube::Client;
use serde_json::{Value, json};

fn example(name: &str) -> anyhow::Result<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/volcano").join(name);
    let all: Vec<Value> = fleet_api::yaml::read_all(&std::fs::read_to_string(file)?)?;
    let mut job = all.into_iter().next().unwrap_or_default();
    job["metadata"]["namespace"] = "default".into();
    Ok(job)
}

async fn phase(client: &Client, name: &str) -> anyhow::Result<String> {
    let job = objects::get(client, VOLCANO_JOB, "default", name).await?.unwrap_or_default();
    Ok(objects::job_state(&job))
}

async fn wait_phase(fleet: &TestFleet, client: &Client, name: &str, wanted: &str) -> anyhow::Result<Value> {
    fleet
        .wait_for(&format!("{name} to be {wanted}"), async || {
            let job = objects::get(client, VOLCANO_JOB, "default", name).await?.unwrap_or_default();
            let found = objects::job_state(&job);
            Ok(if found == wanted { Look::Yes(job) } else { Look::NotYet(job["status"].to_string()) })
        })
        .await
}

async fn group_of(client: &Client, job: &Value) -> anyhow::Result<Value> {
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
    let name = format!("{}-{uid}", objects::name_of(job));
    Ok(objects::get(client, POD_GROUP, "default", &name).await?.unwrap_or_default())
}

#[tokio::test]
async fn the_mpi_example_ends_with_its_master_and_its_group_says_how() -> anyhow::Result<()> {
    let fleet =
        FleetSpec::of("east 2x8").run_time(RunTime::For(std::time::Duration::from_secs(1))).start().await?;
    let member = fleet.member("east")?;
    objects::apply(&member, &example("lm-mpi-job.yaml")?).await?;
    wait_phase(&fleet, &member, "lm-mpi-job", "Running").await?;
    let hosts = objects::get(&member, CONFIG_MAP, "default", "lm-mpi-job-svc").await?.unwrap_or_default();
    assert_eq!(
        hosts["data"]["mpiworker.host"],
        "lm-mpi-job-mpiworker-0.lm-mpi-job\nlm-mpi-job-mpiworker-1.lm-mpi-job\nlm-mpi-job-mpiworker-2.lm-mpi-job"
    );
    let keys = objects::get(&member, SECRET, "default", "lm-mpi-job-ssh").await?.unwrap_or_default();
    for key in ["id_rsa", "id_rsa.pub", "authorized_keys", "config"] {
        assert!(keys["data"][key].as_str().is_some_and(|text| text.len() > 40), "{key}");
    }
    let job = wait_phase(&fleet, &member, "lm-mpi-job", "Completed").await?;
    assert_eq!(job["status"]["succeeded"], 1, "{}", job["status"]);
    assert_eq!(job["status"]["minAvailable"], 4);
    assert_eq!(job["status"]["state"]["phase"], "Completed");
    fleet
        .wait_for("the workers to be gone", async || {
            let pods = objects::list(&member, POD).await?;
            Ok(Look::at(pods.len() == 1, || format!("{} pods", pods.len())))
        })
        .await?;
    let group = fleet
        .wait_for("the group to show the end", async || {
            let group = group_of(&member, &job).await?;
            let done = group["status"]["phase"] == "Pending" && group["status"]["succeeded"] == 1;
            Ok(if done { Look::Yes(group) } else { Look::NotYet(group["status"].to_string()) })
        })
        .await?;
    let spec = json!({
        "minMember": 4,
        "minResources": {"count/pods": "4", "cpu": "3500m", "limits.cpu": "3500m", "pods": "4", "requests.cpu": "3500m"},
        "minTaskMember": {"mpimaster": 1, "mpiworker": 3},
        "queue": "default",
    });
    assert_eq!(group["spec"], spec);
    assert_eq!(group["metadata"]["labels"], json!({"volcano.sh/job-type": "MPI"}));
    let owner = &group["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["controller"], &owner["blockOwnerDeletion"]), (&json!(true), &json!(true)));
    let said: Vec<(&str, &str, &str)> = group["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| {
            let text = |field: &str| c[field].as_str().unwrap_or_default();
            (text("type"), text("reason"), text("message"))
        })
        .collect();
    assert_eq!(
        said,
        [
            (
                "Unschedulable",
                "NotEnoughResources",
                "3/4 tasks in gang unschedulable: pod group is not ready, 1 Succeeded, 3 Releasing, 4 minAvailable"
            ),
            ("Scheduled", "tasks in gang are ready to be scheduled", ""),
        ]
    );
    fleet.finish().await
}

#[tokio::test]
async fn the_tensorflow_example_runs_through_the_hub() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8")
        .run_time(RunTime::For(std::time::Duration::from_millis(300)))
        .start()
        .await?;
    fleet
        .apply(&json!({
            "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": "volcano", "namespace": "default"},
            "spec": {
                "propagateDeps": true,
                "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
                "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
            },
        }))
        .await?;
    fleet.apply(&example("tensorflow-benchmark.yaml")?).await?;
    let hub = fleet.hub();
    wait_phase(&fleet, &hub, "tensorflow-benchmark", "Completed").await?;
    let binding = fleet.binding(VOLCANO_JOB, "tensorflow-benchmark").await?;
    assert_eq!(binding["spec"]["epoch"], 1);
    fleet.finish().await
}

/// Two parameter servers and four workers of one cpu each; parameter servers never end by themselves.
fn training(name: &str) -> Value {
    let task = |name: &str, replicas: i64, command: &str, policies: Value| {
        json!({"name": name, "replicas": replicas, "policies": policies, "template": {"spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "main", "image": "registry.example.com/train:v1", "command": ["sh", "-c", command],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}}})
    };
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
    "spec": {"minAvailable": 6, "plugins": {"env": [], "svc": []}, "tasks": [
        task("ps", 2, "train --job_name=ps ", json!([])),
        task("worker", 4, "train --job_name=worker ", json!([{"event": "TaskCompleted", "action": "CompleteJob"}])),
    ]}})
}

#[tokio::test]
async fn five_jobs_with_room_for_two_all_end_and_never_more_than_two_hold_places() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0")
        .cpu("6")
        .run_time(RunTime::For(std::time::Duration::from_millis(400)))
        .start()
        .await?;
    let member = fleet.member("east")?;
    for i in 0..5 {
        objects::apply(&member, &training(&format!("train-{i}"))).await?;
    }
    let mut most = 0;
    fleet
        .wait_for("all five to complete", async || {
            let pods = objects::list(&member, POD).await?;
            let mut holding = std::collections::BTreeSet::new();
            for pod in &pods {
                let bound = pod["spec"]["nodeName"].is_string();
                if bound && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
                    holding.insert(pod["metadata"]["labels"]["volcano.sh/job-name"].to_string());
                }
            }
            most = most.max(holding.len());
            let mut phases = Vec::new();
            for i in 0..5 {
                phases.push(phase(&member, &format!("train-{i}")).await?);
            }
            Ok(Look::at(phases.iter().all(|phase| phase == "Completed"), || format!("{phases:?}")))
        })
        .await?;
    assert!((1..=2).contains(&most), "{most} jobs held places at one time");
    fleet.finish().await
}

#[tokio::test]
async fn a_command_aborts_and_another_resumes() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0").cpu("6").run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    objects::apply(&member, &training("a")).await?;
    let job = wait_phase(&fleet, &member, "a", "Running").await?;
    let command = |name: &str, action: &str| {
        json!({"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
            "metadata": {"name": name, "namespace": "default"}, "action": action,
            "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "a", "controller": true,
                "uid": job["metadata"]["uid"]}})
    };
    objects::create(&member, &command("stop", "AbortJob")).await?;
    wait_phase(&fleet, &member, "a", "Aborted").await?;
    assert!(objects::list(&member, POD).await?.is_empty());
    assert!(objects::list(&member, COMMAND).await?.is_empty());
    assert!(objects::get(&member, SERVICE, "default", "a").await?.is_none());
    objects::create(&member, &command("go", "ResumeJob")).await?;
    let job = wait_phase(&fleet, &member, "a", "Running").await?;
    assert_eq!(job["status"]["retryCount"], 1);
    fleet.finish().await
}

#[tokio::test]
async fn a_lost_pod_restarts_the_whole_job() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0").cpu("6").run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    let mut job = training("a");
    job["spec"]["policies"] = json!([{"event": "PodEvicted", "action": "RestartJob"}]);
    objects::apply(&member, &job).await?;
    wait_phase(&fleet, &member, "a", "Running").await?;
    let before = objects::get(&member, POD, "default", "a-ps-0").await?.unwrap_or_default();
    objects::delete(&member, POD, "default", "a-worker-3").await?;
    fleet
        .wait_for("every pod to be new and running", async || {
            let job = objects::get(&member, VOLCANO_JOB, "default", "a").await?.unwrap_or_default();
            let pod = objects::get(&member, POD, "default", "a-ps-0").await?.unwrap_or_default();
            let new =
                pod["metadata"]["uid"].is_string() && pod["metadata"]["uid"] != before["metadata"]["uid"];
            let right = new && objects::job_state(&job) == "Running" && job["status"]["running"] == 6;
            Ok(Look::at(right && job["status"]["retryCount"] == 1, || job["status"].to_string()))
        })
        .await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_job_whose_queue_is_closed_or_missing_waits_and_says_so() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0").cpu("6").run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    let mut job = training("a");
    job["spec"]["queue"] = "research".into();
    objects::apply(&member, &job).await?;
    let waits = async |message: &str| {
        fleet
            .wait_for("the group to say why", async || {
                let job = objects::get(&member, VOLCANO_JOB, "default", "a").await?.unwrap_or_default();
                let group = group_of(&member, &job).await?;
                let said =
                    group["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_string();
                Ok(Look::at(said == message, || said))
            })
            .await
    };
    waits("queue research does not exist").await?;
    assert!(objects::list(&member, POD).await?.is_empty());
    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"},
        "spec": {"weight": 1, "capability": {"cpu": "5"}}});
    objects::apply(&member, &queue).await?;
    waits("queue research: 0 of 5 cpu are in use, 6 are asked for").await?;
    objects::merge(&member, VOLCANO_QUEUE, "", "research", &json!({"spec": {"capability": {"cpu": "6"}}}))
        .await?;
    wait_phase(&fleet, &member, "a", "Running").await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_pod_group_of_a_users_own_starts_whole_and_its_queue_counts_it() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0").cpu("3").run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "team"},
        "spec": {"weight": 1, "capability": {"cpu": "4"}}});
    objects::apply(&member, &queue).await?;
    let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
        "metadata": {"name": "ring", "namespace": "default"}, "spec": {"minMember": 2, "queue": "team"}});
    objects::apply(&member, &group).await?;
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "annotations": {"scheduling.k8s.io/group-name": "ring"}},
            "spec": {"schedulerName": "volcano", "containers": [{"name": "main", "image": "registry.example.com/ring:v1",
                "resources": {"requests": {"cpu": "2"}}}]}})
    };
    objects::apply(&member, &pod("ring-w-0")).await?;
    let stands = async |what: &str, check: fn(&Value, &Value) -> bool| {
        fleet
            .wait_for(what, async || {
                let group = objects::get(&member, POD_GROUP, "default", "ring").await?.unwrap_or_default();
                let queue = objects::get(&member, VOLCANO_QUEUE, "", "team").await?.unwrap_or_default();
                let (group, queue) = (&group["status"], &queue["status"]);
                Ok(Look::at(check(group, queue), || format!("{group} {queue}")))
            })
            .await
    };
    stands("the group to wait for its second pod", |group, queue| {
        let said = group["conditions"][0]["message"].as_str().unwrap_or_default();
        group["phase"] == "Inqueue"
            && group["conditions"][0]["reason"] == "NotEnoughTasks"
            && said.starts_with(
                "2/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 2 minAvailable",
            )
            && queue["inqueue"] == 1
    })
    .await?;
    let first = objects::get(&member, POD, "default", "ring-w-0").await?.unwrap_or_default();
    assert!(first["spec"]["nodeName"].is_null(), "half a gang has no place");
    objects::apply(&member, &pod("ring-w-1")).await?;
    stands("both to run", |group, queue| {
        group["phase"] == "Running"
            && group["running"] == 2
            && group["conditions"][0]["type"] == "Scheduled"
            && queue["running"] == 1
            && queue["inqueue"].is_null()
            && queue["state"] == "Open"
            && queue["allocated"]["cpu"] == "4"
    })
    .await?;
    // The queue has four cpus, and the next pod would be its fifth.
    let mut one = pod("lone");
    one["metadata"]["annotations"] = json!({"scheduling.volcano.sh/queue-name": "team"});
    one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1".into();
    objects::apply(&member, &one).await?;
    fleet
        .wait_for("the pod to say why it waits", async || {
            let pod = objects::get(&member, POD, "default", "lone").await?.unwrap_or_default();
            let said = pod["status"]["conditions"].to_string();
            Ok(Look::at(said.contains("queue team: 4 of 4 cpu are in use, 1 are asked for"), || said))
        })
        .await?;
    fleet.finish().await
}

#[tokio::test]
async fn what_cannot_be_a_job_is_refused_with_the_field_and_what_is_allowed() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0").start().await?;
    let member = fleet.member("east")?;
    let refused = async |change: fn(&mut Value), wanted: &str| -> anyhow::Result<()> {
        let mut job = training("bad");
        change(&mut job["spec"]);
        let error = match objects::create(&member, &job).await {
            Err(error) => error.to_string(),
            Ok(()) => anyhow::bail!("taken, but {wanted}"),
        };
        assert!(error.contains(wanted), "{error}\nwanted: {wanted}");
        Ok(())
    };
    refused(|spec| spec["tasks"] = json!([]), "found no tasks").await?;
    refused(|spec| spec["tasks"][1]["name"] = "ps".into(), "found two tasks of one name").await?;
    refused(|spec| spec["tasks"][0]["minAvailable"] = 3.into(), "found minAvailable over replicas").await?;
    refused(|spec| spec["minAvailable"] = 7.into(), "over the sum of the tasks' replicas").await?;
    refused(
        |spec| spec["policies"] = json!([{"event": "PodFailed", "action": "Explode"}]),
        "found an unknown action",
    )
    .await?;
    refused(|spec| spec["policies"] = json!([{"action": "AbortJob"}]), "found none or several of event")
        .await?;
    refused(
        |spec| spec["policies"] = json!([{"event": "Boom", "action": "AbortJob"}]),
        "found an unknown event",
    )
    .await?;
    refused(|spec| spec["plugins"] = json!({"magic": []}), "found an unknown plugin").await?;
    refused(|spec| spec["tasks"][0]["dependsOn"] = json!({"name": ["x"]}), "dependsOn naming no task")
        .await?;
    refused(
        |spec| {
            spec["tasks"][0]["dependsOn"] = json!({"name": ["worker"]});
            spec["tasks"][1]["dependsOn"] = json!({"name": ["ps"]});
        },
        "found tasks that depend on each other",
    )
    .await?;
    assert!(objects::list(&member, VOLCANO_JOB).await?.is_empty());
    fleet.finish().await
}
