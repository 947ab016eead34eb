//! What the hub may do in this member, as its administrator configured it. Pure.
//!
//! The agent applies objects with its own rights, which are wide. Therefore it applies only the binding's own
//! object and its dependencies, in the binding's namespace, and only kinds and namespaces that the
//! administrator allows. The hub enforces the same rules, but a compromised hub must not give access to every
//! member. Of the content of objects only what would give away rights of the member is checked (`content`); the rest is
//! checked by the hub and the scheduler.

mod content;

use std::collections::{BTreeMap, BTreeSet};

use fleet_api::{names, work::WorkSpec};
use serde_json::Value;

pub use content::{DEFAULT_ACCOUNT, account_of};
pub use fleet_policies::service_reach::TYPES as SERVICE_TYPES;

/// Kinds that are applied by default, as `Kind` or `Kind.group`.
pub const DEFAULT_KINDS: [&str; 12] = [
    "ConfigMap",
    "Deployment.apps",
    "Job.batch",
    "Job.batch.volcano.sh",
    "MPIJob.kubeflow.org",
    "PersistentVolumeClaim",
    "PyTorchJob.kubeflow.org",
    "Secret",
    "Service",
    "ServiceAccount",
    "StatefulSet.apps",
    "TFJob.kubeflow.org",
];

/// Kinds that are sent with a job because its pods reference them.
const DEPENDENCIES: [&str; 4] = ["ConfigMap", "PersistentVolumeClaim", "Secret", "ServiceAccount"];

/// Namespaces of the cluster itself: used only if their full name is listed.
const OF_THE_CLUSTER: [&str; 4] = ["kube-", "fleet-system", "openshift-", "istio-system"];

/// The administrator's rules for one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permits {
    /// Kinds that may be applied, as `Kind` or `Kind.group`; `*` allows every kind.
    pub kinds: BTreeSet<String>,
    /// Namespaces that may be used: full names, or prefixes with `*`. Namespaces of the cluster itself
    /// (`kube-*`, `fleet-system`, `openshift-*`, `istio-system`) are used only if their full name is listed.
    pub namespaces: BTreeSet<String>,
    /// Whether `conflictResolution: Overwrite` may take over objects that Fleet did not make.
    pub overwrite: bool,
    /// Types of Services beside ClusterIP that may be applied: NodePort, LoadBalancer, ExternalName. They take ports of
    /// all nodes, addresses, or names that point elsewhere.
    pub service_types: BTreeSet<String>,
    /// User under whose rights jobs and their dependencies are created and changed, with `{namespace}` in
    /// place of their namespace, such as `system:serviceaccount:{namespace}:fleet`; `None`: the agent itself. No pod
    /// may run as that account.
    pub impersonate: Option<String>,
    /// The namespace of the agent's own pod, where its own account is; used only if its full name is listed.
    pub own_namespace: Option<String>,
    /// Nodes that the hub may keep for cells of virtual clusters.
    pub cell_nodes: CellNodes,
}

/// Which nodes the hub may keep for cells, and thereby for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellNodes {
    /// Labels that such a node must have; empty: any node.
    pub selector: BTreeMap<String, String>,
    /// Their maximum number; `None`: no limit.
    pub max: Option<usize>,
}

impl CellNodes {
    /// Whether a node with these labels may be kept.
    pub fn select(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.iter().all(|(name, value)| labels.get(name) == Some(value))
    }

    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }
}

/// The rule, in terms of its flags.
impl std::fmt::Display for CellNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut rules = Vec::new();
        if !self.selector.is_empty() {
            let pairs: Vec<String> =
                self.selector.iter().map(|(name, value)| format!("{name}={value}")).collect();
            rules.push(format!("nodes with {} (--cell-node-selector)", pairs.join(",")));
        }
        if let Some(max) = self.max {
            rules.push(format!("at most {max} nodes (--max-cell-nodes)"));
        }
        f.write_str(&if rules.is_empty() { "all nodes".to_owned() } else { rules.join(", ") })
    }
}

impl Default for Permits {
    fn default() -> Self {
        Self {
            kinds: DEFAULT_KINDS.iter().map(ToString::to_string).collect(),
            namespaces: ["*".to_owned()].into(),
            overwrite: false,
            service_types: BTreeSet::new(),
            impersonate: None,
            own_namespace: None,
            cell_nodes: CellNodes::default(),
        }
    }
}

impl Permits {
    /// Whether objects of a kind may be applied.
    pub fn kind(&self, api_version: &str, kind: &str) -> bool {
        self.kinds.contains("*") || self.kinds.contains(&named(api_version, kind))
    }

