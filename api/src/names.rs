//! Names that the hub, the members and the command line share: namespaces, labels, annotations, finalizers,
//! field managers and event texts. They are defined in one place, so that each is spelled only once.

/// Namespace on the hub that holds the Queue objects.
pub const QUEUE_NAMESPACE: &str = "kube-queue";
/// Namespace on the hub that holds the ElasticQuotaTree.
pub const QUOTA_NAMESPACE: &str = "kube-system";
/// Namespace in a member for state that must survive a restart of the agent: reservations and epochs.
pub const MEMBER_NAMESPACE: &str = "fleet-system";
/// Prefix of the hub namespace that belongs to one member: `fleet-<cluster>`.
pub const CLUSTER_NAMESPACE_PREFIX: &str = "fleet-";

/// Label on every member object that Fleet applied: the namespace and name of its binding's uid.
pub const BINDING_UID_LABEL: &str = "fleet.dev/binding-uid";
/// Label on every member object that Fleet applied; `kubectl amc get` prints ADOPTION Y for it.
pub const MANAGED_LABEL: &str = "fleet.dev/managed";
/// Annotation on a member's job: the epoch under which it was applied.
pub const EPOCH_ANNOTATION: &str = "fleet.dev/epoch";
/// Annotation on a member's job: the reservation whose places its pods take.
pub const RESERVATION_ANNOTATION: &str = "fleet.dev/reservation";
/// Annotation on pods of a gang: the name of the gang within the namespace, `NAME-KIND` of the job; for Volcano's
/// scheduler the name of the PodGroup.
pub const GANG_ANNOTATION: &str = "fleet.dev/gang";
/// Annotation on pods of a gang: how many pods must be placeable before any is bound.
pub const GANG_SIZE_ANNOTATION: &str = "fleet.dev/gang-size";
/// Annotation on the job of a Work, set by the hub: the pods are no gang; each starts when it gets its cells.
pub const INCREMENTAL_ANNOTATION: &str = "fleet.dev/incremental";
/// Annotation on the job of a Work, set by the hub, and on its pods: they run on the cells of their reservation and nowhere
/// else, also when the member holds these no more.
pub const ON_CELLS_ANNOTATION: &str = "fleet.dev/on-cells";
/// Annotation on pod templates of a job that another controller runs: the job, as `apiVersion/Kind/name`. It
/// identifies the job of pods that are created through a further object (a batch Job, a ReplicaSet).
pub const JOB_ANNOTATION: &str = "fleet.dev/job";
/// Scheduling gate on pods that the cluster's own scheduler binds. The agent removes it once all pods of the
/// gang exist and their places are reserved.
pub const PLACES_GATE: &str = "fleet.dev/places";
/// Label on pods: the component (role, task) of the job they belong to.
pub const COMPONENT_LABEL: &str = "fleet.dev/component";
/// Finalizer on a Work. The agent removes it once everything that it applied is gone from the member.
pub const WORK_FINALIZER: &str = "fleet.dev/member-cleanup";
/// Finalizer on the member's copy of a job. The agent removes it once the hub has recorded the job's result.
pub const RESULT_FINALIZER: &str = "fleet.dev/result-recorded";
/// Annotation on a finished Work, written by the hub: the result is recorded on the hub, and the member may
/// delete the job.
pub const RESULT_RECORDED_ANNOTATION: &str = "fleet.dev/result-recorded";

/// Annotation on a finished Work, written by the hub: another job, which it names, needs what the remaining pods use;
/// the agent deletes them at once.
pub const END_PODS_ANNOTATION: &str = "fleet.dev/end-pods";

/// Annotation on a Work with `preserveResourcesOnDeletion`, written by the hub before it deletes the Work: the object
/// itself is deleted, so the member keeps what it runs. Without it the agent removes everything, as when a run is evicted.
pub const PRESERVED_ANNOTATION: &str = "fleet.dev/preserved";
/// Annotation on a Work, written by the hub before it deletes the Work: the binding itself is deleted, so the
/// member may forget its epoch.
pub const BINDING_GONE_ANNOTATION: &str = "fleet.dev/binding-gone";
/// Annotation on a member's job that must be stopped when its cluster is cut off: `Lease` or `Watchdog`.
pub const FENCING_ANNOTATION: &str = "fleet.dev/fencing";
/// Annotation on a member's job that was stopped because its cluster was cut off: the epoch of the run.
pub const FENCED_ANNOTATION: &str = "fleet.dev/fenced";
/// Annotation on an agent's lease: the grace period in seconds. Pods of fenced jobs are gone no later than
/// the lease's duration plus this time after the last renewal that succeeded was sent.
pub const FENCE_GRACE_ANNOTATION: &str = "fleet.dev/fence-grace-seconds";
/// Annotation on an agent's lease: the cluster is declared lost. The hub writes it by compare-and-swap before
/// it moves the first job off the cluster, and removes it when the lease is renewed again and no job is half
/// moved. While it is set, the agent renews the lease but keeps fenced jobs stopped.
pub const DECLARED_LOST_ANNOTATION: &str = "fleet.dev/declared-lost";
/// Annotation on an agent's lease: the incarnation of the hub (annotation `fleet.dev/incarnation` of its
/// namespace kube-system) for which the agent has removed every run without a Work. While it differs from the
/// hub's incarnation, the hub was restored and starts nothing. The controller copies it to the Cluster once it
/// names this incarnation; such a cluster can no longer make the others wait.
pub const SORTED_ANNOTATION: &str = "fleet.dev/sorted-incarnation";

