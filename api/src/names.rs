//! Names that the hub, the members and the command line agree on: namespaces, labels, annotations,
//! finalizers, field managers and event texts. One place, so that none is spelled twice.

/// Namespace on the hub that holds the Queue objects.
pub const QUEUE_NAMESPACE: &str = "kube-queue";
/// Namespace on the hub in which the one ElasticQuotaTree is read.
pub const QUOTA_NAMESPACE: &str = "kube-system";
/// Namespace in a member that holds what the agent must remember: reservations and epochs.
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
/// Annotation on pods of a gang: the name of the gang within the namespace.
pub const GANG_ANNOTATION: &str = "fleet.dev/gang";
/// Annotation on pods of a gang: how many pods must be placeable before any is bound.
pub const GANG_SIZE_ANNOTATION: &str = "fleet.dev/gang-size";
/// Annotation on pod templates of a job that another controller runs: the job, as `apiVersion/Kind/name`, so that pods
/// made by way of a further object (a batch Job, a ReplicaSet) are known as the job's.
pub const JOB_ANNOTATION: &str = "fleet.dev/job";
/// Scheduling gate on pods that the cluster's own scheduler binds: the agent removes it when the whole gang is there and
/// its places are kept.
pub const PLACES_GATE: &str = "fleet.dev/places";
/// Label on pods: the component (role, task) of the job they belong to.
pub const COMPONENT_LABEL: &str = "fleet.dev/component";
/// Finalizer on a Work, held by the agent until what it applied is gone from the member.
pub const WORK_FINALIZER: &str = "fleet.dev/member-cleanup";
/// Finalizer on the member's copy of a job, held by the agent until the hub has recorded its end.
pub const RESULT_FINALIZER: &str = "fleet.dev/result-recorded";
/// Annotation on a finished Work, written by the hub: the result stands on the hub, the member may forget.
pub const RESULT_RECORDED_ANNOTATION: &str = "fleet.dev/result-recorded";

/// Annotation on a Work, written by the hub before it deletes it: the binding itself goes, so that the member may
/// forget its epoch.
pub const BINDING_GONE_ANNOTATION: &str = "fleet.dev/binding-gone";
/// Annotation on a member's job that must be stopped when its cluster is cut off: `Lease` or `Watchdog`.
pub const FENCING_ANNOTATION: &str = "fleet.dev/fencing";
/// Annotation on a member's job that was stopped because its cluster was cut off: the epoch of the run.
pub const FENCED_ANNOTATION: &str = "fleet.dev/fenced";
/// Annotation on an agent's lease: seconds beyond the lease's duration within which pods of fenced jobs are gone
/// after the agent sent its last renewal that succeeded.
pub const FENCE_GRACE_ANNOTATION: &str = "fleet.dev/fence-grace-seconds";
/// Annotation on an agent's lease, written by the hub by compare-and-swap before it moves the first job off a lost
/// cluster, and removed when the cluster is heard again and nothing is half moved. While it stands the agent renews,
/// but keeps fenced jobs stopped.
pub const DECLARED_LOST_ANNOTATION: &str = "fleet.dev/declared-lost";
/// Annotation on an agent's lease: the incarnation of the hub (see `fleet.dev/incarnation` of its namespace kube-system)
/// for which the agent has removed every run that no Work names. While it is another one than the hub's, the hub was
/// restored, and starts nothing.
pub const SORTED_ANNOTATION: &str = "fleet.dev/sorted-incarnation";

/// Label on Queue objects made from the tree, as kube-queue sets it.
pub const QUEUE_CREATED_LABEL: &str = "create-by-kubequeue";
/// Annotation on Queue objects: full path of the quota node, `root/child-2`.
pub const QUOTA_FULLNAME_ANNOTATION: &str = "kube-queue/quota-fullname";
/// Annotation on Queue objects: name of the parent Queue.
pub const QUEUE_PARENT_ANNOTATION: &str = "kube-queue/parent";

