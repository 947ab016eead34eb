//! Columns: names, types, formats, priorities and descriptions.
//!
//! Inputs: a resource. Absent on purpose: descriptions that Kubernetes takes from the docs of a field; the name of the
//! column stands there.

use fleet_apiserver_schema::resource::Resource;
use serde_json::{Value, json};

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";
const CREATED: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// The column definitions of a table.
pub fn definitions(r: &Resource) -> Value {
    let name =
        json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0});
    let mut out = if is_named_last(r) { Vec::new() } else { vec![name] };
    if r.custom {
        out.extend(r.columns.iter().map(|c| {
            // Only the column that every definition without columns has is not described by it.
            let description = if c.description.is_empty() { CREATED } else { c.description.as_str() };
            json!({"name": c.name, "type": c.ty, "format": c.format, "description": description, "priority": c.priority})
        }));
        return Value::Array(out);
    }
    out.extend(core(&r.plural).split(',').map(|column| {
        let (name, priority) = match column.strip_suffix("/1") {
            Some(name) => (name, 1),
            None => (column, 0),
        };
        let (name, ty) = name.split_once(':').unwrap_or((name, "string"));
        let format = if matches!(name, "Name" | "Attacher") { "name" } else { "" };
        json!({"name": name, "type": ty, "format": format, "description": description(&r.plural, name), "priority": priority})
    }));
    Value::Array(out)
}

/// Events are told apart by what they say: their names come last, and only when asked for.
pub fn is_named_last(r: &Resource) -> bool {
    !r.custom && r.plural == "events"
}

/// Columns after the name: `Name:type/1`, where type defaults to string and /1 means wide only.
fn core(plural: &str) -> &'static str {
    match plural {
        "pods" => "Ready,Status,Restarts,Age,IP/1,Node/1,Nominated Node/1,Readiness Gates/1",
        "nodes" => {
            "Status,Roles,Age,Version,Internal-IP/1,External-IP/1,OS-Image/1,Kernel-Version/1,Container-Runtime/1"
        }
        "namespaces" => "Status,Age",
        "services" => "Type,Cluster-IP,External-IP,Port(s),Age,Selector/1",
        "endpoints" => "Endpoints,Age",
        "configmaps" => "Data,Age",
        "secrets" => "Type,Data,Age",
        "events" => "Last Seen,Type,Reason,Object,Subobject/1,Source/1,Message,First Seen/1,Count/1,Name/1",
        "persistentvolumes" => {
            "Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,VolumeAttributesClass,Reason,Age,VolumeMode/1"
        }
        "persistentvolumeclaims" => {
            "Status,Volume,Capacity,Access Modes,StorageClass,VolumeAttributesClass,Age,VolumeMode/1"
        }
        "resourcequotas" => "Request,Limit,Age",
        "podtemplates" => "Containers,Images,Pod Labels",
        "componentstatuses" => "Status,Message,Error",
        // Those without a printer of their own.
        "limitranges" | "roles" | "clusterroles" | "customresourcedefinitions" | "csistoragecapacities" => {
            "Created At:date"
        }
        "deployments" => "Ready,Up-to-date,Available,Age,Containers/1,Images/1,Selector/1",
        "replicasets" | "replicationcontrollers" => {
            "Desired:integer,Current:integer,Ready:integer,Age,Containers/1,Images/1,Selector/1"
        }
        "statefulsets" => "Ready,Age,Containers/1,Images/1",
        "daemonsets" => {
            "Desired:integer,Current:integer,Ready:integer,Up-to-date:integer,Available:integer,Node Selector,Age,Containers/1,Images/1,Selector/1"
        }
        "controllerrevisions" => "Controller,Revision,Age",
        "jobs" => "Status,Completions,Duration,Age,Containers/1,Images/1,Selector/1",
        "cronjobs" => {
            "Schedule,Timezone,Suspend:boolean,Active:integer,Last Schedule,Age,Containers/1,Images/1,Selector/1"
        }
        _ => other(plural),
    }
}

fn other(plural: &str) -> &'static str {
    match plural {
        "leases" => "Holder,Age",
        "apiservices" => "Service,Available,Age",
        // Its rows have an age that no column names, as those of Kubernetes do.
        "ipaddresses" => "ParentRef",
        "servicecidrs" => "CIDRs,Age",
        "ingresses" => "Class,Hosts,Address,Ports,Age",
        "ingressclasses" => "Controller,Parameters,Age",
        "networkpolicies" => "Pod-Selector,Age",
        "endpointslices" => "AddressType,Ports,Endpoints,Age",
        "volumeattributesclasses" => "DriverName,Age",
        "storageclasses" => "Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age",
        "csinodes" => "Drivers:integer,Age",
        "csidrivers" => {
            "AttachRequired:boolean,PodInfoOnMount:boolean,StorageCapacity:boolean,TokenRequests,RequiresRepublish:boolean,Modes,Age"
        }
        "volumeattachments" => "Attacher,PV,Node,Attached:boolean,Age",
        "priorityclasses" => "Value:integer,Global-Default:boolean,Age,PreemptionPolicy",
        "poddisruptionbudgets" => "Min Available,Max Unavailable,Allowed Disruptions:integer,Age",
        "rolebindings" | "clusterrolebindings" => "Role,Age,Users/1,Groups/1,ServiceAccounts/1",
        "horizontalpodautoscalers" => "Reference,Targets,MinPods,MaxPods,Replicas,Age",
        "runtimeclasses" => "Handler,Age",
        "validatingadmissionpolicies" => "Validations:integer,ParamKind,Age",
        "mutatingadmissionpolicies" => "Mutations:integer,ParamKind,Age",
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => "PolicyName,ParamRef,Age",
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => "Webhooks:integer,Age",
        "flowschemas" => "PriorityLevel,MatchingPrecedence,DistinguisherMethod,Age,MissingPL",
        "prioritylevelconfigurations" => "Type,NominalConcurrencyShares,Queues,HandSize,QueueLengthLimit,Age",
        "resourceclaims" => "State,Age",
        "resourceslices" => "Node,Driver,Pool,Age",
        "certificatesigningrequests" => "Age,SignerName,Requestor,RequestedDuration,Condition",
        _ => "Age",
    }
}

