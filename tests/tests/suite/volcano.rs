//! Volcano's jobs in a member without Volcano.

use std::path::Path;

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled,
    objects::{
        self, COMMAND, CONFIG_MAP, CRON_JOB, HYPER_NODE, JOB_FLOW, JOB_TEMPLATE, POD, POD_GROUP, SECRET,
        SERVICE, VOLCANO_JOB, VOLCANO_QUEUE,
    },
    volcano::{example, group_of, hyper_node, nodes_of, phase, training, wait_phase},
};
use serde_json::{Value, json};

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
            Ok(Polled::when(pods.len() == 1, || format!("{} pods", pods.len())))
        })
        .await?;
    let group = fleet
        .wait_for("the group to show the end", async || {
            let group = group_of(&member, &job).await?;
            let done = group["status"]["phase"] == "Pending" && group["status"]["succeeded"] == 1;
            Ok(if done { Polled::Yes(group) } else { Polled::NotYet(group["status"].to_string()) })
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
            Ok(Polled::when(phases.iter().all(|phase| phase == "Completed"), || format!("{phases:?}")))
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
            Ok(Polled::when(right && job["status"]["retryCount"] == 1, || job["status"].to_string()))
        })
        .await?;
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
                Ok(Polled::when(check(group, queue), || format!("{group} {queue}")))
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
            Ok(Polled::when(said.contains("queue team: 4 of 4 cpu are in use, 1 are asked for"), || said))
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
    refused(|spec| spec["tasks"][1]["name"] = "ps".into(), "found two tasks named ps").await?;
    refused(|spec| spec["tasks"][0]["minAvailable"] = 3.into(), "found minAvailable 3 over replicas").await?;
    refused(|spec| spec["minAvailable"] = 7.into(), "of the replicas of all tasks; allowed: up to that sum")
        .await?;
    refused(
        |spec| spec["policies"] = json!([{"event": "PodFailed", "action": "Explode"}]),
        "found action Explode; allowed: AbortJob",
    )
    .await?;
    refused(
        |spec| spec["policies"] = json!([{"action": "AbortJob"}]),
        "found no event, no events, no exitCode",
    )
    .await?;
    refused(
        |spec| spec["policies"] = json!([{"event": "Boom", "action": "AbortJob"}]),
        "found event Boom, no events; allowed: * alone",
    )
    .await?;
    refused(|spec| spec["plugins"] = json!({"magic": []}), "found plugin [\"magic\"]; allowed: env").await?;
    refused(
        |spec| spec["tasks"][0]["dependsOn"] = json!({"name": ["x"]}),
        "found dependsOn naming [[\"x\"]]; allowed",
    )
    .await?;
    refused(
        |spec| {
            spec["tasks"][0]["dependsOn"] = json!({"name": ["worker"]});
            spec["tasks"][1]["dependsOn"] = json!({"name": ["ps"]});
        },
        "found tasks [\"ps\", \"worker\"] that depend on each other",
    )
    .await?;
    assert!(objects::list(&member, VOLCANO_JOB).await?.is_empty());
    fleet.finish().await
}

