//! A hostile tenant, and a hostile member.

use std::time::Duration;

use serde_json::{Value, json};

use super::{OVER_MS, each_template, jobs::job, name_of, users::in_namespace};
use crate::{
    plan::{EXPECT_LABEL, Lie, SimulationPlan, What},
    random::Random,
};

/// Where the hostile tenant may write.
pub(crate) const HOSTILE: &str = "team-c";
const LONG: Duration = Duration::from_millis(OVER_MS);
/// Bytes of one of the ConfigMaps that are too large together.
const HUGE: usize = 900 * 1024;

impl SimulationPlan {
    pub(super) fn add_hostile_tenant(&mut self, random: &mut Random) {
        let kinds =
            [("kubeflow.org/v1", "PyTorchJob"), ("batch/v1", "Job"), ("batch.volcano.sh/v1alpha1", "Job")];
        self.select(&kinds);
        let clusters = self.clusters.clone();
        for index in 0..random.between(2, 5) {
            let at = random.time(0, 150_000);
            let kind = *random.one_of(&kinds);
            let runtime_ms = random.between(500, 60_000);
            let mut job =
                job(kind, &format!("h{index}"), HOSTILE, random.between(1, 3), random.below(2), runtime_ms);
            job["metadata"]["labels"][EXPECT_LABEL] = "Any".into();
            if random.per_mille(400) {
                // Another team's leaf.
                let leaf = *random.one_of(&["a", "b", "root/a"]);
                job["metadata"]["labels"]["quota.scheduling.alibabacloud.com/name"] = leaf.into();
            }
            let cluster = random.one_of(&clusters);
            let node = cluster.node_pools[0].node_name(0);
            for _ in 0..random.between(1, 3) {
                mark(random, &mut job, &node);
            }
            outstay(index, &mut job);
            if random.per_mille(60) {
                self.add_huge(at, &mut job);
            }
            let (name, manifest) = (name_of(&job), job.clone());
            self.people_do(at, What::Apply(job));
            if random.per_mille(300) {
                // Marks come on when it runs.
                let mut marked = manifest;
                mark(random, &mut marked, &node);
                let patch = json!({"metadata": {"labels": marked["metadata"]["labels"],
                    "annotations": marked["metadata"]["annotations"]}, "spec": marked["spec"]});
                self.people_do(at + random.time(0, 20_000), What::Patch { object: name.clone(), patch });
            }
            self.people_do(LONG, What::Delete(name));
        }
        if random.per_mille(300) {
            let policy = own_policy(random);
            let name = name_of(&policy);
            self.people_do(random.time(0, 30_000), What::Apply(policy));
            self.people_do(LONG, What::Delete(name));
        }
    }

    /// Five ConfigMaps that no one Work can carry.
    fn add_huge(&mut self, at: Duration, job: &mut Value) {
        let names: Vec<String> = (0..5).map(|index| format!("huge-{index}")).collect();
        for name in &names {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "x".repeat(HUGE)},
                "metadata": {"name": name, "namespace": HOSTILE}});
            self.people_do(at, What::Apply(map));
            self.people_do(LONG, What::Delete(in_namespace("ConfigMap", HOSTILE, name)));
        }
        let sources: Vec<Value> = names.iter().map(|name| json!({"configMapRef": {"name": name}})).collect();
        each_template(job, |template| template["spec"]["containers"][0]["envFrom"] = json!(sources));
    }

    /// One of the clusters lies until the faults are over. What it says of its own runs proves nothing then.
    pub(super) fn add_hostile_member(&mut self, random: &mut Random) {
        let cluster = random.one_of(&self.clusters).name.clone();
        for _ in 0..random.between(3, 30) {
            let lie = *random.one_of(&Lie::ALL);
            let at = random.time(1_000, OVER_MS);
            self.people_do(at, What::Lie { cluster: cluster.clone(), lie });
        }
        self.liars.push(cluster);
    }
}

/// Fleet's own words, in the tenant's hand; on the job or on its pods.
fn mark(random: &mut Random, job: &mut Value, node: &str) {
    let marks = [
        ("annotations", "fleet.dev/epoch", "99"),
        ("annotations", "fleet.dev/reservation", "another"),
        ("annotations", "fleet.dev/gang", "another"),
        ("annotations", "fleet.dev/gang-size", "1"),
        ("annotations", "fleet.dev/fencing", "None"),
        ("annotations", "fleet.dev/fenced", "1"),
        ("annotations", "fleet.dev/result-recorded", "true"),
        ("annotations", "fleet.dev/start-timeout", "1s"),
        ("annotations", "scheduling.k8s.io/group-name", "another"),
        ("labels", "fleet.dev/binding-uid", "00000000-0000-0000-0000-000000000000"),
        ("labels", "fleet.dev/managed", "false"),
        ("labels", "fleet.dev/component", "another"),
    ];
    let (field, name, value) = *random.one_of(&marks);
    match random.below(8) {
        0..3 => job["metadata"][field][name] = value.into(),
        3..6 => each_template(job, |template| template["metadata"][field][name] = value.into()),
        6 => each_template(job, |template| template["spec"]["nodeName"] = node.into()),
        _ => {
            let scheduler = *random.one_of(&["default-scheduler", "another", "volcano"]);
            each_template(job, |template| template["spec"]["schedulerName"] = scheduler.into());
        }
    }
}

/// Pods that are to stay when the job has ended, or when it is evicted. By the number of the job, so that no other choice of
/// the seed changes.
fn outstay(index: u64, job: &mut Value) {
    match index {
        1 => job["metadata"]["annotations"]["fleet.dev/after-end"] = "10m".into(),
        2 => each_template(job, |template| {
            template["spec"]["terminationGracePeriodSeconds"] = 1_000_000.into();
            template["metadata"]["finalizers"] = json!(["team-c.io/mine"]);
        }),
        3 => each_template(job, |template| {
            template["spec"]["priorityClassName"] = "system-node-critical".into()
        }),
        _ => {}
    }
}

/// A policy of his own namespace: no queue, and every word that lets a job run twice.
fn own_policy(random: &mut Random) -> Value {
    json!({"apiVersion": "policy.one.alibabacloud.com/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": "own", "namespace": HOSTILE},
        "spec": {
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "priority": 1000,
            "suspension": {"scheduling": random.per_mille(500)},
            "conflictResolution": "Overwrite",
            "placement": {"replicaScheduling": {
                "replicaSchedulingType": "Divided", "customSchedulingType": "Gang"}},
            "failover": {"cluster": {"purgeMode": "Directly", "fencing": "Lease", "tolerationSeconds": 0}}}})
}
