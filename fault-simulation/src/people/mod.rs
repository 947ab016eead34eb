//! Users and attackers: users who edit, suspend and override at the worst moment, odd names and every kind of job,
//! a hostile tenant, a hostile member.
//!
//! Each draws from its own branch of the seed: fleet, jobs and faults stay the same, and each can be turned on
//! alone. They undo their changes before the faults end: suspended jobs are resumed, edits are reverted, so that
//! the end state is that of the jobs alone. The result of a job that somebody touched is left open if it cannot be
//! predicted (`Any`); the invariants must hold all the same.

mod cells;
mod cheats;
mod deletions;
mod hostile;
mod jobs;
mod users;

use std::time::Duration;

pub(super) use hostile::HOSTILE;
use serde_json::{Value, json};

use super::{
    plan::{EXPECT_LABEL, Event, Process, Server, SimulationPlan, What},
    random::Random,
};
use fleet_simulator::scenario::ObjectName;

/// When the last of them has done the last thing.
const OVER_MS: u64 = 235_000;
/// How long a server is without power at most; [`super::draw`] has what fencing covers.
const LONGEST_WITHOUT_POWER_MS: u64 = 3_500;
/// How old a backup is at most: servers know the states of the last minute.
const LONGEST_BACK_MS: u64 = 60_000;
/// Namespaces of tenants who want no more than is theirs.
const HONEST: [&str; 2] = ["team-a", "team-b"];

/// In how many of 1000 seeds each of them is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct People {
    /// Edit jobs: replicas, requests, roles, labels, mostly right after they made them.
    pub edits: u32,
    /// Suspend jobs, and resume them.
    pub suspends: u32,
    /// Write OverridePolicies.
    pub overrides: u32,
    /// Change the policy, take it away, put it back.
    pub policies: u32,
    /// Change the quota tree: lower, raise, take a leaf away.
    pub trees: u32,
    /// Change and delete what jobs depend on.
    pub dependencies: u32,
    /// Long names, and one name for two kinds.
    pub names: u32,
    /// Submit every kind of job, with pods that outlive their job, and Deployments.
    pub kinds: u32,
    /// Make nodes cells, submit jobs to virtual clusters, and change what these were promised. Some seeds have them
    /// without being asked.
    pub virtual_clusters: u32,
    /// Want more of their own leaf than it has: they change what a run was admitted with, and submit again while pods
    /// still end.
    pub cheats: u32,
    /// Hold jobs by a finalizer of their own, delete their namespaces, and delete what Fleet has written for jobs.
    pub deletions: u32,
    /// A tenant who writes Fleet's own marks, places pods by himself and sends what is too large.
    pub hostile_tenant: u32,
    /// A member whose credentials write lies into its Works, Reservations and Cluster.
    pub hostile_member: u32,
    /// No faults: what breaks then is the doing of people, and what may last a moment may last a short one only.
    pub fair: u32,
    /// An administrator restarts the controller, also where there are no faults.
    pub restarts: u32,
    /// Servers lose their power.
    pub power: u32,
    /// An administrator restores the hub from a backup. Only where no loss of a cluster moves jobs and nothing has
    /// cells: beyond that, a restore promises less.
    pub restores: u32,
}

impl People {
    /// Nobody: faults alone.
    pub const NONE: Self = Self {
        edits: 0,
        suspends: 0,
        overrides: 0,
        policies: 0,
        trees: 0,
        dependencies: 0,
        names: 0,
        kinds: 0,
        virtual_clusters: 0,
        cheats: 0,
        deletions: 0,
        hostile_tenant: 0,
        hostile_member: 0,
        fair: 0,
        restarts: 0,
        power: 0,
        restores: 0,
    };
    /// Most of them in some seeds, so that most seeds have a few. `power`, `restores` and `deletions` are named, so that other seeds stay
    /// as they are.
    pub const ALL: Self = Self {
        edits: 400,
        suspends: 250,
        overrides: 300,
        policies: 200,
        trees: 250,
        dependencies: 250,
        names: 200,
        kinds: 400,
        virtual_clusters: 0,
        cheats: 250,
        deletions: 0,
        hostile_tenant: 250,
        hostile_member: 200,
        fair: 300,
        restarts: 150,
        power: 0,
        restores: 0,
    };

