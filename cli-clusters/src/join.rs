//! `fleet join`: adds clusters.
//!
//! Join writes what an agent and the users of the hub need, in the member and on the hub; the agent is a
//! separate process. Every write is an apply, so an interrupted join is simply repeated.

use std::time::Duration;

use anyhow::{Context, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use fleet_api::{
    Cluster,
    access::{self, ACCESS_SECRET, RESERVED_CLUSTERS},
    cluster::Proposed,
    names::{MEMBER_NAMESPACE, cluster_namespace},
};
use fleet_apiserver::private;
use fleet_cli_ground::{
    answer::Answer,
    apply,
    args::Connect,
    connect::{self, Hub},
    members::{self, cluster_path},
    output,
    server::Server,
};
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::{args::JoinArgs, definitions, install};
use fleet_console::progress::Progress;

/// ServiceAccount in the member with which users of the hub read it.
pub(crate) const READER: &str = "fleet-reader";
/// Account and roles of the agent on the hub.
const AGENT: &str = access::AGENT_ACCOUNT;
/// Its token, in the namespace of the cluster on the hub.
const AGENT_TOKEN: &str = "member-agent-token";

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

/// Attempts to read a token that the member fills in.
const TOKEN_TRIES: usize = 15;
const TOKEN_STEP: Duration = Duration::from_millis(200);
/// A year: for servers that only issue tokens with an expiry.
const TOKEN_SECONDS: i64 = 365 * 24 * 3600;
/// A cluster's name becomes part of a namespace's name.
const LONGEST_NAME: usize = 57;

pub async fn join(connect: &Connect, args: &JoinArgs) -> anyhow::Result<Answer> {
    check_name(&args.name)?;
    let hub = &connect.hub().await?;
    if args.confirm {
        return confirm(hub, &args.name).await;
    }
    let _progress = Progress::start(format!("joining {}", args.name));
    let known = members::clusters(hub).await?;
    if args.print {
        return print(connect, hub, args).await;
    }
    let (origin, kubeconfig, context) = member_kubeconfig(connect, &args.name, args)?;
    let context = context.as_deref();
    let (mut member, _) = connect::server(&args.name, &origin, kubeconfig.clone(), context).await?;
    member.name = args.name.clone();
    members::endpoint(&member.url).map_err(|found| anyhow::anyhow!("{origin}, server: {found}"))?;
    // A cluster without an address, or whose join with this address was interrupted, is joined again.
    let stands = known.iter().find(|cluster| cluster.metadata.name.as_deref() == Some(&args.name));
    if stands.is_some_and(|cluster| cluster.spec.api_endpoint.as_ref().is_some_and(|url| *url != member.url))
    {
        bail!("cluster {:?} is in this fleet already; `fleet unjoin {}` removes it", args.name, args.name);
    }
    check_twin(&known, &args.name, &member.url)?;
    let definitions =
        definitions::of_member(&member).await.with_context(|| format!("cluster({})", args.name))?;
    let objects = [vec![member_namespace()], definitions.apply].concat();
    let on_member = apply::apply_all(&member, MEMBER_NAMESPACE, &objects)
        .await
        .with_context(|| format!("cluster({})", args.name))?;
    // The kinds are new to the member, so discovery is repeated.
    let readers = apply::apply_all(&member, MEMBER_NAMESPACE, &reader_objects()).await?;
    let token = token(&member, MEMBER_NAMESPACE, READER, READER).await?;
    let ca = ca_bundle(&kubeconfig, context)?;
    let mut objects = hub_objects(&args.name, Some((&member.url, &token, &ca)))?;
    if args.agent_kubeconfig.is_none() {
        without_lasting_token(&mut objects);
    }
    let on_hub = apply::apply_all(&hub.server, "default", &objects).await?;
    let mut text = String::new();
    for line in on_member.iter().chain(&definitions.kept).chain(&readers) {
        text.push_str(&format!("cluster({}): {line}\n", args.name));
    }
    for line in on_hub {
        text.push_str(&format!("hub: {line}\n"));
    }
    text.extend(missing_policies(hub).await?.iter().map(|line| format!("hub: {line}")));
    match &args.agent_kubeconfig {
        Some(file) => {
            let config = agent_kubeconfig(connect, hub, &args.name).await?;
            private::write(file, &config).with_context(|| format!("agent kubeconfig {}", file.display()))?;
            let file = file.display();
            text.push_str(&format!(
                "\nThe agent's kubeconfig of the hub is {file}. Now run the agent:\n\n  member-agent --cluster {} --hub-kubeconfig \
                 {file} --member-kubeconfig {origin}\n",
                args.name
            ));
        }
        None => {
            let agent = install(connect, hub, args).await?;
            for line in apply::apply_all(&member, MEMBER_NAMESPACE, &agent).await? {
                text.push_str(&format!("cluster({}): {line}\n", args.name));
            }
            text.push_str(&format!(
                "\nThe agent starts with a token of an hour and gets a credential of its own. `fleet status {}` says when it has.\n",
                args.name
            ));
        }
    }
    Ok(Answer::text(text))
}

/// The hub's part of a join, and the member's as a stream of manifests.
async fn print(connect: &Connect, hub: &Hub, args: &JoinArgs) -> anyhow::Result<Answer> {
    let mut objects = hub_objects(&args.name, None)?;
    without_lasting_token(&mut objects);
    apply::apply_all(&hub.server, "default", &objects).await?;
    let mut manifests = vec![member_namespace()];
    manifests.extend(definitions::all());
    manifests.extend(install(connect, hub, args).await?);
    let mut text = format!(
        "# Apply this to cluster {}. The token in Secret fleet-hub-bootstrap is valid for an hour and for one use.\n",
        args.name
    );
    text.extend(missing_policies(hub).await?.iter().map(|line| format!("# {line}")));
    for manifest in &manifests {
        text.push_str(&format!("---\n{}{}", definitions::remark(manifest), output::yaml(manifest)?));
    }
    Ok(Answer::text(text))
}

/// The agent's objects, with a bootstrap token made now.
async fn install(connect: &Connect, hub: &Hub, args: &JoinArgs) -> anyhow::Result<Vec<Value>> {
    let (_, administrator) = connect.kubeconfig()?;
    let ca = ca_bundle(&administrator, connect.context.as_deref())?;
    let url = args.hub_url.as_deref().unwrap_or(&hub.server.url);
    let bootstrap = install::bootstrap(&hub.server, &args.name, url, &ca).await?;
    let wishes = install::Wishes { cluster: &args.name, image: &args.image, controllers: &args.controllers };
    install::objects(&wishes, &bootstrap)
}

/// The member's kubeconfig: the named file, or the context with the cluster's name in the user's own
/// kubeconfig.
fn member_kubeconfig(
    connect: &Connect,
    name: &str,
    args: &JoinArgs,
) -> anyhow::Result<(String, Kubeconfig, Option<String>)> {
    if let Some(file) = &args.member_kubeconfig {
        return Ok((file.display().to_string(), connect::read(file)?, args.member_context.clone()));
    }
    let (origin, kubeconfig) = connect.kubeconfig()?;
    if !kubeconfig.contexts.iter().any(|context| context.name == name) {
        bail!(
            "kubeconfig {origin} has no context {name:?}: name the member's kubeconfig with --member-kubeconfig, or, for a member \
             that cannot be reached from here, apply there what `fleet join {name} --print` prints"
        );
    }
    Ok((origin, kubeconfig, Some(name.to_string())))
}

/// Removes the token Secret without an expiry: an agent that renews its credential does not need it.
fn without_lasting_token(objects: &mut Vec<Value>) {
    objects.retain(|object| !(object["kind"] == "Secret" && object["metadata"]["name"] == AGENT_TOKEN));
}

/// A warning for each admission policy that is missing: without them a member or a bootstrap token may do more.
async fn missing_policies(hub: &Hub) -> anyhow::Result<Vec<String>> {
    let mut missing = Vec::new();
    let policies = access::admission().context("the chart's admission policies")?;
    for policy in policies.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy") {
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        if hub.server.object(&format!("{POLICIES}/{name}")).await.is_err_and(|error| error.is_not_found()) {
            missing.push(format!(
                "warning: ValidatingAdmissionPolicy {name} is missing on the hub: agents and holders of bootstrap tokens may do \
                 more than their part; chart fleet installs it, or apply its files/admission.yaml\n"
            ));
        }
    }
    Ok(missing)
}