#[tokio::test]
async fn a_flow_makes_its_jobs_one_after_the_other() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0")
        .cpu("6")
        .run_time(RunTime::For(std::time::Duration::from_millis(300)))
        .start()
        .await?;
    let member = fleet.member("east")?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/volcano/jobflow.yaml");
    let all: Vec<Value> = fleet_api::yaml::read_all(&std::fs::read_to_string(file)?)?;
    // The flow first: it waits for its templates and says for which.
    for mut object in all {
        object["metadata"]["namespace"] = "default".into();
        objects::apply(&member, &object).await?;
    }
    let flow = fleet
        .wait_for("the flow to succeed", async || {
            let flow = objects::get(&member, JOB_FLOW, "default", "pipeline").await?.unwrap_or_default();
            let done = flow["status"]["state"]["phase"] == "Succeed";
            Ok(if done { Polled::Yes(flow) } else { Polled::NotYet(flow["status"].to_string()) })
        })
        .await?;
    let names = json!(["pipeline-prepare", "pipeline-train", "pipeline-evaluate"]);
    assert_eq!(flow["status"]["completedJobs"], names);
    assert_eq!(objects::list(&member, JOB_TEMPLATE).await?.len(), 3);
    let jobs = objects::list(&member, VOLCANO_JOB).await?;
    let of = |name: &str| jobs.iter().find(|job| objects::name_of(job) == name).cloned().unwrap_or_default();
    assert_eq!(of("pipeline-train")["spec"]["minAvailable"], 2, "the flow's patch");
    assert_eq!(of("pipeline-train")["metadata"]["labels"]["volcano.sh/createdByJobFlow"], "default.pipeline");
    let ended = |name: &str| of(name)["status"]["state"]["lastTransitionTime"].to_string();
    let made = |name: &str| of(name)["metadata"]["creationTimestamp"].to_string();
    assert!(made("pipeline-train") >= ended("pipeline-prepare"));
    assert!(made("pipeline-evaluate") >= ended("pipeline-train"));
    // A template that makes no job is told in the server's words.
    let (kind, flow) = ("flow.volcano.sh/v1alpha1", json!({"name": "bad", "namespace": "default"}));
    let spec = json!({"minAvailable": 5, "tasks": [{"name": "t", "replicas": 1}]});
    objects::apply(
        &member,
        &json!({"apiVersion": kind, "kind": "JobTemplate", "metadata": flow, "spec": spec}),
    )
    .await?;
    let spec = json!({"flows": [{"name": "bad"}]});
    objects::apply(&member, &json!({"apiVersion": kind, "kind": "JobFlow", "metadata": flow, "spec": spec}))
        .await?;
    fleet
        .wait_for("the flow to say what is wrong with its template", async || {
            let flow = objects::get(&member, JOB_FLOW, "default", "bad").await?.unwrap_or_default();
            let said = flow["status"]["state"]["message"].as_str().unwrap_or_default().to_owned();
            let right = said.starts_with(
                "Job.batch.volcano.sh \"bad-bad\" is invalid: spec: Invalid value: found minAvailable",
            );
            Ok(Polled::when(right, || said))
        })
        .await?;
    fleet.finish().await
}

#[tokio::test]
async fn a_cron_job_makes_the_job_of_the_last_time_that_was_due() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0")
        .cpu("6")
        .run_time(RunTime::For(std::time::Duration::from_millis(300)))
        .start()
        .await?;
    let member = fleet.member("east")?;
    let mut cron = example("cronjob.yaml")?;
    cron["spec"]["schedule"] = "* * * * *".into();
    cron["spec"]["timeZone"] = "UTC".into();
    cron["spec"]["suspend"] = true.into();
    objects::apply(&member, &cron).await?;
    // As if it stood since long: the minute before this one is due.
    let past = json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}});
    objects::merge_status(&member, CRON_JOB, "default", "nightly", &past).await?;
    objects::merge(&member, CRON_JOB, "default", "nightly", &json!({"spec": {"suspend": false}})).await?;
    let job = fleet
        .wait_for("a job to complete", async || {
            let jobs = objects::list(&member, VOLCANO_JOB).await?;
            let done = jobs.iter().find(|job| objects::job_state(job) == "Completed");
            Ok(done.cloned().map_or(Polled::NotYet(format!("{} jobs", jobs.len())), Polled::Yes))
        })
        .await?;
    assert!(objects::name_of(&job).starts_with("nightly-"));
    assert_eq!(job["metadata"]["ownerReferences"][0]["kind"], "CronJob");
    fleet
        .wait_for("the CronJob to know of it", async || {
            let cron = objects::get(&member, CRON_JOB, "default", "nightly").await?.unwrap_or_default();
            let seen = cron["status"]["lastSuccessfulTime"].is_string()
                && cron["status"]["lastScheduleTime"] != "2026-01-01T00:00:00Z";
            Ok(Polled::when(seen, || cron["status"].to_string()))
        })
        .await?;
    let mut bad = cron.clone();
    bad["metadata"]["name"] = "bad".into();
    bad["spec"]["schedule"] = "often".into();
    let error = objects::create(&member, &bad).await.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("found schedule often; allowed: five fields"), "{error}");
    fleet.finish().await
}

