//! The request door: path, identity, permission, then the handler of the verb.
//!
//! Inputs: HTTP requests from the in-process router or from the TLS listener.
//! Absent on purpose: the handlers themselves (`read`, `write`, `watch`, `reviews`, `openapi`).

use crate::door::headers::{self, Flow};
use crate::door::standing::Follower;
use crate::door::{health, issuer, metrics};
use crate::verbs::{action, connect, read, reviews, versions, watch, write};
use axum::body::Body;
use bytes::Bytes;
use fleet_apiserver_admission::access::rbac::Question;
use fleet_apiserver_admission::access::shares::{Gate, Guest, Urgency};
use fleet_apiserver_admission::access::user::{Certified, Door, User};
use fleet_apiserver_admission::call::{Call, Core};
use fleet_apiserver_openapi::{self as openapi, etagged};
use fleet_apiserver_schema::builtins;
use fleet_apiserver_schema::error::{ApiError, ApiResult};
use fleet_apiserver_schema::http_io::{self, Form, Params};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

struct Target {
    api_version: String,
    plural: String,
    namespace: String,
    name: String,
    subresource: String,
    watch: bool,
}

enum Route {
    Discovery(String),
    Resource(Target),
    Other,
}

fn route(path: &str) -> Route {
    let parts: Vec<String> = path
        .trim_matches('/')
        .split('/')
        .map(|p| percent_encoding::percent_decode_str(p).decode_utf8_lossy().into_owned())
        .collect();
    let (api_version, mut rest) = match parts[0].as_str() {
        "api" if parts.len() >= 2 => (parts[1].clone(), &parts[2..]),
        "apis" if parts.len() >= 3 => (format!("{}/{}", parts[1], parts[2]), &parts[3..]),
        _ => return Route::Other,
    };
    if rest.is_empty() {
        return Route::Discovery(api_version);
    }
    let watch = rest[0] == "watch" && rest.len() > 1;
    if watch {
        rest = &rest[1..];
    }
    let get = |i: usize| rest.get(i).cloned().unwrap_or_default();
    let sub = |i: usize| rest.get(i..).map(|r| r.join("/")).unwrap_or_default();
    let own = rest.len() == 3 && api_version == "v1" && matches!(rest[2].as_str(), "status" | "finalize");
    let target = if rest[0] == "namespaces" && rest.len() >= 3 && !own {
        Target { api_version, plural: get(2), namespace: get(1), name: get(3), subresource: sub(4), watch }
    } else {
        Target {
            api_version,
            plural: get(0),
            namespace: String::new(),
            name: get(1),
            subresource: sub(2),
            watch,
        }
    };
    Route::Resource(target)
}

/// The longest a client can ask a request to take.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers one request.
pub async fn handle(core: Arc<Core>, door: Door, request: http::Request<Body>) -> Response<Body> {
    if core.closing.is_cancelled() {
        return ApiError::unavailable("the server is shutting down").response();
    }
    let asked = request.uri().query().filter(|q| q.contains("timeout=")).map(|q| Params::parse(Some(q)));
    let asked = asked.filter(|p| !p.flag("watch")).map(|p| p.get("timeout").to_string());
    let limit = asked.as_deref().filter(|text| !text.is_empty()).map(duration);
    if limit == Some(None) {
        return ApiError::bad_request("invalid timeout specified in the request URL").response();
    }
    // Nothing at all means what the server allows.
    let limit = limit.flatten().filter(|limit| !limit.is_zero());
    let pretty = is_pretty(request.uri(), request.headers());
    let (counted, method, uri) = (core.clone(), request.method().clone(), request.uri().clone());
    let (began, gzip) = (std::time::Instant::now(), headers::takes_gzip(request.headers()));
    let work = answer(core, door, request);
    let answered = match limit {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit.min(MAX_TIMEOUT), work)
            .await
            .unwrap_or_else(|_| Err(ApiError::timed_out())),
    };
    let mut response = answered.unwrap_or_else(|e| e.response());
    headers::complete(&mut response);
    if pretty {
        response = headers::indented(response).await;
    }
    if gzip {
        response = headers::packed(response).await;
    }
    counted.requests.count(&method, &uri, response.status(), began.elapsed());
    response
}

