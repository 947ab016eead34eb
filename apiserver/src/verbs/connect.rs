//! Subresources that lead to a container: logs, exec, attach, port forwarding, proxies.
//!
//! Inputs: a resolved call. There is no kubelet behind the nodes. A request is validated as on a real server, with
//! the same messages, and then fails as if the kubelet did not answer. Absent on purpose: streams.

use crate::verbs::read;
use axum::body::Body;
use fleet_apiserver_admission::access::rbac::Question;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_admission::{self as admission, Operation};
use fleet_apiserver_ground::store::Obj;
use fleet_apiserver_ground::tree;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};
use std::net::IpAddr;

/// Port of kubelets.
const KUBELET_PORT: u16 = 10_250;

/// True for a subresource that is answered here.
pub fn is_one(subresource: &str) -> bool {
    matches!(subresource, "exec" | "attach" | "portforward" | "log" | "proxy")
        || subresource.starts_with("proxy/")
}

/// Answers any method on such a subresource.
pub async fn connect(call: &mut Call) -> ApiResult<Response<Body>> {
    let mut container = call.params.get("container").to_string();
    if call.subresource != "log" {
        let (name, mut options) = (call.name.clone(), options(call));
        admission::mutate(call, Operation::Connect, &name, None, Some(&mut options)).await?;
        admission::validate(call, Operation::Connect, &name, None, Some(&options)).await?;
        container = tree::text(&options, &["container"]).to_string();
    }
    let call = &*call;
    if matches!(call.subresource.as_str(), "exec" | "attach" | "portforward") {
        may_create(call)?;
    }
    if call.subresource.starts_with("proxy") {
        return proxy(call).await;
    }
    if call.subresource == "log" {
        check_log_options(call)?;
    }
    let pod = read::current(call).await?;
    if call.subresource != "portforward" {
        check_container(call, &pod, &container)?;
    }
    let node = pod.text(&["spec", "nodeName"]);
    if node.is_empty() {
        if call.subresource == "log" {
            let mut empty = Response::new(Body::empty());
            *empty.status_mut() = StatusCode::NO_CONTENT;
            return Ok(empty);
        }
        return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.name)));
    }
    let nodes = fleet_apiserver_schema::builtins::find("", "nodes");
    let Some(found) = call.core.store.table(&nodes.table).get(&node) else {
        // Under the name of what was asked for.
        return Err(ApiError::not_found(call.resource(), &node));
    };
    if call.subresource == "log" {
        let line = format!("pod {} is simulated and writes no log\n", call.name);
        return Ok(http_io::text_response(StatusCode::OK, line));
    }
    let address = address(&found);
    if address.is_empty() {
        return Err(unreachable());
    }
    if !call.headers.contains_key(header::UPGRADE) {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let why =
        format!("error dialing backend: dial tcp {address}:{KUBELET_PORT}: connect: connection refused");
    Err(ApiError::internal("", why))
}

/// Who begins a stream must be allowed to create it, also where the protocol asks for it by GET.
fn may_create(call: &Call) -> ApiResult<()> {
    let question = Question {
        verb: "create".into(),
        resource: call.resource().plural.clone(),
        subresource: call.subresource.clone(),
        namespace: call.namespace.clone(),
        name: call.name.clone(),
        ..Question::default()
    };
    if call.core.auth.allows(&call.core, &call.user, &question) {
        return Ok(());
    }
    Err(ApiError::forbidden(call.resource(), &call.name, ""))
}

/// The parameters of a request as the object that admission sees.
fn options(call: &Call) -> Value {
    let (action, path) = call.subresource.split_once('/').unwrap_or((&call.subresource, ""));
    let kind = call.resource().actions.iter().find(|(name, _)| *name == action).map_or("", |(_, kind)| kind);
    let mut out = json!({"kind": kind, "apiVersion": "v1"});
    let map = tree::object(&mut out);
    let p = &call.params;
    match action {
        "exec" | "attach" => {
            // Output is asked for unless it is declined.
            for (field, otherwise) in [("stdin", false), ("stdout", true), ("stderr", true), ("tty", false)] {
                if if p.has(field) { p.flag(field) } else { otherwise } {
                    map.insert(field.into(), true.into());
                }
            }
            if !p.get("container").is_empty() {
                map.insert("container".into(), p.get("container").into());
            }
            if action == "exec" {
                map.insert("command".into(), p.all("command").map(Value::from).collect());
            }
        }
        "portforward" => {
            let ports: Vec<Value> =
                p.all("ports").filter_map(|port| port.parse::<i32>().ok()).map(Value::from).collect();
            if !ports.is_empty() {
                map.insert("ports".into(), ports.into());
            }
        }
        _ => {
            map.insert("path".into(), format!("/{path}").into());
        }
    }
    out
}

/// A node that has not said where it is.
fn unreachable() -> ApiError {
    ApiError::internal("", "no preferred addresses found; known addresses: []")
}

