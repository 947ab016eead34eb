//! Users who want more of their own leaf than it has: they change what a run was admitted with, at any moment, and
//! take back and submit again while pods still end.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    OVER_MS, each_template, is, name_of, roles_field, soon_after,
    users::{POLICY_API, replicas},
};
use crate::{
    plan::{SimulationPlan, What},
    random::Random,
};

/// Longer than a run of the simulation.
const NEVER_S: u64 = 100_000;

impl SimulationPlan {
    pub(super) fn add_cheats(&mut self, random: &mut Random) {
        for index in 0..random.between(1, 4) {
            let (made, job) = self.touch(random);
            let name = name_of(&job);
            if random.per_mille(400) {
                self.change(&name, slow_to_end);
            }
            match random.below(6) {
                0 => self.change_what_was_admitted(random, made, &job),
                1 => self.suspend_again_and_again(random, made, &job),
                2 => self.take_back_and_submit_again(random, made, &job),
                3 => self.keep_what_is_evicted(random, made, &job, index),
                4 => self.outlast_by_an_override(random, made, &job, index),
                _ => {
                    self.suspend_again_and_again(random, made, &job);
                    self.change_what_was_admitted(random, made, &job);
                    self.outlast_by_an_override(random, made, &job, index);
                }
            }
        }
    }

    /// Whether it may be preempted, its priority, how long it may run: short when it is placed, long when it runs.
    fn change_what_was_admitted(&mut self, random: &mut Random, made: Duration, job: &Value) {
        let object = name_of(job);
        let short = deadline(job, random.between(1, 60));
        self.people_do(made, What::Patch { object: object.clone(), patch: short });
        for _ in 0..random.between(1, 4) {
            let patch = match random.below(4) {
                0 => {
                    let preemptible = *random.one_of(&[Some("false"), Some("true"), None]);
                    json!({"metadata": {"labels": {fleet_quota_tree::PREEMPTIBLE_LABEL: preemptible}}})
                }
                1 => {
                    let class = *random.one_of(&["urgent", "idle"]);
                    let mut ranked = job.clone();
                    each_template(&mut ranked, |template| {
                        template["spec"]["priorityClassName"] = class.into();
                    });
                    json!({"spec": ranked["spec"]})
                }
                2 => deadline(job, random.between(1, 30)),
                _ => deadline(job, NEVER_S),
            };
            let at = soon_after(random, made);
            self.people_do(at, What::Patch { object: object.clone(), patch });
        }
        self.people_do(Duration::from_millis(OVER_MS), What::Patch { object, patch: deadline(job, NEVER_S) });
    }

    /// Each time its pods are to be made anew while the old ones still end; in between it grows.
    fn suspend_again_and_again(&mut self, random: &mut Random, made: Duration, job: &Value) {
        let suspended = |suspend: bool| match is(job, "batch/v1", "Job") {
            true => json!({"spec": {"suspend": suspend}}),
            false => json!({"spec": {"runPolicy": {"suspend": suspend}}}),
        };
        let object = name_of(job);
        let mut at = soon_after(random, made);
        for _ in 0..random.between(2, 12) {
            self.people_do(at, What::Patch { object: object.clone(), patch: suspended(true) });
            if random.per_mille(300) {
                let grown = replicas(job, random.between(1, 12));
                self.people_do(at, What::Patch { object: object.clone(), patch: grown });
            }
            at += random.time(0, 4_000);
            self.people_do(at, What::Patch { object: object.clone(), patch: suspended(false) });
            at += random.time(0, 4_000);
        }
        self.people_do(Duration::from_millis(OVER_MS), What::Patch { object, patch: suspended(false) });
    }

    fn take_back_and_submit_again(&mut self, random: &mut Random, made: Duration, job: &Value) {
        let mut at = soon_after(random, made);
        for _ in 0..random.between(1, 5) {
            self.people_do(at, What::Delete(name_of(job)));
            at += random.time(0, 3_000);
            self.people_do(at, What::Apply(job.clone()));
            at += random.time(0, 15_000);
        }
    }

    /// A policy of his own that is the one of all jobs, but keeps what is evicted or deleted.
    fn keep_what_is_evicted(&mut self, random: &mut Random, made: Duration, job: &Value, index: u64) {
        let Some(of_all) =
            self.objects.iter().find(|object| object["kind"] == "ClusterPropagationPolicy").cloned()
        else {
            return;
        };
        let mut policy = json!({"apiVersion": POLICY_API, "kind": "PropagationPolicy",
            "metadata": {"name": format!("keep{index}"), "namespace": job["metadata"]["namespace"]},
            "spec": of_all["spec"]});
        policy["spec"]["preserveResourcesOnDeletion"] = true.into();
        policy["spec"]["suspension"] = json!({"scheduling": true});
        policy["spec"]["resourceSelectors"] =
            json!([{"apiVersion": job["apiVersion"], "kind": job["kind"], "name": job["metadata"]["name"]}]);
        let from = match random.per_mille(500) {
            true => made.saturating_sub(random.time(0, 2_000)),
            false => soon_after(random, made),
        };
        let until = from + random.time(100, 60_000);
        self.people_do(from, What::Apply(policy.clone()));
        if random.per_mille(500) {
            // It lets go of the cluster that the run is in.
            let away = random.one_of(&self.clusters).name.clone();
            policy["spec"]["placement"]["clusterAffinity"] = json!({"exclude": [away]});
            let at = from + random.time(0, 10_000);
            self.people_do(at, What::Apply(policy.clone()));
        }
        self.people_do(until, What::Delete(name_of(&policy)));
    }

