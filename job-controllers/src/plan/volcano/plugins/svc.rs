//! svc: names for the pods, and files and variables with these names.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::tools::{Flags, for_all_containers};
use crate::plan::pod::{list_mut, mount, owner_reference};
use crate::plan::volcano::{task::Task, view::View};

const MOUNT_PATH: &str = "/etc/volcano";

/// A ConfigMap with the hosts, a headless Service for the pods, a NetworkPolicy that keeps others out.
pub(super) fn support(view: &View<'_>, flags: &Flags<'_>) -> Vec<Value> {
    let (job, owner) = (view.job, owner_reference(view.job, view.input.resource));
    let metadata =
        |name: String| json!({"name": name, "namespace": job.namespace(), "ownerReferences": [owner]});
    let selector = json!({"volcano.sh/job-name": job.name(), "volcano.sh/job-namespace": job.namespace()});
    let mut found = vec![
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(config_map(view)),
            "data": hosts(view),
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(job.name().to_owned()),
            "spec": {
                "clusterIP": "None",
                "selector": selector,
                "publishNotReadyAddresses": flags.flag("publish-not-ready-addresses", false),
            },
        }),
    ];
    if !flags.flag("disable-network-policy", false) {
        found.push(json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(job.name().to_owned()),
            "spec": {
                "podSelector": {"matchLabels": selector},
                "ingress": [{"from": [{"podSelector": {"matchLabels": selector}}]}],
                "policyTypes": ["Ingress"],
            },
        }));
    }
    found
}

fn config_map(view: &View<'_>) -> String {
    format!("{}-svc", view.job.name())
}

/// Three keys per task: one host per line without a final newline, the same separated by commas, and the
/// count.
fn hosts(view: &View<'_>) -> BTreeMap<String, String> {
    let mut data = BTreeMap::new();
    for task in &view.tasks {
        let hosts = task.hosts(view.job);
        let name = task.name.replace('-', "_");
        data.insert(format!("{name}.host"), hosts.join("\n"));
        data.insert(hosts_key(&task.name), hosts.join(","));
        data.insert(count_key(&task.name), task.replicas.to_string());
    }
    data
}

fn hosts_key(task: &str) -> String {
    format!("VC_{}_HOSTS", task.replace('-', "_").to_uppercase())
}

fn count_key(task: &str) -> String {
    format!("VC_{}_NUM", task.replace('-', "_").to_uppercase())
}

pub(super) fn furnish(pod: &mut Value, view: &View<'_>, task: &Task<'_>, index: i64, flags: &Flags<'_>) {
    let (host, subdomain) = task.host(view.job, index);
    pod["spec"]["hostname"] = host.into();
    pod["spec"]["subdomain"] = subdomain.into();
    let name = config_map(view);
    let inject = flags.flag("inject-hosts-env", true);
    let keys: Vec<String> = view
        .tasks
        .iter()
        .flat_map(|task| {
            let hosts = inject.then(|| hosts_key(&task.name));
            hosts.into_iter().chain([count_key(&task.name)])
        })
        .collect();
    for_all_containers(pod, |container| {
        let env = list_mut(container, "env");
        for key in &keys {
            env.retain(|entry| entry["name"] != *key);
            let source = json!({"configMapKeyRef": {"name": name, "key": key}});
            env.push(json!({"name": key, "valueFrom": source}));
        }
    });
    let mut volume = Map::new();
    volume.insert("name".into(), name.as_str().into());
    volume.insert("configMap".into(), json!({"name": name}));
    list_mut(&mut pod["spec"], "volumes").push(volume.into());
    mount(pod, &json!({"name": name, "mountPath": MOUNT_PATH}));
}
