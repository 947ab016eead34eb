//! Descriptions of kinds, and of fields whose type has none, for `kubectl explain` and the field reference
//! (`docs/fields.md`).
//!
//! A doc comment on the field takes precedence. This table has fields whose meaning depends on their path,
//! and fields of kinds from other projects.

use serde_json::{Value, json};

/// Each kind, by the name of its definition.
const KINDS: &[(&str, &str)] = &[
    (
        "propagationpolicies.policy.one.alibabacloud.com",
        "Says which objects of its namespace are sent to member clusters, to which, and whether they queue first.",
    ),
    (
        "clusterpropagationpolicies.policy.one.alibabacloud.com",
        "A PropagationPolicy for objects of all namespaces and for cluster-scoped ones.",
    ),
    (
        "overridepolicies.policy.one.alibabacloud.com",
        "Changes objects of its namespace on their way to certain clusters.",
    ),
    (
        "clusteroverridepolicies.policy.one.alibabacloud.com",
        "Changes objects of all namespaces on their way to certain clusters; applied before OverridePolicies.",
    ),
    (
        "elasticquotatrees.scheduling.sigs.k8s.io",
        "The tree of quotas of the fleet: what each team is guaranteed, may borrow, and uses. One is in force.",
    ),
    (
        "queues.scheduling.x-k8s.io",
        "The queue of one leaf of the quota tree: the order of its waiting jobs. Fleet makes it; administrators may set its policy.",
    ),
    (
        "queueunits.scheduling.x-k8s.io",
        "One job in its queue: what it requests, its position, and why it waits. Fleet writes it.",
    ),
    (
        "clusters.fleet.dev",
        "A member cluster: its address, its taints, and the capacity and health that its agent reports.",
    ),
    (
        "resourcebindings.fleet.dev",
        "Where one object runs and why: its clusters, its runs and its result. Fleet writes it.",
    ),
    (
        "works.fleet.dev",
        "The objects that the agent of one cluster applies there, and their status. Fleet writes it.",
    ),
    (
        "reservations.fleet.dev",
        "Places for all pods of a gang on the nodes of one cluster, requested by the hub and held by the agent.",
    ),
    (
        "cellconfigurations.fleet.dev",
        "HiveD's configuration: the cells of the fleet's nodes, and the cells promised to each virtual cluster.",
    ),
    (
        "virtualclusters.fleet.dev",
        "One virtual cluster of a configuration of cells: what it is promised, uses, lends and borrows. Fleet \
         writes it.",
    ),
    ("pytorchjobs.kubeflow.org", "A PyTorch training job of the training operator: a master and workers."),
    (
        "tfjobs.kubeflow.org",
        "A TensorFlow training job of the training operator: chief, workers, parameter servers.",
    ),
    ("mpijobs.kubeflow.org", "An MPI job: a launcher and the workers that it starts processes on."),
    ("jobs.batch.volcano.sh", "A Volcano Job: tasks of equal pods that are placed together."),
    (
        "podgroups.scheduling.volcano.sh",
        "A gang of pods for the scheduler: all of its minimum start, or none.",
    ),
    (
        "queues.scheduling.volcano.sh",
        "A queue of the member's scheduler: its share of the nodes and its limits.",
    ),
    (
        "hypernodes.topology.volcano.sh",
        "A network domain: nodes, or smaller domains, that reach each other at the speed of one tier.",
    ),
    (
        "numatopologies.nodeinfo.volcano.sh",
        "The cpus and NUMA nodes of one node, as an exporter on that node reports them.",
    ),
    ("cronjobs.batch.volcano.sh", "Creates Volcano Jobs on a schedule."),
    (
        "jobflows.flow.volcano.sh",
        "Jobs that start in the order of their dependencies, each made from a JobTemplate.",
    ),
    ("jobtemplates.flow.volcano.sh", "The template of a Volcano Job, for JobFlows."),
    (
        "commands.bus.volcano.sh",
        "An action on a Volcano Job or Queue, such as ResumeJob; deleted once it is done.",
    ),
];