    /// Those that are named, in every seed; `all`: as in [`Self::ALL`].
    ///
    /// # Errors
    /// A name that nobody has.
    pub fn named(list: &str) -> Result<Self, String> {
        let mut people = Self::NONE;
        for name in list.split(',').filter(|name| !name.is_empty()) {
            if name == "all" {
                people = Self::ALL;
                continue;
            }
            let Some((_, weight)) = people.weights().into_iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = Self::default().weights().iter().map(|(name, _)| *name).collect();
                return Err(format!("found {name:?}; allowed: all, {}", known.join(", ")));
            };
            *weight = 1000;
        }
        Ok(people)
    }

    fn weights(&mut self) -> [(&'static str, &mut u32); 17] {
        [
            ("edits", &mut self.edits),
            ("suspends", &mut self.suspends),
            ("overrides", &mut self.overrides),
            ("policies", &mut self.policies),
            ("trees", &mut self.trees),
            ("dependencies", &mut self.dependencies),
            ("names", &mut self.names),
            ("kinds", &mut self.kinds),
            ("virtual-clusters", &mut self.virtual_clusters),
            ("cheats", &mut self.cheats),
            ("deletions", &mut self.deletions),
            ("hostile-tenant", &mut self.hostile_tenant),
            ("hostile-member", &mut self.hostile_member),
            ("fair", &mut self.fair),
            ("restarts", &mut self.restarts),
            ("power", &mut self.power),
            ("restores", &mut self.restores),
        ]
    }
}

impl SimulationPlan {
    /// A random fleet, random jobs, random faults and random people, then quiet.
    pub fn of_seed_with(seed: u64, people: &People) -> Self {
        let mut plan = Self::of_seed(seed);
        plan.add_people(people);
        plan
    }

    fn add_people(&mut self, people: &People) {
        let seed = self.seed;
        let comes = |who: &str, weight: u32| {
            let mut random = Random::branch(seed, who);
            random.per_mille(weight).then_some(random)
        };
        // Who makes jobs comes before who changes them.
        if let Some(mut random) = comes("cells", people.virtual_clusters).filter(|_| !self.has_cells()) {
            self.add_cells(&mut random);
        }
        if let Some(mut random) = comes("kinds", people.kinds) {
            self.add_kinds(&mut random);
        }
        if let Some(mut random) = comes("names", people.names) {
            self.add_names(&mut random);
        }
        if let Some(mut random) = comes("dependencies", people.dependencies) {
            self.add_dependencies(&mut random);
        }
        if let Some(mut random) = comes("edits", people.edits) {
            self.add_edits(&mut random);
        }
        if let Some(mut random) = comes("suspends", people.suspends) {
            self.add_suspends(&mut random);
        }
        if let Some(mut random) = comes("overrides", people.overrides) {
            self.add_overrides(&mut random);
        }
        if let Some(mut random) = comes("policies", people.policies) {
            self.add_policies(&mut random);
        }
        if let Some(mut random) = comes("trees", people.trees) {
            self.add_trees(&mut random);
        }
        if let Some(mut random) = comes("cheats", people.cheats) {
            self.add_cheats(&mut random);
        }
        if let Some(mut random) = comes("deletions", people.deletions) {
            self.add_deletions(&mut random);
        }
        if let Some(mut random) = comes("hostile tenant", people.hostile_tenant) {
            self.add_hostile_tenant(&mut random);
        }
        if let Some(mut random) = comes("hostile member", people.hostile_member) {
            self.add_hostile_member(&mut random);
        }
        if comes("fair", people.fair).is_some() {
            self.fair = true;
            self.drift_ppm = 0;
            self.events.retain(|event| !event.what.is_fault());
        }
        if let Some(mut random) = comes("restarts", people.restarts) {
            self.add_restarts(&mut random);
        }
        if let Some(mut random) = comes("power", people.power) {
            self.add_power_losses(&mut random);
        }
        if let Some(mut random) = comes("restores", people.restores) {
            self.add_restores(&mut random);
        }
        self.events.sort_by_key(|event| event.at);
    }

