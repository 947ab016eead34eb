//! Users who change their own objects, and administrators who change policies and trees, at any moment.

use std::time::Duration;

use serde_json::{Value, json};

use super::{OVER_MS, each_template, is, name_of, patch_of, roles_field, soon_after, templates};
use crate::{
    plan::{SimulationPlan, What},
    random::Random,
};
use fleet_simulator::scenario::ObjectName;

pub(super) const POLICY_API: &str = "policy.one.alibabacloud.com/v1alpha1";
const QUOTA_LABEL: &str = "quota.scheduling.alibabacloud.com/name";
/// What an override may try to be.
const MANAGED: &str = "/metadata/labels/fleet.dev~1binding-uid";

impl SimulationPlan {
    pub(super) fn add_edits(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 5) {
            let (made, job) = self.touch(random);
            let at = soon_after(random, made);
            let patch = edit(random, &job);
            self.people_do(at, What::Patch { object: name_of(&job), patch: patch.clone() });
            if random.per_mille(300) {
                // And back, or on, before the first was taken in.
                let more = edit(random, &job);
                self.people_do(at + random.time(0, 60), What::Patch { object: name_of(&job), patch: more });
            }
        }
    }

    pub(super) fn add_suspends(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 3) {
            let (made, job) = self.touch(random);
            let patch = |suspend: bool| {
                let spec = match is(&job, "batch/v1", "Job") {
                    true => json!({"suspend": suspend}),
                    false => json!({"runPolicy": {"suspend": suspend}}),
                };
                What::Patch { object: name_of(&job), patch: json!({"spec": spec}) }
            };
            let from = soon_after(random, made);
            self.people_do(from, patch(true));
            self.people_do(from + random.time(1, 30_000), patch(false));
            self.people_do(Duration::from_millis(OVER_MS), patch(false));
        }
    }

    /// Overrides of one job each: of its size, of its labels, and of what it is.
    pub(super) fn add_overrides(&mut self, random: &mut Random) {
        for index in 0..random.between(1, 3) {
            let (made, job) = self.touch(random);
            let policy = json!({"apiVersion": POLICY_API, "kind": "OverridePolicy",
                "metadata": {"name": format!("o{index}"), "namespace": job["metadata"]["namespace"]},
                "spec": {
                    "resourceSelectors": [{"apiVersion": job["apiVersion"], "kind": job["kind"],
                        "name": job["metadata"]["name"]}],
                    "overrideRules": [{"overriders": overriders(random, &job)}]}});
            let from = match random.per_mille(400) {
                true => made.saturating_sub(random.time(0, 2_000)),
                false => soon_after(random, made),
            };
            let name = name_of(&policy);
            self.people_do(from, What::Apply(policy));
            self.people_do(from + random.time(100, 120_000), What::Delete(name));
        }
    }

    /// The policy of all jobs changes, or goes for a while; in the end it is what it was.
    pub(super) fn add_policies(&mut self, random: &mut Random) {
        let Some(policy) =
            self.objects.iter().find(|object| object["kind"] == "ClusterPropagationPolicy").cloned()
        else {
            return;
        };
        for _ in 0..random.between(1, 3) {
            let at = random.time(1_000, 200_000);
            let back = at + random.time(10, 30_000);
            let mut changed = policy.clone();
            let cluster = random.one_of(&self.clusters).name.clone();
            match random.below(5) {
                0 => {
                    self.people_do(at, What::Delete(name_of(&policy)));
                    self.people_do(back, What::Apply(policy.clone()));
                    continue;
                }
                1 => {
                    let queues = changed["spec"]["suspension"]["scheduling"] == true;
                    changed["spec"]["suspension"] = json!({"scheduling": !queues});
                }
                2 => changed["spec"]["suspension"]["dispatching"] = true.into(),
                3 => {
                    let others = self.clusters.iter().map(|c| &c.name).filter(|name| **name != cluster);
                    let others: Vec<&String> = others.collect();
                    changed["spec"]["placement"]["clusterAffinity"] = json!({"clusterNames": others});
                }
                _ => changed["spec"]["propagateDeps"] = false.into(),
            }
            self.people_do(at, What::Apply(changed));
            self.people_do(back, What::Apply(policy.clone()));
        }
    }

    /// The tree is lowered, raised, loses a leaf; in the end it is what it was.
    pub(super) fn add_trees(&mut self, random: &mut Random) {
        let Some(tree) = self.objects.iter().find(|object| object["kind"] == "ElasticQuotaTree").cloned()
        else {
            return;
        };
        for _ in 0..random.between(1, 4) {
            let mut changed = tree.clone();
            let root = &mut changed["spec"]["root"];
            let inner = if root["children"][0]["name"] == "org" { &mut root["children"][0] } else { root };
            if let Some(leaves) = inner["children"].as_array_mut() {
                let at = random.below(leaves.len() as u64) as usize;
                match random.below(4) {
                    0 => {
                        leaves.remove(at);
                    }
                    1 => leaves[at]["max"]["nvidia.com/gpu"] = random.between(0, 4).into(),
                    2 => {
                        let max = random.between(1, 3);
                        leaves[at]["max"]["kube-queue/max-jobs"] = max.into();
                    }
                    _ => {
                        let cores = random.between(1, 4);
                        leaves[at]["max"]["cpu"] = cores.into();
                        if leaves[at]["min"]["cpu"].as_u64().is_some_and(|min| min > cores) {
                            leaves[at]["min"]["cpu"] = cores.into();
                        }
                    }
                }
            }
            self.people_do(random.time(1_000, 200_000), What::Apply(changed));
        }
        self.people_do(Duration::from_millis(OVER_MS), What::Apply(tree));
    }

    /// What a job reads comes late, changes, goes and comes back.
    pub(super) fn add_dependencies(&mut self, random: &mut Random) {
        for index in 0..random.between(1, 2) {
            let (made, job) = self.touch(random);
            let (kind, name) = (*random.one_of(&["ConfigMap", "Secret"]), format!("d{index}"));
            let field = if kind == "ConfigMap" { "configMapRef" } else { "secretRef" };
            let source = json!([{field: {"name": name}}]);
            self.change(&name_of(&job), |job| {
                each_template(job, |template| template["spec"]["containers"][0]["envFrom"] = source.clone());
            });
            let held = |version: u64| {
                let data = if kind == "ConfigMap" { "data" } else { "stringData" };
                json!({"apiVersion": "v1", "kind": kind, data: {"version": version.to_string()},
                    "metadata": {"name": name, "namespace": job["metadata"]["namespace"]}})
            };
            let first = if random.per_mille(700) {
                made.saturating_sub(random.time(0, 1_000))
            } else {
                made + random.time(0, 40_000)
            };
            self.people_do(first, What::Apply(held(0)));
            for version in 1..random.between(2, 4) {
                let at = soon_after(random, made.max(first));
                let what = match random.per_mille(400) {
                    true => What::Delete(name_of(&held(0))),
                    false => What::Apply(held(version)),
                };
                self.people_do(at, what);
            }
            self.people_do(Duration::from_millis(OVER_MS), What::Apply(held(9)));
        }
    }
}