/// The end of a field's path, and its description. The longest matching end counts; `[]` is an item of a list
/// or an entry of a map.
const TEXTS: &[(&str, &str)] = &[
    // Fields of most kinds.
    ("spec", "Desired state."),
    ("status", "Last observed state, written by the controllers."),
    ("status.conditions", "Conditions of the object, each with its reason."),
    ("conditions[].type", "Name of the condition."),
    ("conditions[].status", "True, False or Unknown."),
    ("conditions[].reason", "The reason, one word of the fixed vocabulary (docs/reasons.md)."),
    ("conditions[].message", "Why, in a sentence."),
    ("conditions[].transitionID", "Number of the scheduling cycle that wrote it."),
    ("apiVersion", "Group and version of the object, such as kubeflow.org/v1."),
    ("kind", "Kind of the object."),
    ("namespace", "Namespace of the object."),
    ("name", "Name of the object."),
    ("uid", "Unique id of the object; a new object of the same name gets another one."),
    ("priorityClassName", "A PriorityClass; jobs with a higher value go first."),
    // Policies.
    ("resourceSelectors[].apiVersion", "Group and version of the objects, such as kubeflow.org/v1."),
    ("resourceSelectors[].kind", "Kind of the objects, such as PyTorchJob."),
    (
        "resourceSelectors[].namespace",
        "Namespace of the objects; a namespaced policy selects only in its own namespace.",
    ),
    ("placement", "Which clusters may be used, and how replicas are spread."),
    ("clusterNames", "Names of the clusters; empty: all."),
    ("exclude", "Names of clusters that are never used, even if other fields select them."),
    ("affinityName", "Name of this group of clusters, unique in the policy."),
    ("overflowAffinities", "Groups for the replicas that do not fit; no effect yet."),
    ("matchExpressions", "All of them must hold."),
    ("matchExpressions[].key", "provider, region or zone."),
    ("matchExpressions[].operator", "In or NotIn."),
    ("matchExpressions[].values", "The values to compare with."),
    ("clusterTolerations", "Taints of clusters that are tolerated."),
    ("clusterTolerations[].key", "Key of the taint; empty, with operator Exists: every taint."),
    ("clusterTolerations[].operator", "Equal (default) or Exists."),
    ("clusterTolerations[].value", "Value of the taint, with operator Equal."),
    ("clusterTolerations[].effect", "NoSchedule or NoExecute; empty: every effect."),
    (
        "clusterTolerations[].tolerationSeconds",
        "How long a running job tolerates a NoExecute taint; absent: forever.",
    ),
    ("spreadConstraints", "Number of cluster groups over which the object is spread; no effect yet."),
    ("spreadByLabel", "Label of clusters that makes the groups; excludes spreadByField."),
    ("minGroups", "The fewest groups."),
    ("maxGroups", "Maximum number of groups; 0: no limit."),
    ("replicaScheduling", "Whether each cluster gets a full copy of the object, or a part of its replicas."),
    (
        "replicaSchedulingType",
        "Duplicated: each cluster gets all replicas. Divided (default): the replicas are divided between clusters.",
    ),
    (
        "replicaDivisionPreference",
        "With Divided. Aggregated: as few clusters as possible. Weighted: by weightPreference.",
    ),
    ("weightPreference", "Weights of the clusters, with Weighted."),
    ("staticWeightList", "Fixed weights; a cluster gets the largest weight that matches it."),
    ("staticWeightList[].targetCluster", "The clusters of this weight."),
    ("staticWeightList[].weight", "1 or more."),
    ("workloadAffinity", "Affinity and anti-affinity between jobs; no effect yet."),
    ("workloadAffinity.affinity", "Affinity to jobs with the same value of a label."),
    ("workloadAffinity.antiAffinity", "Anti-affinity to jobs with the same value of a label."),
    ("groupByLabelKey", "The label."),
    (
        "failover",
        "What happens when the job or its cluster fails; absent: the job ends, or waits for its cluster.",
    ),
    ("failover.application", "A job that fails or stays unhealthy moves to another cluster."),
    ("failover.cluster", "The jobs of a lost cluster move to others."),
    ("decisionConditions", "When a job counts as failed."),
    ("statePreservation", "Values of the last run's status that the next run gets."),
    ("statePreservation.rules", "One value each."),
    ("aliasLabelName", "Label that the next run's object gets, and name of the value: [prefix/]name."),
    ("jsonPath", "Path of the value in the status, such as {.conditions[0].type}."),
    (
        "purgeMode",
        "When the old run is removed: Directly (before the next one starts), Gracefully (after the next one runs), Never.",
    ),
    ("suspension", "What is held back."),
    ("dispatchingOnClusters", "Do not send anything to these members; no effect yet."),
    ("dispatchingOnClusters.clusterNames", "The members."),
    ("schedulePriority", "The priority of the policy's jobs, instead of their pods' priority."),
    ("schedulePriority.priorityClassName", "Name of a PriorityClass of the hub."),
    (
        "conflictResolution",
        "What to do when an object of the same name, not made by Fleet, exists in the member: Abort (default) or Overwrite.",
    ),
    // Overrides.
    ("overrideRules", "Rules in order; each names clusters and changes."),
    ("overrideRules[].targetCluster", "Clusters to which the rule applies; absent: all."),
    ("overriders", "The changes."),
    ("plaintext", "Changes of any field by JSON pointer."),
    ("plaintext[].value", "The new value, of any type."),
    ("imageOverrider", "Changes of container images."),
    ("imageOverrider[].operator", "add, remove or replace."),
    ("imageOverrider[].predicate", "Which image; absent: all images of the pod template."),
    ("imageOverrider[].predicate.path", "JSON pointer of the image."),
    ("imageOverrider[].value", "The new part of the image; absent with remove."),
    ("commandOverrider", "Changes of containers' commands."),
    ("argsOverrider", "Changes of containers' arguments."),
    ("containerName", "Name of the container."),
    ("commandOverrider[].value", "Words that are added or removed."),
    ("argsOverrider[].value", "Words that are added or removed."),
    ("labelsOverrider", "Changes of labels."),
    ("annotationsOverrider", "Changes of annotations."),
    ("operator", "add, remove or replace."),
    ("labelsOverrider[].value", "Labels by key."),
    ("annotationsOverrider[].value", "Annotations by key."),
    ("fieldOverrider", "Changes inside a field that contains JSON or YAML text."),
    ("fieldPath", "JSON pointer of the field."),
    ("fieldOverrider[].json", "Changes of a field that holds JSON."),
    ("fieldOverrider[].yaml", "Changes of a field that holds YAML."),
    ("subPath", "JSON pointer inside the text."),
    ("json[].value", "The new value, of any type."),
    ("yaml[].value", "The new value, of any type."),
    // Quota tree and queues.
    ("spec.root", "The root of the tree: the capacity of the fleet. Its children are quotas."),
    ("status.root", "What each node uses and requests."),
    ("queueItemDetails[][].name", "Name of the waiting job's QueueUnit."),
    ("queueItemDetails[][].namespace", "Namespace of the job."),
    ("queueItemDetails[][].priority", "Priority of the job."),
    ("queues.scheduling.x-k8s.io spec.priority", "Kept; queues are ordered by their shares."),
    ("queues.scheduling.x-k8s.io spec.priorityClassName", "Kept; queues are ordered by their shares."),
    ("queues.scheduling.x-k8s.io spec.admissionChecks", "Kept."),
    ("queueunits.scheduling.x-k8s.io spec.priority", "Priority of the job; higher goes first."),
    ("consumerRef.name", "Name of the ResourceBinding."),
    ("consumerRef.namespace", "Its namespace, that of the job."),
    ("consumerRef.kind", "ResourceBinding."),
    ("consumerRef.apiVersion", "fleet.dev/v1alpha1."),
    ("queueunits.scheduling.x-k8s.io spec.request", "Same as `resource`; older name in kube-queue."),
    ("podSet", "The job's components."),
    ("podSet[].name", "Name of the component."),
    ("podSet[].count", "Its pods."),
    ("queueunits.scheduling.x-k8s.io spec.active", "Kept."),
    ("maximumExecutionTimeSeconds", "Kept."),
    ("lastUpdateTime", "When this was last written (RFC 3339)."),
    ("lastAllocateTime", "When the job was last admitted (RFC 3339)."),
    ("podState", "Not written."),
    ("podState.pending", "Pods that wait."),
    ("podState.running", "Pods that run."),
    // Clusters.
    ("clusters.fleet.dev spec.id", "Kept."),
    ("impersonatorSecretRef", "Kept."),
    ("secretRef.name", "Name of the Secret."),
    ("impersonatorSecretRef.name", "Name of the Secret."),
    ("secretRef.namespace", "Its namespace, fleet-CLUSTER."),
    ("impersonatorSecretRef.namespace", "Its namespace."),
    ("insecureSkipTLSVerification", "Clients of the member do not verify its certificate."),
    ("provider", "Cloud provider of the cluster; policies can select by it."),
    ("region", "Region of the cluster; policies can select by it."),
    ("zones", "Zones of its nodes; policies can select by them."),
    ("proxyURL", "Printed only."),
    ("proxyHeader", "Kept."),
    (
        "taints",
        "Taints: NoSchedule keeps new jobs away, NoExecute also evicts running ones, unless they tolerate it.",
    ),
    ("taints[].key", "Key of the taint."),
    ("taints[].value", "Value of the taint."),
    ("taints[].timeAdded", "When it was set (RFC 3339); NoExecute counts tolerations from then."),
    ("kubernetesVersion", "Version of the member's API server."),
    ("nodeShapes[].allocatable", "Allocatable resources of one such node."),
    ("nodeShapes[].free", "Free resources of one such node."),
    ("nodeShapes[].count", "Number of such nodes."),
    ("nodeShapes[].labels", "Labels that jobs select by."),
    ("nodeShapes[].taints", "Taints of the nodes."),
    ("cellNodeShapes[].allocatable", "Allocatable resources of one such node."),
    ("cellNodeShapes[].free", "Free resources of one such node."),
    ("cellNodeShapes[].count", "Number of such nodes."),
    ("cellNodeShapes[].labels", "Labels that jobs select by."),
    ("cellNodeShapes[].taints", "Taints of the nodes."),
    ("unusableNodes[].name", "Name of the node."),
    ("claim.since", "When the claim was made."),
    ("nodeSummary", "Nodes of the member."),
    ("nodeSummary.totalNum", "All nodes."),
    ("nodeSummary.readyNum", "Nodes that are ready."),
    ("resourceSummary.allocatable", "Allocatable resources of the nodes."),
    // Bindings, works, reservations.
    ("spec.resource", "The object that is sent."),
    ("spec.policy.name", "Name of the policy."),
    ("spec.policy.namespace", "Its namespace; empty for a ClusterPropagationPolicy."),
    ("spec.policy.uid", "Its identity."),
    ("components[].name", "Name of the component, such as master or worker."),
    ("components[].replicas", "Its pods."),
    ("spec.clusters[].name", "Name of the cluster."),
    ("spec.clusters[].components", "Of a gang: its components there."),
    (
        "resourcebindings.fleet.dev spec.priority",
        "Of the job, from its policy or its pods; higher goes first.",
    ),
    ("propagateDeps", "Also send the objects that the pod templates reference."),
    ("preserveResourcesOnDeletion", "Leave the member's copies when the object on the hub is deleted."),
    ("schedulerName", "Source printed with scheduling events."),
    ("schedulerObservedGeneration", "Not written."),
    ("lastScheduledTime", "Not written."),
    ("aggregatedStatus", "Status in each cluster."),
    ("aggregatedStatus[].clusterName", "Name of the cluster."),
    ("aggregatedStatus[].applied", "Whether the object was applied there."),
    ("aggregatedStatus[].appliedMessage", "Why it was not applied."),
    ("aggregatedStatus[].status", "The status of the object there."),
    ("cluster", "Name of the cluster."),
    ("epoch", "Number of the run: raised with every change of the target."),
    ("attempts[].reason", "Why the run ended (docs/reasons.md)."),
    ("message", "Details, as a sentence."),
    ("spec.binding", "The ResourceBinding this is for."),
    ("spec.components", "Requested pods of each component; all or nothing."),
    ("suspendDispatching", "The agent applies and deletes nothing."),
    ("workload.manifests", "The objects, whole."),
    ("manifestStatuses", "Status of each object in the member."),
    ("manifestStatuses[].identifier", "Which object."),
    ("manifestStatuses[].identifier.group", "Its API group; empty for the core."),
    ("manifestStatuses[].identifier.version", "Its version."),
    ("manifestStatuses[].status", "Its status in the member."),
    ("reservations.fleet.dev status.phase", "Reserved, Refused or Expired."),
    ("status.refusals", "Why the reservation was refused, for each component."),
    ("refusals[].component", "Name of the component."),
    ("refusals[].fit", "Pods that would have fit."),
    ("refusals[].wanted", "Pods that were requested."),
    ("highestTierAllowed", "Highest network tier (HyperNode spec.tier) that its pods may span."),
    ("highestTierName", "The same by name; excludes highestTierAllowed."),
    // Training operators.
    ("ReplicaSpecs[].replicas", "Pods of this role; default 1."),
    ("elasticPolicy", "Rendezvous of torchrun; the gang is all replicas."),
    ("elasticPolicy.maxReplicas", "Maximum number of workers; passed to the pods as environment."),
    ("elasticPolicy.minReplicas", "Minimum number of workers; passed to the pods as environment."),
    ("elasticPolicy.maxRestarts", "Restarts of the workers inside the pods."),
    ("elasticPolicy.metrics", "Must be absent, because quota has counted the gang as it is."),
    ("elasticPolicy.nProcPerNode", "Processes of each pod."),
    ("rdzvBackend", "Backend of the rendezvous, such as c10d."),
    ("rdzvConf", "Settings of the rendezvous."),
    ("rdzvConf[].key", "Name of the setting."),
    ("rdzvConf[].value", "Value of the setting."),
    ("rdzvHost", "Host of the rendezvous."),
    ("rdzvId", "Name of the rendezvous."),
    ("rdzvPort", "Port of the rendezvous."),
    ("standalone", "One node alone, with a rendezvous of its own."),
    ("nprocPerNode", "Processes of each pod: a number, auto, cpu or gpu."),
    ("runPolicy", "Deadlines, retries and clean-up of the job."),
    ("activeDeadlineSeconds", "The job fails when it has run this long."),
    ("runPolicy.backoffLimit", "Restarts of pods before the job fails."),
    ("managedBy", "Name of the controller that runs the job, if it is not the default one."),
    ("runPolicy.suspend", "The job's pods are deleted, and none are created."),
    ("ttlSecondsAfterFinished", "The job is deleted this long after its end."),
    ("schedulingPolicy", "No effect: a job is a gang of all its pods."),
    ("schedulingPolicy.minAvailable", "Pods that must start together."),
    ("schedulingPolicy.minResources", "Their total requests."),
    ("schedulingPolicy.priorityClass", "A PriorityClass."),
    ("schedulingPolicy.queue", "A queue of the member."),
    ("scheduleTimeoutSeconds", "How long the gang may wait."),
    ("enableDynamicWorker", "Kept."),
    ("successPolicy", "Empty: worker 0 or the chief decides; AllWorkers: all workers."),
    ("runLauncherAsWorker", "The launcher is a worker too."),
    ("slotsPerWorker", "Processes of each worker."),
    ("sshAuthMountPath", "Where keys for ssh are mounted; the agent makes none."),
    ("replicaStatuses", "Pods by role."),
    ("replicaStatuses[].active", "Pods that run or wait."),
    ("replicaStatuses[].succeeded", "Pods that succeeded."),
    ("replicaStatuses[].failed", "Pods that failed."),
    ("replicaStatuses[].selector", "Label selector of the pods, as a string."),
    // Volcano.
    ("minMember", "Pods that must be placed together."),
    ("minResources", "Their total requests."),
    ("minTaskMember", "Pods of each task that must be placed together."),
    ("spec.queue", "The queue; default default."),
    ("subGroupPolicy", "Subgroups of the group; no effect."),
    ("podgroups.scheduling.volcano.sh status.phase", "Pending, Inqueue, Running, Unknown or Completed."),
    ("status.failed", "How many failed."),
    ("status.running", "How many run."),
    ("status.succeeded", "Number of pods that succeeded."),
    ("status.pending", "How many wait."),
    ("status.unknown", "Number in an unknown state."),
    ("status.completed", "Number of completed ones."),
    ("status.inqueue", "Number of those that may start."),
    ("status.terminating", "Number of terminating pods."),
    ("spec.members", "Nodes or HyperNodes of this network domain."),
    ("exactMatch", "One by its name."),
    ("exactMatch.name", "The name."),
    ("regexMatch", "All whose names match."),
    ("regexMatch.pattern", "A regular expression."),
    ("tierName", "Name of the tier."),
    ("nodeCount", "Nodes in this domain."),
    ("failedJobsHistoryLimit", "Failed jobs that are kept."),
    ("successfulJobsHistoryLimit", "Completed jobs that are kept."),
    ("jobTemplate", "Template of the jobs."),
    ("spec.suspend", "No further jobs are created."),
    ("cronjobs.batch.volcano.sh status.active", "Jobs that run."),
    ("jobDependsOnList", "Jobs made from this template."),
    ("spec.flows", "The jobs, each from a template."),
    ("dependsOn", "Dependencies."),
    ("dependsOn.name", "Names of tasks of this job."),
    (
        "dependsOn.probe",
        "Checks of the targets' tasks: a target that passes all that concern it need not have completed.",
    ),
    ("flows[].patch", "Changes of the template."),
    ("completedJobs", "Names of completed jobs."),
    ("failedJobs", "Names of failed jobs."),
    ("pendingJobs", "Names of pending jobs."),
    ("runningJobs", "Names of running jobs."),
    ("terminatedJobs", "Names of terminated jobs."),
    ("unKnowJobs", "Names of jobs in an unknown state."),
    ("jobStatusList", "One entry a job."),
    ("status.state", "The state."),
    ("state.phase", "The state in one word."),
    ("state.reason", "Why, in one word."),
    ("state.message", "Why, in a sentence."),
    ("queues.scheduling.volcano.sh spec.affinity", "Kept."),
    ("capability", "The most the queue may use, by resource."),
    ("deserved", "Share of the queue when others compete for it, by resource."),
    ("dequeueStrategy", "traverse (default) or fifo."),
    ("extendClusters", "Kept."),
    ("guarantee", "Resources reserved for the queue; no other queue may use them."),
    ("guarantee.resource", "By resource."),
    ("spec.parent", "The queue above; default root."),
    ("queues.scheduling.volcano.sh spec.priority", "Higher goes first."),
    ("reclaimable", "Whether other queues may reclaim what this one uses above deserved; default true."),
    ("queues.scheduling.volcano.sh spec.type", "Kept."),
    ("queues.scheduling.volcano.sh spec.weight", "Weight of the queue among its siblings; default 1."),
    ("status.allocated", "Resources that its pods use."),
    ("status.reservation", "Kept."),
    ("cpuDetail[].core", "Number of the core."),
    ("cpuDetail[].numa", "Number of the NUMA node."),
    ("cpuDetail[].socket", "Number of the socket."),
    ("numares[].capacity", "Total amount."),
    ("maxRetry", "Restarts before the job or task fails; default 3."),
    ("minAvailable", "Pods that must start together; default all."),
    ("minSuccess", "Pods that must succeed for the job to complete."),
    ("plugins", "Plugins that create services, ssh keys and environment, each with its arguments."),
    ("policies", "Actions to take at events."),
    ("policies[].action", "The action, such as RestartJob or AbortJob."),
    ("policies[].event", "The event, such as PodFailed."),
    ("policies[].events", "Several events."),
    ("policies[].exitCode", "Exit code of a container, instead of an event."),
    ("policies[].timeout", "How long the event must last."),
    ("runningEstimate", "Kept."),
    ("spec.schedulerName", "The scheduler of its pods."),
    ("spec.tasks", "Groups of equal pods."),
    ("tasks[].name", "Name of the task."),
    ("tasks[].replicas", "Its pods."),
    ("partitionPolicy", "Partitions of the task; each is placed as a whole."),
    ("minPartitions", "Partitions that must start."),
    ("partitionSize", "Pods of one partition."),
    ("totalPartitions", "How many parts."),
    ("spec.volumes", "Volumes of all its pods."),
    ("mountPath", "Where it is mounted."),
    ("volumeClaimName", "Name of the claim."),
    ("controlledResources", "Objects that the plugins created."),
    ("status.minAvailable", "The job's minAvailable."),
    ("retryCount", "Restarts so far."),
    ("runningDuration", "How long the job ran."),
    ("taskStatusCount", "Pods by task and phase."),
    ("status.version", "Incremented at each restart of the job."),
    ("jobs.batch.volcano.sh status.conditions[].status", "The state that began then."),
    ("commands.bus.volcano.sh action", "The action, such as ResumeJob."),
    ("commands.bus.volcano.sh reason", "Why, in one word."),
    ("commands.bus.volcano.sh target", "The object it is for."),
    ("target.blockOwnerDeletion", "Of the owner reference."),
    ("target.controller", "Of the owner reference."),
];