/// Label on Queue objects of leaves, and on VirtualClusters, that only some may submit to: the hub's admission policies look
/// at these.
pub const RESTRICTED_LABEL: &str = "fleet.dev/restricted";
/// Annotation on such an object: who may submit, as the API server names them (`fleet_quota::QuotaTree::submitters`,
/// `cells::VcAccess::subjects`).
pub const SUBMITTERS_ANNOTATION: &str = "fleet.dev/submitters";
/// Annotation on such a Queue: namespaces whose jobs come here without a label.
pub const QUOTA_NAMESPACES_ANNOTATION: &str = "fleet.dev/quota-namespaces";

/// Annotation on a job, set by the job or who runs it: RFC 3339 time up to which its work is saved.
pub const LAST_CHECKPOINT_ANNOTATION: &str = "fleet.dev/last-checkpoint-time";

/// Annotation on a job of the hub: `true` when its owner wants it stopped. Where it runs it is taken back, where it waits
/// it leaves its queue; either way it ends Failed with the reason `Stopped`.
pub const STOP_ANNOTATION: &str = "fleet.dev/stop";

/// Whether these annotations ask for a job to be stopped.
pub fn is_stopped(annotations: &serde_json::Value) -> bool {
    annotations[STOP_ANNOTATION] == "true"
}

/// Label on a job: the virtual cluster whose cells it takes.
pub const VIRTUAL_CLUSTER_LABEL: &str = "fleet.dev/virtual-cluster";
/// Label or annotation on a job with cells: its class there, `oppo`, `test`, `prod`, or a number from -1 to 1000.
pub const CLASS_LABEL: &str = "fleet.dev/class";
/// Annotations on a job with cells: the pinned cell it takes, the type of its leaf cells, leaf cells of each pod, whether
/// its pods start together, whether it may go on as an opportunistic job, the type of cell that holds it whole.
pub const PINNED_CELL_ANNOTATION: &str = "fleet.dev/pinned-cell";
pub const LEAF_CELL_TYPE_ANNOTATION: &str = "fleet.dev/leaf-cell-type";
pub const CELLS_PER_POD_ANNOTATION: &str = "fleet.dev/cells-per-pod";
pub const GANG_ALLOCATION_ANNOTATION: &str = "fleet.dev/gang-allocation";
pub const LAZY_PREEMPTION_ANNOTATION: &str = "fleet.dev/lazy-preemption";
pub const WITHIN_ONE_CELL_ANNOTATION: &str = "fleet.dev/within-one-cell";
/// HiveD's annotation on pod templates: what it is told of a pod.
pub const POD_SCHEDULING_SPEC_ANNOTATION: &str = "hivedscheduler.microsoft.com/pod-scheduling-spec";

/// Annotations that give hollow pods a run time, an outcome, and clusters on which to fail.
pub const SIM_RUNTIME_ANNOTATION: &str = "sim.fleet.dev/runtime";
pub const SIM_RESULT_ANNOTATION: &str = "sim.fleet.dev/result";
pub const SIM_FAIL_ON_ANNOTATION: &str = "sim.fleet.dev/fail-on";

/// Field manager of the fleet-controller's writes.
pub const CONTROLLER_MANAGER: &str = "fleet-controller";
/// Field manager of the member-agent's writes.
pub const AGENT_MANAGER: &str = "member-agent";

/// The hub namespace of a member cluster.
pub fn cluster_namespace(cluster: &str) -> String {
    format!("{CLUSTER_NAMESPACE_PREFIX}{cluster}")
}

pub use fleet_policies::names::{Named, binding_name, earlier_binding_name, object_of_binding};

/// Name of the Lease by which an agent shows that it is alive, in the cluster's hub namespace; and of the one in the
/// member's `fleet-system` that it renews while it is in good standing with the hub, for watchdogs to read.
pub const LEASE_NAME: &str = "member-agent";
