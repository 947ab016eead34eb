//! Volcano's jobs through the hub.

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled, TestFleet,
    objects::{self, HYPER_NODE, VOLCANO_JOB},
    volcano::{example, hyper_node, nodes_of, wait_phase},
};
use serde_json::{Value, json};

/// Sends every Volcano Job whole to one cluster.
async fn policy(fleet: &TestFleet) -> anyhow::Result<()> {
    let policy = json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "volcano", "namespace": "default"},
        "spec": {
            "propagateDeps": true,
            "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
            "resourceSelectors": [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}],
        },
    });
    fleet.apply(&policy).await?;
    Ok(())
}

#[tokio::test]
async fn the_tensorflow_example_runs_through_the_hub() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x8")
        .run_time(RunTime::For(std::time::Duration::from_millis(300)))
        .start()
        .await?;
    policy(&fleet).await?;
    fleet.apply(&example("tensorflow-benchmark.yaml")?).await?;
    let hub = fleet.hub();
    wait_phase(&fleet, &hub, "tensorflow-benchmark", "Completed").await?;
    let binding = fleet.binding(VOLCANO_JOB, "tensorflow-benchmark").await?;
    assert_eq!(binding["spec"]["epoch"], 1);
    fleet.finish().await
}

#[tokio::test]
async fn a_wish_about_the_network_holds_in_the_member() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 4x0").cpu("2").run_time(RunTime::Forever).start().await?;
    let (hub, member) = (fleet.hub(), fleet.member("east")?);
    let nodes: Vec<String> = objects::list(&member, objects::NODE)
        .await?
        .iter()
        .map(|node| objects::name_of(node).to_owned())
        .collect();
    for (at, pair) in nodes.chunks(2).enumerate() {
        let name = format!("s-{at}");
        objects::apply(&member, &hyper_node(&name, 1, "Node", pair)).await?;
        fleet
            .wait_for("the switch to know its nodes", async || {
                let found = objects::get(&member, HYPER_NODE, "", &name).await?.unwrap_or_default();
                Ok(Polled::when(found["status"]["nodeCount"] == 2, || found["status"].to_string()))
            })
            .await?;
    }
    policy(&fleet).await?;
    let job = |name: &str, pods: i64, topology: Value| {
        json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": pods, "networkTopology": topology, "tasks": [{"name": "w", "replicas": pods,
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main",
                "image": "registry.example.com/ring:v1", "resources": {"requests": {"cpu": "2"}}}]}}}]}})
    };
    // Three pods of a node each do not fit below one switch: the hub says so, and nothing is sent.
    fleet.apply(&job("wide", 3, json!({"mode": "hard", "highestTierAllowed": 1}))).await?;
    fleet
        .wait_for("the hub to say why the wide gang waits", async || {
            let binding = fleet.binding(VOLCANO_JOB, "wide").await.unwrap_or_default();
            let said = binding["status"]["conditions"].to_string();
            let wanted = "none of 2 hypernodes up to tier 1 has room for 3 pods of the gang";
            Ok(Polled::when(said.contains(wanted), || said))
        })
        .await?;
    assert!(objects::get(&member, VOLCANO_JOB, "default", "wide").await?.is_none());
    fleet.apply(&job("pair", 2, json!({"mode": "hard", "highestTierAllowed": 1}))).await?;
    wait_phase(&fleet, &hub, "pair", "Running").await?;
    let on = nodes_of(&member, "pair-w", 2).await?;
    assert!(nodes.chunks(2).any(|pair| pair == on.as_slice()), "{on:?} of {nodes:?}");
    fleet.finish().await
}

/// A job of the hub with one cpu for each of these tasks, and these fields.
fn of_tasks(name: &str, tasks: &[Value], more: &Value) -> Value {
    let mut spec = json!({"tasks": tasks});
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn task(name: &str, more: &Value) -> Value {
    let mut task = json!({"name": name, "replicas": 1, "template": {"spec": {"restartPolicy": "OnFailure",
        "containers": [{"name": "main", "image": "registry.example.com/train:v1",
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}}});
    for (field, value) in more.as_object().into_iter().flatten() {
        task[field] = value.clone();
    }
    task
}

fn after(name: &str, names: &[&str]) -> Value {
    task(name, &json!({"dependsOn": {"name": names}}))
}

/// Users submit on the hub, where no webhook of a member is asked.
#[tokio::test]
async fn what_could_never_run_is_refused_on_the_hub_or_says_so_there() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x8").cpu("16").run_time(RunTime::Forever).start().await?;
    policy(&fleet).await?;
    let hub = fleet.hub();
    let plain = || task("t", &json!({}));
    let on = |event: &str| json!({"event": event, "action": "AbortJob"});
    let twice = json!({"template": {"spec": {"containers": [{"name": "main", "image": "i"}, {"name": "main", "image": "i"}]}}});
    let parts = json!({"partitionPolicy": {"totalPartitions": 1, "partitionSize": 1, "minPartitions": 2}});
    for (tasks, more, wanted) in [
        (
            vec![after("a", &["b"]), after("b", &["c"]), after("c", &["a"])],
            json!({}),
            "allowed: dependsOn without a cycle",
        ),
        (vec![task("t", &twice)], json!({}), "found the name main twice"),
        (vec![plain()], json!({"plugins": {"mpi": []}}), "no master among them"),
        (
            vec![plain()],
            json!({"policies": [on("PodFailed"), on("PodFailed")]}),
            "found the event PodFailed twice",
        ),
        (
            vec![plain()],
            json!({"policies": [{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 3, "action": "RestartJob"}]}),
            "found the exitCode 3 twice",
        ),
        (vec![plain()], json!({"policies": [on("*"), on("PodFailed")]}), "found the event * beside"),
        (vec![task("t", &parts)], json!({}), "found minPartitions 2 of totalPartitions 1"),
        (vec![plain()], json!({"ttlSecondsAfterFinished": -1}), "found ttlSecondsAfterFinished -1"),
    ] {
        let error = match objects::create(&hub, &of_tasks("odd", &tasks, &more)).await {
            Err(error) => error.to_string(),
            Ok(()) => anyhow::bail!("taken: {tasks:?} {more}"),
        };
        anyhow::ensure!(error.contains(wanted), "{error}\nwanted: {wanted}");
    }
    assert!(fleet.get(VOLCANO_JOB, "default", "odd").await?.is_none());

    // A cycle behind a long chain is more than a definition finds: the job is sent, and says why it never starts.
    let names = ["t0", "t1", "t2", "t3", "t4", "x", "y", "z"];
    let mut tasks = vec![task("t0", &json!({}))];
    tasks.extend((1..8).map(|at| match names[at] {
        "x" => after("x", &["t4", "z"]),
        name => after(name, &[names[at - 1]]),
    }));
    fleet.apply(&of_tasks("long", &tasks, &json!({}))).await?;
    fleet
        .wait_for("the hub to say that the tasks wait for each other", async || {
            let job = fleet.get(VOLCANO_JOB, "default", "long").await?.unwrap_or_default();
            let said = job["status"].to_string();
            let is = said.contains("InvalidSpec") && said.contains("found the cycle x -> z -> y -> x");
            Ok(Polled::when(is, || said))
        })
        .await?;
    fleet.delete(VOLCANO_JOB, "default", "long").await?;
    fleet.wait_gone(VOLCANO_JOB, "default", "long").await?;
    fleet.finish().await
}
