//! What the hub reads from objects, with the controller's own code: policies, quota tree, queue policies, and of
//! each job the binding that the controller would make.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fleet_api::{Cluster, ElasticQuotaTree, Queue, ResourceBinding, names};
use fleet_hub_core::{
    binding::BindingEntry,
    claim, cluster,
    forms::Forms,
    kinds::{Kind, KindRef},
    observation::{Change, Observation},
    tree,
    trees::{TreeChange, Trees},
    world::World,
    writes::{Target, Verb},
};
use fleet_planner::JobShape;
use fleet_policies::{
    affinity::ClusterFacts,
    priority,
    reason::Reason,
    spec::Failover,
    workload::{self, WorkloadKind},
};
use fleet_quota::QueuePolicy;
use fleet_quota_tree::PREEMPTIBLE_LABEL;
use jiff::Timestamp;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube_core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::scenario::{Manifest, ObjectName};

/// What a job is to the simulation; equal jobs of a trace share one. The default asks for nothing.
#[derive(Debug, Default)]
pub(crate) struct JobSpec {
    pub kind: Arc<str>,
    pub shape: Arc<JobShape>,
    pub quota_labels: BTreeMap<String, String>,
    pub queued: bool,
    pub priority: i64,
    pub preemptible: bool,
    /// The policy suspends dispatching.
    pub suspended: bool,
    pub failover: Option<Failover>,
    pub gpus: i64,
    pub components: Arc<BTreeMap<String, i64>>,
    pub plan: RunPlans,
    /// `activeDeadlineSeconds`, in milliseconds; `None` while the job is suspended.
    pub declared_ms: Option<i64>,
    /// Its owner has suspended it.
    pub paused: bool,
}

/// What a job is, and the binding that the controller would make of it.
pub(super) type Form = (Arc<JobSpec>, Box<BindingEntry>);

/// How long a run takes and how it ends.
#[derive(Debug)]
pub(crate) enum RunPlans {
    /// As annotations of the job and of its pod templates say; one map a template.
    Annotated {
        job: BTreeMap<String, String>,
        pods: Vec<BTreeMap<String, String>>,
    },
    For(i64),
}

impl Default for RunPlans {
    fn default() -> Self {
        Self::For(0)
    }
}

/// What came of an object.
#[derive(Debug)]
pub(super) enum Applied {
    Job(Box<JobSpec>, Box<BindingEntry>),
    Rejected {
        kind: Arc<str>,
        reason: Reason,
        message: String,
    },
    /// Tree, queue policies or rules of priority may have changed.
    Rules,
    Cluster(ClusterFacts),
    /// Fast mode simulates jobs only.
    Ignored,
}

/// The hub's objects.
#[derive(Default)]
pub(super) struct Objects {
    world: World,
    trees: Trees,
    shapes: HashMap<String, Arc<JobShape>>,
    version: u64,
}

/// The suffix that the name of every GPU resource ends with.
const GPU: &str = "/gpu";

impl Objects {
    /// Creates or replaces an object.
    ///
    /// # Errors
    /// What its kind's fields do not allow.
    pub fn apply(&mut self, manifest: &Manifest, now_ms: i64) -> Result<Applied, String> {
        let value = self.stamped(&manifest.value, &manifest.namespace, now_ms);
        if let Some(observation) = observation(manifest, &value)? {
            self.world.observe(observation);
            return Ok(Applied::Rules);
        }
        if manifest.kind == "Cluster" && manifest.api_version.starts_with("fleet.dev/") {
            return Ok(Applied::Cluster(cluster::facts(&read::<Cluster>(&value)?)));
        }
        let workload = WorkloadKind::of(&manifest.api_version, &manifest.kind);
        if !workload.is_job() {
            return Ok(Applied::Ignored);
        }
        self.job(manifest, workload, value)
    }