    /// Not longer than a fencing level covers for a member's server.
    fn add_power_losses(&mut self, random: &mut Random) {
        let servers: Vec<Server> = std::iter::once(Server::Hub)
            .chain(self.clusters.iter().map(|cluster| Server::Member(cluster.name.clone())))
            .collect();
        for _ in 0..random.between(1, 4) {
            let server = random.one_of(&servers).clone();
            let at = random.time(2_000, 220_000);
            let back = at + random.time(100, LONGEST_WITHOUT_POWER_MS);
            self.people_do(at, What::Power { server: server.clone(), on: false });
            self.people_do(back, What::Power { server, on: true });
        }
    }

    fn add_restores(&mut self, random: &mut Random) {
        let moves = |object: &Value| !object["spec"]["failover"]["cluster"].is_null();
        if self.has_cells() || self.objects.iter().any(moves) {
            return;
        }
        for _ in 0..random.between(1, 2) {
            let at = random.time(25_000, 220_000);
            // No backup is older than the fleet.
            let back = random.time(200, LONGEST_BACK_MS).min(at.saturating_sub(Duration::from_secs(15)));
            self.people_do(at, What::Restore { back });
        }
    }

    /// Short enough that what may last a moment is judged as if nothing had happened.
    fn add_restarts(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 3) {
            let what = What::Crash {
                process: Process::Controller,
                after_writes: 0,
                unheard: false,
                restart_after: Some(random.time(500, 3_000)),
            };
            self.people_do(random.time(20_000, 220_000), what);
        }
    }

    /// When jobs of honest tenants are made, and which.
    fn jobs(&self) -> Vec<(Duration, Value)> {
        let mut found: Vec<(Duration, Value)> = Vec::new();
        for event in &self.events {
            let What::Apply(object) = &event.what else { continue };
            let is_known = found.iter().any(|(_, known)| name_of(known) == name_of(object));
            if !object["metadata"]["labels"][EXPECT_LABEL].is_null() && !is_known {
                found.push((event.at, object.clone()));
            }
        }
        found.retain(|(_, job)| HONEST.iter().any(|namespace| job["metadata"]["namespace"] == *namespace));
        found
    }

    /// One of the jobs, whose end is open from now on.
    fn touch(&mut self, random: &mut Random) -> (Duration, Value) {
        let jobs = self.jobs();
        let (at, job) = random.one_of(&jobs).clone();
        self.change(&name_of(&job), |job| job["metadata"]["labels"][EXPECT_LABEL] = "Any".into());
        (at, job)
    }

    /// Changes a job as it will be applied, each time.
    fn change(&mut self, name: &ObjectName, change: impl Fn(&mut Value)) {
        for event in &mut self.events {
            if let What::Apply(object) = &mut event.what
                && name_of(object) == *name
            {
                change(object);
            }
        }
    }

    fn people_do(&mut self, at: Duration, what: What) {
        self.events.push(Event { at: at.min(Duration::from_millis(OVER_MS)), what });
    }
}

/// A moment after something happened: mostly while it is being worked on, else any time later.
fn soon_after(random: &mut Random, at: Duration) -> Duration {
    at + match random.below(10) {
        0..6 => random.time(0, 100),
        6..8 => random.time(100, 3_000),
        _ => random.time(3_000, 90_000),
    }
}

fn name_of(object: &Value) -> ObjectName {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    ObjectName {
        api_version: object["apiVersion"].as_str().map(str::to_string),
        kind: text(&object["kind"]),
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]),
    }
}

