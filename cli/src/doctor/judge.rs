//! From facts to findings. Pure: the time comes in as an argument.

use fleet_api::{Cluster, ElasticQuotaTree, quota_tree};
use fleet_cli_ground::age;
use fleet_policies::reason::Reason;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{
    Finding,
    facts::{Facts, Missing, NEEDED, Read, Scope},
};
use crate::queue;

/// The oldest Kubernetes that a hub or a member may be.
const OLDEST: (u32, u32) = (1, 30);
/// Lease duration if the lease has none.
const LEASE_SECONDS: i64 = 40;
/// Most names in one finding.
const MOST_NAMES: usize = 5;

/// No kubeconfig, or an invalid one.
pub fn no_hub(error: &str) -> Finding {
    Finding::error(
        "kubeconfig",
        error,
        "start a fleet with `fleet up`, or name the hub's kubeconfig with --kubeconfig or KUBECONFIG",
    )
}

/// Ports that `fleet up` would take and cannot.
pub fn ports(taken: &[u16]) -> Option<Finding> {
    let first = taken.first()?;
    let listed: Vec<String> = taken.iter().map(u16::to_string).collect();
    Some(Finding::warning(
        "ports of `fleet up`",
        format!("another program listens on {}", listed.join(", ")),
        format!(
            "`fleet up --port PORT` takes others; `ss -ltnp 'sport = :{first}'` names the program that has port {first}"
        ),
    ))
}

pub fn judge(facts: &Facts, now: Timestamp) -> Vec<Finding> {
    let mut findings = vec![hub(facts)];
    if facts.version.is_err() {
        return findings;
    }
    let definitions = definitions(facts);
    let is_hub = !matches!(&facts.definitions, Ok((missing, _)) if is_no_hub(missing));
    findings.push(definitions);
    if !is_hub {
        return findings;
    }
    findings.extend(admission(facts));
    if facts.scope == Scope::Hub {
        findings.push(controller(facts, now));
        return findings;
    }
    findings.extend(rights(facts));
    findings.push(controller(facts, now));
    findings.extend(clusters(facts, now));
    findings.extend(trees(&facts.trees));
    findings.extend(policies(&facts.policies));
    findings
}

fn hub(facts: &Facts) -> Finding {
    let about = "hub";
    match &facts.version {
        Ok(version) if is_too_old(version) => Finding::error(
            about,
            format!("{} runs Kubernetes {version}", facts.url),
            format!("upgrade it to {}.{} or newer", OLDEST.0, OLDEST.1),
        ),
        Ok(version) => Finding::ok(about, format!("{} answers, Kubernetes {version}", facts.url)),
        Err(Missing::Unknown(message)) => {
            Finding::error(about, message.clone(), "renew the credentials of the kubeconfig")
        }
        Err(Missing::Forbidden(message)) => {
            Finding::error(about, message.clone(), "use a kubeconfig of a user with rights on the hub")
        }
        Err(Missing::NotFound) => Finding::error(
            about,
            format!("{} serves no /version", facts.url),
            "check the server of the kubeconfig: it is not a Kubernetes API server",
        ),
        Err(Missing::Other(message)) => Finding::error(
            about,
            message.clone(),
            "check the server of the kubeconfig and the network; `fleet up` starts a fleet on this machine",
        ),
    }
}

/// `v1.36.0+fleet` as (1, 36).
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn is_too_old(version: &str) -> bool {
    minor(version).is_some_and(|found| found < OLDEST)
}

fn is_no_hub(missing: &[String]) -> bool {
    missing.iter().any(|name| name == "clusters.fleet.dev")
}