/// A kubeconfig of the hub with the token of the agent's account, and nothing of the administrator's own.
async fn agent_kubeconfig(connect: &Connect, hub: &Hub, name: &str) -> anyhow::Result<String> {
    let (_, administrator) = connect.kubeconfig()?;
    let namespace = cluster_namespace(name);
    let token = token(&hub.server, &namespace, AGENT, AGENT_TOKEN).await?;
    let ca = ca_bundle(&administrator, connect.context.as_deref())?;
    let mut cluster = json!({"server": hub.server.url});
    if !ca.is_empty() {
        cluster["certificate-authority-data"] = json!(STANDARD.encode(ca));
    }
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "hub",
        "clusters": [{"name": "hub", "cluster": cluster}],
        "users": [{"name": AGENT, "user": {"token": token}}],
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": AGENT, "namespace": namespace}}],
    });
    output::yaml(&config)
}

/// The same nodes under two cluster names would be counted, and filled, twice.
fn check_twin(known: &[Cluster], name: &str, url: &str) -> anyhow::Result<()> {
    let is_twin = |cluster: &&Cluster| {
        cluster.metadata.name.as_deref() != Some(name) && cluster.spec.api_endpoint.as_deref() == Some(url)
    };
    let Some(twin) = known.iter().find(is_twin) else { return Ok(()) };
    let twin = twin.metadata.name.clone().unwrap_or_default();
    bail!("the cluster at {url} is in this fleet already, as {twin:?}");
}

