//! The agent in its member: the manifests that `fleet join` applies or prints, and what `fleet unjoin`
//! removes.
//!
//! Rights are those of chart `member-agent`, read from the same files. Deliberately absent: settings for
//! special cases (webhook, scheduler's configuration, impersonation); the chart has them.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use fleet_api::{
    access::{self, BOOTSTRAP, CLAIM},
    names::{MEMBER_NAMESPACE, cluster_namespace},
};
use fleet_cli_ground::{apply, server::Server};
use serde_json::{Value, json};

/// Name of all objects of the agent in its member.
pub const AGENT: &str = "fleet-member-agent";
/// Secret of the member with the bootstrap kubeconfig.
const BOOTSTRAP_SECRET: &str = "fleet-hub-bootstrap";
/// Lifetime of an unused bootstrap token.
const BOOTSTRAP_SECONDS: i64 = 3600;
/// Limit for the removal of an agent's objects.
const GONE_WITHIN: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(200);

/// Settings of an installation.
pub struct Wishes<'a> {
    pub cluster: &'a str,
    pub image: &'a str,
    /// As for `member-agent --controllers`.
    pub controllers: &'a str,
}

/// A kubeconfig of the hub with a token of one hour, which is invalid once the agent has its own.
///
/// # Errors
/// What the hub says.
pub async fn bootstrap(hub: &Server, cluster: &str, url: &str, ca: &str) -> anyhow::Result<Value> {
    let namespace = cluster_namespace(cluster);
    // Tokens of an earlier join are invalidated with the Secret to which they are bound; only then may another agent claim.
    for secret in [BOOTSTRAP, CLAIM] {
        match hub.delete(&format!("/api/v1/namespaces/{namespace}/secrets/{secret}")).await {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
    }
    apply::apply_all(hub, &namespace, &access::bootstrap_rights(cluster)).await?;
    let secret = hub.object(&format!("/api/v1/namespaces/{namespace}/secrets/{BOOTSTRAP}")).await?;
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "expirationSeconds": BOOTSTRAP_SECONDS,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": BOOTSTRAP, "uid": secret["metadata"]["uid"]}}});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{BOOTSTRAP}/token");
    let answer = hub.create(&path, &request).await?;
    let Some(token) = answer["status"]["token"].as_str() else {
        bail!("{}: issued no token for service account {namespace}/{BOOTSTRAP}", hub.name);
    };
    let mut server = json!({"server": url});
    if !ca.is_empty() {
        server["certificate-authority-data"] = json!(STANDARD.encode(ca));
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{"name": "hub", "cluster": server}],
        "users": [{"name": BOOTSTRAP, "user": {"token": token}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": BOOTSTRAP}}],
    }))
}

/// All objects of the agent in its member except the definitions.
///
/// # Errors
/// The chart's rules cannot be read.
pub fn objects(wishes: &Wishes<'_>, bootstrap: &Value) -> anyhow::Result<Vec<Value>> {
    let (everywhere, state) =
        access::agent_rules(wishes.controllers != "none").context("the chart's rules of the agent")?;
    let labels = json!({"app.kubernetes.io/name": "member-agent", "app.kubernetes.io/instance": AGENT,
        "app.kubernetes.io/part-of": "fleet", "app.kubernetes.io/managed-by": "fleet-join"});
    let named = |name: &str| json!({"name": name, "labels": labels});
    let within = |name: &str| json!({"name": name, "namespace": MEMBER_NAMESPACE, "labels": labels});
    let rbac = "rbac.authorization.k8s.io/v1";
    let reference =
        |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let account = json!([{"kind": "ServiceAccount", "name": AGENT, "namespace": MEMBER_NAMESPACE}]);
    let everybody =
        json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"}]);
    Ok(vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within(AGENT)}),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": named(AGENT), "rules": everywhere}),
        json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": named(AGENT),
            "roleRef": reference("ClusterRole", AGENT), "subjects": account}),
        json!({"apiVersion": rbac, "kind": "Role", "metadata": within(AGENT), "rules": state}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": within(AGENT),
            "roleRef": reference("Role", AGENT), "subjects": account}),
        json!({"apiVersion": rbac, "kind": "Role", "metadata": within("fleet-watchdog"), "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": ["member-agent"],
                "verbs": ["get"]}]}),
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": within("fleet-watchdog"),
            "roleRef": reference("Role", "fleet-watchdog"), "subjects": everybody}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": within(BOOTSTRAP_SECRET),
            "data": {"kubeconfig": STANDARD.encode(bootstrap.to_string())}}),
        deployment(wishes, &labels),
    ])
}

