//! Columns and cells of the built-in kinds beside the core, workloads and batch.

use super::text::{age, duration, join, labels, or};
use fleet_apiserver_ground::tree::{at, list, meta_text, number, text};
use fleet_apiserver_schema::resource::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Columns after the name, written as in `cells`.
pub fn columns(r: &Resource) -> &'static str {
    match (r.group.as_str(), r.plural.as_str()) {
        (_, "leases") => "Holder,Age",
        (_, "componentstatuses") => "Status,Message,Error",
        (_, "apiservices") => "Service,Available,Age",
        (_, "ipaddresses") => "ParentRef",
        (_, "servicecidrs") => "CIDRs,Age",
        (_, "volumeattributesclasses") => "DriverName,Age",
        (_, "priorityclasses") => "Value:integer,Global-Default:boolean,Age,PreemptionPolicy",
        (_, "poddisruptionbudgets") => "Min Available,Max Unavailable,Allowed Disruptions:integer,Age",
        (_, "rolebindings" | "clusterrolebindings") => "Role,Age,Users/1,Groups/1,ServiceAccounts/1",
        (_, "horizontalpodautoscalers") => "Reference,Targets,MinPods,MaxPods,Replicas,Age",
        (_, "ingresses") => "Class,Hosts,Address,Ports,Age",
        (_, "networkpolicies") => "Pod-Selector,Age",
        (_, "endpointslices") => "AddressType,Ports,Endpoints,Age",
        (_, "storageclasses") => {
            "Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion:boolean,Age"
        }
        (_, "csinodes") => "Drivers:integer,Age",
        (_, "csidrivers") => {
            "AttachRequired:boolean,PodInfoOnMount:boolean,StorageCapacity:boolean,TokenRequests,RequiresRepublish:boolean,Modes,Age"
        }
        (_, "csistoragecapacities") => "StorageClassName,Capacity",
        (_, "volumeattachments") => "Attacher,PV,Node,Attached:boolean,Age",
        (_, "runtimeclasses") => "Handler,Age",
        (_, "ingressclasses") => "Controller,Parameters,Age",
        ("", "podtemplates") => "Containers,Images,Pod Labels",
        (_, "validatingadmissionpolicies") => "Validations:integer,ParamKind,Age",
        (_, "mutatingadmissionpolicies") => "Mutations:integer,ParamKind,Age",
        (_, "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings") => {
            "PolicyName,ParamRef,Age"
        }
        (_, "flowschemas") => "PriorityLevel,MatchingPrecedence:integer,DistinguisherMethod,Age,MissingPL",
        (_, "prioritylevelconfigurations") => {
            "Type,NominalConcurrencyShares:integer,Queues:integer,HandSize:integer,QueueLengthLimit:integer,Age"
        }
        (_, "resourceclaims") => "State,Age",
        (_, "resourceslices") => "Node,Driver,Pool,Age",
        (_, "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => "Webhooks:integer,Age",
        (_, "certificatesigningrequests") => "Age,SignerName,Requestor,RequestedDuration,Condition",
        _ => "Age",
    }
}

