//! Admission plugins of Kubernetes that need other objects: accounts' tokens, storage and runtime classes, certificates.
//!
//! Inputs: a new or changed object and the store. Absent on purpose: LimitRanger (see `limits`) and ResourceQuota.

use super::{certificates, limits, nodes, protection};
use crate::access::rbac::Question;
use crate::access::user::User;
use crate::call::{Call, Core};
use crate::resource_quota::class_of_claim;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};

/// Where the token of a pod's account lies in its containers.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Lifetime of that token: a little over an hour, which distinguishes it from a requested one.
const TOKEN_LIFE_S: i64 = 3607;
/// The taint of a node that was never seen ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What the plugins add to a new object.
///
/// # Errors
/// 403 when something it names is not there.
pub fn create(call: &Call, value: &mut Value) -> ApiResult<()> {
    let (core, r) = (&call.core, call.resource());
    match (r.group.as_str(), r.plural.as_str()) {
        ("", "pods") => {
            runtime_class(core, r, value)?;
            account(call, value);
            limits::fill(core, r, &call.namespace, value);
        }
        ("", "nodes") => taint(value),
        ("", "persistentvolumes") => protection::hold(value, protection::VOLUME),
        ("", "persistentvolumeclaims") => {
            protection::hold(value, protection::CLAIM);
            let wants = tree::at(value, &["spec", "storageClassName"]).is_none_or(Value::is_null);
            let beta = "volume.beta.kubernetes.io/storage-class";
            let annotated = tree::at(value, &["metadata", "annotations", beta]).is_some();
            if wants
                && !annotated
                && let Some(name) = default_class(core, "storage.k8s.io/storageclasses", "storageclass")
            {
                tree::child(value, "spec").insert("storageClassName".into(), name.into());
            }
        }
        ("networking.k8s.io", "ingresses") => {
            let old = "kubernetes.io/ingress.class";
            let chosen = tree::at(value, &["spec", "ingressClassName"]).is_some()
                || tree::at(value, &["metadata", "annotations", old]).is_some();
            if !chosen
                && let Some(name) = default_class(core, "networking.k8s.io/ingressclasses", "ingressclass")
            {
                tree::child(value, "spec").insert("ingressClassName".into(), name.into());
            }
        }
        ("certificates.k8s.io", _) => requester(&call.user, value),
        _ => {}
    }
    Ok(())
}

/// What the plugins refuse of a new object.
///
/// # Errors
/// 403 with what is outside its bounds.
pub fn check_new(call: &Call, value: &Value) -> ApiResult<()> {
    nodes::restrict(call, tree::meta_text(value, "name"), None, Some(value))?;
    if call.resource().is("certificates.k8s.io", "certificatesigningrequests") {
        restricted_subject(call, value)?;
    } else if call.resource().is("", "pods") {
        mounts(call, value)?;
    }
    limits::check(&call.core, call.resource(), &call.namespace, value)
}

/// The plugins' checks of an update.
///
/// # Errors
/// 403 if the caller may not approve or sign.
pub fn check_change(call: &Call, old: &Value, new: &Value) -> ApiResult<()> {
    nodes::restrict(call, &call.name, Some(old), Some(new))?;
    let is_claim = call.resource().is("", "persistentvolumeclaims") && call.subresource.is_empty();
    let is_resize = call.resource().is("", "pods") && call.subresource == "resize";
    if (is_claim || is_resize) && tree::at(old, &["metadata", "deletionTimestamp"]).is_none() {
        limits::check(&call.core, call.resource(), &call.namespace, new)?;
    }
    if is_claim {
        return grown_claim(call, old, new);
    }
    if !call.resource().is("certificates.k8s.io", "certificatesigningrequests") {
        return Ok(());
    }
    let at = |v: &Value, key: &str| tree::at(v, &["status", key]).cloned().unwrap_or_default();
    let (verb, word) = match call.subresource.as_str() {
        "approval" => ("approve", "approve"),
        "status" if at(old, "certificate") != at(new, "certificate") => ("sign", "sign"),
        _ => return Ok(()),
    };
    let signer = tree::text(old, &["spec", "signerName"]);
    let domain = signer.split_once('/').map_or("", |(domain, _)| domain);
    let may = |name: &str| {
        let q = Question {
            verb: verb.into(),
            group: "certificates.k8s.io".into(),
            resource: "signers".into(),
            name: name.into(),
            ..Question::default()
        };
        call.core.auth.allows(&call.core, &call.user, &q)
    };
    if may(signer) || may(&format!("{domain}/*")) {
        return Ok(());
    }
    let why = format!("user not permitted to {word} requests with signerName {signer:?}");
    Err(ApiError::forbidden(call.resource(), &call.name, &why))
}