/// Missing definitions, or definitions of another version of Fleet.
fn definitions(facts: &Facts) -> Finding {
    let about = "definitions";
    let apply = "fleet crds --hub | kubectl apply --server-side --force-conflicts -f -";
    match &facts.definitions {
        Ok((missing, _)) if is_no_hub(missing) => Finding::error(
            about,
            format!("{} is not a hub of Fleet: it does not serve clusters.fleet.dev", facts.url),
            format!("name the hub's kubeconfig, or make this cluster a hub: {apply}"),
        ),
        Ok((missing, _)) if !missing.is_empty() => {
            Finding::error(about, format!("missing: {}", names(missing)), apply)
        }
        Ok((_, differ)) if !differ.is_empty() => Finding::warning(
            about,
            format!(
                "of another version than this program ({}): {}",
                env!("CARGO_PKG_VERSION"),
                names(differ)
            ),
            format!("use the `fleet` of the hub's version, or upgrade the hub: {apply}"),
        ),
        Ok(_) => Finding::ok(about, format!("same as in this program ({})", env!("CARGO_PKG_VERSION"))),
        Err(missing) => unreadable(about, "definitions", missing),
    }
}

/// Admission policies that are missing, or not in force.
fn admission(facts: &Facts) -> Vec<Finding> {
    let about = "admission policies";
    let install = "chart fleet installs them; without it, apply files/admission.yaml and \
                   templates/quota-tree-warnings.yaml of the chart";
    let (refuse, warn) = match &facts.admission {
        Ok(found) => found,
        Err(missing) => return vec![unreadable(about, "admission policies", missing)],
    };
    let mut findings = Vec::new();
    if !refuse.is_empty() {
        let found =
            format!("not in force: {}; agents and tenants may do more than their part", names(refuse));
        findings.push(Finding::error(about, found, install));
    }
    if !warn.is_empty() {
        let found = format!("not in force: {}; nobody is warned of mistakes in quota trees", names(warn));
        findings.push(Finding::warning(about, found, install));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(about, "those of agents, tenants and quota trees are in force"));
    }
    findings
}

/// A list that could not be read does not prove that all is well.
fn unreadable(about: &str, what: &str, missing: &Missing) -> Finding {
    match missing {
        Missing::Forbidden(message) | Missing::Unknown(message) => Finding::warning(
            about,
            format!("not checked: {message}"),
            format!("ask an administrator of the hub for the right to list {what}"),
        ),
        Missing::NotFound => {
            Finding::warning(about, format!("not checked: the hub does not serve {what}"), "see definitions")
        }
        Missing::Other(message) => {
            Finding::warning(about, format!("not checked: {message}"), "try again; is the hub overloaded?")
        }
    }
}

fn rights(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (group, resource, command) in NEEDED {
        let name = format!("{resource}.{group}");
        if facts.rights.get(&name) == Some(&false) {
            findings.push(Finding::warning(
                "rights",
                format!("this user may not list {name} in all namespaces, which `{command}` needs"),
                "tenants: name your namespace with -n; operators: ask for a ClusterRole with that right",
            ));
        }
    }
    if findings.is_empty() && !facts.rights.is_empty() {
        findings.push(Finding::ok("rights", "this user may list clusters, bindings, units and trees"));
    }
    findings
}

