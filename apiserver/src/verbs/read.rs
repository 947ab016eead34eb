//! GET of objects, lists, scales and logs, and the formats of answers.
//!
//! Inputs: a resolved call. Absent on purpose: watches.

use crate::verbs::versions;
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use fleet_apiserver_admission::call::Call;
use fleet_apiserver_ground::feed::Concern;
use fleet_apiserver_ground::store::{Obj, Page, Place, Range};
use fleet_apiserver_ground::tree;
use fleet_apiserver_printers as printers;
use fleet_apiserver_schema::convert;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io::{self, Form, Params};
use fleet_apiserver_schema::resource::Resource;
use fleet_apiserver_schema::selectors::{Fields, Labels};
use fleet_apiserver_schema::syntax;
use futures::StreamExt;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// The object as the resource serves it.
pub fn served(resource: &Resource, obj: &Obj) -> Bytes {
    if !convert::needed(resource, obj.rv) {
        return obj.json();
    }
    serde_json::to_vec(&served_value(resource, obj)).unwrap_or_default().into()
}

fn served_value(resource: &Resource, obj: &Obj) -> Value {
    let mut value = obj.full();
    convert::to_served(resource, &mut value);
    value
}

/// One object in the form the client asked for.
pub fn object_response(call: &Call, status: StatusCode, obj: &Obj) -> ApiResult<Response<Body>> {
    match call.form {
        Form::Json => Ok(http_io::json_response(status, served(call.resource(), obj))),
        _ => {
            let mut value = obj.full();
            convert::to_served(call.resource(), &mut value);
            value_in_form(call, status, value)
        }
    }
}

/// One value of the resource in the form the client asked for.
pub fn value_in_form(call: &Call, status: StatusCode, value: Value) -> ApiResult<Response<Body>> {
    match call.form {
        Form::Table => {
            let include = printers::Include::parse(call.params.get("includeObject"))?;
            let now = call.core.clock.now();
            let rv = tree::meta_text(&value, "resourceVersion").to_string();
            let rows = vec![printers::row(call.resource(), &value, include, now)];
            Ok(http_io::value_response(
                status,
                &printers::table(call.resource(), rows, true, json!({"resourceVersion": rv})),
            ))
        }
        Form::Partial => Ok(http_io::value_response(status, &printers::partial(&value))),
        Form::PartialList => Err(ApiError::not_acceptable()),
        Form::Yaml => yaml(status, &value),
        _ => Ok(http_io::value_response(status, &value)),
    }
}

/// A value as YAML.
pub fn yaml(status: StatusCode, value: &Value) -> ApiResult<Response<Body>> {
    let text = serde_saphyr::to_string(value).map_err(|e| ApiError::internal("", e.to_string()))?;
    let mut r = http_io::text_response(status, text);
    r.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/yaml"));
    Ok(r)
}

/// The current object, or 404.
pub async fn current(call: &Call) -> ApiResult<Arc<Obj>> {
    let found = call.core.store.read(&call.entry.table, &call.key(&call.name)).await?;
    found.ok_or_else(|| ApiError::not_found(call.resource(), &call.name))
}