/// Describes a definition's kind, and every field of it that has no description.
pub fn fill(definition: &str, schema: &mut Value) {
    if let Some((_, text)) = KINDS.iter().find(|(name, _)| *name == definition) {
        schema["description"] = json!(text);
    }
    below(definition, schema, String::new());
}

fn below(definition: &str, schema: &mut Value, path: String) {
    for (name, field) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        let path = format!("{path}.{name}");
        let has_text = field["description"].as_str().is_some_and(|text| !text.trim().is_empty());
        if let (false, Some(text), true) = (has_text, find(definition, &path), field.is_object()) {
            field["description"] = json!(text);
        }
        if !is_kubernetes(name, field) {
            below(definition, field, path);
        }
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            below(definition, &mut schema[inner], format!("{path}[]"));
        }
    }
}

/// A built-in type of Kubernetes, whose fields are documented there.
fn is_kubernetes(name: &str, field: &Value) -> bool {
    (name == "template" && field["properties"]["spec"]["properties"]["containers"].is_object())
        || name == "volumeClaim"
        || (name == "metrics" && field["items"]["properties"]["containerResource"].is_object())
}

fn find(definition: &str, path: &str) -> Option<&'static str> {
    let fits = |end: &str| match end.split_once(' ') {
        Some((of, end)) => of == definition && ends_with(path, end),
        None => ends_with(path, end),
    };
    let found = TEXTS.iter().filter(|(end, _)| fits(end)).max_by_key(|(end, _)| end.len());
    found.map(|(_, text)| *text)
}

