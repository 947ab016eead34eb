//! What people and scripts wait for with the real kubectl ends: rollouts of the hub's Deployments, and conditions of its
//! jobs of every kind.

use std::time::Duration;

use anyhow::Context;
use fleet_kubesim::RunTime;
use fleet_tests::{
    FleetSpec, Kubectl,
    jobs::{Job, Queueing, deployment, gang_policy},
    kubectl::Shell,
    volcano::example,
};
use serde_json::json;

#[tokio::test]
async fn rollouts_and_conditions_of_the_hub_can_be_waited_for() -> anyhow::Result<()> {
    let Some(program) = Kubectl::find() else {
        eprintln!("skipped: no kubectl on PATH, and FLEET_KUBECTL does not name one");
        return Ok(());
    };
    let spec = FleetSpec::of("east 4x8, west 4x8").cpu("64").listening();
    let fleet = spec.run_time(RunTime::For(Duration::from_millis(500))).start().await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, fleet.kubeconfig().context("a hub that listens")?)?;
    let kubectl = Kubectl::new(program, Shell::new(&kubeconfig, folder.path())?);

    let mut policy = gang_policy(Queueing::AtOnce);
    let selectors = policy["spec"]["resourceSelectors"].as_array_mut().context("selectors")?;
    selectors.push(json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}));
    fleet.apply(&policy).await?;
    let services = json!({
        "apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "services", "namespace": "default"},
        "spec": {"placement": {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}},
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}]},
    });
    fleet.apply(&services).await?;

    fleet.apply(&deployment("web", 2)).await?;
    let done = "deployment \"web\" successfully rolled out";
    let said = kubectl.ok("rollout status deployment/web --timeout=30s").await?;
    assert!(said.stdout.contains(done), "{}", said.stdout);
    // The status of the former generation must not end it.
    kubectl.ok("set image deployment/web main=registry.example.com/serve:v2").await?;
    let said = kubectl.ok("rollout status deployment/web --timeout=30s").await?;
    assert!(said.stdout.contains(done), "{}", said.stdout);
    for (_, copy) in fleet.member_objects(fleet_tests::objects::DEPLOYMENT).await? {
        assert_eq!(
            copy["spec"]["template"]["spec"]["containers"][0]["image"],
            "registry.example.com/serve:v2"
        );
    }
    kubectl.ok("wait --for=condition=Available deployment/web --timeout=30s").await?;

    for (job, what) in [
        (Job::pytorch("torch").manifest(), "condition=Succeeded pytorchjob/torch"),
        (Job::tensorflow("tensor").manifest(), "condition=Succeeded tfjob/tensor"),
        (Job::mpi("mpi").manifest(), "condition=Succeeded mpijob/mpi"),
        (Job::batch("batch").manifest(), "condition=Complete job.batch/batch"),
        (
            example("tensorflow-benchmark.yaml")?,
            "condition=Completed job.batch.volcano.sh/tensorflow-benchmark",
        ),
    ] {
        fleet.apply(&job).await?;
        kubectl.ok(&format!("wait --for={what} --timeout=30s")).await?;
    }
    fleet.finish().await
}
