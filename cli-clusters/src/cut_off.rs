//! A cluster whose agent is not asked any more: its credential on the hub ends, then its lease.
//!
//! A hostile agent would renew its lease for ever, and a stolen credential would outlive the cluster. An honest agent stops the
//! fenced jobs in its member when it cannot renew its lease, so none of them runs twice if others start it later.
//! Deliberately absent: what the hub does with the cluster's jobs then.

use std::time::Duration;

use anyhow::bail;
use fleet_api::{
    access::{AGENT_ACCOUNT, BOOTSTRAP},
    names::{FENCE_GRACE_ANNOTATION, LEASE_NAME, cluster_namespace},
};
use fleet_cli_ground::{connect::Hub, members::cluster_path, server::Selectors};
use fleet_console::progress::Progress;
use fleet_hub_core::{Options, world::LONGEST_SAID};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use crate::{install, status};

/// Accounts on the hub with which an agent speaks for its cluster, or gets a token to do so.
const ACCOUNTS: [&str; 2] = [AGENT_ACCOUNT, BOOTSTRAP];
/// Longest wait for a lease that nobody can renew any more.
const PATIENCE: Duration = Duration::from_secs(180);
/// Until then servers of the hub may still let through what they knew before.
const SETTLES: Duration = Duration::from_secs(10);
/// Pause between two looks.
const STEP: Duration = Duration::from_secs(1);

/// Name of the agent's cluster-wide role on the hub, and of its binding.
pub fn agent_role(cluster: &str) -> String {
    format!("fleet-agent-{cluster}")
}

/// Deletes what gives the cluster's agent rights on the hub, and its credentials, and prints what was deleted. What a join
/// made besides stays.
///
/// # Errors
/// What the hub says.
pub async fn take_rights(hub: &Hub, name: &str) -> anyhow::Result<()> {
    let namespace = cluster_namespace(name);
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let bindings = format!("{rbac}/namespaces/{namespace}/rolebindings");
    let within = format!("/api/v1/namespaces/{namespace}");
    let named = |path: &str, object: &Value| {
        format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default())
    };
    let binds = |binding: &Value| {
        let subjects = binding["subjects"].as_array();
        subjects.into_iter().flatten().any(|subject| is_agent(subject, &namespace))
    };
    let found = items(hub, &bindings).await?;
    let mut paths: Vec<String> =
        found.iter().filter(|binding| binds(binding)).map(|binding| named(&bindings, binding)).collect();
    for kind in ["clusterrolebindings", "clusterroles"] {
        paths.push(format!("{rbac}/{kind}/{}", agent_role(name)));
    }
    // No token of an account that is gone is accepted, also if the account is made anew.
    paths.extend(ACCOUNTS.iter().map(|account| format!("{within}/serviceaccounts/{account}")));
    let secrets = format!("{within}/secrets");
    let found = items(hub, &secrets).await?;
    paths.extend(found.iter().filter(|secret| is_token(secret)).map(|secret| named(&secrets, secret)));
    let mut lines = Vec::new();
    for path in &paths {
        install::delete(&hub.server, path, &mut lines).await?;
    }
    for line in lines {
        println!("{line}");
    }
    Ok(())
}

/// Whether a binding's subject is the cluster's agent: by its account, the account's user name, or its group.
fn is_agent(subject: &Value, namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str().unwrap_or_default() {
        "ServiceAccount" => subject["namespace"] == namespace && ACCOUNTS.contains(&name),
        "User" => {
            ACCOUNTS.iter().any(|account| name == format!("system:serviceaccount:{namespace}:{account}"))
        }
        "Group" => name == format!("system:serviceaccounts:{namespace}"),
        _ => false,
    }
}

/// Whether a Secret has a token of the agent's, or one is bound to it.
fn is_token(secret: &Value) -> bool {
    let account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"].as_str();
    (secret["type"] == "kubernetes.io/service-account-token"
        && account.is_some_and(|name| ACCOUNTS.contains(&name)))
        || secret["metadata"]["name"] == BOOTSTRAP
}