/// Whether a path ends with whole names; `ReplicaSpecs[]` fits `tfReplicaSpecs[]`.
fn ends_with(path: &str, end: &str) -> bool {
    path.strip_suffix(end)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.') || end.starts_with("ReplicaSpecs"))
}

/// The reference of the fields of Fleet's own kinds, as a Markdown page.
pub fn reference() -> String {
    const OWN: [&str; 4] =
        ["fleet.dev", "policy.one.alibabacloud.com", "scheduling.sigs.k8s.io", "scheduling.x-k8s.io"];
    let mut page = String::from(
        "# API reference\n\nEvery field of the kinds that Fleet adds to a hub, with the text that `kubectl explain` prints. \
         Generated from the types in `api/src`; `UPDATE_DOCS=1 cargo test -p fleet-api page_of_fields` writes this page \
         anew. [Fields without effect](not-yet-acted-on.md) lists the fields that are accepted and change nothing.\n",
    );
    for definition in crate::crds::generate(crate::crds::Side::Hub) {
        let spec = &definition["spec"];
        let group = spec["group"].as_str().unwrap_or_default();
        if !OWN.contains(&group) {
            continue;
        }
        let version = &spec["versions"][0];
        let (kind, name) = (spec["names"]["kind"].as_str(), version["name"].as_str());
        page.push_str(&format!(
            "\n## {} ({group}/{})\n\n",
            kind.unwrap_or_default(),
            name.unwrap_or_default()
        ));
        let schema = &version["schema"]["openAPIV3Schema"];
        page.push_str(schema["description"].as_str().unwrap_or_default());
        page.push_str("\n\n| field | type | |\n| --- | --- | --- |\n");
        rows(&mut page, schema, "", 0);
    }
    page
}

/// The tree's nodes have the same fields at every depth.
const DEEPEST: usize = 9;

fn rows(page: &mut String, schema: &Value, path: &str, depth: usize) {
    if depth > DEEPEST || path.contains("children[].children") || path.contains(crate::cells::NESTED) {
        return;
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if ["metadata", "apiVersion", "kind"].contains(&path.as_str()) {
            continue;
        }
        let text = field["description"].as_str().unwrap_or_default().replace('|', "\\|");
        page.push_str(&format!("| `{path}` | {} | {text} |\n", type_of(field)));
        rows(page, field, &path, depth + 1);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner]["properties"].is_object() {
            rows(page, &schema[inner], &format!("{path}[]"), depth);
        }
    }
}

/// Type names as in `kubectl explain`.
fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return if crate::schema::is_quantity(field) { "quantity" } else { "string" }.to_string();
    }
    match field["type"].as_str() {
        Some("array") => format!("[]{}", type_of(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&field["additionalProperties"]))
        }
        Some(kind) => kind.to_string(),
        None => "any".to_string(),
    }
}