/// True if people read the answer, as they say or by the program they use. One that goes on and on, or that is a
/// document of its own, is not laid out for them.
fn is_pretty(uri: &http::Uri, headers: &HeaderMap) -> bool {
    let program = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    let by_hand = [&b"curl"[..], b"Wget", b"Mozilla/5.0"].iter().any(|start| program.starts_with(start));
    if !by_hand && !uri.query().is_some_and(|q| q.contains("pretty=")) {
        return false;
    }
    let p = Params::parse(uri.query());
    let wanted = if p.get("pretty").is_empty() { by_hand } else { p.flag("pretty") };
    wanted && !p.flag("watch") && !uri.path().contains("/watch/") && !uri.path().starts_with("/openapi/")
}

/// A duration as Go writes it: 500ms, 32s, 1m30s, 1.5h, 0.
fn duration(text: &str) -> Option<Duration> {
    let (mut rest, mut sum) = (text, Duration::ZERO);
    while !rest.is_empty() && text != "0" {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?)?;
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

async fn answer(core: Arc<Core>, door: Door, request: http::Request<Body>) -> ApiResult<Response<Body>> {
    let (parts, body) = request.into_parts();
    let certificate = parts.extensions.get::<Certified>();
    let caller = core.auth.identify(&core, door, &parts.headers, certificate)?;
    if let Some(guest) = parts.extensions.get::<Guest>() {
        guest.belongs_to(&caller.name)?;
    }
    // A watch holds its turn only until it has begun.
    let mut gate = match door {
        Door::Process => Gate::process(&core.shares),
        Door::Network => Gate::network(&core.shares, &caller.name),
    };
    let user = core.auth.impersonate(&core, caller, &parts.headers)?;
    let path = parts.uri.path();
    let params = Params::parse(parts.uri.query());
    let flow = Flow::of(&core, &user);
    let answered = match route(path) {
        Route::Resource(target) => {
            let verb = verb(&parts.method, &target, &params);
            // Who may not ask does not learn what there is.
            let question = question(&target, &params, verb.unwrap_or_default());
            if !core.auth.trusts(&user)
                && let Err(e) = core.auth.allow(&core, &user, &question)
            {
                return Ok(flow.mark(headers::unsniffed(e.response())));
            }
            let verb = verb.ok_or_else(ApiError::method_not_allowed)?;
            let follower = (verb == "watch").then(|| Follower {
                core: core.clone(),
                door,
                headers: parts.headers.clone(),
                certificate: certificate.cloned(),
                question,
            });
            match resolve(&core, target, verb, params, parts.headers, user)? {
                Some(mut call) => {
                    let response = resource(&mut call, verb, body, &mut gate).await?;
                    Ok(match follower {
                        Some(follower) => follower.bound(response),
                        None => response,
                    })
                }
                None => Ok(not_found()),
            }
        }
        Route::Discovery(api_version) => {
            if let Some(refused) = barred(&core, &user, &parts.method, path) {
                return Ok(flow.mark(refused));
            }
            gate.turn().await?;
            match core.registry.load().resource_list(&api_version) {
                Some(list) => Ok(http_io::value_response(StatusCode::OK, &list)),
                None => Ok(not_found()),
            }
        }
        Route::Other => {
            gate.turn().await?;
            let work = async { other(&core, &user, &parts.method, path, &params, &parts.headers) };
            gate.run(urgency(&user, false), work).await
        }
    };
    answered.map(|response| flow.mark(response))
}

fn not_found() -> Response<Body> {
    headers::unsniffed(http_io::text_response(StatusCode::NOT_FOUND, "404 page not found\n"))
}

/// The answer to who may not see a path.
fn barred(core: &Core, user: &User, method: &Method, path: &str) -> Option<Response<Body>> {
    let verb = method.as_str().to_ascii_lowercase();
    let refused = core.auth.allow_path(core, user, &verb, path).err()?;
    Some(headers::unsniffed(refused.response()))
}

/// What a path means; `None`: nothing at all.
fn resolve(
    core: &Arc<Core>,
    t: Target,
    verb: &str,
    mut params: Params,
    headers: HeaderMap,
    user: User,
) -> ApiResult<Option<Call>> {
    let registry = core.registry.load();
    let Some(entry) = registry.find(&t.api_version, &t.plural).cloned() else {
        // In a version of its own the server knows what there can be.
        let own = builtins::all().iter().any(|r| r.api_version() == t.api_version);
        return if own { Err(ApiError::no_such_resource()) } else { Ok(None) };
    };
    let mut name = t.name;
    if t.watch {
        params.put("watch", "true");
        if !name.is_empty() {
            params.put("fieldSelector", &format!("metadata.name={name}"));
            name.clear();
        }
    }
    let r = &entry.resource;
    let elsewhere = match (r.namespaced, t.namespace.is_empty()) {
        (true, true) => !name.is_empty() || (r.custom && !matches!(verb, "list" | "watch")),
        (namespaced, bare) => !namespaced && !bare,
    };
    if elsewhere {
        return if r.custom { Ok(None) } else { Err(ApiError::no_such_resource()) };
    }
    Ok(Some(Call {
        core: core.clone(),
        entry,
        namespace: t.namespace,
        name,
        subresource: t.subresource,
        params,
        form: Form::Json,
        user,
        headers,
        warnings: Vec::new(),
    }))
}

fn verb(method: &Method, target: &Target, params: &Params) -> Option<&'static str> {
    let item = !target.name.is_empty() && !target.watch;
    Some(match (method, item) {
        (&Method::GET, true) => "get",
        (&Method::GET, false) if target.watch || params.flag("watch") => "watch",
        (&Method::GET, false) => "list",
        (&Method::POST, _) => "create",
        (&Method::PUT, true) => "update",
        (&Method::PATCH, true) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        _ => return None,
    })
}