/// Appends the cells after the name.
pub fn fill(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    let n = |path: &[&str]| json!(number(v, path));
    match (r.group.as_str(), r.plural.as_str()) {
        (_, "leases") => out.extend([json!(text(v, &["spec", "holderIdentity"])), old()]),
        (_, "componentstatuses") => out.extend(component(v)),
        (_, "apiservices") => {
            out.extend(api_service(v));
            out.push(old());
        }
        (_, "ipaddresses") => {
            let part = |key: &str| text(v, &["spec", "parentRef", key]);
            out.push(json!(format!("{}/{}/{}", part("resource"), part("namespace"), part("name"))));
        }
        (_, "servicecidrs") => {
            let cidrs: Vec<&str> = list(v, &["spec", "cidrs"]).iter().filter_map(Value::as_str).collect();
            out.extend([json!(cidrs.join(",")), old()]);
        }
        (_, "volumeattributesclasses") => out.extend([json!(text(v, &["driverName"])), old()]),
        (_, "priorityclasses") => out.extend([
            n(&["value"]),
            at(v, &["globalDefault"]).cloned().unwrap_or(json!(false)),
            old(),
            json!(text(v, &["preemptionPolicy"])),
        ]),
        (_, "poddisruptionbudgets") => {
            let bound = |k: &str| match at(v, &["spec", k]) {
                Some(Value::String(s)) => json!(s),
                Some(other) => json!(other.to_string()),
                None => json!("N/A"),
            };
            out.extend([
                bound("minAvailable"),
                bound("maxUnavailable"),
                n(&["status", "disruptionsAllowed"]),
                old(),
            ]);
        }
        (_, "rolebindings" | "clusterrolebindings") => {
            let of = |kind: &str| {
                let mine = list(v, &["subjects"]).iter().filter(|s| text(s, &["kind"]) == kind);
                let names = mine.map(|s| match (kind, text(s, &["name"])) {
                    ("ServiceAccount", name) => format!("{}/{name}", text(s, &["namespace"])),
                    (_, name) => name.to_string(),
                });
                json!(names.collect::<Vec<_>>().join(", "))
            };
            let role = format!("{}/{}", text(v, &["roleRef", "kind"]), text(v, &["roleRef", "name"]));
            out.extend([json!(role), old(), of("User"), of("Group"), of("ServiceAccount")]);
        }
        (_, "horizontalpodautoscalers") => out.extend([
            json!(format!(
                "{}/{}",
                text(v, &["spec", "scaleTargetRef", "kind"]),
                text(v, &["spec", "scaleTargetRef", "name"])
            )),
            targets(v),
            n(&["spec", "minReplicas"]),
            n(&["spec", "maxReplicas"]),
            n(&["status", "currentReplicas"]),
            old(),
        ]),
        (_, "ingresses") => out.extend([
            or(text(v, &["spec", "ingressClassName"]), "<none>"),
            join(list(v, &["spec", "rules"]).iter().map(|r| text(r, &["host"])), "*"),
            json!(""),
            json!(if list(v, &["spec", "tls"]).is_empty() { "80" } else { "80, 443" }),
            old(),
        ]),
        (_, "networkpolicies") => {
            out.extend([labels(at(v, &["spec", "podSelector", "matchLabels"])), old()]);
        }
        _ => storage(r, v, now, out),
    }
}

fn storage(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    match (r.group.as_str(), r.plural.as_str()) {
        (_, "endpointslices") => {
            let ports: Vec<String> =
                list(v, &["ports"]).iter().map(|p| number(p, &["port"]).to_string()).collect();
            let ends = list(v, &["endpoints"])
                .iter()
                .flat_map(|e| list(e, &["addresses"]))
                .filter_map(Value::as_str);
            out.extend([
                json!(text(v, &["addressType"])),
                or(&ports.join(","), "<unset>"),
                join(ends, "<unset>"),
                old(),
            ]);
        }
        (_, "storageclasses") => out.extend([
            json!(text(v, &["provisioner"])),
            json!(text(v, &["reclaimPolicy"])),
            json!(text(v, &["volumeBindingMode"])),
            at(v, &["allowVolumeExpansion"]).cloned().unwrap_or(json!(false)),
            old(),
        ]),
        (_, "csinodes") => out.extend([json!(list(v, &["spec", "drivers"]).len()), old()]),
        (_, "csidrivers") => {
            let flag = |k: &str| at(v, &["spec", k]).cloned().unwrap_or(json!(false));
            let modes = list(v, &["spec", "volumeLifecycleModes"]).iter().filter_map(Value::as_str);
            let audiences = list(v, &["spec", "tokenRequests"]).iter().map(|t| text(t, &["audience"]));
            out.extend([flag("attachRequired"), flag("podInfoOnMount"), flag("storageCapacity")]);
            out.extend([join(audiences, "<unset>"), flag("requiresRepublish"), join(modes, "<none>"), old()]);
        }
        (_, "csistoragecapacities") => {
            out.extend([json!(text(v, &["storageClassName"])), or(text(v, &["capacity"]), "<unset>")]);
        }
        (_, "volumeattachments") => out.extend([
            json!(text(v, &["spec", "attacher"])),
            json!(text(v, &["spec", "source", "persistentVolumeName"])),
            json!(text(v, &["spec", "nodeName"])),
            at(v, &["status", "attached"]).cloned().unwrap_or(json!(false)),
            old(),
        ]),
        (_, "runtimeclasses") => out.extend([json!(text(v, &["handler"])), old()]),
        (_, "ingressclasses") => {
            let p = |k: &str| text(v, &["spec", "parameters", k]);
            let kind = if p("apiGroup").is_empty() {
                p("kind").to_string()
            } else {
                format!("{}.{}", p("kind"), p("apiGroup"))
            };
            let name = if p("name").is_empty() { "<none>".into() } else { format!("{kind}/{}", p("name")) };
            out.extend([json!(text(v, &["spec", "controller"])), json!(name), old()]);
        }
        _ => registered(r, v, now, out),
    }
}

