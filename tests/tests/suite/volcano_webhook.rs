//! The agent's admission webhook.

use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Polled,
    fleet::Part,
    objects::{self, VOLCANO_JOB, VOLCANO_QUEUE, WEBHOOK_CONFIGURATION},
    volcano::{queue, training},
};
use serde_json::{Value, json};

#[tokio::test]
async fn what_only_other_objects_show_is_refused_while_the_agent_answers() -> anyhow::Result<()> {
    let mut fleet = FleetSpec::of("east 1x0").webhook().run_time(RunTime::Forever).start().await?;
    let member = fleet.member("east")?;
    fleet
        .wait_for("the webhook to be registered", async || {
            let found = objects::get(&member, WEBHOOK_CONFIGURATION, "", "fleet-member-agent").await?;
            Ok(Polled::when(found.is_some(), || "none".to_owned()))
        })
        .await?;
    let refused = async |manifest: &Value, wanted: &str| {
        let error = match objects::create(&member, manifest).await {
            Err(error) => error.to_string(),
            Ok(()) => anyhow::bail!("taken: {manifest}"),
        };
        anyhow::ensure!(error.contains(wanted), "{error}\nwanted: {wanted}");
        anyhow::ensure!(
            error.contains("admission webhook \"volcano.fleet.dev\" denied the request"),
            "{error}"
        );
        Ok(())
    };
    let in_queue = |name: &str, queue: &str| {
        let mut job = training(name);
        job["spec"]["queue"] = queue.into();
        job
    };
    refused(
        &in_queue("a", "research"),
        "job default/a, field spec.queue: found research, which does not exist; allowed: a queue that is Open",
    )
    .await?;
    refused(&in_queue("a", "root"), "field spec.queue: found root; allowed: a queue below it").await?;
    // At once after its queue, as in one file.
    objects::create(&member, &queue("research", json!({}))).await?;
    objects::create(&member, &in_queue("a", "research")).await?;
    let of_job = async |spec: Value| {
        objects::merge(&member, VOLCANO_JOB, "default", "a", &json!({"spec": spec})).await
    };
    of_job(json!({"minAvailable": 1})).await?;
    let error = of_job(json!({"queue": "default"})).await.expect_err("moved");
    assert!(
        format!("{error:#}").contains("job default/a, field spec.queue: found a change; allowed:"),
        "{error:#}"
    );

    objects::create(&member, &queue("vision", json!({"parent": "research"}))).await?;
    fleet
        .wait_for("the queue above to be refused", async || {
            let said =
                refused(&in_queue("b", "research"), "found research, which has queues below it (vision)")
                    .await;
            // Until the new one is seen the job is taken.
            if said.is_err() {
                objects::delete(&member, VOLCANO_JOB, "default", "b").await?;
            }
            Ok(Polled::when(said.is_ok(), || format!("{said:?}")))
        })
        .await?;
    refused(
        &queue("audio", json!({"parent": "sound"})),
        "queue audio, field spec.parent: found sound, which does not exist; allowed: a queue, or root",
    )
    .await?;
    let circle = json!({"spec": {"parent": "vision"}});
    let error = objects::merge(&member, VOLCANO_QUEUE, "", "research", &circle).await.expect_err("a circle");
    assert!(format!("{error:#}").contains("found the cycle research -> vision -> research"), "{error:#}");
    for (name, wanted) in [
        ("default", "queue default: it always exists"),
        (
            "research",
            "queue research: found the queue vision below it; allowed: to delete a queue without any",
        ),
    ] {
        let error = objects::delete(&member, VOLCANO_QUEUE, "", name).await.expect_err("deleted");
        assert!(format!("{error:#}").contains(wanted), "{error:#}");
    }
    // A tree as one file makes it, and takes it away.
    objects::create(&member, &queue("top", json!({}))).await?;
    objects::create(&member, &queue("leaf", json!({"parent": "top"}))).await?;
    for name in ["leaf", "top"] {
        objects::delete(&member, VOLCANO_QUEUE, "", name).await?;
    }
    let group = |name: &str, owners: Value| {
        json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default", "ownerReferences": owners},
            "spec": {"minMember": 1, "queue": "nobody"}})
    };
    refused(
        &group("g", json!([])),
        "podgroup default/g, field spec.queue: found nobody, which does not exist",
    )
    .await?;
    // Nobody reads what a controller is told: its groups wait and say why.
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    objects::create(&member, &group("owned", owner)).await?;

    objects::merge_status(&member, VOLCANO_QUEUE, "", "vision", &json!({"status": {"state": "Closed"}}))
        .await?;
    fleet
        .wait_for("a closed queue to take no more", async || {
            let said = refused(
                &in_queue("c", "vision"),
                "found vision, which is Closed; allowed: a queue that is Open",
            )
            .await;
            if said.is_err() {
                objects::delete(&member, VOLCANO_JOB, "default", "c").await?;
            }
            Ok(Polled::when(said.is_ok(), || format!("{said:?}")))
        })
        .await?;

    // Without the agent nothing is in the way.
    fleet.kill(&Part::Agent("east".to_owned())).await;
    objects::create(&member, &in_queue("d", "research-of-tomorrow")).await?;
    Ok(())
}