/// GET of one object or of a subresource.
pub async fn get(call: &mut Call) -> ApiResult<Response<Body>> {
    reached(call, call.params.version("resourceVersion")?).await?;
    let obj = current(call).await?;
    match call.subresource.as_str() {
        "" | "status" | "ephemeralcontainers" | "resize" | "approval" => {
            object_response(call, StatusCode::OK, &obj)
        }
        "scale" => {
            let scale =
                fleet_apiserver_kinds::scale::of(call.resource(), &versions::live(call, &obj).await?)?;
            Ok(http_io::value_response(StatusCode::OK, &scale))
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Waits until the server has reached a revision, and returns the revision of that state in this history.
///
/// # Errors
/// 504 if it is not reached, as on the real server; 410 if it is not of this store's history.
pub async fn reached(call: &Call, rv: u64) -> ApiResult<u64> {
    let store = &call.core.store;
    match store.place(rv) {
        Place::Reached(rv) => Ok(rv),
        Place::Elsewhere => Err(lost(rv)),
        Place::Ahead(_) => {
            // The real server also waits three seconds for a revision it has not seen.
            if tokio::time::timeout(std::time::Duration::from_secs(3), store.wait(rv)).await.is_err() {
                return Err(ApiError::future_version(rv, store.durable()));
            }
            Ok(rv)
        }
    }
}

fn lost(rv: u64) -> ApiError {
    let message =
        format!("resource version {rv} is not of this server's history: its store was restored; list again");
    ApiError::expired(message, String::new())
}

/// What a list or watch is limited to.
pub struct Filter {
    /// Key prefix.
    pub prefix: String,
    /// The only key that can match.
    pub key: Option<String>,
    /// Labels.
    pub labels: Labels,
    /// Fields.
    pub fields: Fields,
}

impl Filter {
    /// Reads the selectors of a call.
    pub fn of(call: &Call) -> ApiResult<Filter> {
        let r = call.resource();
        let labels = Labels::parse(call.params.get("labelSelector")).map_err(ApiError::bad_request)?;
        let fields = Fields::parse(call.params.get("fieldSelector"), r)?;
        let mut prefix = call.prefix();
        if prefix.is_empty()
            && r.namespaced
            && let Some(ns) = fields.namespace().filter(|n| !n.is_empty())
        {
            prefix = format!("{ns}/");
        }
        let key = fields.name().and_then(|name| match (r.namespaced, prefix.is_empty()) {
            (true, true) => None,
            (true, false) => Some(format!("{prefix}{name}")),
            (false, _) => Some(name.to_string()),
        });
        Ok(Filter { prefix, key, labels, fields })
    }

    /// What all objects that can match have in common, if that is little enough to be woken for it alone.
    pub fn concern(&self) -> Option<Concern> {
        if let Some(key) = &self.key {
            return Some(Concern::Key(key.as_str().into()));
        }
        if let Some(node) = self.fields.node().filter(|n| !n.is_empty()) {
            return Some(Concern::Node(node.into()));
        }
        let namespace = self.prefix.strip_suffix('/')?;
        Some(Concern::Namespace(namespace.into()))
    }

    /// True without selectors.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// True when the key is in the collection.
    pub fn covers(&self, key: &str) -> bool {
        match &self.key {
            Some(k) => k == key,
            None => key.starts_with(&self.prefix),
        }
    }

    /// True when the object is selected; the key is known to be covered.
    pub fn selects(&self, obj: &Obj) -> bool {
        let node = obj.node();
        self.labels.matches(&node) && self.fields.matches(&node)
    }
}

struct Continue {
    rv: i64,
    start: String,
}

fn continue_token(rv: i64, start: &str) -> String {
    URL_SAFE_NO_PAD
        .encode(json!({"v": "meta.k8s.io/v1", "rv": rv, "start": format!("{start}\0")}).to_string())
}

/// Reads a token. What is wrong with one is told with the token's own words.
fn parse_continue(token: &str) -> ApiResult<Continue> {
    const INVALID: &str = "continue key is not valid";
    let refused = |why: String| ApiError::bad_request(format!("invalid continue token: {why}"));
    let bad = |why: String| refused(format!("{INVALID}: {why}"));
    let raw = URL_SAFE_NO_PAD.decode(token).map_err(|e| bad(undecodable(&e)))?;
    let v: Value = serde_json::from_slice(&raw)
        .map_err(|e| bad(syntax::problem(&raw).unwrap_or_else(|| e.to_string())))?;
    let known = tree::text(&v, &["v"]);
    if known != "meta.k8s.io/v1" {
        return Err(bad(format!("server does not recognize this encoded version {known}")));
    }
    let (rv, start) = (tree::number(&v, &["rv"]), tree::text(&v, &["start"]));
    let version = "(version meta.k8s.io/v1)";
    if rv == 0 {
        return Err(bad(format!("incorrect encoded start resourceVersion {version}")));
    }
    if start.is_empty() {
        return Err(bad(format!("encoded start key empty {version}")));
    }
    let odd = |part: &str| matches!(part, "" | "." | "..");
    if start.strip_prefix('/').unwrap_or(start).split('/').any(odd) {
        return Err(bad(start.to_string()));
    }
    Ok(Continue { rv, start: start.trim_end_matches('\0').to_string() })
}

/// A failure to read base64, in the words of the real server.
fn undecodable(e: &base64::DecodeError) -> String {
    use base64::DecodeError::{InvalidByte, InvalidLastSymbol, InvalidLength, InvalidPadding};
    let at = match e {
        InvalidByte(at, _) | InvalidLastSymbol(at, _) => *at,
        InvalidLength(length) => length.saturating_sub(1),
        InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

fn options_invalid(causes: Vec<Cause>) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", causes)
}

/// 410 of a continued list, with a token to go on from now.
fn too_old_token(start: &str) -> ApiError {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new \
         list without the continue parameter, or use the continue token in this response to retrieve the \
         remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
         that were created, modified, or deleted between the time the first chunk was returned and now may show \
         up in the list.";
    ApiError::expired(message, continue_token(-1, start))
}

/// Fails for list options that contradict each other.
fn check_options(p: &Params) -> ApiResult<()> {
    const MATCH: &str = "resourceVersionMatch";
    let (version, how) = (p.get("resourceVersion"), p.get(MATCH));
    let mut causes = Vec::new();
    if !how.is_empty() {
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if !p.get("continue").is_empty() {
            causes
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(how, "Exact" | "NotOlderThan") {
            let supported = "supported values: \"Exact\", \"NotOlderThan\", \"\"";
            let message = format!("Unsupported value: {how:?}: {supported}");
            causes.push(Cause::new("FieldValueNotSupported", MATCH, message));
        }
        if how == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(MATCH, why));
        }
    }
    if p.has("sendInitialEvents") {
        causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    if causes.is_empty() { Ok(()) } else { Err(options_invalid(causes)) }
}

async fn select(call: &Call, filter: &Filter) -> ApiResult<(Page, Vec<Arc<Obj>>)> {
    let p = &call.params;
    let limit: usize = p.number("limit")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    p.number("timeoutSeconds")?;
    let (version, how, token) = (p.get("resourceVersion"), p.get("resourceVersionMatch"), p.get("continue"));
    check_options(p)?;
    let asked = p
        .version("resourceVersion")
        .map_err(|e| ApiError::bad_request(format!("invalid resource version: {}", e.message())))?;
    let mut range = Range { prefix: &filter.prefix, limit, ..Range::default() };
    let parsed;
    if !token.is_empty() {
        parsed = parse_continue(token)?;
        if !version.is_empty() && version != "0" {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        range.after = Some(&parsed.start);
        range.at = match u64::try_from(parsed.rv).ok().map(|rv| call.core.store.place(rv)) {
            None => None,
            Some(Place::Reached(rv)) => Some(rv),
            // Of a history that was taken back: as one that is too old.
            Some(_) => return Err(too_old_token(&parsed.start)),
        };
    } else if version == "0" {
        range.limit = 0;
    } else if asked > 0 {
        let known = reached(call, asked).await?;
        if how == "Exact" || (how.is_empty() && limit > 0) {
            range.at = Some(known);
        }
    }
    let table = &call.entry.table;
    if let (Some(key), None) = (&filter.key, range.at) {
        // The revision is taken before the object is read: later changes are in the watch that follows.
        let before = call.core.store.durable();
        let found = call.core.store.read(table, key).await?;
        let items: Vec<Arc<Obj>> = found.into_iter().filter(|o| filter.selects(o)).collect();
        let rv = before.max(items.first().map_or(0, |o| o.rv));
        return Ok((Page { items: Vec::new(), next: None, remaining: 0, rv }, items));
    }
    let limit = range.limit;
    if !filter.is_empty() {
        // The page is cut after selecting.
        range.limit = 0;
    }
    let Some(mut page) = call.core.store.page(table, range).await? else {
        let at = range.at.unwrap_or(0);
        return Err(match range.after {
            Some(start) => too_old_token(start),
            None => ApiError::expired(
                format!("too old resource version: {at} ({})", table.floor()),
                String::new(),
            ),
        });
    };
    let mut items = std::mem::take(&mut page.items);
    if !filter.is_empty() {
        items.retain(|o| filter.covers(&o.key) && filter.selects(o));
        if limit > 0 && items.len() > limit {
            items.truncate(limit);
            page.next = items.last().map(|o| o.key.clone());
        }
    }
    Ok((page, items))
}

/// LIST.
pub async fn list(call: &mut Call) -> ApiResult<Response<Body>> {
    if call.form == Form::Partial {
        return Err(ApiError::not_acceptable());
    }
    let filter = Filter::of(call)?;
    let (page, items) = select(call, &filter).await?;
    let r = call.resource();
    let mut meta = json!({"resourceVersion": page.rv.to_string()});
    if let Some(next) = &page.next {
        meta["continue"] = json!(continue_token(page.rv as i64, next));
        if filter.is_empty() && page.remaining > 0 {
            meta["remainingItemCount"] = json!(page.remaining);
        }
    }
    match call.form {
        Form::Table => {
            let include = printers::Include::parse(call.params.get("includeObject"))?;
            let now = call.core.clock.now();
            let rows = items
                .iter()
                .map(|o| {
                    if convert::needed(r, o.rv) {
                        printers::row(r, &served_value(r, o), include, now)
                    } else {
                        // Rows go without managedFields: nobody reads them there.
                        printers::row(r, &o.value(), include, now)
                    }
                })
                .collect();
            Ok(http_io::value_response(StatusCode::OK, &printers::table(r, rows, true, meta)))
        }
        Form::PartialList => {
            let items: Vec<Value> = items.iter().map(|o| printers::partial(&o.full())).collect();
            let list = json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
                "items": items});
            Ok(http_io::value_response(StatusCode::OK, &list))
        }
        Form::Yaml => {
            let items: Vec<Value> = items.iter().map(|o| as_item(r, served_value(r, o))).collect();
            let list =
                json!({"kind": r.list_kind, "apiVersion": r.api_version(), "metadata": meta, "items": items});
            value_in_form(call, StatusCode::OK, list)
        }
        _ => Ok(list_response(call, &meta, items)),
    }
}

/// Lists longer than this are sent in parts while they are written.
const WHOLE_LIST: usize = 1000;
/// Objects of a part.
const PART: usize = 100;

fn list_head(r: &Resource, meta: &Value) -> Vec<u8> {
    format!(
        "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
        r.list_kind,
        r.api_version()
    )
    .into_bytes()
}

fn list_items(r: &Resource, items: &[Arc<Obj>], first: bool, out: &mut Vec<u8>) {
    for (i, obj) in items.iter().enumerate() {
        if i > 0 || !first {
            out.push(b',');
        }
        if convert::needed(r, obj.rv) {
            out.extend_from_slice(as_item(r, served_value(r, obj)).to_string().as_bytes());
        } else {
            obj.write_json(if r.custom { &[] } else { &TYPED }, out);
        }
    }
}

/// Fields that the items of a list of a built-in kind go without, as in the real server.
const TYPED: [&str; 2] = ["kind", "apiVersion"];

fn as_item(r: &Resource, mut value: Value) -> Value {
    if let Value::Object(map) = &mut value
        && !r.custom
    {
        TYPED.iter().for_each(|key| drop(map.remove(*key)));
    }
    value
}

/// A list document.
pub fn list_bytes(r: &Resource, meta: &Value, items: &[Arc<Obj>]) -> Bytes {
    let mut out = list_head(r, meta);
    list_items(r, items, true, &mut out);
    out.extend_from_slice(b"]}");
    out.into()
}

/// A list document as a response; a long one is never in memory as a whole.
fn list_response(call: &Call, meta: &Value, items: Vec<Arc<Obj>>) -> Response<Body> {
    let r = call.resource();
    if items.len() <= WHOLE_LIST {
        return http_io::json_response(StatusCode::OK, list_bytes(r, meta, &items));
    }
    let entry = call.entry.clone();
    let mut head = Some(list_head(r, meta));
    let parts = items.len().div_ceil(PART);
    let stream = futures::stream::iter(0..parts).map(move |part| {
        let first = head.is_some();
        let mut out = head.take().unwrap_or_default();
        let end = items.len().min((part + 1) * PART);
        list_items(&entry.resource, &items[part * PART..end], first, &mut out);
        if part + 1 == parts {
            out.extend_from_slice(b"]}");
        }
        Ok::<Bytes, std::convert::Infallible>(out.into())
    });
    let mut response = http_io::json_response(StatusCode::OK, Bytes::new());
    response.headers_mut().remove(http::header::CONTENT_LENGTH);
    *response.body_mut() = Body::from_stream(stream);
    response
}