/// Since when a lease is over; `None` while it holds.
fn expired(lease: &Value, now: Timestamp) -> Option<Option<String>> {
    let spec = &lease["spec"];
    let held = spec["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
    let renewed: Option<Timestamp> = spec["renewTime"].as_str().and_then(|text| text.parse().ok());
    let seconds = spec["leaseDurationSeconds"].as_i64().unwrap_or(LEASE_SECONDS);
    match renewed {
        Some(at) if held && now.duration_since(at) <= SignedDuration::from_secs(seconds) => None,
        Some(_) => Some(Some(age::since(spec["renewTime"].as_str(), now))),
        None => Some(None),
    }
}

fn controller(facts: &Facts, now: Timestamp) -> Finding {
    let about = "fleet-controller";
    let start =
        "start it: `fleet-controller --kubeconfig HUB`, or check the pods of chart fleet and their logs";
    match &facts.controller {
        Ok(lease) => match expired(lease, now) {
            None => Finding::ok(
                about,
                format!("{} leads", lease["spec"]["holderIdentity"].as_str().unwrap_or_default()),
            ),
            Some(Some(since)) => {
                Finding::error(about, format!("none leads; the lease was renewed {since} ago"), start)
            }
            Some(None) => Finding::error(about, "none leads", start),
        },
        // Without leader election there is no lease; conditions of the clusters show that it ran.
        Err(Missing::NotFound) if is_judged(facts) => {
            Finding::ok(about, "runs without leader election, as in `fleet up`")
        }
        Err(Missing::NotFound) => Finding::error(about, "none has ever led", start),
        Err(missing) => unreadable(about, "leases in kube-system", missing),
    }
}

/// Whether a controller has set the condition Ready of some cluster.
fn is_judged(facts: &Facts) -> bool {
    let conditions = facts.clusters.iter().flatten().flat_map(|cluster| cluster.status.iter());
    conditions.flat_map(|status| &status.conditions).any(|condition| condition.type_ == "Ready")
}

fn clusters(facts: &Facts, now: Timestamp) -> Vec<Finding> {
    let clusters = match &facts.clusters {
        Ok(clusters) => clusters,
        Err(missing) => return vec![unreadable("clusters", "clusters.fleet.dev", missing)],
    };
    if clusters.is_empty() {
        let join = "fleet join NAME --member-kubeconfig FILE";
        return vec![Finding::error("clusters", "none has joined: no job can be placed", join)];
    }
    clusters.iter().map(|found| cluster(found, facts, now)).collect()
}

fn cluster(cluster: &Cluster, facts: &Facts, now: Timestamp) -> Finding {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let about = format!("cluster {name}");
    let check = format!(
        "check the agent's process and log, and its credential for namespace fleet-{name} of the hub"
    );
    match facts.agents.get(&name) {
        Some(Ok(lease)) => match expired(lease, now) {
            Some(Some(since)) => {
                return Finding::error(about, format!("its agent has been silent for {since}"), check);
            }
            Some(None) => return Finding::error(about, "its agent has never renewed its lease", check),
            None => {}
        },
        Some(Err(Missing::NotFound)) | None => {
            return Finding::error(about, "its agent has never answered", check);
        }
        // The Cluster's own condition reports it, too.
        Some(Err(_)) => {}
    }
    let status = cluster.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    if let Some(ready) = ready.filter(|ready| ready.status != "True") {
        return Finding::error(about, format!("not ready: {}: {}", ready.reason, ready.message), check);
    }
    let version = status.kubernetes_version.unwrap_or_default();
    if is_too_old(&version) {
        let allowed = format!("upgrade it to {}.{} or newer", OLDEST.0, OLDEST.1);
        return Finding::warning(about, format!("runs Kubernetes {version}"), allowed);
    }
    let nodes = status.node_summary.unwrap_or_default();
    if nodes.ready_num < nodes.total_num {
        let found = format!("{} of {} nodes are ready", nodes.ready_num, nodes.total_num);
        return Finding::warning(about, found, "check the nodes of the member: `kubectl get nodes`");
    }
    if let Some(taint) = cluster.spec.taints.iter().find(|taint| taint.key.starts_with("cluster.fleet.dev/"))
    {
        let found = format!("takes no new work: taint {}", taint.key);
        return Finding::warning(about, found, format!("`fleet uncordon {name}` ends a cordon or a drain"));
    }
    Finding::ok(about, format!("its agent answers, {} nodes are ready", nodes.ready_num))
}

fn trees(trees: &Read<Vec<ElasticQuotaTree>>) -> Vec<Finding> {
    let about = "quota tree";
    let trees = match trees {
        Ok(trees) => trees,
        Err(missing) => return vec![unreadable(about, "elasticquotatrees in kube-system", missing)],
    };
    if trees.is_empty() {
        return vec![Finding::warning(
            about,
            "there is none: jobs that queue cannot be admitted",
            "apply an ElasticQuotaTree in namespace kube-system; examples/quota-teams.yaml is one",
        )];
    }
    let mut findings: Vec<Finding> = Vec::new();
    let in_force = quota_tree::in_force(trees);
    for tree in trees {
        let name = tree.metadata.name.clone().unwrap_or_default();
        if let Some(message) = quota_tree::invalid(tree) {
            let instead = queue::invalid(trees);
            let instead = instead.lines().last().unwrap_or_default().to_string();
            findings.push(Finding::error(
                about,
                format!("{name} is not in force: {message}. {instead}"),
                format!("correct it: `kubectl edit elasticquotatree {name} -n kube-system`"),
            ));
            continue;
        }
        let conditions = tree.status.iter().flat_map(|status| &status.conditions);
        let broken = conditions.into_iter().find(|is| is.type_ == "RulesKept" && is.status == "False");
        if let Some(broken) = broken {
            let describe =
                format!("`fleet describe elasticquotatree {name} -n kube-system` has the whole message");
            let found = format!("{name} breaks rules, but is in force: {}", short(&broken.message));
            findings.push(Finding::warning(about, found, describe));
        }
    }
    if let (true, Some(view)) = (findings.is_empty(), in_force) {
        let name = view.object.metadata.name.clone().unwrap_or_default();
        findings.push(Finding::ok(about, format!("{name} is in force")));
    }
    findings
}

/// Whether it selects whatever there is of its kinds: nothing now is then no mistake, but an idle queue.
fn is_for_a_kind(policy: &Value) -> bool {
    let selectors = policy["spec"]["resourceSelectors"].as_array();
    selectors.is_some_and(|selectors| {
        !selectors.is_empty()
            && selectors.iter().all(|selector| {
                let kinds = ["apiVersion", "kind", "namespace"];
                selector
                    .as_object()
                    .is_some_and(|fields| fields.keys().all(|key| kinds.contains(&key.as_str())))
            })
    })
}

fn policies(policies: &Read<Vec<Value>>) -> Vec<Finding> {
    let about = "policies";
    let policies = match policies {
        Ok(policies) => policies,
        Err(missing) => return vec![unreadable(about, "propagationpolicies", missing)],
    };
    if policies.is_empty() {
        return vec![Finding::warning(
            about,
            "there is none: no object is sent anywhere",
            "apply a PropagationPolicy; examples/quickstart/queue.yaml has one",
        )];
    }
    let mut findings = Vec::new();
    for policy in policies {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let name = match policy["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("policy {namespace}/{}", text(&policy["metadata"]["name"])),
            None => format!("cluster policy {}", text(&policy["metadata"]["name"])),
        };
        let conditions = policy["status"]["conditions"].as_array().into_iter().flatten();
        for condition in conditions.filter(|condition| condition["status"] == "False") {
            let (reason, message) = (text(&condition["reason"]), text(&condition["message"]));
            let found = format!("{reason}: {message}");
            if reason == Reason::SelectsNothing.as_str() && is_for_a_kind(policy) {
                continue;
            }
            findings.push(match Reason::from_text(&reason) {
                // A policy is often created before its first job.
                Some(Reason::SelectsNothing) => Finding::warning(
                    &name,
                    found,
                    "compare spec.resourceSelectors with kind, name, namespace and labels of your objects",
                ),
                Some(Reason::KindNotServed) => {
                    Finding::error(&name, found, "install the definition of that kind on the hub")
                }
                Some(Reason::UnknownCluster) => Finding::error(
                    &name,
                    found,
                    "correct the name, or join the cluster; `fleet clusters` lists those that have joined",
                ),
                _ => Finding::error(&name, found, "correct the field that the message names"),
            });
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(about, format!("{} are in effect", policies.len())));
    }
    findings
}

/// The first part of a message with several.
fn short(message: &str) -> String {
    match message.split_once("; quota ") {
        Some((first, rest)) => format!("{first}; and {} more", rest.matches("; quota ").count() + 1),
        None => message.to_string(),
    }
}

/// The first few names, and how many more there are.
fn names(all: &[String]) -> String {
    match all.len() {
        count if count > MOST_NAMES => {
            format!("{} and {} more", all[..MOST_NAMES].join(", "), count - MOST_NAMES)
        }
        _ => all.join(", "),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
