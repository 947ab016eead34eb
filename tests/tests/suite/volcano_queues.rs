//! Volcano's queues in a member without Volcano.

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled,
    objects::{self, COMMAND, EVENT, POD, VOLCANO_JOB, VOLCANO_QUEUE},
    volcano::{group_of, queue, training, wait_phase},
};
use kube::Client;
use serde_json::json;

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
                Ok(Polled::when(said == message, || said))
            })
            .await
    };
    waits("queue research does not exist").await?;
    let said = objects::get(&member, VOLCANO_JOB, "default", "a").await?.unwrap_or_default();
    assert_eq!(said["status"]["state"]["reason"], "PodGroupPending");
    assert_eq!(said["status"]["state"]["message"], "field spec.queue: queue research does not exist");
    assert!(objects::list(&member, POD).await?.is_empty());
    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "research"},
        "spec": {"weight": 1, "capability": {"cpu": "5"}}});
    objects::apply(&member, &queue).await?;
    waits("queue research: 0 of 5 cpu are in use, 6 are asked for").await?;
    objects::merge(&member, VOLCANO_QUEUE, "", "research", &json!({"spec": {"capability": {"cpu": "6"}}}))
        .await?;
    let job = wait_phase(&fleet, &member, "a", "Running").await?;
    assert!(job["status"]["state"]["message"].is_null(), "{}", job["status"]);
    fleet.finish().await
}

#[tokio::test]
async fn jobs_that_have_ended_hold_no_room_in_their_queue() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0")
        .cpu("6")
        .run_time(RunTime::For(std::time::Duration::from_millis(200)))
        .start()
        .await?;
    let member = fleet.member("east")?;
    objects::apply(&member, &queue("narrow", json!({"weight": 1, "capability": {"cpu": "6"}}))).await?;
    // One after the other through a queue that holds one of them.
    for i in 0..3 {
        let mut job = training(&format!("job-{i}"));
        job["spec"]["queue"] = "narrow".into();
        objects::apply(&member, &job).await?;
    }
    for i in 0..3 {
        wait_phase(&fleet, &member, &format!("job-{i}"), "Completed").await?;
    }
    fleet
        .wait_for("the queue to hold nothing", async || {
            let queue = objects::get(&member, VOLCANO_QUEUE, "", "narrow").await?.unwrap_or_default();
            let status = &queue["status"];
            let empty =
                status["inqueue"].is_null() && status["running"].is_null() && status["allocated"].is_null();
            Ok(Polled::when(empty, || status.to_string()))
        })
        .await?;
    fleet.finish().await
}

async fn queue_command(client: &Client, name: &str, action: &str) -> anyhow::Result<()> {
    let queue = objects::get(client, VOLCANO_QUEUE, "", name).await?.unwrap_or_default();
    let command = json!({"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command",
        "metadata": {"generateName": "command-", "namespace": "default"}, "action": action,
        "target": {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": name,
            "uid": queue["metadata"]["uid"]}});
    Ok(objects::create(client, &command).await?)
}