    /// Deletes what is no job.
    pub fn delete(&mut self, name: &ObjectName) {
        let meta = json!({"metadata": {"name": name.name, "namespace": name.namespace}});
        let key = (name.namespace.clone(), name.name.clone());
        let world = &self.world;
        let observation = match name.kind.as_str() {
            "ElasticQuotaTree" => {
                world.trees.get(&key).cloned().map(|tree| Observation::Tree(Change::Delete(tree)))
            }
            "Queue" => world.queues.get(&key).cloned().map(|queue| Observation::Queue(Change::Delete(queue))),
            "PropagationPolicy" => {
                read(&meta_with_spec(&meta)).ok().map(|p| Observation::Policy(Change::Delete(p)))
            }
            "ClusterPropagationPolicy" => {
                read(&meta_with_spec(&meta)).ok().map(|p| Observation::ClusterPolicy(Change::Delete(p)))
            }
            "PriorityClass" => read(&meta).ok().map(|c| Observation::PriorityClass(Change::Delete(c))),
            _ => None,
        };
        if let Some(observation) = observation {
            self.world.observe(observation);
        }
    }

    /// The quota tree, when it changed.
    pub fn tree_change(&mut self) -> TreeChange {
        let change = self.trees.read(&self.world)?;
        self.world.quota_tree = change.clone();
        Some(change)
    }

    /// Why no tree is in force although there is one.
    pub fn tree_trouble(&self) -> Option<&str> {
        self.trees.trouble()
    }

    /// Policies of queues by path of their node.
    pub fn queue_policies(&self) -> Vec<(String, QueuePolicy)> {
        let named = tree::queue_policies(&self.world).into_iter();
        named
            .filter_map(|(path, (policy, threshold))| {
                Some((path, QueuePolicy::from_text(&policy, threshold)?))
            })
            .collect()
    }

    /// As the API server would store it.
    fn stamped(&mut self, value: &Value, namespace: &str, now_ms: i64) -> Value {
        self.version += 1;
        let mut value = value.clone();
        let metadata = &mut value["metadata"];
        let created = Timestamp::from_millisecond(now_ms).unwrap_or_default();
        metadata["creationTimestamp"] = json!(format!("{created:.0}"));
        metadata["resourceVersion"] = json!(self.version.to_string());
        metadata["generation"] = json!(self.version);
        metadata["uid"] = json!(format!("00000000-0000-0000-0000-{:012}", self.version));
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        value
    }

    fn job(&mut self, manifest: &Manifest, workload: WorkloadKind, value: Value) -> Result<Applied, String> {
        let kind: Arc<str> = Arc::from(manifest.kind.as_str());
        let rejected =
            |reason, message: String| Applied::Rejected { kind: Arc::clone(&kind), reason, message };
        if let Err(error) = workload::check(workload, &value) {
            return Ok(rejected(Reason::InvalidWorkload, error.to_string()));
        }
        let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default();
        if let Err(error) = priority::check(&self.world.priority_classes, namespace, &value) {
            return Ok(rejected(Reason::InvalidWorkload, error));
        }
        let reference = Kind::new(&manifest.api_version, &manifest.kind, &manifest.kind.to_lowercase(), true);
        let Some(entry) = self.binding(&reference, manifest, value.clone())? else {
            return Ok(rejected(Reason::NoPolicy, self.no_policy()));
        };
        if !entry.is_gang() {
            let message =
                "fast mode runs gangs on one cluster; the policy copies this job to several".to_string();
            return Ok(rejected(Reason::InvalidWorkload, message));
        }
        let labels = &value["metadata"]["labels"];
        let label = |name: &str| labels[name].as_str().map(str::to_string);
        let suspension = entry.object.spec.suspension.as_ref();
        let shape = self.shape(&entry);
        let counts = entry.object.spec.components.iter();
        let spec = JobSpec {
            kind,
            quota_labels: entry.object.spec.queue_place.clone().unwrap_or_default().labels,
            queued: entry.is_suspended(),
            priority: i64::from(entry.object.spec.priority),
            preemptible: label(PREEMPTIBLE_LABEL).is_none_or(|text| text != "false"),
            suspended: suspension.is_some_and(|suspension| suspension.dispatching == Some(true)),
            failover: entry.failover.clone(),
            gpus: gpus(&shape),
            components: Arc::new(counts.map(|c| (c.name.clone(), c.replicas)).collect()),
            plan: RunPlans::Annotated {
                job: annotations(&value["metadata"]),
                pods: workload::pod_templates(workload, &value)
                    .iter()
                    .map(|(_, template)| annotations(&template["metadata"]))
                    .collect(),
            },
            declared_ms: workload::declared_run_time_ms(workload, &value),
            paused: workload::is_suspended(workload, &value),
            shape,
        };
        Ok(Applied::Job(Box::new(spec), Box::new(entry)))
    }