fn address(node: &Obj) -> String {
    let all = node.list(&["status", "addresses"]);
    let one = all.iter().find(|a| tree::text(a, &["type"]) == "InternalIP").or(all.first());
    one.map_or("", |a| tree::text(a, &["address"])).to_string()
}

/// The container that is named is one of the pod's; with several, one has to be named.
fn check_container(call: &Call, pod: &Obj, wanted: &str) -> ApiResult<()> {
    let names = |list: &str| -> Vec<String> {
        pod.list(&["spec", list]).iter().map(|c| tree::text(c, &["name"]).to_string()).collect()
    };
    if wanted.is_empty() && names("containers").len() == 1 {
        return Ok(());
    }
    let all: Vec<String> =
        ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(names).collect();
    if wanted.is_empty() {
        return Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {}, choose one of: [{}]",
            call.name,
            all.join(" ")
        )));
    }
    if all.iter().any(|name| name == wanted) {
        return Ok(());
    }
    Err(ApiError::bad_request(format!("container {wanted} is not valid for pod {}", call.name)))
}

fn check_log_options(call: &Call) -> ApiResult<()> {
    let p = &call.params;
    let mut causes = Vec::new();
    let mut least = |field: &str, least: i64, why: &str| -> ApiResult<()> {
        if let Some(n) = p.number(field)?.filter(|n| *n < least) {
            causes.push(Cause::invalid(field, &json!(n), why));
        }
        Ok(())
    };
    least("tailLines", 0, "must be greater than or equal to 0")?;
    least("limitBytes", 1, "must be greater than 0")?;
    if p.has("sinceSeconds") && p.has("sinceTime") {
        causes.push(Cause::forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    } else {
        least("sinceSeconds", 1, "must be greater than 0")?;
    }
    // A log is told as one, whichever stream a line came by.
    if p.has("stream") {
        causes.push(Cause::forbidden("stream", "may not be specified"));
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("", "PodLogOptions", &call.name, causes)) }
}

/// True for an address that a pod may have, and by which others reach it.
fn is_reachable(ip: &str) -> bool {
    match ip.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            !(ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_multicast()
                || ip.is_link_local()
                || ip.is_broadcast())
        }
        Ok(IpAddr::V6(ip)) => {
            !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip.is_unicast_link_local())
        }
        Err(_) => false,
    }
}

/// The first port that a pod names.
fn first_port(pod: &Obj) -> Option<i64> {
    let containers = pod.list(&["spec", "containers"]);
    let ports = containers.iter().find_map(|c| tree::list(c, &["ports"]).first());
    ports.map(|port| tree::number(port, &["containerPort"]))
}

/// A name in a proxy's path: a scheme and a port may stand around it.
fn proxied(name: &str) -> (&str, &str) {
    let parts: Vec<&str> = name.split(':').collect();
    match parts.as_slice() {
        [_, name, port] => (name, port),
        [name, port] => (name, port),
        _ => (name, ""),
    }
}

async fn proxy(call: &Call) -> ApiResult<Response<Body>> {
    let r = call.resource();
    let (name, port) = proxied(&call.name);
    let found = call.core.store.read(&call.entry.table, &call.key(name)).await?;
    let found = found.ok_or_else(|| ApiError::not_found(r, name))?;
    let unavailable = |why: String| Err(ApiError::unavailable(why));
    match r.plural.as_str() {
        "services" => {
            // A port by its name is looked for among those of the endpoints.
            let fits = |p: &Value| tree::number(p, &["port"]).to_string() == port;
            let is_number = port.parse::<u16>().is_ok();
            if is_number && !found.list(&["spec", "ports"]).iter().any(fits) {
                return unavailable(format!("no service port {port} found for service {name:?}"));
            }
            // Nobody makes endpoints of a service without a selector.
            let selects = |selector: Value| selector.as_object().is_some_and(|labels| !labels.is_empty());
            if !found.at(&["spec", "selector"]).is_some_and(selects) {
                return Err(ApiError::not_found(r, name));
            }
            unavailable(format!("no endpoints available for service {name:?}"))
        }
        "pods" => {
            let ip = found.text(&["status", "podIP"]);
            if !is_reachable(&ip) {
                return Err(ApiError::bad_request("address not allowed"));
            }
            let port = match (port, first_port(&found)) {
                ("", Some(first)) => first.to_string(),
                ("", None) => "80".to_string(),
                _ => port.to_string(),
            };
            let ip = if ip.contains(':') { format!("[{ip}]") } else { ip };
            unavailable(format!(
                "error trying to reach service: dial tcp {ip}:{port}: connect: connection refused"
            ))
        }
        _ => {
            let address = address(&found);
            if address.is_empty() {
                return Err(unreachable());
            }
            let why = format!(
                "error trying to reach service: dial tcp {address}:{KUBELET_PORT}: connect: connection refused"
            );
            unavailable(why)
        }
    }
}