#[tokio::test]
async fn commands_close_and_open_a_queue_with_those_below_it() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 2x0").cpu("6").run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    objects::apply(&member, &queue("eng", json!({"weight": 1}))).await?;
    objects::apply(&member, &queue("dev", json!({"weight": 1, "parent": "eng"}))).await?;
    let state = async |name: &str, wanted: &str| {
        fleet
            .wait_for(&format!("queue {name} to be {wanted}"), async || {
                let queue = objects::get(&member, VOLCANO_QUEUE, "", name).await?.unwrap_or_default();
                Ok(Polled::when(queue["status"]["state"] == wanted, || queue["status"].to_string()))
            })
            .await
    };
    state("eng", "Open").await?;
    state("dev", "Open").await?;
    queue_command(&member, "eng", "CloseQueue").await?;
    state("eng", "Closed").await?;
    state("dev", "Closed").await?;
    let mut job = training("a");
    job["spec"]["queue"] = "dev".into();
    objects::apply(&member, &job).await?;
    fleet
        .wait_for("the group to say that its queue is closed", async || {
            let job = objects::get(&member, VOLCANO_JOB, "default", "a").await?.unwrap_or_default();
            let said = group_of(&member, &job).await?["status"].to_string();
            Ok(Polled::when(said.contains("queue dev is Closed; allowed: a queue that is Open"), || said))
        })
        .await?;
    // Below a queue that is closed none opens, and the queue says so.
    queue_command(&member, "dev", "OpenQueue").await?;
    fleet
        .wait_for("the refusal to be told", async || {
            let events = objects::list(&member, EVENT).await?;
            let said = events.iter().any(|event| {
                event["involvedObject"]["kind"] == "Queue"
                    && event["message"]
                        .as_str()
                        .is_some_and(|text| text.contains("queue eng above it is Closed"))
            });
            Ok(Polled::when(said, || format!("{} events", events.len())))
        })
        .await?;
    queue_command(&member, "eng", "OpenQueue").await?;
    state("dev", "Open").await?;
    wait_phase(&fleet, &member, "a", "Running").await?;
    // With a job in it a queue is closing, and closed once the job is gone.
    queue_command(&member, "dev", "CloseQueue").await?;
    state("dev", "Closing").await?;
    objects::delete(&member, VOLCANO_JOB, "default", "a").await?;
    state("dev", "Closed").await?;
    assert!(objects::list(&member, COMMAND).await?.is_empty(), "commands are gone once they are carried out");
    fleet.finish().await
}

#[tokio::test]
async fn a_queue_that_cannot_be_is_refused_or_says_what_is_wrong() -> anyhow::Result<()> {
    let fleet = FleetSpec::of("east 1x0").start().await?;
    let member = fleet.member("east")?;
    for (spec, wanted) in [
        (json!({"weight": 0}), "found weight 0; allowed: 1 to 65535"),
        (json!({"parent": "bad"}), "field spec.parent: found the queue itself"),
        (json!({"priority": -1}), "found priority -1; allowed: 0 or more"),
        (json!({"dequeueStrategy": "lifo"}), "found dequeueStrategy lifo; allowed: traverse, fifo"),
        (json!({"capability": {"cpu": "many"}}), "spec.capability.cpu: Invalid value: \"many\""),
        (json!({"capability": {"cpu": "-4"}}), "spec.capability.cpu: Invalid value: \"-4\""),
        (json!({"capability": {"cpu": -4}}), "should be greater than or equal to 0"),
        (
            json!({"guarantee": {"resource": {"cpu": "5"}}, "capability": {"cpu": 4}}),
            "found guarantee over capability",
        ),
        (json!({"deserved": {"cpu": "4500m"}, "capability": {"cpu": 4}}), "found deserved over capability"),
        (
            json!({"guarantee": {"resource": {"memory": "2Gi"}}, "deserved": {"memory": "1Gi"}}),
            "found guarantee over deserved",
        ),
    ] {
        let error = match objects::create(&member, &queue("bad", spec.clone())).await {
            Err(error) => error.to_string(),
            Ok(()) => anyhow::bail!("taken: {spec}"),
        };
        assert!(error.contains(wanted), "{error}\nwanted: {wanted}");
    }
    let fine =
        json!({"guarantee": {"resource": {"cpu": "2"}}, "deserved": {"cpu": "3"}, "capability": {"cpu": 4}});
    objects::create(&member, &queue("fine", fine)).await?;
    // What only other objects show stands on the queue.
    objects::apply(&member, &queue("orphan", json!({"parent": "nobody"}))).await?;
    objects::apply(&member, &queue("one", json!({"parent": "two"}))).await?;
    objects::apply(&member, &queue("two", json!({"parent": "one"}))).await?;
    let says = async |name: &str, wanted: &str| {
        fleet
            .wait_for(&format!("queue {name} to say what is wrong"), async || {
                let queue = objects::get(&member, VOLCANO_QUEUE, "", name).await?.unwrap_or_default();
                let condition = &queue["status"]["conditions"][0];
                let said = condition["message"].as_str().unwrap_or_default().to_owned();
                let right =
                    condition["type"] == "Valid" && condition["status"] == "False" && said.contains(wanted);
                Ok(Polled::when(right, || queue["status"].to_string()))
            })
            .await
    };
    says("orphan", "field spec.parent: found nobody, which does not exist").await?;
    says("one", "field spec.parent: found the cycle one -> two -> one").await?;
    fleet.finish().await
}