fn question(target: &Target, params: &Params, verb: &str) -> Question {
    // A list or watch of one name counts as that object, as in the real server.
    let named = params.get("fieldSelector").strip_prefix("metadata.name=");
    let name = match named {
        Some(one) if target.name.is_empty() && !one.contains(',') => one.trim_start_matches('=').to_string(),
        _ => target.name.clone(),
    };
    let (group, _) = target.api_version.split_once('/').unwrap_or_default();
    // Rights on a namespace object are asked inside that namespace.
    let own = group.is_empty() && target.plural == "namespaces";
    Question {
        verb: verb.into(),
        group: group.into(),
        resource: target.plural.clone(),
        // What stands behind a proxy is not asked for by name.
        subresource: target.subresource.split('/').next().unwrap_or_default().to_string(),
        namespace: if own { name.clone() } else { target.namespace.clone() },
        name,
        path: String::new(),
        selector: params.get("fieldSelector").to_string(),
    }
}

/// Leases, and who keeps the server going, do not wait behind users.
fn urgency(user: &User, is_lease: bool) -> Urgency {
    let keeps = |group: &String| group == "system:serviceaccounts:kube-system";
    match is_lease || user.is_admin() || user.groups.iter().any(keeps) {
        true => Urgency::Urgent,
        false => Urgency::Common,
    }
}