fn registered(r: &Resource, v: &Value, now: Timestamp, out: &mut Vec<Value>) {
    let old = || json!(age(meta_text(v, "creationTimestamp"), now));
    let n = |path: &[&str]| json!(number(v, path));
    let containers =
        |path: &[&str], field: &str| join(list(v, path).iter().map(|c| text(c, &[field])), "<none>");
    match (r.group.as_str(), r.plural.as_str()) {
        ("", "podtemplates") => {
            let path = ["template", "spec", "containers"];
            let pod_labels = labels(at(v, &["template", "metadata", "labels"]));
            out.extend([containers(&path, "name"), containers(&path, "image"), pod_labels]);
        }
        (_, "validatingadmissionpolicies" | "mutatingadmissionpolicies") => {
            let kind = at(v, &["spec", "paramKind"]);
            let kind = kind.map(|k| format!("{}/{}", text(k, &["apiVersion"]), text(k, &["kind"])));
            let count = list(v, &["spec", "validations"]).len() + list(v, &["spec", "mutations"]).len();
            out.extend([json!(count), or(&kind.unwrap_or_default(), "<unset>"), old()]);
        }
        (_, "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings") => {
            let param = at(v, &["spec", "paramRef"]);
            let name = param.map(|p| match text(p, &["namespace"]) {
                "" => text(p, &["name"]).to_string(),
                namespace => format!("{namespace}/{}", text(p, &["name"])),
            });
            out.extend([
                json!(text(v, &["spec", "policyName"])),
                or(&name.unwrap_or_default(), "<unset>"),
                old(),
            ]);
        }
        (_, "flowschemas") => out.extend([
            json!(text(v, &["spec", "priorityLevelConfiguration", "name"])),
            n(&["spec", "matchingPrecedence"]),
            or(text(v, &["spec", "distinguisherMethod", "type"]), "<none>"),
            old(),
            json!("False"),
        ]),
        (_, "prioritylevelconfigurations") => out.extend([
            json!(text(v, &["spec", "type"])),
            n(&["spec", "limited", "nominalConcurrencyShares"]),
            n(&["spec", "limited", "limitResponse", "queuing", "queues"]),
            n(&["spec", "limited", "limitResponse", "queuing", "handSize"]),
            n(&["spec", "limited", "limitResponse", "queuing", "queueLengthLimit"]),
            old(),
        ]),
        (_, "resourceclaims") => {
            let state =
                match (at(v, &["status", "allocation"]), list(v, &["status", "reservedFor"]).is_empty()) {
                    (None, _) => "pending",
                    (Some(_), true) => "allocated",
                    (Some(_), false) => "allocated,reserved",
                };
            out.extend([json!(state), old()]);
        }
        (_, "resourceslices") => out.extend([
            json!(text(v, &["spec", "nodeName"])),
            json!(text(v, &["spec", "driver"])),
            json!(text(v, &["spec", "pool", "name"])),
            old(),
        ]),
        (_, "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            out.extend([json!(list(v, &["webhooks"]).len()), old()]);
        }
        (_, "certificatesigningrequests") => {
            let wanted = at(v, &["spec", "expirationSeconds"]).and_then(Value::as_i64);
            let wanted = wanted.map_or("<none>".to_string(), duration);
            let issued = !text(v, &["status", "certificate"]).is_empty();
            let conditions = list(v, &["status", "conditions"]).iter().map(|c| text(c, &["type"]));
            let conditions = conditions.chain(issued.then_some("Issued"));
            out.extend([
                old(),
                json!(text(v, &["spec", "signerName"])),
                json!(text(v, &["spec", "username"])),
                json!(wanted),
                join(conditions, "Pending"),
            ]);
        }
        _ => out.push(old()),
    }
}