#[tokio::test]
async fn hypernodes_keep_a_gang_below_one_switch() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 4x0").cpu("2").run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    let nodes: Vec<String> = objects::list(&member, objects::NODE)
        .await?
        .iter()
        .map(|node| objects::name_of(node).to_owned())
        .collect();
    // The spine comes first: its members are found when they come.
    objects::apply(&member, &hyper_node("spine", 2, "HyperNode", &["s-0", "s-1"])).await?;
    for (at, pair) in nodes.chunks(2).enumerate() {
        objects::apply(&member, &hyper_node(&format!("s-{at}"), 1, "Node", pair)).await?;
    }
    let stands = async |name: &str, nodes: i64| {
        fleet
            .wait_for(&format!("hypernode {name} to know its nodes"), async || {
                let found = objects::get(&member, HYPER_NODE, "", name).await?.unwrap_or_default();
                let status = &found["status"];
                let right = status["nodeCount"] == nodes && status["conditions"][0]["status"] == "True";
                Ok(Polled::when(right, || status.to_string()))
            })
            .await
    };
    stands("s-0", 2).await?;
    stands("spine", 4).await?;
    let job = |name: &str, pods: i64, topology: Value| {
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": pods, "networkTopology": topology, "tasks": [{"name": "w", "replicas": pods,
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main",
                "image": "registry.example.com/ring:v1", "resources": {"requests": {"cpu": "2"}}}]}}}]}})
    };
    // Three pods of a node each do not fit below one switch; below the spine they do.
    objects::apply(&member, &job("wide", 3, json!({"mode": "hard", "highestTierAllowed": 1}))).await?;
    fleet
        .wait_for("the wide gang to say why it waits", async || {
            let pod = objects::get(&member, POD, "default", "wide-w-0").await?.unwrap_or_default();
            let said = pod["status"]["conditions"].to_string();
            Ok(Polled::when(
                said.contains("none of 2 hypernodes up to tier 1 has room for 3 pods of the gang"),
                || said,
            ))
        })
        .await?;
    objects::delete(&member, VOLCANO_JOB, "default", "wide").await?;
    objects::apply(&member, &job("pair", 2, json!({"mode": "hard", "highestTierName": "tier-1"}))).await?;
    wait_phase(&fleet, &member, "pair", "Running").await?;
    let on = nodes_of(&member, "pair-w", 2).await?;
    assert!(nodes.chunks(2).any(|pair| pair == on.as_slice()), "{on:?} of {nodes:?}");
    objects::delete(&member, VOLCANO_JOB, "default", "pair").await?;
    objects::apply(&member, &job("soft", 3, json!({"mode": "soft"}))).await?;
    wait_phase(&fleet, &member, "soft", "Running").await?;
    // A member that is not there is named on the object.
    objects::apply(&member, &hyper_node("lost", 1, "Node", &["nobody"])).await?;
    fleet
        .wait_for("the hypernode to name the member that is not there", async || {
            let found = objects::get(&member, HYPER_NODE, "", "lost").await?.unwrap_or_default();
            let said = found["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
            Ok(Polled::when(said.contains("found node nobody, which does not exist"), || said))
        })
        .await?;
    fleet.finish().await
}

/// Volcano's users look at the PodGroup, whichever controller creates the pods.
#[tokio::test]
async fn a_pytorch_job_for_volcanos_scheduler_has_a_pod_group() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8").run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    let mut job = fleet_tests::jobs::Job::pytorch("torch").manifest();
    for role in ["Master", "Worker"] {
        job["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"]["schedulerName"] = "volcano".into();
    }
    objects::apply(&member, &job).await?;
    let group = fleet
        .wait_for("the PodGroup of the job to run", async || {
            let group = objects::get(&member, POD_GROUP, "default", "torch").await?.unwrap_or_default();
            let runs = group["status"]["phase"] == "Running" && group["status"]["running"] == 2;
            Ok(if runs { Polled::Yes(group) } else { Polled::NotYet(group.to_string()) })
        })
        .await?;
    assert_eq!(group["spec"]["minMember"], 2, "{group}");
    assert_eq!(group["metadata"]["ownerReferences"][0]["kind"], "PyTorchJob", "{group}");
    fleet.finish().await
}