/// One edit of a job, as a merge patch.
fn edit(random: &mut Random, job: &Value) -> Value {
    let many = if random.per_mille(500) { 20 } else { random.between(0, 6) };
    match random.below(10) {
        0..5 => replicas(job, many),
        5..7 => {
            let pointer = format!("{}/spec/containers/0/resources", random.one_of(&templates(job)));
            let amounts = json!({"cpu": random.between(1, 4).to_string(),
                "nvidia.com/gpu": random.between(0, 4).to_string(), "memory": "1Gi"});
            patch_of(job, &pointer, json!({"requests": amounts, "limits": amounts}))
        }
        7 => match roles_field(job) {
            // A role goes, or one more comes.
            Some(field) if random.per_mille(500) => json!({"spec": {field: {"Worker": null}}}),
            Some(field) => {
                let worker = job["spec"][field]["Worker"].clone();
                json!({"spec": {field: {"Evaluator": worker}}})
            }
            None => replicas(job, many),
        },
        8 => {
            let leaf = *random.one_of(&["a", "b", "nowhere"]);
            json!({"metadata": {"labels": {QUOTA_LABEL: leaf}}})
        }
        _ => json!({"metadata": {"annotations": {"example.com/note": random.number().to_string()}}}),
    }
}

/// So many workers.
pub(super) fn replicas(job: &Value, many: u64) -> Value {
    if let Some(field) = roles_field(job) {
        return json!({"spec": {field: {"Worker": {"replicas": many}}}});
    }
    match is(job, "batch/v1", "Job") {
        true => json!({"spec": {"parallelism": many}}),
        false => {
            let mut patch = patch_of(job, "/spec/tasks/0/replicas", many.into());
            patch["spec"]["minAvailable"] = many.into();
            patch
        }
    }
}

/// One to three overriders of a job.
fn overriders(random: &mut Random, job: &Value) -> Value {
    let template = random.one_of(&templates(job)).clone();
    let size = match roles_field(job) {
        Some(field) => format!("/spec/{field}/Worker/replicas"),
        None if is(job, "batch/v1", "Job") => "/spec/parallelism".to_string(),
        None => "/spec/tasks/0/replicas".to_string(),
    };
    let mut plaintext = Vec::new();
    // Adding sets a field, whether it is there or not.
    let mut set = |path: &str, value: Value| {
        plaintext.push(json!({"path": path, "operator": "add", "value": value}));
    };
    for _ in 0..random.between(1, 3) {
        match random.below(9) {
            0..3 => set(&size, random.between(1, 12).into()),
            3 => {
                let amounts =
                    json!({"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": random.between(1, 4).to_string()});
                let path = format!("{template}/spec/containers/0/resources");
                set(&path, json!({"requests": amounts, "limits": amounts}));
            }
            4 => set("/metadata/name", "other".into()),
            5 => set("/metadata/namespace", "kube-system".into()),
            6 => {
                set("/kind", "Deployment".into());
                set("/apiVersion", "apps/v1".into());
            }
            7 => set(MANAGED, "another".into()),
            _ => set(&format!("{template}/spec/nodeName"), "east-a-0".into()),
        }
    }
    let mut overriders = json!({"plaintext": plaintext});
    if random.per_mille(300) {
        let value = json!({QUOTA_LABEL: random.one_of(&["a", "b"]), "example.com/site": "here"});
        overriders["labelsOverrider"] = json!([{"operator": "add", "value": value}]);
    }
    overriders
}

/// A cluster-scoped object has no namespace.
pub(super) fn in_namespace(kind: &str, namespace: &str, name: &str) -> ObjectName {
    ObjectName {
        api_version: Some("v1".to_string()),
        kind: kind.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
    }
}