async fn items(hub: &Hub, path: &str) -> anyhow::Result<Vec<Value>> {
    match hub.server.list(path, &Selectors::default(), "application/json").await {
        Ok(found) => Ok(found["items"].as_array().cloned().unwrap_or_default()),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the lease of a cluster whose agent has lost its rights has run out: the cluster is not Ready, and an honest
/// agent has stopped its fenced jobs. Returns at once for a cluster that has been silent for so long.
///
/// # Errors
/// What the hub says; the lease is for too long, or somebody still renews it.
pub async fn wait_for_lease(hub: &Hub, name: &str) -> anyhow::Result<()> {
    let standing = lease(hub, name).await?;
    let left = standing.as_ref().map_or(Duration::ZERO, |lease| left(lease, Timestamp::now()));
    if left > PATIENCE {
        bail!(
            "cluster {name:?}: its agent has no rights on the hub any more, but by its lease it may run jobs for {} s from \
             now; allowed: {} s. Run the command again then. If you do not believe the lease, run it again after `kubectl \
             delete lease {LEASE_NAME} -n {}`",
            left.as_secs(),
            PATIENCE.as_secs(),
            cluster_namespace(name)
        );
    }
    let grace = grace(standing.as_ref()).min(PATIENCE);
    let _progress = Progress::start(format!("waiting until the lease of {name} has run out"));
    let began = Instant::now();
    let mut until = began + left;
    let mut renewed = renewal(standing.as_ref());
    let mut is_told = false;
    loop {
        let is_ready = is_ready(&hub.server.object(&cluster_path(name)).await?);
        let now = Instant::now();
        if is_ready {
            until = until.max(now + grace);
        }
        if until <= now {
            return Ok(());
        }
        if !is_told {
            println!(
                "the agent of {name} has no rights on the hub any more; waiting for its lease to run out and for fenced jobs to \
                 stop there, {} s at most",
                PATIENCE.as_secs()
            );
            is_told = true;
        }
        let seen = renewal(lease(hub, name).await?.as_ref());
        if began.elapsed() <= SETTLES {
            renewed = seen;
        } else if seen.is_some() && seen != renewed {
            bail!("{}", renewed_by_others(name));
        }
        if began.elapsed() >= PATIENCE {
            let still = if is_ready { "is still Ready" } else { "may still run fenced jobs" };
            bail!(
                "cluster {name:?} {still} {} s after its agent lost its rights: does fleet-controller run? The cluster stays \
                 cordoned; run the command again",
                PATIENCE.as_secs()
            );
        }
        tokio::time::sleep(STEP).await;
    }
}

/// The error for an agent with another credential than those of its account.
fn renewed_by_others(name: &str) -> String {
    format!(
        "cluster {name:?}: somebody still renews its lease, with a credential that is not of its agent's account, so jobs may \
         run there. A member of `fleet up` is served by that program, which has to end first. The cluster stays cordoned; when \
         nobody renews the lease, run the command again"
    )
}

async fn lease(hub: &Hub, name: &str) -> anyhow::Result<Option<Value>> {
    let namespace = cluster_namespace(name);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{LEASE_NAME}");
    match hub.server.object(&path).await {
        Ok(lease) => Ok(Some(lease)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn renewal(lease: Option<&Value>) -> Option<String> {
    lease?["spec"]["renewTime"].as_str().map(str::to_owned)
}

fn is_ready(cluster: &Value) -> bool {
    let conditions = cluster["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// Time within which an agent without a lease has stopped its fenced jobs.
fn grace(lease: Option<&Value>) -> Duration {
    let said = lease.and_then(|lease| lease["metadata"]["annotations"][FENCE_GRACE_ANNOTATION].as_str());
    let said = said.and_then(|text| text.parse().ok()).map(Duration::from_secs);
    said.map_or(Options::default().fence_grace, |said| said.min(LONGEST_SAID))
}

/// How long fenced jobs may still run in the member if the lease is not renewed any more: as the hub counts it, from the
/// last write of the agent.
fn left(lease: &Value, now: Timestamp) -> Duration {
    let rules = Options::default();
    let said = lease["spec"]["leaseDurationSeconds"].as_u64().map(Duration::from_secs).unwrap_or_default();
    let holds = said.min(LONGEST_SAID).max(rules.lease_duration) + rules.lease_margin + grace(Some(lease));
    let written = status::written_at(lease);
    let age = written.map_or(0, |at| now.as_second().saturating_sub(at.as_second()));
    holds.saturating_sub(Duration::from_secs(u64::try_from(age).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_waited_for_as_long_as_its_agent_may_run_fenced_jobs() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let lease = |seconds: u64, grace: &str, written: &str| {
            json!({"metadata": {"annotations": {FENCE_GRACE_ANNOTATION: grace},
                    "managedFields": [{"manager": "member-agent", "time": written}]},
                "spec": {"leaseDurationSeconds": seconds}})
        };
        let seconds = |lease: Value| left(&lease, now).as_secs();
        assert_eq!(seconds(lease(40, "20", "2026-01-01T00:00:50Z")), 60);
        assert_eq!(seconds(lease(1, "5", "2026-01-01T00:00:50Z")), 45, "never less than the hub's own");
        assert_eq!(seconds(lease(40, "20", "2025-12-31T00:00:00Z")), 0, "long dead");
        assert_eq!(seconds(lease(40, "20", "2026-01-01T01:00:00Z")), 70, "another clock");
        assert_eq!(seconds(json!({"spec": {}})), 70, "nothing is known");
        let absurd = u64::MAX.to_string();
        assert!(left(&lease(u64::MAX, &absurd, "2026-01-01T00:00:50Z"), now) > PATIENCE);
    }

    #[test]
    fn rights_of_the_agent_are_found_whatever_they_are_bound_to() {
        let account = |name: &str, of: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": of});
        let found = |subject: Value| is_agent(&subject, "fleet-east");
        assert!(found(account("member-agent", "fleet-east")));
        assert!(found(account("member-bootstrap", "fleet-east")));
        assert!(found(json!({"kind": "User", "name": "system:serviceaccount:fleet-east:member-agent"})));
        assert!(found(json!({"kind": "Group", "name": "system:serviceaccounts:fleet-east"})));
        assert!(!found(account("member-agent", "fleet-west")));
        assert!(!found(account("backup", "fleet-east")));
        assert!(!found(json!({"kind": "User", "name": "member-agent"})));
    }

    #[test]
    fn tokens_go_and_what_users_reach_the_member_with_stays() {
        let annotations = json!({"kubernetes.io/service-account.name": "member-agent"});
        let token = json!({"type": "kubernetes.io/service-account-token",
            "metadata": {"name": "any", "annotations": annotations}});
        assert!(is_token(&token));
        assert!(is_token(&json!({"type": "Opaque", "metadata": {"name": "member-bootstrap"}})));
        assert!(!is_token(&json!({"type": "Opaque", "metadata": {"name": "member-access"}})));
    }
}