fn description<'c>(plural: &str, column: &'c str) -> &'c str {
    match (plural, column) {
        (_, "Name") => NAME,
        (_, "Age" | "Created At") => CREATED,
        (_, "Containers") => "Names of each container in the template.",
        (_, "Images") => "Images referenced by each container in the template.",
        ("podtemplates", "Pod Labels") => "The labels for the pod template.",
        ("pods", "Ready") => "The aggregate readiness state of this pod for accepting traffic.",
        ("pods", "Status") => "The aggregate status of the containers in this pod.",
        ("pods", "Restarts") => {
            "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted."
        }
        ("deployments" | "statefulsets", "Ready") => "Number of the pod with ready state",
        ("jobs", "Status") => "Status of the job.",
        ("jobs", "Duration") => "Time required to complete the job.",
        ("controllerrevisions", "Controller") => "Controller of the object",
        ("nodes", "Status") => "The status of the node",
        ("nodes", "Roles") => "The roles of the node",
        ("namespaces", "Status") => "The status of the namespace",
        ("componentstatuses", "Status") => "Status of the component conditions",
        ("componentstatuses", "Message") => "Message of the component conditions",
        ("componentstatuses", "Error") => "Error of the component conditions",
        ("persistentvolumes", "StorageClass") => "StorageClass of the pv",
        ("persistentvolumes", "VolumeAttributesClass") => "VolumeAttributesClass of the pv",
        ("persistentvolumeclaims", "StorageClass") => "StorageClass of the pvc",
        ("persistentvolumeclaims", "VolumeAttributesClass") => "VolumeAttributesClass of the pvc",
        ("resourcequotas", "Request") => {
            "Request represents a minimum amount of cpu/memory that a container may consume."
        }
        ("resourcequotas", "Limit") => {
            "Limits control the maximum amount of cpu/memory that a container may use independent of contention on the node."
        }
        ("poddisruptionbudgets", "Min Available") => "The minimum number of pods that must be available.",
        ("poddisruptionbudgets", "Max Unavailable") => "The maximum number of pods that may be unavailable.",
        ("poddisruptionbudgets", "Allowed Disruptions") => {
            "Calculated number of pods that may be disrupted at this time."
        }
        ("rolebindings", "Users") => "Users in the roleBinding",
        ("rolebindings", "Groups") => "Groups in the roleBinding",
        ("rolebindings", "ServiceAccounts") => "ServiceAccounts in the roleBinding",
        ("clusterrolebindings", "Users") => "Users in the clusterRoleBinding",
        ("clusterrolebindings", "Groups") => "Groups in the clusterRoleBinding",
        ("clusterrolebindings", "ServiceAccounts") => "ServiceAccounts in the clusterRoleBinding",
        _ => description_of_other(plural, column),
    }
}

fn description_of_other<'c>(plural: &str, column: &'c str) -> &'c str {
    match (plural, column) {
        ("ingresses", "Class") => {
            "The name of the IngressClass resource that should be used for additional configuration"
        }
        ("ingresses", "Hosts") => "Hosts that incoming requests are matched against before the ingress rule",
        ("ingresses", "Address") => "Address is a list containing ingress points for the load-balancer",
        ("ingresses", "Ports") => "Ports of TLS configurations that open",
        ("ingressclasses", "Controller") => "Controller that is responsible for handling this class",
        ("ingressclasses", "Parameters") => "A reference to a resource with additional parameters",
        ("apiservices", "Service") => "The reference to the service that hosts this API endpoint.",
        ("apiservices", "Available") => "Whether this service is available.",
        ("csinodes", "Drivers") => "Drivers indicates the number of CSI drivers registered on the node",
        // Looked up among the docs of metadata, which know nothing of it.
        ("runtimeclasses", "Handler") => "",
        (_, "Webhooks") => "Webhooks indicates the number of webhooks registered in this configuration",
        (_, "Validations") => {
            "Validations indicates the number of validation rules defined in this configuration"
        }
        (_, "Mutations") => "Mutation indicates the number of mutations rules defined in this configuration",
        (_, "ParamKind") => "ParamKind specifies the kind of resources used to parameterize this policy",
        (_, "PolicyName") => "PolicyName indicates the policy definition which the policy binding binded to",
        (_, "ParamRef") => "ParamRef indicates the param resource which sets the configuration param",
        ("flowschemas", "MissingPL") => "references a broken or non-existent PriorityLevelConfiguration",
        ("resourceclaims", "State") => "A summary of the current state (allocated, pending, reserved, etc.).",
        _ => column,
    }
}