/// Copies an agent's proposals into the spec of its Cluster, and prints the changes.
async fn confirm(hub: &Hub, name: &str) -> anyhow::Result<Answer> {
    let known = members::clusters(hub).await?;
    let Some(cluster) = known.iter().find(|cluster| cluster.metadata.name.as_deref() == Some(name)) else {
        bail!("cluster {name:?} is not in this fleet; `fleet join {name}` adds it");
    };
    let proposed = cluster.status.as_ref().and_then(|status| status.proposed.clone()).unwrap_or_default();
    if let Some(url) = &proposed.api_endpoint {
        members::endpoint(url).map_err(|found| anyhow::anyhow!("status.proposed.apiEndpoint: {found}"))?;
        check_twin(&known, name, url)?;
    }
    let (patch, lines) = confirmation(cluster, &proposed, name);
    if lines.is_empty() {
        return Ok(Answer::text(format!(
            "cluster.fleet.dev/{name} unchanged: its agent proposes nothing else\n"
        )));
    }
    hub.server.merge(&cluster_path(name), &patch).await?;
    Ok(Answer::text(format!("cluster.fleet.dev/{name} confirmed\n{}", lines.concat())))
}

/// The patch for the observed resource version, and a line for each field that it changes.
fn confirmation(cluster: &Cluster, proposed: &Proposed, name: &str) -> (Value, Vec<String>) {
    let spec = json!(cluster.spec);
    let mut wanted = json!({
        "apiEndpoint": proposed.api_endpoint,
        "provider": proposed.provider,
        "region": proposed.region,
        "zones": Some(&proposed.zones).filter(|zones| !zones.is_empty()),
    });
    if proposed.api_endpoint.is_some() && cluster.spec.secret_ref.is_none() {
        wanted["secretRef"] = access::secret_reference(name);
    }
    let known_labels = cluster.metadata.labels.clone().unwrap_or_default();
    let mut patch = json!({"metadata": {"resourceVersion": cluster.metadata.resource_version}});
    let mut lines = Vec::new();
    let mut change = |at: [&str; 2], field: &str, from: &Value, to: &Value| {
        if !to.is_null() && from != to {
            let from = if from.is_null() { "nothing".to_string() } else { from.to_string() };
            lines.push(format!("  {}.{field}: {from} -> {to}\n", at.join(".").trim_end_matches('.')));
            match at {
                [top, ""] => patch[top][field] = to.clone(),
                [top, inner] => patch[top][inner][field] = to.clone(),
            }
        }
    };
    for (field, to) in wanted.as_object().into_iter().flatten() {
        change(["spec", ""], field, &spec[field], to);
    }
    for (key, to) in &proposed.labels {
        change(["metadata", "labels"], key, &json!(known_labels.get(key)), &json!(to));
    }
    (patch, lines)
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let letters = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let ends = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric());
    if !letters || !ends || name.len() > LONGEST_NAME {
        bail!(
            "cluster name: found {name:?}; allowed: at most {LONGEST_NAME} lower-case letters, digits and \"-\", \
             with a letter or digit at both ends"
        );
    }
    if RESERVED_CLUSTERS.contains(&name) {
        bail!(
            "cluster name: found {name:?}, whose namespace {:?} is Fleet's own; allowed: any other name",
            cluster_namespace(name)
        );
    }
    Ok(())
}

