//! Texts of fields whose type says none: for `kubectl explain` and the reference of fields (`docs/fields.md`).
//!
//! A comment on the field in its type comes first. Here stand the fields whose meaning depends on where they are used,
//! and those of the kinds that come from other projects.

use serde_json::{Value, json};

/// The end of a field's path, and its text. The longest end that fits counts; `[]` stands for an item of a list or an
/// entry of a map.
const TEXTS: &[(&str, &str)] = &[
    // What most kinds have.
    ("spec", "What is asked for."),
    ("status", "What was last seen; written by the controllers."),
    ("status.conditions", "What is true of the object now, each with its reason."),
    ("conditions[].type", "Name of the condition."),
    ("conditions[].status", "True, False or Unknown."),
    ("conditions[].reason", "Why, in one word of the fixed vocabulary (docs/reasons.md)."),
    ("conditions[].message", "Why, in a sentence."),
    ("conditions[].transitionID", "Number of the scheduling cycle that wrote it."),
    ("apiVersion", "Group and version of the object, such as kubeflow.org/v1."),
    ("kind", "Kind of the object."),
    ("namespace", "Namespace of the object."),
    ("name", "Name of the object."),
    ("uid", "Identity of the object: another one of the same name has another."),
    ("priorityClassName", "A PriorityClass; jobs of a higher one go first."),
    // Policies.
    ("resourceSelectors[].apiVersion", "Group and version of the objects, such as kubeflow.org/v1."),
    ("resourceSelectors[].kind", "Kind of the objects, such as PyTorchJob."),
    (
        "resourceSelectors[].namespace",
        "Namespace of the objects; a namespaced policy selects in its own only.",
    ),
    ("placement", "Where objects may go and how their replicas are spread."),
    ("clusterNames", "Names of the clusters; empty: all."),
    ("exclude", "Names of clusters that are left out, whatever else selects them."),
    ("affinityName", "Name of this group of clusters, each once."),
    ("overflowAffinities", "Groups for the replicas that do not fit; not acted on yet."),
    ("matchExpressions", "All of them must hold."),
    ("matchExpressions[].key", "provider, region or zone."),
    ("matchExpressions[].operator", "In or NotIn."),
    ("matchExpressions[].values", "The values to compare with."),
    ("clusterTolerations", "Taints of clusters that do not keep the object away."),
    ("clusterTolerations[].key", "Key of the taint; empty with operator Exists: every taint."),
    ("clusterTolerations[].operator", "Equal (default) or Exists."),
    ("clusterTolerations[].value", "Value of the taint, with operator Equal."),
    ("clusterTolerations[].effect", "NoSchedule or NoExecute; empty: every effect."),
    (
        "clusterTolerations[].tolerationSeconds",
        "How long a running job bears a NoExecute taint; absent: for ever.",
    ),
    (
        "spreadConstraints",
        "Over how many groups of clusters the object is spread; a gang goes to one cluster anyway.",
    ),
    ("spreadByLabel", "Label of clusters that makes the groups; excludes spreadByField."),
    ("minGroups", "The fewest groups."),
    ("maxGroups", "The most groups; 0 is no bound."),
    ("replicaScheduling", "Whether clusters get copies of the object or parts of its replicas."),
    (
        "replicaSchedulingType",
        "Duplicated: each cluster gets all replicas. Divided (default): they are shared out.",
    ),
    (
        "replicaDivisionPreference",
        "With Divided. Aggregated: as few clusters as hold it. Weighted: by weightPreference.",
    ),
    ("weightPreference", "Shares of the clusters, with Weighted."),
    ("staticWeightList", "Fixed weights; a cluster takes the greatest that names it."),
    ("staticWeightList[].targetCluster", "The clusters of this weight."),
    ("staticWeightList[].weight", "1 or more."),
    ("workloadAffinity", "Jobs to be kept together or apart; not acted on yet."),
    ("workloadAffinity.affinity", "Together with jobs of the same value of a label."),
    ("workloadAffinity.antiAffinity", "Apart from jobs of the same value of a label."),
    ("groupByLabelKey", "The label."),
    (
        "failover",
        "What happens when the job or its cluster fails; absent: it ends, or waits for its cluster.",
    ),
    ("failover.application", "A job that fails or stays unhealthy moves to another cluster."),
    ("failover.cluster", "The jobs of a lost cluster move to others."),
    ("decisionConditions", "When a job counts as failed."),
    ("statePreservation", "What the next run learns from the status of the last one."),
    ("statePreservation.rules", "One value each."),
    ("aliasLabelName", "Label of the next run's object, and name of the value; [prefix/]name."),
    ("jsonPath", "Where the value stands in the status, such as {.conditions[0].type}."),
    (
        "purgeMode",
        "How the old run goes: Directly (before the next one starts), Gracefully (after it runs), Never.",
    ),
    ("suspension", "What is held back."),
    ("dispatchingOnClusters", "Do not send anything to these members; not acted on yet."),
    ("dispatchingOnClusters.clusterNames", "The members."),
    ("schedulePriority", "The priority of the policy's jobs, instead of that of their pods."),
    ("schedulePriority.priorityClassName", "Name of a PriorityClass of the hub."),
    (
        "conflictResolution",
        "What to do when an object of the same name, not made by Fleet, exists in the member: Abort (default) or Overwrite.",
    ),
    // Overrides.
    ("overrideRules", "Rules in order; each names clusters and changes."),
    ("overrideRules[].targetCluster", "Clusters whose copies are changed; absent: all."),
    ("overriders", "The changes."),
    ("plaintext", "Changes of any field by JSON pointer."),
    ("plaintext[].value", "The new value, of any type."),
    ("imageOverrider", "Changes of container images."),
    ("imageOverrider[].operator", "add, remove or replace."),
    ("imageOverrider[].predicate", "Which image; absent: all of the pod template."),
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
    ("fieldOverrider", "Changes inside a field whose text is itself JSON or YAML."),
    ("fieldPath", "JSON pointer of the field."),
    ("fieldOverrider[].json", "Changes of a field that holds JSON."),
    ("fieldOverrider[].yaml", "Changes of a field that holds YAML."),
    ("subPath", "JSON pointer inside the text."),
    ("json[].value", "The new value, of any type."),
    ("yaml[].value", "The new value, of any type."),
    // Quota tree and queues.
    ("spec.root", "The root of the tree: the capacity of the fleet. Its children are quotas."),
    ("status.root", "What each node uses and asks for."),
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
    ("queueunits.scheduling.x-k8s.io spec.request", "The same as resource, under kube-queue's older name."),
    ("podSet", "The job's components."),
    ("podSet[].name", "Name of the component."),
    ("podSet[].count", "Its pods."),
    ("queueunits.scheduling.x-k8s.io spec.active", "Kept."),
    ("maximumExecutionTimeSeconds", "Kept."),
    ("lastUpdateTime", "When this was last written (RFC 3339)."),
    ("lastAllocateTime", "When the job was last admitted (RFC 3339)."),
    ("podState", "Pods of the run; not written."),
    ("podState.pending", "Pods that wait."),
    ("podState.running", "Pods that run."),
    // Clusters.
    ("clusters.fleet.dev spec.id", "Kept."),
    ("impersonatorSecretRef", "Kept."),
    ("secretRef.name", "Name of the Secret."),
    ("impersonatorSecretRef.name", "Name of the Secret."),
    ("secretRef.namespace", "Its namespace, fleet-CLUSTER."),
    ("impersonatorSecretRef.namespace", "Its namespace."),
    ("insecureSkipTLSVerification", "Users of the hub do not check the member's certificate."),
    ("provider", "Who runs the cluster; policies select by it."),
    ("region", "Where the cluster stands; policies select by it."),
    ("zones", "Zones of its nodes; policies select by them."),
    ("proxyURL", "Printed only."),
    ("proxyHeader", "Kept."),
    ("taints", "What keeps jobs away (NoSchedule) or moves them off (NoExecute), unless they tolerate it."),
    ("taints[].key", "Key of the taint."),
    ("taints[].value", "Value of the taint."),
    ("taints[].timeAdded", "When it was set (RFC 3339); NoExecute counts tolerations from then."),
    ("kubernetesVersion", "Version of the member's API server."),
    ("nodeShapes[].allocatable", "What one such node has for pods, by resource."),
    ("nodeShapes[].free", "What is free on one such node, by resource."),
    ("nodeShapes[].count", "How many nodes are alike."),
    ("nodeShapes[].labels", "Labels that jobs select by."),
    ("nodeShapes[].taints", "Taints of the nodes."),
    ("nodeSummary", "Nodes of the member."),
    ("nodeSummary.totalNum", "All nodes."),
    ("nodeSummary.readyNum", "Nodes that are ready."),
    ("resourceSummary.allocatable", "What the nodes have for pods, by resource."),
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
    ("propagateDeps", "Also send what the pod templates name."),
    ("preserveResourcesOnDeletion", "Leave the member's copies when the object on the hub is deleted."),
    ("schedulerName", "Source printed with scheduling events."),
    ("schedulerObservedGeneration", "Not written."),
    ("lastScheduledTime", "Not written."),
    ("aggregatedStatus", "What each cluster says."),
    ("aggregatedStatus[].clusterName", "Name of the cluster."),
    ("aggregatedStatus[].applied", "Whether the object stands there as the hub wants it."),
    ("aggregatedStatus[].appliedMessage", "Why it does not."),
    ("aggregatedStatus[].status", "The status of the object there."),
    ("cluster", "Name of the cluster."),
    ("epoch", "Number of the run: raised with every change of the target."),
    ("attempts[].reason", "Why the run ended, in one word (docs/reasons.md)."),
    ("message", "The same in a sentence."),
    ("spec.binding", "The ResourceBinding this is for."),
    ("spec.components", "What is asked for, component by component; all of it or nothing."),
    ("suspendDispatching", "The agent leaves the member as it is."),
    ("workload.manifests", "The objects, whole."),
    ("manifestStatuses", "What became of each object."),
    ("manifestStatuses[].identifier", "Which object."),
    ("manifestStatuses[].identifier.group", "Its API group; empty for the core."),
    ("manifestStatuses[].identifier.version", "Its version."),
    ("manifestStatuses[].status", "Its status in the member."),
    ("reservations.fleet.dev status.phase", "Reserved, Refused or Expired."),
    ("status.refusals", "Why the places were refused, component by component."),
    ("refusals[].component", "Name of the component."),
    ("refusals[].fit", "Pods that would have had a place."),
    ("refusals[].wanted", "Pods that were asked for."),
    ("highestTierAllowed", "The widest tier of the network (HyperNode spec.tier) that its pods may span."),
    ("highestTierName", "The same by the tier's name; excludes highestTierAllowed."),
    // Training operators.
    ("ReplicaSpecs[].replicas", "Pods of this role; default 1."),
    ("elasticPolicy", "Rendezvous of torchrun; the gang is all replicas."),
    ("elasticPolicy.maxReplicas", "Most workers, as the pods' environment says it."),
    ("elasticPolicy.minReplicas", "Fewest workers, as the pods' environment says it."),
    ("elasticPolicy.maxRestarts", "Restarts of the workers inside the pods."),
    ("elasticPolicy.metrics", "Not acted on: there is no autoscaler."),
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
    ("runPolicy", "How the job's life is bounded, and what is cleaned after it."),
    ("activeDeadlineSeconds", "The job fails when it has run this long."),
    ("runPolicy.backoffLimit", "Restarts of pods before the job fails."),
    ("managedBy", "Name of the controller that runs the job, where it is another."),
    ("runPolicy.suspend", "The job's pods are deleted and none are made."),
    ("ttlSecondsAfterFinished", "The job is deleted this long after its end."),
    ("schedulingPolicy", "Not acted on: a job is a gang of all its pods."),
    ("schedulingPolicy.minAvailable", "Pods that must start together."),
    ("schedulingPolicy.minResources", "What they ask for together."),
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
    ("replicaStatuses[].succeeded", "Pods that ended well."),
    ("replicaStatuses[].failed", "Pods that failed."),
    ("replicaStatuses[].selector", "Label selector of the pods, as a text."),
    // Volcano.
    ("minMember", "Pods that must be placed together."),
    ("minResources", "What they ask for together."),
    ("minTaskMember", "Pods of each task that must be placed together."),
    ("spec.queue", "The queue; default default."),
    ("subGroupPolicy", "Groups inside the group; kept."),
    ("podgroups.scheduling.volcano.sh status.phase", "Pending, Inqueue, Running, Unknown or Completed."),
    ("status.failed", "How many failed."),
    ("status.running", "How many run."),
    ("status.succeeded", "How many ended well."),
    ("status.pending", "How many wait."),
    ("status.unknown", "How many are in an unknown state."),
    ("status.completed", "How many are completed."),
    ("status.inqueue", "How many may start."),
    ("status.terminating", "How many are ending."),
    ("spec.members", "Nodes or HyperNodes of this domain of the network."),
    ("exactMatch", "One by its name."),
    ("exactMatch.name", "The name."),
    ("regexMatch", "All whose names match."),
    ("regexMatch.pattern", "A regular expression."),
    ("tierName", "Name of the tier."),
    ("nodeCount", "Nodes in this domain."),
    ("failedJobsHistoryLimit", "Failed jobs that are kept."),
    ("successfulJobsHistoryLimit", "Completed jobs that are kept."),
    ("jobTemplate", "The job to make."),
    ("spec.suspend", "Make no more jobs."),
    ("cronjobs.batch.volcano.sh status.active", "Jobs that run."),
    ("jobDependsOnList", "Jobs made from this template."),
    ("spec.flows", "The jobs, each from a template."),
    ("dependsOn", "What must come first."),
    ("dependsOn.name", "Names of tasks of this job."),
    ("dependsOn.probe", "Kept; a flow waits for completed jobs."),
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
    ("deserved", "What the queue gets when others want it too, by resource."),
    ("dequeueStrategy", "traverse (default) or fifo."),
    ("extendClusters", "Kept."),
    ("guarantee", "What nobody else may use."),
    ("guarantee.resource", "By resource."),
    ("spec.parent", "The queue above; default root."),
    ("queues.scheduling.volcano.sh spec.priority", "Higher goes first."),
    ("reclaimable", "Whether others may take back what the queue uses above deserved; default true."),
    ("queues.scheduling.volcano.sh spec.type", "Kept."),
    ("queues.scheduling.volcano.sh spec.weight", "Share beside others; default 1."),
    ("status.allocated", "What its pods use."),
    ("status.reservation", "Kept."),
    ("cpuDetail[].core", "Number of the core."),
    ("cpuDetail[].numa", "Number of the NUMA node."),
    ("cpuDetail[].socket", "Number of the socket."),
    ("numares[].capacity", "How much there is."),
    ("maxRetry", "Restarts before the job or task fails; default 3."),
    ("minAvailable", "Pods that must start together; default all."),
    ("minSuccess", "Pods that must end well for the job to be completed."),
    ("plugins", "Plugins that make services, keys and environment, each with its arguments."),
    ("policies", "What is done at which event."),
    ("policies[].action", "What is done, such as RestartJob or AbortJob."),
    ("policies[].event", "The event, such as PodFailed."),
    ("policies[].events", "Several events."),
    ("policies[].exitCode", "Exit code of a container, instead of an event."),
    ("policies[].timeout", "How long the event must last."),
    ("runningEstimate", "Kept."),
    ("spec.schedulerName", "The scheduler of its pods."),
    ("spec.tasks", "Groups of equal pods."),
    ("tasks[].name", "Name of the task."),
    ("tasks[].replicas", "Its pods."),
    ("partitionPolicy", "Parts of the task that are placed each as a whole."),
    ("minPartitions", "Parts that must start."),
    ("partitionSize", "Pods of one part."),
    ("totalPartitions", "How many parts."),
    ("spec.volumes", "Volumes of all its pods."),
    ("mountPath", "Where it is mounted."),
    ("volumeClaimName", "Name of the claim."),
    ("controlledResources", "What the plugins made."),
    ("status.minAvailable", "The job's minAvailable."),
    ("retryCount", "Restarts so far."),
    ("runningDuration", "How long the job ran."),
    ("taskStatusCount", "Pods by task and phase."),
    ("status.version", "Raised with each restart of the job."),
    ("jobs.batch.volcano.sh status.conditions[].status", "The state that began then."),
    ("commands.bus.volcano.sh action", "What is to be done, such as ResumeJob."),
    ("commands.bus.volcano.sh reason", "Why, in one word."),
    ("commands.bus.volcano.sh target", "The object it is for."),
    ("target.blockOwnerDeletion", "Of the owner reference."),
    ("target.controller", "Of the owner reference."),
];

/// Gives every field of a definition without a text the one that stands here.
pub fn fill(definition: &str, schema: &mut Value) {
    below(definition, schema, String::new());
}

fn below(definition: &str, schema: &mut Value, path: String) {
    for (name, field) in schema["properties"].as_object_mut().into_iter().flatten() {
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

/// A type of Kubernetes' own, whose fields are explained there.
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
        page.push_str("| field | type | |\n| --- | --- | --- |\n");
        rows(&mut page, &version["schema"]["openAPIV3Schema"], "", 0);
    }
    page
}

/// The tree's nodes are alike at every depth.
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

/// As `kubectl explain` names types.
fn type_of(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        let is_quantity = field["pattern"] == crate::schema::quantity_value()["pattern"];
        return if is_quantity { "quantity" } else { "string" }.to_string();
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