/// Label on Queue objects made from the tree, as kube-queue sets it.
pub const QUEUE_CREATED_LABEL: &str = "create-by-kubequeue";
/// Annotation on Queue objects: full path of the quota node, `root/child-2`.
pub const QUOTA_FULLNAME_ANNOTATION: &str = "kube-queue/quota-fullname";
/// Annotation on Queue objects: name of the parent Queue.
pub const QUEUE_PARENT_ANNOTATION: &str = "kube-queue/parent";

/// Label on Queues of leaves, and on VirtualClusters, with restricted submitters. The hub's admission
/// policies select objects by it.
pub const RESTRICTED_LABEL: &str = "fleet.dev/restricted";
/// Annotation on such an object: who may submit, as the API server names them
/// (`fleet_quota_tree::QuotaTree::submitters`, `cells::VcAccess::subjects`).
pub const SUBMITTERS_ANNOTATION: &str = "fleet.dev/submitters";
/// Annotation on such a Queue: namespaces whose jobs belong to it without a label.
pub const QUOTA_NAMESPACES_ANNOTATION: &str = "fleet.dev/quota-namespaces";

/// Annotation on a job, set by the job or its owner: RFC 3339 time of its last checkpoint.
pub const LAST_CHECKPOINT_ANNOTATION: &str = "fleet.dev/last-checkpoint-time";

/// Annotation on a QueueUnit: since when the job has its place (RFC 3339), if an edit took an earlier one.
pub const QUEUE_PLACE_ANNOTATION: &str = "fleet.dev/queue-place";

/// Annotation on a job of the hub: `true` stops the job. A running job is evicted, a waiting one leaves its
/// queue; both end Failed with the reason `Stopped`.
pub const STOP_ANNOTATION: &str = "fleet.dev/stop";

/// Whether these annotations request that the job is stopped.
pub fn is_stopped(annotations: &serde_json::Value) -> bool {
    annotations[STOP_ANNOTATION] == "true"
}

/// Label on a job: the virtual cluster whose cells it takes.
pub const VIRTUAL_CLUSTER_LABEL: &str = "fleet.dev/virtual-cluster";
/// Label or annotation on a job with cells: its class, `oppo`, `test`, `prod`, or a number from -1 to 1000.
pub const CLASS_LABEL: &str = "fleet.dev/class";
/// Labels on a job that name who submitted it; the first one counts. People find their jobs by it. Nothing is decided by it.
pub const USER_LABELS: [&str; 2] = ["fleet.dev/user", "pai.fleet.dev/user"];

/// Who submitted a job, by its labels.
pub fn user_of(labels: &serde_json::Value) -> Option<&str> {
    let mut values = USER_LABELS.iter().filter_map(|label| labels[*label].as_str());
    values.find(|value| !value.is_empty())
}

/// Annotations on a job with cells: its pinned cell, the type of its leaf cells, leaf cells of each pod,
/// whether its pods start together, whether a gang keeps the cells of ended pods until all have ended, whether it may become
/// opportunistic, and the type of the cell that must hold all of it.
pub const PINNED_CELL_ANNOTATION: &str = "fleet.dev/pinned-cell";
pub const LEAF_CELL_TYPE_ANNOTATION: &str = "fleet.dev/leaf-cell-type";
pub const CELLS_PER_POD_ANNOTATION: &str = "fleet.dev/cells-per-pod";
pub const GANG_ALLOCATION_ANNOTATION: &str = "fleet.dev/gang-allocation";
pub const GANG_RELEASE_ANNOTATION: &str = "fleet.dev/gang-release";
pub const LAZY_PREEMPTION_ANNOTATION: &str = "fleet.dev/lazy-preemption";
pub const WITHIN_ONE_CELL_ANNOTATION: &str = "fleet.dev/within-one-cell";
/// HiveD's annotation on pod templates: the scheduling request of a pod.
pub const POD_SCHEDULING_SPEC_ANNOTATION: &str = "hivedscheduler.microsoft.com/pod-scheduling-spec";

/// Annotations that set the run time and the outcome of simulated pods, and the clusters on which they fail.
pub const SIM_RUNTIME_ANNOTATION: &str = "sim.fleet.dev/runtime";
pub const SIM_RESULT_ANNOTATION: &str = "sim.fleet.dev/result";
pub const SIM_FAIL_ON_ANNOTATION: &str = "sim.fleet.dev/fail-on";
/// Label of the nodes that `fleet sim up` made: the name of the group.
pub const SIM_NODES_LABEL: &str = "sim.fleet.dev/nodes";

/// Field manager of the fleet-controller's writes.
pub const CONTROLLER_MANAGER: &str = "fleet-controller";
/// Field manager of the member-agent's writes.
pub const AGENT_MANAGER: &str = "member-agent";

/// The hub namespace of a member cluster.
pub fn cluster_namespace(cluster: &str) -> String {
    format!("{CLUSTER_NAMESPACE_PREFIX}{cluster}")
}

pub use fleet_policies::names::{Named, binding_name, earlier_binding_name, object_of_binding};

/// Name of the Lease by which an agent shows that it is alive, in the cluster's namespace on the hub. A Lease
/// of the same name in the member's `fleet-system` is renewed while the agent is in good standing with the
/// hub; watchdogs read it.
pub const LEASE_NAME: &str = "member-agent";
/// Name of the Lease in the member's `fleet-system` whose holder is the agent that acts, of several of one
/// member.
pub const AGENT_LEADER_LEASE: &str = "member-agent-leader";
/// Default duration of an agent's lease.
pub const LEASE_DURATION: std::time::Duration = std::time::Duration::from_secs(40);
/// Default renewal period of an agent's lease.
pub const LEASE_RENEW: std::time::Duration = std::time::Duration::from_secs(10);