fn member_namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MEMBER_NAMESPACE}})
}

/// Read access for users of the hub: the objects of jobs, without Secrets.
fn reader_objects() -> Vec<Value> {
    let read = json!(["get", "list", "watch"]);
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": read});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": READER, "namespace": MEMBER_NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": READER, "namespace": MEMBER_NAMESPACE,
                "annotations": {"kubernetes.io/service-account.name": READER}}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": READER},
            "rules": [
                rule("", &["pods", "pods/log", "services", "configmaps", "events", "namespaces", "nodes",
                    "persistentvolumeclaims", "persistentvolumes", "serviceaccounts"]),
                rule("apps", &["*"]), rule("batch", &["*"]), rule("kubeflow.org", &["*"]),
                rule("batch.volcano.sh", &["*"]), rule("scheduling.volcano.sh", &["*"]), rule("fleet.dev", &["*"]),
                rule("apiextensions.k8s.io", &["customresourcedefinitions"])]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": READER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": MEMBER_NAMESPACE}]}),
    ]
}

/// `access`: address, token and CA bundle with which users of the hub reach the member.
fn hub_objects(cluster: &str, access: Option<(&str, &str, &str)>) -> anyhow::Result<Vec<Value>> {
    let namespace = cluster_namespace(cluster);
    let mut objects = access::member_rights(cluster).context("the manifest of an agent's rights")?;
    let Some((url, token, ca)) = access else { return Ok(objects) };
    for object in objects.iter_mut().filter(|object| object["kind"] == "Cluster") {
        object["spec"]["apiEndpoint"] = json!(url);
        object["spec"]["secretRef"] = access::secret_reference(cluster);
    }
    objects.push(json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": ACCESS_SECRET, "namespace": namespace},
        "data": {"token": STANDARD.encode(token), "caBundle": STANDARD.encode(ca)}}));
    Ok(objects)
}

