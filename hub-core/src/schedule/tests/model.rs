//! Histories of jobs against a model. Users create, change and delete jobs; members answer and jobs end; writes of
//! the controller arrive in any order, late or after a restart; kinds are seen in any order. The model is what the
//! hub holds: by job the amount that counts, and its live run. No history may make that more than the quota, and at
//! rest the hub believes exactly that.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MAX_GPUS: i64 = 8;
const JOBS: usize = 5;
/// Rounds in which everything comes to rest.
const ROUNDS: usize = 200;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happens {
    Create {
        job: usize,
        gpus: i64,
    },
    Edit {
        job: usize,
        gpus: i64,
    },
    /// Its member answers the reservation of a job, or takes up its Work.
    Answer(usize),
    End(usize),
    Delete(usize),
    /// The member has removed what is left of a job.
    Clean(usize),
    /// The controller sees the next change of a kind.
    See(usize),
    Pass,
    /// One of the writes that are on their way arrives.
    Arrive(usize),
    /// One of them is lost.
    Lose(usize),
    Restart,
}

fn happens() -> impl Strategy<Value = Happens> {
    let job = 0..JOBS;
    prop_oneof![
        4 => (job.clone(), 1..=6_i64).prop_map(|(job, gpus)| Happens::Create { job, gpus }),
        2 => (job.clone(), 1..=6_i64).prop_map(|(job, gpus)| Happens::Edit { job, gpus }),
        5 => job.clone().prop_map(Happens::Answer),
        2 => job.clone().prop_map(Happens::End),
        1 => job.clone().prop_map(Happens::Delete),
        2 => job.prop_map(Happens::Clean),
        12 => (0..KINDS).prop_map(Happens::See),
        5 => Just(Happens::Pass),
        8 => (0..8_usize).prop_map(Happens::Arrive),
        1 => (0..8_usize).prop_map(Happens::Lose),
        1 => Just(Happens::Restart),
    ]
}

/// Kinds that are watched one by one: jobs, bindings, reservations, Works.
const KINDS: usize = 4;

/// The hub's objects, which are the model, and a controller that sees them late.
struct Hub {
    stage: Stage,
    tree: Arc<QuotaTree>,
    version: i64,
    jobs: BTreeMap<usize, (i64, String)>,
    bindings: BTreeMap<Key, Value>,
    reservations: BTreeMap<Key, Value>,
    works: BTreeMap<Key, Value>,
    unseen: [VecDeque<Observation>; KINDS],
    on_their_way: Vec<Write>,
}

fn name(job: usize) -> String {
    format!("j{job}")
}

fn batch_job(job: usize, gpus: i64, uid: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"namespace": "default", "name": name(job), "uid": uid, "generation": gpus},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}}}})
}

/// What the hub counts for such a job.
fn components(gpus: i64) -> Value {
    let (kind, mut world) = (kinds::known("batch/v1", "Job").expect("a kind"), World::default());
    let change = Change::Apply(read(batch_job(0, gpus, "o")));
    Intents::default().observe(&mut world, Observation::Object(kind.clone(), change));
    let key = ("default".to_string(), name(0));
    let object = world.object(&kind, &key).expect("it stands");
    let counted = asked::counted(&world, &kind, &key, object, &Default::default(), &mut Default::default())
        .expect("components");
    json!(counted.iter().map(fleet_api::convert::component).collect::<Vec<_>>())
}

fn gpus_of(components: &Value) -> i64 {
    let of = |component: &Value| {
        component["request"]["nvidia.com/gpu"].as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
    };
    components.as_array().into_iter().flatten().map(of).sum()
}

