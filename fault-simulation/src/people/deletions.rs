//! Jobs that go in unusual ways: held by a finalizer of their user, with their namespace (their binding and unit go first, or
//! last), or deleted and made anew while a finalizer held them.

use std::time::Duration;

use serde_json::{Value, json};

use super::{OVER_MS, name_of, soon_after};
use crate::{
    plan::{SimulationPlan, What},
    random::Random,
};
use fleet_simulator::scenario::ObjectName;

const FINALIZER: &str = "team.example.com/hold";

impl SimulationPlan {
    pub(super) fn add_deletions(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 3) {
            let (made, job) = self.touch(random);
            let at = soon_after(random, made);
            match random.below(3) {
                0 => self.delete_held(random, at, &job),
                1 => self.delete_with_namespace(random, at, &job),
                _ => self.delete_inner(random, at, &job),
            }
        }
    }

    /// Its user's finalizer holds it for a while.
    fn delete_held(&mut self, random: &mut Random, at: Duration, job: &Value) {
        let object = name_of(job);
        let held = |finalizers: Value| What::Patch {
            object: object.clone(),
            patch: json!({"metadata": {"finalizers": finalizers}}),
        };
        self.people_do(at, held(json!([FINALIZER])));
        let at = at + random.time(0, 5_000);
        self.people_do(at, What::Delete(object.clone()));
        if random.per_mille(500) {
            // It cannot be made anew yet.
            self.people_do(at + random.time(0, 5_000), What::Apply(job.clone()));
        }
        let free = at + random.time(0, 40_000);
        self.people_do(free, held(json!([])));
        if random.per_mille(500) {
            self.people_do(free + random.time(0, 2_000), What::Apply(job.clone()));
        }
        self.people_do(Duration::from_millis(OVER_MS), held(json!([])));
    }

    /// What Fleet wrote for it in its namespace goes in any order, and so does the job.
    fn delete_with_namespace(&mut self, random: &mut Random, at: Duration, job: &Value) {
        let mut all = inner(job);
        all.push(name_of(job));
        for object in all {
            self.people_do(at + random.time(0, 300), What::Delete(object));
        }
        if random.per_mille(600) {
            self.people_do(at + random.time(300, 20_000), What::Apply(job.clone()));
        }
    }

    /// Somebody deletes what Fleet wrote, once or again and again, and leaves the job.
    fn delete_inner(&mut self, random: &mut Random, at: Duration, job: &Value) {
        let mut at = at;
        for _ in 0..random.between(1, 4) {
            let object = random.one_of(&inner(job)).clone();
            self.people_do(at, What::Delete(object));
            at += random.time(0, 20_000);
        }
    }
}

/// The binding of a job and its unit.
fn inner(job: &Value) -> Vec<ObjectName> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let kind = match (text(&job["apiVersion"]).as_str(), text(&job["kind"]).as_str()) {
        ("batch.volcano.sh/v1alpha1", _) => "vcjob".to_string(),
        (_, kind) => kind.to_lowercase(),
    };
    let name = format!("{}-{kind}", text(&job["metadata"]["name"]));
    let object = |api_version: &str, kind: &str, name: String| ObjectName {
        api_version: Some(api_version.to_string()),
        kind: kind.to_string(),
        namespace: text(&job["metadata"]["namespace"]),
        name,
    };
    vec![
        object("fleet.dev/v1alpha1", "ResourceBinding", name.clone()),
        object("scheduling.x-k8s.io/v1alpha1", "QueueUnit", format!("{name}-rb-qu")),
    ]
}