    /// Fields that make a run larger or longer, and that a rule of replicas and requests does not see.
    fn outlast_by_an_override(&mut self, random: &mut Random, made: Duration, job: &Value, index: u64) {
        let mut plaintext: Vec<Value> = Vec::new();
        for _ in 0..random.between(1, 3) {
            plaintext.push(outlasting(random, job));
        }
        let policy = json!({"apiVersion": POLICY_API, "kind": "OverridePolicy",
            "metadata": {"name": format!("outlast{index}"), "namespace": job["metadata"]["namespace"]},
            "spec": {
                "resourceSelectors": [{"apiVersion": job["apiVersion"], "kind": job["kind"],
                    "name": job["metadata"]["name"]}],
                "overrideRules": [{"overriders": {"plaintext": plaintext}}]}});
        let from = match random.per_mille(400) {
            true => made.saturating_sub(random.time(0, 2_000)),
            false => soon_after(random, made),
        };
        let name = name_of(&policy);
        self.people_do(from, What::Apply(policy));
        self.people_do(from + random.time(100, 120_000), What::Delete(name));
    }
}

/// How long a job may run.
fn deadline(job: &Value, seconds: u64) -> Value {
    match is(job, "batch/v1", "Job") {
        true => json!({"spec": {"activeDeadlineSeconds": seconds}}),
        false => json!({"spec": {"runPolicy": {"activeDeadlineSeconds": seconds}}}),
    }
}

/// Pods that take their time to end.
fn slow_to_end(job: &mut Value) {
    each_template(job, |template| template["spec"]["terminationGracePeriodSeconds"] = 90.into());
    if is(job, "batch/v1", "Job") {
        job["spec"]["podReplacementPolicy"] = "TerminatingOrFailed".into();
    }
}

fn outlasting(random: &mut Random, job: &Value) -> Value {
    let set = |path: &str, value: Value| json!({"path": path, "operator": "add", "value": value});
    if is(job, "batch/v1", "Job") {
        return match random.below(6) {
            0 => set("/spec/activeDeadlineSeconds", NEVER_S.into()),
            1 => json!({"path": "/spec/activeDeadlineSeconds", "operator": "remove"}),
            2 => set("/spec/completions", random.between(1, 20).into()),
            3 => set("/spec/backoffLimit", 50.into()),
            4 => set("/spec/podReplacementPolicy", "TerminatingOrFailed".into()),
            _ => set("/spec/suspend", random.per_mille(500).into()),
        };
    }
    match roles_field(job) {
        Some(field) => match random.below(5) {
            0 => set("/spec/runPolicy", json!({"activeDeadlineSeconds": NEVER_S, "cleanPodPolicy": "None"})),
            1 => set("/spec/runPolicy/suspend", random.per_mille(500).into()),
            2 => set("/spec/runPolicy/backoffLimit", 50.into()),
            3 => set(&format!("/spec/{field}/Worker/restartPolicy"), "Always".into()),
            _ => {
                let worker = job["spec"][field]["Worker"].clone();
                set(&format!("/spec/{field}/Evaluator"), worker)
            }
        },
        None => match random.below(3) {
            0 => set("/spec/minAvailable", 1.into()),
            1 => set("/spec/maxRetry", 50.into()),
            _ => {
                let mut task = job["spec"]["tasks"][0].clone();
                task["name"] = "another".into();
                set("/spec/tasks/1", task)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::people::People;

    #[test]
    fn every_cheat_is_tried() {
        let people = People::named("cheats").expect("known");
        let mut tried: BTreeSet<&str> = BTreeSet::new();
        for seed in 0..60 {
            for event in &SimulationPlan::of_seed_with(seed, &people).events {
                let told = match &event.what {
                    What::Apply(object) => object.to_string(),
                    What::Patch { patch, .. } => patch.to_string(),
                    What::Delete(name) => format!("delete {}", name.kind),
                    _ => continue,
                };
                for sign in [
                    "quota.scheduling.alibabacloud.com/preemptible",
                    "activeDeadlineSeconds",
                    "\"suspend\":true",
                    "delete PyTorchJob",
                    "preserveResourcesOnDeletion",
                    "TerminatingOrFailed",
                    "/spec/completions",
                ] {
                    if told.contains(sign) {
                        tried.insert(sign);
                    }
                }
            }
        }
        assert_eq!(tried.len(), 7, "{tried:?}");
    }
}