/// What an autoscaler sees and wants, metric by metric.
fn targets(v: &Value) -> Value {
    let share = text(v, &["apiVersion"]) == "autoscaling/v1";
    if share {
        let wanted = at(v, &["spec", "targetCPUUtilizationPercentage"]);
        let seen = at(v, &["status", "currentCPUUtilizationPercentage"]);
        let seen = seen.map_or("<unknown>".to_string(), |n| format!("{n}%"));
        return json!(wanted.map_or("<none>".to_string(), |w| format!("cpu: {seen}/{w}%")));
    }
    let current = list(v, &["status", "currentMetrics"]);
    let one = |(i, metric): (usize, &Value)| {
        let seen = current.get(i).unwrap_or(&Value::Null);
        let kind =
            if text(metric, &["type"]) == "ContainerResource" { "containerResource" } else { "resource" };
        let name = text(metric, &[kind, "name"]);
        let wanted = at(metric, &[kind, "target", "averageUtilization"]);
        match wanted {
            Some(wanted) => {
                let found = at(seen, &[kind, "current", "averageUtilization"]);
                let found = found.map_or("<unknown>".to_string(), |n| format!("{n}%"));
                format!("{name}: {found}/{wanted}%")
            }
            None => {
                let found = text(seen, &[kind, "current", "averageValue"]);
                let found = if found.is_empty() { "<unknown>" } else { found };
                let target = text(metric, &[kind, "target", "averageValue"]);
                let target = if target.is_empty() { "<auto>" } else { target };
                let before = if name.is_empty() { String::new() } else { format!("{name}: ") };
                format!("{before}{found}/{target}")
            }
        }
    };
    let shown: Vec<String> = list(v, &["spec", "metrics"]).iter().enumerate().map(one).collect();
    // More than two would fill the line.
    let more = shown.len().saturating_sub(2);
    let mut text = shown.into_iter().take(2).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" + {more} more..."));
    }
    or(&text, "<none>")
}

fn component(v: &Value) -> [Value; 3] {
    let said = list(v, &["conditions"]).first().cloned().unwrap_or_default();
    let status = match text(&said, &["status"]) {
        "True" => "Healthy",
        "False" => "Unhealthy",
        _ => "Unknown",
    };
    [json!(status), json!(text(&said, &["message"])), json!(text(&said, &["error"]))]
}

fn api_service(v: &Value) -> [Value; 2] {
    let service = match at(v, &["spec", "service"]).filter(|service| service.is_object()) {
        Some(service) => format!("{}/{}", text(service, &["namespace"]), text(service, &["name"])),
        None => "Local".to_string(),
    };
    let conditions = list(v, &["status", "conditions"]);
    let available = match conditions.iter().find(|c| text(c, &["type"]) == "Available") {
        None => "Unknown".to_string(),
        Some(c) if text(c, &["status"]) == "True" => "True".to_string(),
        Some(c) => format!("{} ({})", text(c, &["status"]), text(c, &["reason"])),
    };
    [json!(service), json!(available)]
}