fn deployment(wishes: &Wishes<'_>, labels: &Value) -> Value {
    let selector = json!({"app.kubernetes.io/name": "member-agent", "app.kubernetes.io/instance": AGENT});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": AGENT, "namespace": MEMBER_NAMESPACE, "labels": labels},
        "spec": {
            // One agent acts. A new one stands by until the old one gives its lease in the member back.
            "replicas": 1,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}},
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": AGENT,
                    "terminationGracePeriodSeconds": 5,
                    "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                        "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "member-agent",
                        "image": wishes.image,
                        "command": ["member-agent"],
                        "args": ["--cluster", wishes.cluster, "--hub-bootstrap", "/etc/fleet/hub/kubeconfig",
                            "--credential-folder", "/run/fleet", "--controllers", wishes.controllers,
                            "--scheduler-names", "fleet"],
                        "env": [{"name": "POD_NAME",
                            "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                        "volumeMounts": [
                            {"name": "hub", "mountPath": "/etc/fleet/hub", "readOnly": true},
                            {"name": "credential", "mountPath": "/run/fleet"}],
                        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
                        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]}},
                    }],
                    "volumes": [
                        {"name": "hub", "secret": {"secretName": BOOTSTRAP_SECRET, "optional": true,
                            "defaultMode": 0o440}},
                        {"name": "credential", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
                },
            },
        },
    })
}

/// Uninstalls Fleet in a member: first the agent, then its data, its namespace and Fleet's own definitions.
/// Definitions of other groups stay, because others may use them. Returns a line for each.
///
/// # Errors
/// What the member says.
pub async fn remove(member: &Server, reader: &str) -> anyhow::Result<Vec<String>> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let mut paths = vec![
        format!("/apis/apps/v1/namespaces/{MEMBER_NAMESPACE}/deployments/{AGENT}"),
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/fleet-member-agent"
            .to_string(),
    ];
    for name in [AGENT, reader] {
        paths.push(format!("{rbac}/clusterrolebindings/{name}"));
        paths.push(format!("{rbac}/clusterroles/{name}"));
    }
    let mut lines = Vec::new();
    for path in &paths {
        delete(member, path, &mut lines).await?;
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for name in ["reservations.fleet.dev"] {
        delete(member, &format!("{definitions}/{name}"), &mut lines).await?;
    }
    let namespace = format!("/api/v1/namespaces/{MEMBER_NAMESPACE}");
    delete(member, &namespace, &mut lines).await?;
    let began = tokio::time::Instant::now();
    while member.object(&namespace).await.is_ok() {
        if began.elapsed() > GONE_WITHIN {
            bail!(
                "namespace {MEMBER_NAMESPACE} of the member is still there after {} s; `kubectl describe namespace \
                 {MEMBER_NAMESPACE}` tells why",
                GONE_WITHIN.as_secs()
            );
        }
        tokio::time::sleep(STEP).await;
    }
    Ok(lines)
}

/// Deletes what a path names, if it is there, and adds a line that says so.
pub async fn delete(member: &Server, path: &str, lines: &mut Vec<String>) -> anyhow::Result<()> {
    match member.delete(path).await {
        Ok(_) => {
            let mut parts = path.rsplit('/');
            let (name, kind) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            lines.push(format!("{}/{name} deleted", kind.trim_end_matches('s')));
            Ok(())
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_installed_with_the_charts_rights_and_a_token_it_may_lose() {
        let wishes = Wishes { cluster: "east", image: "r/agent:1", controllers: "none" };
        let all = objects(&wishes, &json!({"kind": "Config"})).expect("objects");
        let of = |kind: &str| all.iter().filter(|object| object["kind"] == kind).collect::<Vec<_>>();
        let rules = of("ClusterRole")[0]["rules"].as_array().expect("rules");
        assert!(rules.iter().any(|rule| rule["resources"] == json!(["pods/binding"])));
        assert!(
            !rules.iter().any(|rule| rule.to_string().contains("pytorchjobs/status")),
            "no job controllers"
        );
        let pod = &of("Deployment")[0]["spec"]["template"]["spec"];
        let arguments = pod["containers"][0]["args"].to_string();
        assert!(arguments.contains("\"--cluster\",\"east\""), "{arguments}");
        assert_eq!(pod["volumes"][0]["secret"]["optional"], true);
        assert_eq!(pod["volumes"][0]["secret"]["secretName"], of("Secret")[0]["metadata"]["name"]);
        let brings = Wishes { controllers: "pytorchjob", ..wishes };
        let all = objects(&brings, &json!({})).expect("objects");
        assert!(all.iter().any(|object| object.to_string().contains("pytorchjobs/status")));
    }
}
