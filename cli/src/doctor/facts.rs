//! The facts that `fleet doctor` judges, read from the hub. A failed request is a fact, too.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, TcpListener},
};

use fleet_api::{
    Cluster, ElasticQuotaTree, access, advice,
    crds::{self, Side},
    names::{self, cluster_namespace},
};
use fleet_cli_ground::{
    connect::Hub,
    server::{AskError, Selectors},
};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::queue;

/// Default ports of `fleet up`: the hub's and those of three members.
const UP_PORTS: std::ops::Range<u16> = 6444..6448;

const POLICY_GROUP: &str = "/apis/policy.one.alibabacloud.com/v1alpha1";
const CONTROLLER_LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/fleet-controller";

/// What an operator must be able to list: group, resource, and the command that needs it.
pub const NEEDED: &[(&str, &str, &str)] = &[
    ("fleet.dev", "clusters", "fleet clusters"),
    ("fleet.dev", "resourcebindings", "fleet explain"),
    ("scheduling.x-k8s.io", "queueunits", "fleet queue"),
    ("scheduling.sigs.k8s.io", "elasticquotatrees", "fleet queue"),
];

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    NotFound,
    /// 401: the credentials are not known.
    Unknown(String),
    /// 403.
    Forbidden(String),
    Other(String),
}

impl From<AskError> for Missing {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused { code: 404, .. } => Self::NotFound,
            AskError::Refused { code: 401, message } => Self::Unknown(message),
            AskError::Refused { code: 403, message } => Self::Forbidden(message),
            other => Self::Other(other.to_string()),
        }
    }
}

pub type Read<T> = Result<T, Missing>;

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What an installation brings to the hub.
    Hub,
    /// Also what uses it: clusters, trees and policies, and the rights of this user.
    Fleet,
}

#[derive(Clone, Debug)]
pub struct Facts {
    pub scope: Scope,
    pub url: String,
    /// `gitVersion` of the hub.
    pub version: Read<String>,
    /// Names of this program's definitions that are missing on the hub, and of those that differ.
    pub definitions: Read<(Vec<String>, Vec<String>)>,
    /// Names of this program's admission policies that are not in force on the hub: of those that refuse, and of those
    /// that warn.
    pub admission: Read<(Vec<String>, Vec<String>)>,
    /// By `resource.group`, whether this user may list it.
    pub rights: BTreeMap<String, bool>,
    pub controller: Read<Value>,
    pub clusters: Read<Vec<Cluster>>,
    /// Lease of each cluster's agent.
    pub agents: BTreeMap<String, Read<Value>>,
    pub trees: Read<Vec<ElasticQuotaTree>>,
    pub policies: Read<Vec<Value>>,
}

pub async fn gather(hub: &Hub, scope: Scope) -> Facts {
    let version = hub.server.object("/version").await.map_err(Missing::from);
    let version =
        version.map(|answer| answer["gitVersion"].as_str().unwrap_or("an unknown version").to_string());
    let mut facts = Facts {
        scope,
        url: hub.server.url.clone(),
        version,
        definitions: Err(Missing::NotFound),
        admission: Err(Missing::NotFound),
        rights: BTreeMap::new(),
        controller: Err(Missing::NotFound),
        clusters: Err(Missing::NotFound),
        agents: BTreeMap::new(),
        trees: Err(Missing::NotFound),
        policies: Err(Missing::NotFound),
    };
    // Nothing more can be read from a hub that does not answer.
    if facts.version.is_err() {
        return facts;
    }
    facts.definitions = definitions(hub).await;
    facts.admission = admission(hub).await;
    facts.controller = hub.server.object(CONTROLLER_LEASE).await.map_err(Missing::from);
    if scope == Scope::Fleet {
        gather_fleet(hub, &mut facts).await;
    }
    facts
}

/// What uses the hub.
async fn gather_fleet(hub: &Hub, facts: &mut Facts) {
    for (group, resource, _) in NEEDED {
        if let Some(may) = may_list(hub, group, resource).await {
            facts.rights.insert(format!("{resource}.{group}"), may);
        }
    }
    facts.clusters = list(hub, "/apis/fleet.dev/v1alpha1/clusters").await;
    let names: Vec<String> =
        facts.clusters.iter().flatten().filter_map(|cluster| cluster.metadata.name.clone()).collect();
    let leases = join_all(names.iter().map(|name| agent_lease(hub, name))).await;
    facts.agents = names.into_iter().zip(leases).collect();
    facts.trees = list(hub, &queue::trees()).await;
    facts.policies = policies(hub).await;
}