/// Only a bound claim grows, and only where its class can have its volume grow.
fn grown_claim(call: &Call, old: &Value, new: &Value) -> ApiResult<()> {
    let size = |claim: &Value| {
        let text = tree::text(claim, &["spec", "resources", "requests", "storage"]).to_string();
        fleet_resources::quantity::parse("storage", &text).unwrap_or(0)
    };
    if size(new) <= size(old) {
        return Ok(());
    }
    if tree::text(old, &["status", "phase"]) != "Bound" {
        let why = "Only bound persistent volume claims can be expanded";
        return Err(ApiError::forbidden(call.resource(), &call.name, why));
    }
    let (before, now) = (class_of_claim(old), class_of_claim(new));
    let class = call.core.store.table("storage.k8s.io/storageclasses").get(now);
    let grows = class.is_some_and(|c| c.at(&["allowVolumeExpansion"]) == Some(Value::Bool(true)));
    if grows && before == now {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(ApiError::forbidden(call.resource(), &call.name, why))
}

/// What an account's pods may mount, where the account says so, and what copies of a kubelet's own pods may not name.
fn mounts(call: &Call, pod: &Value) -> ApiResult<()> {
    let refused = |why: String| Err(ApiError::forbidden(call.resource(), tree::meta_text(pod, "name"), &why));
    let secrets = || {
        let volumes = tree::list(pod, &["spec", "volumes"]).iter();
        volumes.map(|v| tree::text(v, &["secret", "secretName"])).filter(|name| !name.is_empty())
    };
    let name = tree::text(pod, &["spec", "serviceAccountName"]);
    if tree::at(pod, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
        if secrets().next().is_some() {
            return refused("a mirror pod may not reference secrets".into());
        }
        return Ok(());
    }
    let Some(account) = call.core.store.table("/serviceaccounts").get(&format!("{}/{name}", call.namespace))
    else {
        return Ok(());
    };
    if account.text(&["metadata", "annotations", "kubernetes.io/enforce-mountable-secrets"]) != "true" {
        return Ok(());
    }
    let listed =
        |field: &str, secret: &str| account.list(&[field]).iter().any(|s| tree::text(s, &["name"]) == secret);
    if let Some(secret) = secrets().find(|secret| !listed("secrets", secret)) {
        return refused(format!(
            "volume with secret.secretName={secret:?} is not allowed because service account {name} does not reference that secret"
        ));
    }
    for container in ["initContainers", "containers"].iter().flat_map(|key| tree::list(pod, &["spec", key])) {
        let from = tree::list(container, &["envFrom"]).iter().map(|e| tree::text(e, &["secretRef", "name"]));
        let one = tree::list(container, &["env"])
            .iter()
            .map(|e| tree::text(e, &["valueFrom", "secretKeyRef", "name"]));
        if let Some(secret) = from.chain(one).find(|secret| !secret.is_empty() && !listed("secrets", secret))
        {
            let container = tree::text(container, &["name"]);
            return refused(format!(
                "container {container} with envVar or envFrom referencing secret.secretName={secret:?} is not allowed because service account {name} does not reference that secret"
            ));
        }
    }
    for pull in tree::list(pod, &["spec", "imagePullSecrets"]).iter().map(|s| tree::text(s, &["name"])) {
        if !listed("imagePullSecrets", pull) {
            return refused(format!(
                "imagePullSecrets[].name={pull:?} is not allowed because service account {name} does not reference that imagePullSecret"
            ));
        }
    }
    Ok(())
}

/// The class that is marked as the default; the newest of several.
fn default_class(core: &Core, table: &str, word: &str) -> Option<String> {
    let mark = format!("{word}.kubernetes.io/is-default-class");
    let marked = core
        .store
        .table(table)
        .objects()
        .into_iter()
        .filter(|c| c.text(&["metadata", "annotations", &mark]) == "true");
    marked.max_by_key(|c| (c.meta_text("creationTimestamp"), c.rv)).map(|c| c.key.to_string())
}

/// A new node is tainted as not ready; the node lifecycle controller removes the taint.
fn taint(node: &mut Value) {
    let taints = tree::child(node, "spec").entry("taints").or_insert_with(|| json!([]));
    if let Value::Array(list) = taints
        && !list.iter().any(|t| tree::text(t, &["key"]) == NOT_READY)
    {
        list.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
}

/// The requester of a certificate is the caller, whatever the request says.
fn requester(user: &User, request: &mut Value) {
    let spec = tree::child(request, "spec");
    for key in ["username", "uid", "groups", "extra"] {
        spec.remove(key);
    }
    spec.insert("username".into(), user.name.as_str().into());
    spec.insert("groups".into(), json!(user.groups));
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
}

/// No client certificate makes its holder an administrator.
fn restricted_subject(call: &Call, request: &Value) -> ApiResult<()> {
    if tree::text(request, &["spec", "signerName"]) != "kubernetes.io/kube-apiserver-client" {
        return Ok(());
    }
    let Some(subject) = certificates::subject(request) else { return Ok(()) };
    if subject.organizations.iter().any(|o| o == crate::access::user::MASTERS) {
        let why =
            "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
        return Err(ApiError::forbidden(call.resource(), tree::meta_text(request, "name"), why));
    }
    Ok(())
}

/// A pod of a runtime class runs as the class says.
fn runtime_class(core: &Core, r: &Resource, pod: &mut Value) -> ApiResult<()> {
    let name = tree::text(pod, &["spec", "runtimeClassName"]).to_string();
    let given = tree::at(pod, &["spec", "overhead"]).filter(|o| o.as_object().is_some_and(|m| !m.is_empty()));
    let refused = |why: String| Err(ApiError::forbidden(r, tree::meta_text(pod, "name"), &why));
    if name.is_empty() {
        return match given {
            Some(_) => refused(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into(),
            ),
            None => Ok(()),
        };
    }
    let Some(class) = core.store.table("node.k8s.io/runtimeclasses").get(&name) else {
        return refused(format!("pod rejected: RuntimeClass {name:?} not found"));
    };
    let overhead = class.at(&["overhead", "podFixed"]).filter(|o| !o.is_null());
    if given.is_some() && given != overhead.as_ref() {
        return refused("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".into());
    }
    let pod_name = tree::meta_text(pod, "name").to_string();
    let spec = tree::child(pod, "spec");
    if let Some(overhead) = overhead {
        spec.insert("overhead".into(), overhead);
    }
    if let Some(Value::Object(wanted)) = class.at(&["scheduling", "nodeSelector"]) {
        let selector = tree::object(spec.entry("nodeSelector").or_insert_with(|| json!({})));
        for (key, value) in &wanted {
            if let Some(other) = selector.get(key).filter(|own| *own != value) {
                let shown = |v: &Value| v.as_str().unwrap_or_default().to_string();
                let why = format!(
                    "pod rejected: conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    shown(value),
                    shown(other)
                );
                return Err(ApiError::forbidden(r, &pod_name, &why));
            }
        }
        for (key, value) in wanted {
            selector.entry(key).or_insert(value);
        }
    }
    let tolerations = class.list(&["scheduling", "tolerations"]);
    if let Value::Array(list) = spec.entry("tolerations").or_insert_with(|| json!([])) {
        for toleration in tolerations {
            if !list.contains(&toleration) {
                list.push(toleration);
            }
        }
    }
    Ok(())
}

/// Adds the image pull secrets of a pod's account, and a token in its containers.
fn account(call: &Call, pod: &mut Value) {
    if tree::at(pod, &["metadata", "annotations", "kubernetes.io/config.mirror"]).is_some() {
        return;
    }
    let name = tree::text(pod, &["spec", "serviceAccountName"]);
    let key = format!("{}/{name}", call.namespace);
    // One that is not there is refused later, with words of its own.
    let Some(account) = call.core.store.table("/serviceaccounts").get(&key) else { return };
    let secrets = account.list(&["imagePullSecrets"]);
    let own = tree::at(pod, &["spec", "automountServiceAccountToken"]).and_then(Value::as_bool);
    let spec = tree::child(pod, "spec");
    if !secrets.is_empty() && spec.get("imagePullSecrets").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        spec.insert("imagePullSecrets".into(), Value::Array(secrets));
    }
    let of_account = account.at(&["automountServiceAccountToken"]).and_then(|v| v.as_bool());
    if own.or(of_account).unwrap_or(true) {
        token_volume(call, pod);
    }
}

fn token_volume(call: &Call, pod: &mut Value) {
    let prefix = "kube-api-access-";
    let known = tree::list(pod, &["spec", "volumes"]).iter().map(|v| tree::text(v, &["name"]));
    let known = known.into_iter().find(|n| n.starts_with(prefix)).map(str::to_string);
    let name =
        known.clone().unwrap_or_else(|| fleet_apiserver_ground::ids::generated(&call.core.ids, prefix));
    let mut mounted = false;
    let spec = tree::child(pod, "spec");
    for list in ["initContainers", "containers"] {
        for c in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let mounts = tree::object(c).entry("volumeMounts").or_insert_with(|| json!([]));
            let Value::Array(mounts) = mounts else { continue };
            if mounts.iter().any(|m| tree::text(m, &["mountPath"]) == TOKEN_PATH) {
                continue;
            }
            mounts.push(json!({"name": name, "mountPath": TOKEN_PATH, "readOnly": true}));
            mounted = true;
        }
    }
    if !mounted || known.is_some() {
        return;
    }
    let volume = json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_LIFE_S, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}});
    if let Value::Array(volumes) = spec.entry("volumes").or_insert_with(|| json!([])) {
        volumes.push(volume);
    }
}