    fn no_policy(&self) -> String {
        let mut message = "no propagation policy selects the object".to_string();
        for ((_, (_, name)), policy) in &self.world.policies {
            if let Some(first) = policy.violations.first() {
                message.push_str(&format!("; policy {name} governs nothing: {first}"));
            }
        }
        message
    }

    /// The binding that the controller would make.
    fn binding(
        &mut self,
        kind: &KindRef,
        manifest: &Manifest,
        value: Value,
    ) -> Result<Option<BindingEntry>, String> {
        let key = (manifest.namespace.clone(), manifest.name.clone());
        let object: DynamicObject = read(&value)?;
        self.world.observe(Observation::Object(kind.clone(), Change::Apply(object.clone())));
        // Each object is asked about once, so nothing is kept for a next time.
        let writes = claim::plan(&self.world, &mut Forms::default(), kind, &key, Timestamp::UNIX_EPOCH);
        // The simulation keeps the job from here on.
        self.world.observe(Observation::Object(kind.clone(), Change::Delete(object)));
        self.world.take_dirty();
        let made = writes.into_iter().find_map(|write| match (write.target, write.verb) {
            (Target::Binding, Verb::Create(body)) => Some(body),
            _ => None,
        });
        made.map(|body| read::<ResourceBinding>(&body).map(|binding| BindingEntry::read(binding, None)))
            .transpose()
    }

    fn shape(&mut self, entry: &BindingEntry) -> Arc<JobShape> {
        let next = self.shapes.len() as u64;
        let reference = &entry.object.spec.resource;
        let class = format!("{}/{}/{}", reference.api_version, reference.kind, entry.class);
        let shape = self.shapes.entry(class).or_insert_with(|| {
            Arc::new(JobShape {
                id: next,
                gang: entry.gang.clone(),
                total: entry.total.clone(),
                placement: entry.placement.clone(),
                api_version: reference.api_version.clone(),
                kind: reference.kind.clone(),
            })
        });
        Arc::clone(shape)
    }
}

fn meta_with_spec(meta: &Value) -> Value {
    let mut value = meta.clone();
    value["spec"] = json!({"resourceSelectors": [], "placement": {}});
    value
}

/// GPUs of a whole gang, of any maker.
pub(super) fn gpus(shape: &JobShape) -> i64 {
    shape.total.iter().filter(|(name, _)| name.as_str().ends_with(GPU)).map(|(_, amount)| amount).sum()
}

/// Objects that the controller knows as rules.
fn observation(manifest: &Manifest, value: &Value) -> Result<Option<Observation>, String> {
    Ok(Some(match manifest.kind.as_str() {
        "ElasticQuotaTree" => Observation::Tree(Change::Apply(read::<ElasticQuotaTree>(value)?)),
        "Queue" if manifest.namespace == names::QUEUE_NAMESPACE => {
            Observation::Queue(Change::Apply(read::<Queue>(value)?))
        }
        "PropagationPolicy" => Observation::Policy(Change::Apply(read(value)?)),
        "ClusterPropagationPolicy" => Observation::ClusterPolicy(Change::Apply(read(value)?)),
        "PriorityClass" => Observation::PriorityClass(Change::Apply(read::<PriorityClass>(value)?)),
        _ => return Ok(None),
    }))
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

fn annotations(metadata: &Value) -> BTreeMap<String, String> {
    let entries = metadata["annotations"].as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_string()))).collect()
}