async fn resource(call: &mut Call, verb: &str, body: Body, gate: &mut Gate) -> ApiResult<Response<Body>> {
    check_subresource(call, verb)?;
    let urgency = urgency(&call.user, call.resource().is("coordination.k8s.io", "leases"));
    call.form = http_io::negotiate(&call.headers)?;
    if matches!(call.form, Form::DiscoveryV2 | Form::DiscoveryV2Beta1) {
        return Err(ApiError::not_acceptable());
    }
    // Before anything is written: what has no message cannot be answered so.
    let packed = call.form == Form::Protobuf;
    if packed {
        if call.resource().custom || verb == "watch" {
            return Err(ApiError::not_acceptable());
        }
        call.form = Form::Json;
    }
    // As in the real server: namespaces go one by one.
    if verb == "deletecollection" && call.resource().is("", "namespaces") {
        return Err(ApiError::method_not_allowed());
    }
    if call.resource().read_only && !matches!(verb, "get" | "list") {
        return Err(ApiError::method_not_allowed());
    }
    if call.resource().create_only {
        if verb != "create" {
            return Err(ApiError::method_not_allowed());
        }
        let body = gate.body(body).await?;
        gate.turn().await?;
        return gate
            .run(urgency, async {
                let response = reviews::create(call, &body).await?;
                if packed { headers::as_protobuf(response).await } else { Ok(response) }
            })
            .await;
    }
    let body = match verb {
        "get" | "list" | "watch" => Bytes::new(),
        _ => gate.body(body).await?,
    };
    gate.turn().await?;
    if connect::is_one(&call.subresource) {
        return connect::connect(call).await;
    }
    gate.run(urgency, perform(call, verb, &body, packed)).await
}

/// What a request does once it may; `packed`: the answer is wanted as protobuf.
async fn perform(call: &mut Call, verb: &str, body: &Bytes, packed: bool) -> ApiResult<Response<Body>> {
    let item = !call.name.is_empty();
    let converted = versions::differ(call.resource());
    let form = if converted { versions::plain(call) } else { call.form };
    let mut response = match verb {
        "get" => read::get(call).await?,
        "list" => read::list(call).await?,
        "watch" if converted => {
            return Ok(versions::follow(versions::copy(call), form, watch::watch(call).await?));
        }
        "watch" => return watch::watch(call).await,
        "create" if item => action::action(call, body).await?,
        "create" => write::create(call, body).await?,
        "update" => write::update(call, body).await?,
        "patch" => write::patch(call, body).await?,
        "delete" => crate::verbs::delete::delete(call, body).await?,
        _ => crate::verbs::delete::collection(call, body).await?,
    };
    if converted {
        response = versions::present(call, form, response).await?;
    }
    if packed {
        response = headers::as_protobuf(response).await?;
    }
    if let Some(text) = &call.entry.resource.deprecation {
        call.warnings.push(text.clone());
    }
    http_io::add_warnings(&mut response, &call.warnings);
    Ok(response)
}

fn check_subresource(call: &Call, verb: &str) -> ApiResult<()> {
    let r = call.resource();
    let known = match call.subresource.as_str() {
        "" => true,
        "status" => r.status,
        "scale" => r.scale.is_some(),
        other => {
            let name = other.split('/').next().unwrap_or_default();
            let known = r.actions.iter().any(|(n, _)| *n == name);
            known && (name == other || name == "proxy")
        }
    };
    if !known {
        let missing = || ApiError::not_found(r, &call.name);
        return Err(if r.custom { missing() } else { ApiError::no_such_resource() });
    }
    if r.custom && !call.subresource.is_empty() && !matches!(verb, "get" | "update" | "patch") {
        let why = format!("{verb} is not supported on resources of kind {:?}", r.qualified());
        return Err(ApiError::not_now(r, &why));
    }
    Ok(())
}