    /// Whether a namespace may be used.
    ///
    /// # Errors
    /// The rule that forbids it, as a sentence.
    pub fn namespace(&self, namespace: &str) -> Result<(), String> {
        if self.namespaces.contains(namespace) {
            return Ok(());
        }
        let is_own = self.own_namespace.as_deref() == Some(namespace)
            || OF_THE_CLUSTER
                .iter()
                .any(|own| namespace == *own || (own.ends_with('-') && namespace.starts_with(own)));
        if is_own {
            return Err(format!(
                "namespace {namespace}: found a namespace of the cluster itself; allowed: namespaces that --namespaces of the member's agent lists by full name"
            ));
        }
        let begins =
            |rule: &&String| rule.strip_suffix('*').is_some_and(|start| namespace.starts_with(start));
        if self.namespaces.iter().any(|rule| begins(&rule)) {
            return Ok(());
        }
        let rules: Vec<&str> = self.namespaces.iter().map(String::as_str).collect();
        Err(format!("namespace {namespace}: allowed in this member (--namespaces): {}", rules.join(", ")))
    }

    /// Whether the manifest at a position of a Work may be applied: 0 is the binding's own object, the others
    /// are its dependencies.
    ///
    /// # Errors
    /// The field, the value found and the values allowed.
    pub fn manifest(&self, spec: &WorkSpec, ordinal: usize) -> Result<(), String> {
        let at = format!("spec.workload.manifests[{ordinal}]");
        let manifest = spec.workload.manifests.get(ordinal).unwrap_or(&Value::Null);
        let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("/apiVersion"), text("/kind"));
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        let binding = &spec.binding;
        if namespace.is_empty() || namespace != binding.namespace {
            return Err(format!(
                "{at}.metadata.namespace: found {namespace:?}; allowed: the binding's, {}",
                binding.namespace
            ));
        }
        self.namespace(namespace)?;
        let found = named(api_version, kind);
        if !self.kind(api_version, kind) {
            let kinds: Vec<&str> = self.kinds.iter().map(String::as_str).collect();
            return Err(format!(
                "{at}: found {found}; allowed in this member (--kinds): {}",
                kinds.join(", ")
            ));
        }
        let own = [names::binding_name(api_version, kind, name), names::earlier_binding_name(kind, name)];
        if ordinal == 0 && !own.contains(&binding.name) {
            return Err(format!(
                "{at}: found {found} {name}; allowed: the object of binding {}",
                binding.name
            ));
        }
        if ordinal > 0 && !DEPENDENCIES.contains(&found.as_str()) {
            return Err(format!("{at}: found {found}; allowed as a dependency: {}", DEPENDENCIES.join(", ")));
        }
        self.content(manifest, namespace).map_err(|why| format!("{at}: {why}"))
    }

    /// Whether an object may be applied in a namespace with what it contains.
    fn content(&self, manifest: &Value, namespace: &str) -> Result<(), String> {
        content::credential(manifest)?;
        content::service(manifest, &self.service_types)?;
        match self.user(namespace).as_deref().and_then(|user| account_of(user, namespace)) {
            Some(applying) => content::account(manifest, applying).map_err(|why| {
                format!("{} {}: {why}", text(&manifest["kind"]), text(&manifest["metadata"]["name"]))
            }),
            None => Ok(()),
        }
    }

    /// The user under whose rights objects of a namespace are created and changed.
    pub fn user(&self, namespace: &str) -> Option<String> {
        self.impersonate.as_ref().map(|user| user.replace("{namespace}", namespace))
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// `Kind`, or `Kind.group` outside the core group.
fn named(api_version: &str, kind: &str) -> String {
    match api_version.split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}})
    }

    /// A Work of the PyTorchJob `team/a` with these manifests.
    fn check(permits: &Permits, manifests: Vec<Value>, expected: &str) {
        let mut spec = WorkSpec::default();
        (spec.binding.namespace, spec.binding.name) = ("team".to_owned(), "a-pytorchjob".to_owned());
        spec.workload.manifests = manifests;
        let last = spec.workload.manifests.len() - 1;
        let found = permits.manifest(&spec, last).err().unwrap_or_default();
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{found}");
    }

    #[test]
    fn only_the_bindings_own_object_and_its_dependencies() {
        let permits = Permits::default();
        let job = || object("kubeflow.org/v1", "PyTorchJob", "team", "a");
        check(&permits, vec![job()], "");
        check(&permits, vec![job(), object("v1", "ConfigMap", "team", "settings")], "");
        check(
            &permits,
            vec![object("kubeflow.org/v1", "PyTorchJob", "kube-system", "a")],
            "metadata.namespace: found \"kube-system\"",
        );
        check(
            &permits,
            vec![object("kubeflow.org/v1", "PyTorchJob", "", "a")],
            "metadata.namespace: found \"\"",
        );
        check(
            &permits,
            vec![object("kubeflow.org/v1", "PyTorchJob", "team", "b")],
            "allowed: the object of binding a-pytorchjob",
        );
        check(
            &permits,
            vec![object("v1", "Pod", "team", "a")],
            "[0]: found Pod; allowed in this member (--kinds)",
        );
        check(&permits, vec![object("batch/v1", "Job", "team", "a")], "allowed: the object of binding");
        check(
            &permits,
            vec![job(), object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "team", "x")],
            "found ClusterRoleBinding.rbac.authorization.k8s.io",
        );
        check(&permits, vec![job(), object("apps/v1", "Deployment", "team", "x")], "allowed as a dependency");
        check(&permits, vec![job(), object("v1", "Secret", "other", "x")], "[1].metadata.namespace");
        let open = Permits { kinds: ["*".to_owned()].into(), ..Permits::default() };
        check(&open, vec![job(), object("v1", "Pod", "team", "x")], "allowed as a dependency");
    }

    /// A Work of an object of this kind, in its namespace, with one dependency perhaps.
    fn content(permits: &Permits, kind: (&str, &str), spec: Value, dependency: Option<Value>) -> String {
        let mut own = object(kind.0, kind.1, "team", "a");
        own["spec"] = spec;
        let mut work = WorkSpec::default();
        work.binding.namespace = "team".to_owned();
        work.binding.name = names::binding_name(kind.0, kind.1, "a");
        let last = usize::from(dependency.is_some());
        work.workload.manifests = [own].into_iter().chain(dependency).collect();
        permits.manifest(&work, last).err().unwrap_or_default()
    }

    fn acting_as(user: &str) -> Permits {
        let kinds = ["*".to_owned()].into();
        Permits { impersonate: Some(user.to_owned()), kinds, ..Permits::default() }
    }

    #[test]
    fn no_pod_runs_as_the_account_under_which_it_is_applied() {
        let permits = acting_as("system:serviceaccount:{namespace}:fleet");
        let pod =
            |field: &str, account: &str| json!({"template": {"spec": {field: account, "containers": [{}]}}});
        let kinds = [
            ("batch/v1", "Job", "spec.template"),
            ("apps/v1", "Deployment", "spec.template"),
            ("apps/v1", "StatefulSet", "spec.template"),
            ("kubeflow.org/v1", "PyTorchJob", "spec.pytorchReplicaSpecs.Worker.template"),
            ("kubeflow.org/v1", "TFJob", "spec.tfReplicaSpecs.Worker.template"),
            ("kubeflow.org/v2beta1", "MPIJob", "spec.mpiReplicaSpecs.Launcher.template"),
            ("batch.volcano.sh/v1alpha1", "Job", "spec.tasks[1].template"),
            ("ray.io/v1", "RayJob", "spec.rayClusterSpec.workerGroupSpecs[1].template"),
        ];
        for (api_version, kind, path) in kinds {
            for field in ["serviceAccountName", "serviceAccount"] {
                let with = |account: &str| {
                    let mut spec = json!({});
                    let parts: Vec<&str> = path.split('.').skip(1).collect();
                    let mut at = &mut spec;
                    for part in &parts[..parts.len() - 1] {
                        at = match part.split_once('[') {
                            Some((list, _)) => {
                                at[list] = json!([pod(field, "trainer"), {}]);
                                &mut at[list][1]
                            }
                            None => &mut at[*part],
                        };
                    }
                    at["template"] = pod(field, account)["template"].clone();
                    content(&permits, (api_version, kind), spec, None)
                };
                let why = with("fleet");
                assert!(
                    why.contains(&format!("{path}.spec.{field}: found fleet, the account")),
                    "{kind}: {why}"
                );
                assert!(why.contains("(--impersonate); allowed: another account"), "{why}");
                assert_eq!(with("trainer"), "", "{kind}");
            }
        }
        // A kind whose controller makes pods of a field of its own.
        let other = json!({"driver": {"serviceAccount": {"name": "fleet"}}});
        assert!(
            content(&permits, ("example.com/v1", "Spark"), other, None)
                .contains("spec.driver.serviceAccount")
        );
        // An account of another namespace is none that pods of this one can have.
        let elsewhere = acting_as("system:serviceaccount:ops:fleet");
        assert_eq!(content(&elsewhere, ("batch/v1", "Job"), pod("serviceAccountName", "fleet"), None), "");
        let without = Permits::default();
        assert_eq!(content(&without, ("batch/v1", "Job"), pod("serviceAccountName", "fleet"), None), "");
    }

    #[test]
    fn pods_without_an_account_do_not_run_as_the_applying_one() {
        let permits = acting_as("system:serviceaccount:{namespace}:default");
        let none = json!({"template": {"spec": {"containers": [{}]}}});
        let why = content(&permits, ("batch/v1", "Job"), none, None);
        assert!(
            why.contains("spec.template.spec.serviceAccountName: found nothing, which is default"),
            "{why}"
        );
        let named = json!({"template": {"spec": {"serviceAccountName": "trainer", "containers": [{}]}}});
        assert_eq!(content(&permits, ("batch/v1", "Job"), named, None), "");
    }

    #[test]
    fn the_applying_account_and_credentials_are_no_dependencies() {
        let permits = acting_as("system:serviceaccount:{namespace}:fleet");
        let with =
            |permits: &Permits, one: Value| content(permits, ("batch/v1", "Job"), json!({}), Some(one));
        let account = |name: &str| object("v1", "ServiceAccount", "team", name);
        assert!(
            with(&permits, account("fleet"))
                .contains("[1]: ServiceAccount fleet: metadata.name: found fleet")
        );
        assert_eq!(with(&permits, account("trainer")), "");
        assert_eq!(with(&Permits::default(), account("fleet")), "");
        let secret = |kind: &str| {
            let mut secret = object("v1", "Secret", "team", "s");
            secret["type"] = kind.into();
            secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "fleet"});
            secret
        };
        // Whether an account is impersonated or not: the token would be of any account of the namespace.
        for permits in [&permits, &Permits::default()] {
            let why = with(permits, secret("kubernetes.io/service-account-token"));
            assert!(why.contains("found kubernetes.io/service-account-token"), "{why}");
            assert_eq!(with(permits, secret("Opaque")), "");
        }
        // What a ConfigMap contains is text.
        let mut settings = object("v1", "ConfigMap", "team", "c");
        settings["data"] = json!({"serviceAccountName": "fleet"});
        assert_eq!(with(&permits, settings), "");
    }

    #[test]
    fn services_reach_as_far_as_the_administrator_says() {
        let closed = Permits::default();
        let service = |permits: &Permits, spec: Value| content(permits, ("v1", "Service"), spec, None);
        assert_eq!(service(&closed, json!({"selector": {"app": "a"}})), "");
        for kind in ["NodePort", "LoadBalancer", "ExternalName"] {
            let why = service(&closed, json!({"type": kind, "externalName": "example.com"}));
            let told = format!(
                "spec.workload.manifests[0]: Service a: spec.type: found {kind}; allowed: ClusterIP (--service"
            );
            assert!(why.starts_with(&told), "{why}");
            let open = Permits { service_types: [kind.to_owned()].into(), ..Permits::default() };
            assert_eq!(service(&open, json!({"type": kind})), "");
            let why = service(&open, json!({"type": kind, "externalIPs": ["10.0.0.1"]}));
            assert!(why.contains("spec.externalIPs: found"), "{why}");
        }
        let some = Permits { service_types: ["NodePort".to_owned()].into(), ..Permits::default() };
        assert!(service(&some, json!({"type": "LoadBalancer"})).contains("allowed: ClusterIP, NodePort (--"));
    }

    #[test]
    fn namespaces_follow_the_administrators_rule() {
        let own = Permits { own_namespace: Some("agents".to_owned()), ..Permits::default() };
        assert!(own.namespace("agents").is_err());
        let all = Permits::default();
        assert_eq!(all.namespace("team"), Ok(()));
        for own in ["kube-system", "kube-public", "fleet-system", "openshift-config"] {
            assert!(all.namespace(own).is_err(), "{own}");
        }
        let some = Permits {
            namespaces: ["ml-*", "shared", "kube-training"].map(str::to_owned).into(),
            ..Permits::default()
        };
        for (namespace, allowed) in [
            ("ml-vision", true),
            ("shared", true),
            ("kube-training", true),
            ("share", false),
            ("team", false),
        ] {
            assert_eq!(some.namespace(namespace).is_ok(), allowed, "{namespace}");
        }
    }
}