impl Hub {
    fn new() -> Self {
        let leaf = fleet_quota_tree::NodeSpec {
            name: "own".to_string(),
            namespaces: vec!["default".to_string()],
            max: [("nvidia.com/gpu".to_string(), MAX_GPUS.to_string())].into(),
            ..Default::default()
        };
        let root = fleet_quota_tree::NodeSpec {
            name: "root".to_string(),
            children: vec![leaf],
            ..Default::default()
        };
        let mut stage = Stage::new();
        let status = json!({"reservation": true, "reportSequence": 1, "apiEnablements": ["batch/v1/Job"],
            "nodeShapes": [{"count": 9, "allocatable": {"nvidia.com/gpu": "8"}, "free": {"nvidia.com/gpu": "8"}}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": "1970-01-01T00:00:00Z"}]});
        stage
            .observe(Observation::Cluster(Change::Apply(read(json!({"apiVersion": API, "kind": "Cluster",
            "metadata": {"name": "wide", "uid": "wide"}, "spec": {}, "status": status})))));
        let tree = Arc::new(QuotaTree::build(&root).expect("a tree").0);
        let mut hub = Self {
            stage,
            tree,
            version: 1,
            jobs: BTreeMap::new(),
            bindings: BTreeMap::new(),
            reservations: BTreeMap::new(),
            works: BTreeMap::new(),
            unseen: Default::default(),
            on_their_way: Vec::new(),
        };
        hub.plant();
        hub
    }

    fn plant(&mut self) {
        let Stage { scheduler, world, intents, now, .. } = &mut self.stage;
        scheduler.set_tree(Some(self.tree.clone()), None, world, intents, *now);
        world.recount.extend(["m", "wide"].map(str::to_string));
    }

    /// An object was written: the next version of it, which the controller sees later.
    fn write_binding(&mut self, key: &Key, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.unseen[1].push_back(Observation::Binding(Change::Apply(read(object.clone()))));
        self.bindings.insert(key.clone(), object);
    }

    fn write_reservation(&mut self, key: &Key, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.unseen[2].push_back(Observation::Reservation(Change::Apply(read(object.clone()))));
        self.reservations.insert(key.clone(), object);
    }

    fn write_work(&mut self, key: &Key, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.unseen[3].push_back(Observation::Work(Change::Apply(read(object.clone()))));
        self.works.insert(key.clone(), object);
    }

    fn create(&mut self, job: usize, gpus: i64) {
        let own = key(&name(job));
        // Its binding goes with garbage collection; a name is free again when nothing of it is left.
        if self.jobs.contains_key(&job) || self.works.contains_key(&self.work_key(job)) {
            return;
        }
        self.version += 1;
        let uid = format!("o-{job}-{}", self.version);
        self.write_job(job, gpus, uid.clone());
        let binding = json!({"apiVersion": API, "kind": "ResourceBinding",
            "metadata": {"namespace": own.0, "name": own.1, "uid": format!("b-{uid}"), "generation": 1,
                "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": name(job),
                    "uid": uid},
                "policy": {"kind": "PropagationPolicy", "namespace": "default", "name": "p"},
                "suspension": {"scheduling": true},
                "components": components(gpus), "replicas": 1, "clusters": [], "epoch": 0}});
        self.write_binding(&own, binding);
    }

    fn write_job(&mut self, job: usize, gpus: i64, uid: String) {
        let kind = kinds::known("batch/v1", "Job").expect("a kind");
        let mut object = batch_job(job, gpus, &uid);
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.unseen[0].push_back(Observation::Object(kind, Change::Apply(read(object))));
        self.jobs.insert(job, (gpus, uid));
    }

    /// The binding follows an edit unless its run was counted already, as the rules of claims have it.
    fn edit(&mut self, job: usize, gpus: i64) {
        let Some((_, uid)) = self.jobs.get(&job).cloned() else { return };
        self.write_job(job, gpus, uid);
        let own = key(&name(job));
        let Some(mut binding) = self.bindings.get(&own).cloned() else { return };
        if binding["spec"]["clusters"][0].is_null() {
            binding["spec"]["components"] = components(gpus);
            let generation = binding["metadata"]["generation"].as_i64().unwrap_or(0);
            binding["metadata"]["generation"] = (generation + 1).into();
            self.write_binding(&own, binding);
        }
    }

    fn work_key(&self, job: usize) -> Key {
        ("fleet-wide".to_string(), format!("{}-work", name(job)))
    }

    fn answer(&mut self, job: usize) {
        let own = key(&name(job));
        let open = self.reservations.iter().find(|(_, reservation)| {
            reservation["spec"]["binding"]["name"] == own.1.as_str() && reservation["status"].is_null()
        });
        if let Some((at, mut reservation)) = open.map(|(at, reservation)| (at.clone(), reservation.clone())) {
            reservation["status"] = json!({"phase": "Reserved"});
            return self.write_reservation(&at, reservation);
        }
        let Some(binding) = self.bindings.get(&own).filter(|binding| is_live(binding)) else { return };
        let work_key = self.work_key(job);
        let sees = self
            .stage
            .world
            .bindings
            .get(&own)
            .is_some_and(|entry| entry.is_bound() && binding["metadata"]["uid"] == entry.uid());
        if self.works.contains_key(&work_key) || !sees {
            return;
        }
        let epoch = &binding["spec"]["epoch"];
        let sent = batch_job(job, gpus_of(&binding["spec"]["components"]), "m");
        let work = json!({"apiVersion": API, "kind": "Work",
            "metadata": {"namespace": work_key.0, "name": work_key.1, "uid": format!("w-{}", self.version),
                "finalizers": [names::WORK_FINALIZER]},
            "spec": {"binding": {"namespace": "default", "name": own.1, "uid": binding["metadata"]["uid"]},
                "epoch": epoch, "workload": {"manifests": [sent]}},
            "status": {"observedEpoch": epoch, "livePods": 1}});
        self.write_work(&work_key, work);
        // The controller makes it, and knows it from then on.
        self.stage.observe(Observation::Work(Change::Apply(read(self.works[&work_key].clone()))));
    }

    fn end(&mut self, job: usize) {
        let (own, at) = (key(&name(job)), self.work_key(job));
        let Some(mut binding) = self.bindings.get(&own).filter(|binding| is_live(binding)).cloned() else {
            return;
        };
        let Some(mut work) = self.works.get(&at).cloned() else { return };
        work["status"]["livePods"] = 0.into();
        self.write_work(&at, work);
        let epoch = binding["spec"]["epoch"].clone();
        binding["status"] = json!({"result": {"outcome": "Succeeded", "cluster": "wide", "epoch": epoch,
            "recordedAt": "1970-01-01T00:00:00Z"}});
        self.write_binding(&own, binding);
    }

    fn delete(&mut self, job: usize) {
        let Some((gpus, uid)) = self.jobs.remove(&job) else { return };
        let kind = kinds::known("batch/v1", "Job").expect("a kind");
        let gone = Change::Delete(read(batch_job(job, gpus, &uid)));
        self.unseen[0].push_back(Observation::Object(kind, gone));
        if let Some(binding) = self.bindings.remove(&key(&name(job))) {
            self.unseen[1].push_back(Observation::Binding(Change::Delete(read(binding))));
        }
    }

    /// The Work of a job that is gone is deleted by the controller, and then let go by the member; its reservation goes
    /// with its binding.
    fn clean(&mut self, job: usize) {
        let own = key(&name(job));
        let uid = self.bindings.get(&own).map(|binding| binding["metadata"]["uid"].clone());
        let at = self.work_key(job);
        if self.works.get(&at).is_some_and(|work| Some(&work["spec"]["binding"]["uid"]) != uid.as_ref())
            && let Some(work) = self.works.remove(&at)
        {
            self.unseen[3].push_back(Observation::Work(Change::Delete(read(work))));
        }
        let left: Vec<Key> = self
            .reservations
            .iter()
            .filter(|(_, reservation)| {
                reservation["spec"]["binding"]["name"] == own.1.as_str()
                    && Some(&reservation["spec"]["binding"]["uid"]) != uid.as_ref()
            })
            .map(|(at, _)| at.clone())
            .collect();
        left.iter().for_each(|at| self.remove_reservation(at));
    }

    fn remove_reservation(&mut self, at: &Key) {
        if let Some(gone) = self.reservations.remove(at) {
            self.unseen[2].push_back(Observation::Reservation(Change::Delete(read(gone))));
        }
    }

    fn look_at_all(&mut self) {
        for job in 0..JOBS {
            let own = key(&name(job));
            self.stage.look(&name(job));
            let Stage { scheduler, world, now, .. } = &mut self.stage;
            for write in scheduler.answers(world, &own, *now) {
                let is_same = |other: &Write| {
                    (&other.target, &other.name) == (&write.target, &write.name)
                        && matches!((&other.verb, &write.verb), (Verb::Delete { .. }, Verb::Delete { .. }))
                };
                if !self.on_their_way.iter().any(is_same) {
                    self.on_their_way.push(write);
                }
            }
        }
    }

    fn see(&mut self, kind: usize) -> bool {
        let Some(next) = self.unseen[kind].pop_front() else { return false };
        self.stage.observe(next);
        self.stage.world.recount.insert("wide".to_string());
        self.look_at_all();
        true
    }

    fn pass(&mut self) -> bool {
        let writes = self.stage.pass();
        let any = !writes.is_empty();
        self.on_their_way.extend(writes);
        any
    }

    /// A write reaches the hub, which takes it or refuses it; its sender hears of it.
    fn arrive(&mut self, at: usize) -> bool {
        if self.on_their_way.is_empty() {
            return false;
        }
        let write = self.on_their_way.remove(at % self.on_their_way.len());
        let place = (write.namespace.clone(), write.name.clone());
        match (&write.target, write.verb) {
            (Target::Reservation, Verb::Create(mut body)) => {
                if !self.reservations.contains_key(&place) {
                    body["metadata"]["uid"] = format!("r-{}", self.version).into();
                    self.write_reservation(&place, body);
                }
                let job = (0..JOBS).find(|job| place.1.starts_with(&format!("{}-", name(*job))));
                if let Some(job) = job {
                    let Stage { scheduler, world, intents, now, .. } = &mut self.stage;
                    scheduler.asked(world, intents, &key(&name(job)), *now);
                }
            }
            (Target::Reservation, Verb::Delete { uid }) => {
                let is_same = |known: &Value| known["metadata"]["uid"] == uid.as_str();
                if self.reservations.get(&place).is_some_and(is_same) {
                    self.remove_reservation(&place);
                }
            }
            (Target::Binding, Verb::Patch(operations)) => self.patch_binding(&place, &operations),
            (target, verb) => panic!("the scheduler writes reservations and binds: {target:?} {verb:?}"),
        }
        true
    }

    fn patch_binding(&mut self, at: &Key, operations: &Value) {
        let Some(mut binding) = self.bindings.get(at).cloned() else { return };
        for operation in operations.as_array().into_iter().flatten() {
            let path = operation["path"].as_str().unwrap_or_default();
            let value = operation["value"].clone();
            match operation["op"].as_str() {
                Some("test") if binding.pointer(path) != Some(&value) => return,
                Some("test") => {}
                Some("replace" | "add") => {
                    let (above, last) = path.rsplit_once('/').expect("a path");
                    binding.pointer_mut(above).expect("what is above")[last] = value;
                }
                Some("remove") => {
                    let (above, last) = path.rsplit_once('/').expect("a path");
                    let above = binding.pointer_mut(above).and_then(Value::as_object_mut);
                    above.expect("what is above").remove(last);
                }
                other => panic!("{other:?} of {path}"),
            }
        }
        let generation = binding["metadata"]["generation"].as_i64().unwrap_or(0);
        binding["metadata"]["generation"] = (generation + 1).into();
        self.write_binding(at, binding);
    }

    /// Another controller leads, which lists. What the former one had sent may arrive all the same.
    fn restart(&mut self) {
        while (0..KINDS).any(|kind| {
            self.unseen[kind].pop_front().is_some_and(|next| {
                self.stage.observe(next);
                true
            })
        }) {}
        self.stage.intents = Intents::default();
        self.stage.scheduler = Scheduler::new(&Options::default());
        self.stage.configurations = Configurations::default();
        self.stage.configure();
        self.plant();
        self.look_at_all();
    }

    /// By job what counts, and the epoch of its live run.
    fn model(&self) -> BTreeMap<String, (i64, Option<i64>)> {
        let mut counted = BTreeMap::new();
        for (at, binding) in self.bindings.iter().filter(|(_, binding)| is_live(binding)) {
            let amount = gpus_of(&binding["spec"]["components"]);
            counted.insert(at.1.clone(), (amount, binding["spec"]["epoch"].as_i64()));
        }
        for work in self.works.values() {
            let own = work["spec"]["binding"]["name"].as_str().unwrap_or_default();
            let of = ("default".to_string(), own.to_string());
            let owned = self
                .bindings
                .get(&of)
                .is_some_and(|binding| binding["metadata"]["uid"] == work["spec"]["binding"]["uid"]);
            // Its job was deleted; its pods run until the member has let go of them.
            if !owned {
                let limits = "/spec/template/spec/containers/0/resources/limits/nvidia.com~1gpu";
                let sent = work["spec"]["workload"]["manifests"][0].pointer(limits);
                let amount = sent.and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(0);
                counted.insert(format!("{own} of before"), (amount, None));
            }
        }
        counted
    }

    fn check(&self) {
        let model = self.model();
        let sum: i64 = model.values().map(|(amount, _)| amount).sum();
        assert!(sum <= MAX_GPUS, "{sum} GPUs of {MAX_GPUS}: {model:?}");
    }

    fn happen(&mut self, what: &Happens) {
        match *what {
            Happens::Create { job, gpus } => self.create(job, gpus),
            Happens::Edit { job, gpus } => self.edit(job, gpus),
            Happens::Answer(job) => self.answer(job),
            Happens::End(job) => self.end(job),
            Happens::Delete(job) => self.delete(job),
            Happens::Clean(job) => self.clean(job),
            Happens::See(kind) => drop(self.see(kind)),
            Happens::Pass => drop(self.pass()),
            Happens::Arrive(at) => drop(self.arrive(at)),
            Happens::Lose(at) => {
                if !self.on_their_way.is_empty() {
                    let lost = self.on_their_way.remove(at % self.on_their_way.len());
                    // Its sender hears that it failed, and plans again.
                    let job = (0..JOBS).find(|job| lost.name.starts_with(&format!("{}-", name(*job))));
                    if let Some(job) = job {
                        let Stage { scheduler, world, intents, now, .. } = &mut self.stage;
                        scheduler.asked(world, intents, &key(&name(job)), *now);
                    }
                }
            }
            Happens::Restart => self.restart(),
        }
        self.check();
    }

    /// Everything arrives, is seen and answered, until nothing changes any more.
    fn rest(&mut self) {
        for _ in 0..ROUNDS {
            let mut any = false;
            while self.arrive(0) || (0..KINDS).any(|kind| self.see(kind)) {
                any = true;
                self.check();
            }
            (0..JOBS).for_each(|job| self.clean(job));
            let answered = self.version;
            (0..JOBS).for_each(|job| self.answer(job));
            any |= self.version != answered || self.unseen.iter().any(|unseen| !unseen.is_empty());
            // Waits after a refusal are over.
            self.stage.now += SignedDuration::from_secs(30);
            self.look_at_all();
            any |= self.pass();
            if !any && self.on_their_way.is_empty() {
                return;
            }
        }
        panic!("it comes to no rest: {:?}", self.on_their_way);
    }

    /// What the hub believes, by job: everything that its ledger counts.
    fn believed(&self) -> i64 {
        let ledger = self.stage.scheduler.ledger().expect("a tree");
        let leaf = ledger.tree().ids().find(|id| ledger.tree().node(*id).name == "own").expect("the leaf");
        ledger.used(leaf).get("nvidia.com/gpu")
    }
}

fn is_live(binding: &Value) -> bool {
    !binding["spec"]["clusters"][0].is_null() && binding["status"]["result"].is_null()
}

fn judge(history: &[Happens]) {
    let mut hub = Hub::new();
    for what in history {
        hub.happen(what);
    }
    hub.rest();
    let model = hub.model();
    let sum: i64 = model.values().map(|(amount, _)| amount).sum();
    assert_eq!(hub.believed(), sum, "{model:?}");
    // Nothing waits that has room: what was given to lost writes and former runs is free again.
    let waits = hub.jobs.iter().filter(|(job, _)| {
        let binding = hub.bindings.get(&key(&name(**job)));
        binding.is_some_and(|binding| !is_live(binding) && binding["status"]["result"].is_null())
    });
    for (job, (gpus, _)) in waits {
        let told = hub.stage.waiting(&name(*job));
        assert!(sum + gpus > MAX_GPUS, "{job} waits for {gpus} of {MAX_GPUS} GPUs, {sum} are used: {told}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_hub_believes_what_the_model_says(history in prop::collection::vec(happens(), 1..120)) {
        judge(&history);
    }
}

/// A job is made larger while the bind of what it was is on its way.
#[test]
fn an_edit_in_flight_gives_nobody_more_than_was_counted() {
    for seen_first in [false, true] {
        let mut hub = Hub::new();
        hub.happen(&Happens::Create { job: 0, gpus: 2 });
        hub.happen(&Happens::Create { job: 1, gpus: 6 });
        hub.rest();
        assert_eq!(hub.believed(), 8);
        hub.happen(&Happens::End(1));
        hub.happen(&Happens::Create { job: 2, gpus: 6 });
        (0..KINDS).for_each(|kind| while hub.see(kind) {});
        hub.happen(&Happens::Pass);
        hub.happen(&Happens::Arrive(0));
        hub.happen(&Happens::Answer(2));
        if seen_first {
            hub.happen(&Happens::See(2));
        }
        hub.happen(&Happens::Edit { job: 2, gpus: 7 });
        hub.rest();
        assert_eq!(hub.believed(), 2, "the larger one waits: {:?}", hub.model());
    }
}