fn other(
    core: &Arc<Core>,
    user: &User,
    method: &Method,
    path: &str,
    params: &Params,
    headers: &HeaderMap,
) -> ApiResult<Response<Body>> {
    if let Some(refused) = barred(core, user, method, path) {
        return Ok(refused);
    }
    if *method != Method::GET && *method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    let ok = |v: &Value| Ok(http_io::value_response(StatusCode::OK, v));
    match path.trim_end_matches('/') {
        "/version" => ok(&version(core)),
        "/api" | "/apis" => discovery(core, path.trim_end_matches('/') == "/api", headers),
        "/metrics" => Ok(metrics::answer(core)),
        "/openapi/v3" => openapi::index(core),
        "/openapi/v2" => openapi::swagger(core, headers),
        "" => {
            let mut paths: BTreeSet<String> =
                ["/api", "/api/v1", "/apis", "/metrics", "/openapi/v2", "/openapi/v3", "/version"]
                    .into_iter()
                    .chain([issuer::CONFIGURATION, issuer::KEYS])
                    .map(String::from)
                    .collect();
            for probe in health::PROBES {
                paths.insert(format!("/{probe}"));
                paths.extend(health::checks(probe).map(|check| format!("/{probe}/{check}")));
            }
            for version in core.registry.load().api_versions().filter(|v| v.contains('/')) {
                paths.extend(version.split('/').next().map(|group| format!("/apis/{group}")));
                paths.insert(format!("/apis/{version}"));
            }
            ok(&json!({"paths": paths}))
        }
        p => {
            if let Some(found) = health::answer(p, params).or_else(|| issuer::answer(core, p)) {
                return Ok(found);
            }
            if let Some(rest) = p.strip_prefix("/openapi/v3/") {
                return Ok(openapi::document(core, rest, headers).unwrap_or_else(not_found));
            }
            if let Some(group) = p.strip_prefix("/apis/")
                && let Some(v) = core.registry.load().group(group)
            {
                return ok(&v);
            }
            Ok(not_found())
        }
    }
}

fn version(core: &Core) -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": core.git_version, "gitCommit": "0000000",
        "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "rust",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn discovery(core: &Core, is_core: bool, headers: &HeaderMap) -> ApiResult<Response<Body>> {
    let registry = core.registry.load();
    let form = http_io::negotiate(headers).unwrap_or(Form::Json);
    let (value, media) = match form {
        Form::DiscoveryV2 => (
            registry.aggregated(is_core, "v2"),
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        ),
        Form::DiscoveryV2Beta1 => (
            registry.aggregated(is_core, "v2beta1"),
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        ),
        _ if is_core => (
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs":
                [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]}),
            "application/json",
        ),
        _ => (registry.group_list(), "application/json"),
    };
    let mut response = etagged(serde_json::to_vec(&value).unwrap_or_default(), headers);
    let h = response.headers_mut();
    h.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    h.insert(header::VARY, HeaderValue::from_static("Accept"));
    h.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, want: &str) {
        let Route::Resource(t) = route(path) else { panic!("{path} is not a resource") };
        let found = format!("{} {} {} {} {}", t.api_version, t.namespace, t.plural, t.name, t.subresource);
        assert_eq!(found, want, "{path}");
    }

    #[test]
    fn paths() {
        check("/api/v1/namespaces", "v1  namespaces  ");
        check("/api/v1/namespaces/a", "v1  namespaces a ");
        check("/api/v1/namespaces/a/status", "v1  namespaces a status");
        check("/api/v1/namespaces/a/pods", "v1 a pods  ");
        check("/apis/apps/v1/namespaces/a/deployments/d/scale", "apps/v1 a deployments d scale");
        check("/apis/apps/v1/deployments", "apps/v1  deployments  ");
    }

    #[test]
    fn people_see_indents() {
        for (path, program, want) in [
            ("/api/v1/pods", "curl/8.5.0", true),
            ("/api/v1/pods", "Wget/1.21", true),
            ("/api/v1/pods", "Mozilla/5.0 (X11)", true),
            ("/api/v1/pods", "kubectl/v1.36.0", false),
            ("/api/v1/pods?pretty=true", "kubectl/v1.36.0", true),
            ("/api/v1/pods?pretty=false", "curl/8.5.0", false),
            ("/api/v1/pods?watch=1", "curl/8.5.0", false),
            ("/api/v1/watch/pods", "curl/8.5.0", false),
            ("/openapi/v2", "curl/8.5.0", false),
        ] {
            let headers = HeaderMap::from_iter([(header::USER_AGENT, HeaderValue::from_static(program))]);
            assert_eq!(is_pretty(&http::Uri::from_static(path), &headers), want, "{path} {program}");
        }
    }
}