/// Compares the admission policies in force on the hub with those of this program.
async fn admission(hub: &Hub) -> Read<(Vec<String>, Vec<String>)> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policies: Vec<Value> = list(hub, &format!("{group}/validatingadmissionpolicies")).await?;
    let bindings: Vec<Value> = list(hub, &format!("{group}/validatingadmissionpolicybindings")).await?;
    let refuse = access::admission().map_err(|error| Missing::Other(error.to_string()))?;
    let not_in_force = |wanted: &[Value]| not_in_force(wanted, &policies, &bindings);
    Ok((not_in_force(&refuse), not_in_force(&advice::objects())))
}

/// Names of the wanted policies that are not there, or that no binding puts in force.
fn not_in_force(wanted: &[Value], policies: &[Value], bindings: &[Value]) -> Vec<String> {
    let wanted = wanted.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy");
    let names = wanted.filter_map(|policy| policy["metadata"]["name"].as_str());
    let is_in_force = |name: &str| {
        policies.iter().any(|policy| policy["metadata"]["name"] == name)
            && bindings.iter().any(|binding| binding["spec"]["policyName"] == name)
    };
    names.filter(|name| !is_in_force(name)).map(str::to_string).collect()
}

async fn agent_lease(hub: &Hub, cluster: &str) -> Read<Value> {
    let namespace = cluster_namespace(cluster);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{}", names::LEASE_NAME);
    hub.server.object(&path).await.map_err(Missing::from)
}

async fn policies(hub: &Hub) -> Read<Vec<Value>> {
    let mut all: Vec<Value> = list(hub, &format!("{POLICY_GROUP}/propagationpolicies")).await?;
    all.extend(list::<Value>(hub, &format!("{POLICY_GROUP}/clusterpropagationpolicies")).await?);
    Ok(all)
}

async fn list<T: serde::de::DeserializeOwned>(hub: &Hub, path: &str) -> Read<Vec<T>> {
    let listed = hub.server.list(path, &Selectors::default(), "application/json").await?;
    let items = listed["items"].as_array().cloned().unwrap_or_default();
    let read: Result<Vec<T>, _> = items.into_iter().map(serde_json::from_value).collect();
    read.map_err(|error| Missing::Other(error.to_string()))
}

async fn may_list(hub: &Hub, group: &str, resource: &str) -> Option<bool> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "list"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = hub.server.create(path, &review).await.ok()?;
    answer["status"]["allowed"].as_bool()
}

/// Compares the definitions on the hub with those of this program, version by version.
async fn definitions(hub: &Hub) -> Read<(Vec<String>, Vec<String>)> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let found: Vec<Value> = list(hub, path).await?;
    let (mut missing, mut differ) = (Vec::new(), Vec::new());
    for wanted in crds::definitions(Side::Hub) {
        let name = crds::name(&wanted).to_string();
        match found.iter().find(|found| crds::name(found) == name) {
            None => missing.push(name),
            Some(found) if !is_established(found) => missing.push(format!("{name} (not established)")),
            Some(found) if fields(found) != fields(&wanted) => differ.push(name),
            Some(_) => {}
        }
    }
    Ok((missing, differ))
}

/// Whether the hub serves the kind.
fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array();
    let is_so = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
    conditions.into_iter().flatten().any(is_so)
}

/// Paths of all fields of a definition's versions. Descriptions and defaults, which servers rewrite, are left
/// out.
fn fields(definition: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        let name = version["name"].as_str().unwrap_or_default();
        walk(&version["schema"]["openAPIV3Schema"], name, &mut paths);
    }
    paths.sort();
    paths
}

fn walk(schema: &Value, path: &str, paths: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        walk(field, &path, paths);
        paths.push(path);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&schema[inner], &format!("{path}[]"), paths);
        }
    }
}

/// Ports of `fleet up` on which another program listens.
pub fn taken_ports() -> Vec<u16> {
    UP_PORTS.filter(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_err()).collect()
}