/// A token of a service account: without an expiry if the server fills in token Secrets, otherwise for a
/// year.
async fn token(server: &Server, namespace: &str, account: &str, secret: &str) -> anyhow::Result<String> {
    let base = format!("/api/v1/namespaces/{namespace}");
    for _ in 0..TOKEN_TRIES {
        let secret = server.object(&format!("{base}/secrets/{secret}")).await?;
        if let Some(encoded) = secret["data"]["token"].as_str() {
            let bytes = STANDARD.decode(encoded).context("token of a service account")?;
            return String::from_utf8(bytes).context("token of a service account");
        }
        tokio::time::sleep(TOKEN_STEP).await;
    }
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS}});
    let answer = server.create(&format!("{base}/serviceaccounts/{account}/token"), &request).await?;
    match answer["status"]["token"].as_str() {
        Some(token) => Ok(token.to_string()),
        None => {
            bail!("{}: issued no token for service account {namespace}/{account}", server.name)
        }
    }
}

/// The PEM bundle that authenticates the member's server; empty to use the system's trusted roots.
fn ca_bundle(kubeconfig: &Kubeconfig, context: Option<&str>) -> anyhow::Result<String> {
    let chosen = context.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let cluster = kubeconfig
        .contexts
        .iter()
        .find(|named| named.name == chosen)
        .and_then(|named| named.context.as_ref())
        .and_then(|context| kubeconfig.clusters.iter().find(|named| named.name == context.cluster))
        .and_then(|named| named.cluster.as_ref());
    let Some(cluster) = cluster else {
        return Ok(String::new());
    };
    if let Some(data) = &cluster.certificate_authority_data {
        let bytes = STANDARD.decode(data).context("certificate-authority-data of the member's kubeconfig")?;
        return String::from_utf8(bytes).context("certificate-authority-data of the member's kubeconfig");
    }
    match &cluster.certificate_authority {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| format!("certificate-authority {file:?} cannot be read")),
        None => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use fleet_api::ClusterSpec;

    use super::*;

    #[test]
    fn users_of_the_hub_read_no_secrets_in_a_member() {
        let core = reader_objects()[2]["rules"][0]["resources"].to_string();
        assert!(core.contains("pods/log") && !core.contains('*') && !core.contains("secrets"), "{core}");
    }

    #[test]
    fn a_confirmation_takes_over_what_is_proposed_and_nothing_else() {
        let mut cluster =
            Cluster::new("east", ClusterSpec { region: Some("r1".into()), ..ClusterSpec::default() });
        cluster.metadata.resource_version = Some("7".into());
        cluster.metadata.labels = Some([("gpu".to_owned(), "a".to_owned())].into());
        let proposed = Proposed {
            api_endpoint: Some("https://10.0.0.1:6443".into()),
            region: Some("r1".into()),
            zones: vec!["z1".into()],
            labels: [("gpu".to_owned(), "b".to_owned()), ("owner".to_owned(), "x".to_owned())].into(),
            ..Proposed::default()
        };
        let (patch, lines) = confirmation(&cluster, &proposed, "east");
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7", "labels": {"gpu": "b", "owner": "x"}},
                "spec": {"apiEndpoint": "https://10.0.0.1:6443", "zones": ["z1"],
                    "secretRef": {"namespace": "fleet-east", "name": "member-access"}}})
        );
        assert_eq!(lines.len(), 5);
        assert!(lines.concat().contains("spec.apiEndpoint: nothing -> \"https://10.0.0.1:6443\"\n"));
        assert!(lines.concat().contains("metadata.labels.gpu: \"a\" -> \"b\"\n"), "{lines:?}");
        assert!(confirmation(&cluster, &Proposed::default(), "east").1.is_empty());
    }

    #[test]
    fn one_address_is_one_cluster() {
        let known = Cluster::new(
            "west",
            ClusterSpec { api_endpoint: Some("https://10.0.0.1".into()), ..ClusterSpec::default() },
        );
        assert!(check_twin(std::slice::from_ref(&known), "east", "https://10.0.0.1").is_err());
        assert!(check_twin(&[known], "west", "https://10.0.0.1").is_ok());
        for name in ["system", "hub"] {
            assert!(check_name(name).unwrap_err().to_string().contains("Fleet's own"));
        }
    }
}
