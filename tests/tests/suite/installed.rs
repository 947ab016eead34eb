//! What `helm test` runs, with the rights that the charts give to it: it fails as long as something is missing, and succeeds once
//! the release works.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use fleet_api::{ClusterSpec, crds::Side, yaml};
use fleet_kubesim::{RunTime, hollow, local_fleet::admit_member};
use fleet_tests::{
    ApiServers, Polled,
    objects::{self, Kind},
    process::{Daemon, fleet_binary, program},
    repository,
    rights::{Hub, account_manifest, namespace_manifest},
    servers::{Door, Plane},
    wait_for,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const WITHIN: Duration = Duration::from_secs(60);
const BINDING_OF_POLICY: Kind = Kind {
    api_version: "admissionregistration.k8s.io/v1",
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    namespaced: false,
};

/// Kubeconfigs of one test.
struct Files(tempfile::TempDir);

impl Files {
    /// A kubeconfig of the server; with a token in the place of the administrator's credential.
    fn write(&self, name: &str, plane: &Plane, token: Option<&str>) -> anyhow::Result<PathBuf> {
        let address = plane.address.as_ref().with_context(|| format!("{name}: no socket"))?;
        let mut kubeconfig: Value = yaml::read(&address.kubeconfig)?;
        if let Some(token) = token {
            kubeconfig["users"][0]["user"] = json!({"token": token});
        }
        let file = self.0.path().join(name);
        std::fs::write(&file, kubeconfig.to_string())?;
        Ok(file)
    }
}

/// Whether a command of `fleet` succeeds, and what it prints.
fn fleet(kubeconfig: &Path, words: &[&str]) -> anyhow::Result<(bool, String)> {
    let mut command = Command::new(fleet_binary()?);
    let output = command.env_remove("KUBECONFIG").arg("--kubeconfig").arg(kubeconfig).args(words).output()?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    Ok((output.status.success(), out + &err))
}

/// The command fails, with this in what it prints.
fn fails(kubeconfig: &Path, words: &[&str], why: &str) -> anyhow::Result<()> {
    let (succeeds, text) = fleet(kubeconfig, words)?;
    anyhow::ensure!(!succeeds && text.contains(why), "{words:?}: wanted a failure with {why:?}: {text}");
    Ok(())
}

async fn until_it_succeeds(kubeconfig: &Path, words: &[&str]) -> anyhow::Result<()> {
    wait_for(&format!("{words:?} to succeed"), WITHIN, async || {
        let (succeeds, text) = fleet(kubeconfig, words)?;
        Ok(Polled::when(succeeds, || text))
    })
    .await
}

/// The account of the hub's test, as `charts/fleet/templates/tests/hub.yaml` makes it.
async fn account_of_the_test(hub: &Hub) -> anyhow::Result<String> {
    let rules = std::fs::read_to_string(repository().join("charts/fleet/files/test-rules.yaml"))?;
    let rules: Value = yaml::read(&rules)?;
    let (group, name, namespace) = ("rbac.authorization.k8s.io", "fleet-hub-fleet-test", "kube-system");
    let version = format!("{group}/v1");
    let subjects = json!([{"kind": "ServiceAccount", "name": "fleet-test", "namespace": "fleet-hub"}]);
    let lease = json!([{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
        "resourceNames": ["fleet-controller"], "verbs": ["get"]}]);
    hub.apply(&[
        namespace_manifest("fleet-hub"),
        account_manifest("fleet-hub", "fleet-test"),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}, "subjects": subjects}),
        json!({"apiVersion": version, "kind": "Role", "metadata": {"name": name, "namespace": namespace},
            "rules": lease}),
        json!({"apiVersion": version, "kind": "RoleBinding", "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name}, "subjects": subjects}),
    ])
    .await?;
    hub.token("fleet-hub", "fleet-test").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tests_of_the_charts_fail_until_the_release_works() -> anyhow::Result<()> {
    let doctor = ["doctor", "--hub-only", "--strict"];
    let status = ["status", "east", "--check"];
    let hub = Hub::start(Door::Listening).await?;
    let east = ApiServers::from_env()?.start("east", Side::Member, Door::Listening).await?;
    let files = Files(tempfile::tempdir()?);
    let administrator = files.write("administrator", &hub.plane, None)?.display().to_string();
    let of_test = files.write("test", &hub.plane, Some(&account_of_the_test(&hub).await?))?;

    fails(&of_test, &doctor, "fleet-controller: none has ever led")?;
    let _controller = Daemon::start(&program("fleet-controller")?, &["--kubeconfig", &administrator])?;
    until_it_succeeds(&of_test, &doctor).await?;

    admit_member(&hub.client, "east", ClusterSpec::default(), None).await?;
    let of_agent = files.write("agent", &hub.plane, Some(&hub.token("fleet-east", "member-agent").await?))?;
    fails(&of_agent, &status, "error: cluster \"east\": its agent has never answered")?;
    // Without the rights of the test nothing is found, which is no success.
    fails(&of_agent, &doctor, "admission policies: not checked")?;
    let stop = CancellationToken::new();
    let nodes = hollow::NodeSpec { count: 1, cpu: "4".into(), memory: "8Gi".into(), ..Default::default() };
    let options = hollow::Options::new("east", nodes, RunTime::Forever);
    let hollow = tokio::spawn(hollow::run(east.client.clone(), options, stop.clone()));
    let member = files.write("member", &east, None)?.display().to_string();
    let hub_file = of_agent.display().to_string();
    let flags = ["--cluster", "east", "--hub-kubeconfig", &hub_file, "--member-kubeconfig", &member];
    let _agent = Daemon::start(&program("member-agent")?, &flags)?;
    until_it_succeeds(&of_agent, &status).await?;

    objects::delete(&hub.client, BINDING_OF_POLICY, "", "fleet-quota-tree").await?;
    fails(&of_test, &doctor, "not in force: fleet-quota-tree")?;
    assert!(fleet(&of_test, &["doctor", "--hub-only"])?.0, "a warning fails only where that is asked for");
    stop.cancel();
    hollow.await??;
    Ok(())
}