/// Whether an object is a job of that group and kind.
fn is(job: &Value, api_version: &str, kind: &str) -> bool {
    job["apiVersion"] == api_version && job["kind"] == kind
}

/// Where the roles of a Kubeflow job stand in its spec.
fn roles_field(job: &Value) -> Option<&'static str> {
    match job["kind"].as_str()? {
        "PyTorchJob" => Some("pytorchReplicaSpecs"),
        "TFJob" => Some("tfReplicaSpecs"),
        "MPIJob" => Some("mpiReplicaSpecs"),
        _ => None,
    }
}

/// The pod templates of a job of any kind, each with its JSON pointer.
fn templates(job: &Value) -> Vec<String> {
    if let Some(field) = roles_field(job) {
        let roles = job["spec"][field].as_object().into_iter().flatten();
        return roles.map(|(role, _)| format!("/spec/{field}/{role}/template")).collect();
    }
    match job["spec"]["tasks"].as_array() {
        Some(tasks) => (0..tasks.len()).map(|at| format!("/spec/tasks/{at}/template")).collect(),
        None => vec!["/spec/template".to_string()],
    }
}

/// Changes each pod template of a job.
fn each_template(job: &mut Value, change: impl Fn(&mut Value)) {
    for pointer in templates(job) {
        job.pointer_mut(&pointer).map(&change);
    }
}

/// The merge patch that sets what stands at a pointer; lists on the way are sent whole.
fn patch_of(job: &Value, pointer: &str, value: Value) -> Value {
    let mut changed = job.clone();
    if let Some(at) = changed.pointer_mut(pointer) {
        *at = value;
    }
    match job["spec"]["tasks"].is_null() {
        true => json!({"spec": changed["spec"]}),
        false => json!({"spec": {"tasks": changed["spec"]["tasks"]}}),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn who_is_not_there_changes_nothing_and_everybody_repeats() {
        for seed in 0..50 {
            assert_eq!(
                SimulationPlan::of_seed_with(seed, &People::NONE).events,
                SimulationPlan::of_seed(seed).events
            );
            let (one, two) = (
                SimulationPlan::of_seed_with(seed, &People::ALL),
                SimulationPlan::of_seed_with(seed, &People::ALL),
            );
            assert_eq!((&one.events, &one.objects), (&two.events, &two.objects));
            assert!(one.events.windows(2).all(|pair| pair[0].at <= pair[1].at));
        }
    }

    #[test]
    fn each_of_them_does_something() {
        let mut named = People::NONE;
        let names: Vec<&str> = named.weights().iter().map(|(name, _)| *name).collect();
        for name in names.into_iter().filter(|name| *name != "fair") {
            let people = People::named(name).expect("known");
            let mut acted = 0;
            for seed in (0..20)
                .filter(|seed| name != "virtual-clusters" || !SimulationPlan::of_seed(*seed).has_cells())
            {
                let (alone, with) =
                    (SimulationPlan::of_seed(seed), SimulationPlan::of_seed_with(seed, &people));
                let before: BTreeSet<String> =
                    alone.events.iter().map(|event| format!("{event:?}")).collect();
                let more = with.events.iter().filter(|event| !before.contains(&format!("{event:?}")));
                let acts = more.count() > 0;
                acted += u32::from(acts);
                // A hub is restored only where a restore promises something.
                assert!(acts || name == "restores", "{name}, seed {seed}");
            }
            assert!(acted > 0, "{name}");
        }
        assert!(People::named("nobody").unwrap_err().starts_with("found \"nobody\"; allowed: all, edits,"));
    }

    #[test]
    fn without_faults_there_are_none() {
        let people = People::named("edits,fair").expect("known");
        for seed in 0..20 {
            let plan = SimulationPlan::of_seed_with(seed, &people);
            assert!(plan.fair && plan.events.iter().all(|event| !event.what.is_fault()));
        }
    }
}
