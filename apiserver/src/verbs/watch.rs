//! Watches: a cursor in the table's commit log, turned into a stream of events.
//!
//! Inputs: a resolved call. A watcher has no queue; one that falls behind the log gets an ERROR event with 410.
//! Absent on purpose: anything that could slow a writer down.

use crate::verbs::read::{self, Filter};
use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use fleet_apiserver_admission::call::{Call, Core};
use fleet_apiserver_ground::feed::Listener;
use fleet_apiserver_ground::store::{Event, EventKind, Obj, Place, Range};
use fleet_apiserver_ground::tree;
use fleet_apiserver_printers::{self as printers, Include};
use fleet_apiserver_schema::convert;
use fleet_apiserver_schema::error::{ApiError, ApiResult, Cause};
use fleet_apiserver_schema::http_io::{Form, Params};
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Events read from the log at once.
const BATCH: usize = 256;
/// A frame is sent when it has grown this far.
const FRAME_BYTES: usize = 64 * 1024;
/// Bookmarks come this often.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Length of a watch that names no timeout.
const DEFAULT_TIMEOUT_S: u64 = 1800;
/// The longest watch.
const LONGEST_S: u64 = 7 * 24 * 3600;

/// Where the JSON of a shown object comes from.
enum Shown<'a> {
    /// The object itself.
    Plain,
    /// Its event, which keeps it for all watchers.
    Event(&'a Event),
    /// The object under another revision.
    At(u64),
}

struct Watcher {
    core: Arc<Core>,
    entry: fleet_apiserver_schema::registry::ServedResource,
    filter: Filter,
    form: Form,
    include: Include,
    cursor: u64,
    feed: Listener,
    initial: VecDeque<Arc<Obj>>,
    /// The initial events must end with a marked bookmark.
    mark_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    first_row: bool,
    /// Why there is nothing to go on from.
    lost: Option<String>,
    done: bool,
}

/// Fails for watch options that contradict each other.
fn check_options(p: &Params) -> ApiResult<()> {
    const MATCH: &str = "resourceVersionMatch";
    let (how, streams) = (p.get(MATCH), p.has("sendInitialEvents"));
    let mut causes = Vec::new();
    if streams && how != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(MATCH, why));
    }
    if !how.is_empty() {
        if !streams {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(MATCH, why));
        }
        if how != "NotOlderThan" {
            let message = format!("Unsupported value: {how:?}: supported values: \"NotOlderThan\"");
            causes.push(Cause::new("FieldValueNotSupported", MATCH, message));
        }
        if !p.get("continue").is_empty() {
            causes
                .push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", causes)) }
}

/// Starts a watch.
pub async fn watch(call: &mut Call) -> ApiResult<Response<Body>> {
    let p = &call.params;
    let streaming = p.flag("sendInitialEvents");
    check_options(p)?;
    let asked = p.version("resourceVersion")?;
    if call.form == Form::PartialList {
        return Err(ApiError::not_acceptable());
    }
    let filter = Filter::of(call)?;
    let include = Include::parse(p.get("includeObject"))?;
    let timeout = match p.number("timeoutSeconds")?.and_then(|t| u64::try_from(t).ok()) {
        None | Some(0) => DEFAULT_TIMEOUT_S,
        Some(t) => t.min(LONGEST_S),
    };
    let core = call.core.clone();
    let feed = call.entry.table.feed.listen(filter.concern(), || core.store.durable());
    let mut watcher = Watcher {
        core: call.core.clone(),
        entry: call.entry.clone(),
        filter,
        form: call.form,
        include,
        cursor: asked,
        feed,
        initial: VecDeque::new(),
        mark_end: false,
        bookmarks: p.flag("allowWatchBookmarks"),
        next_bookmark: Instant::now() + BOOKMARK_EVERY,
        deadline: Instant::now() + Duration::from_secs(timeout),
        first_row: true,
        lost: None,
        done: false,
    };
    let synthetic = streaming || (asked == 0 && !p.has("sendInitialEvents"));
    if synthetic {
        if asked > 0 {
            read::reached(call, asked).await?;
        }
        let range = Range { prefix: &watcher.filter.prefix, ..Range::default() };
        if let Some(page) = call.core.store.page(&call.entry.table, range).await? {
            watcher.cursor = page.rv;
            let f = &watcher.filter;
            watcher.initial = page.items.into_iter().filter(|o| f.covers(&o.key) && f.selects(o)).collect();
        }
        // Also of a watch that names no revision, which is taken for a streaming one.
        watcher.mark_end = true;
    } else if asked == 0 {
        watcher.cursor = call.core.store.durable();
    } else {
        // A revision from the future was seen in a state that was undone since. The real server waits silently;
        // here the watcher gets 410 at once and lists again.
        match call.core.store.place(asked) {
            Place::Reached(rv) => watcher.cursor = rv,
            Place::Ahead(newest) => {
                watcher.lost = Some(format!("too large resource version: {asked}, current: {newest}"))
            }
            Place::Elsewhere => {
                watcher.lost = Some(format!("resource version {asked} is not of this server's history"))
            }
        }
    }
    let stream = futures::stream::unfold(watcher, |mut w| async move {
        let frame = w.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(frame), w))
    });
    let mut response = Response::new(Body::from_stream(stream));
    *response.status_mut() = StatusCode::OK;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.entry.table.feed.leave(&mut self.feed);
    }
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = BytesMut::new();
        if let Some(why) = self.lost.take() {
            self.expired(&mut out, why);
            return Some(out.freeze());
        }
        while let Some(obj) = self.initial.pop_front() {
            self.push(&mut out, "ADDED", &obj, Shown::Plain);
            if out.len() >= FRAME_BYTES {
                return Some(out.freeze());
            }
        }
        if std::mem::take(&mut self.mark_end) && self.bookmarks {
            self.bookmark(&mut out, true);
        }
        if !out.is_empty() {
            return Some(out.freeze());
        }
        loop {
            // Seen before reading, so that an event published meanwhile wakes us again.
            self.feed.settle();
            // What a lane has not got by now is later than this.
            let delivered = self.core.store.delivered();
            let (events, limit) = match self.feed.events(self.cursor) {
                Some(events) => (events, delivered),
                None => {
                    let limit = self.core.store.durable();
                    let Some(events) = self.entry.table.events(self.cursor, limit, BATCH) else {
                        let floor = self.entry.table.floor();
                        self.expired(
                            &mut out,
                            format!("too old resource version: {} ({floor})", self.cursor),
                        );
                        return Some(out.freeze());
                    };
                    (events, limit)
                }
            };
            for event in &events {
                self.cursor = event.rv;
                self.event(&mut out, event);
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
            if events.len() == BATCH {
                continue;
            }
            if events.is_empty() {
                // Everything of this table up to the durable revision has been delivered.
                self.cursor = self.cursor.max(limit);
            }
            tokio::select! {
                biased;
                () = self.core.closing.cancelled() => return None,
                alive = self.feed.woken() => {
                    if !alive {
                        return None;
                    }
                }
                () = tokio::time::sleep_until(self.deadline) => {
                    if !self.bookmarks {
                        return None;
                    }
                    self.done = true;
                    self.bookmark(&mut out, false);
                    return Some(out.freeze());
                }
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    self.bookmark(&mut out, false);
                    return Some(out.freeze());
                }
            }
        }
    }

    fn event(&mut self, out: &mut BytesMut, event: &Event) {
        if !self.filter.covers(&event.obj.key) {
            return;
        }
        if self.filter.is_empty() {
            let kind = match event.kind {
                EventKind::Added => "ADDED",
                EventKind::Modified => "MODIFIED",
                EventKind::Deleted => "DELETED",
            };
            return self.push(out, kind, &event.obj, Shown::Event(event));
        }
        let before = event.prev.as_ref().is_some_and(|p| self.filter.selects(p));
        match event.kind {
            EventKind::Deleted if before => self.push(out, "DELETED", &event.obj, Shown::Event(event)),
            EventKind::Deleted => {}
            EventKind::Added | EventKind::Modified => {
                let after = self.filter.selects(&event.obj);
                match (before, after, &event.prev) {
                    (false, true, _) => self.push(out, "ADDED", &event.obj, Shown::Event(event)),
                    (true, true, _) => self.push(out, "MODIFIED", &event.obj, Shown::Event(event)),
                    // Leaving the selection shows the last selected state with the new revision.
                    (true, false, Some(prev)) => self.push(out, "DELETED", prev, Shown::At(event.rv)),
                    _ => {}
                }
            }
        }
    }

    fn push(&mut self, out: &mut BytesMut, kind: &str, obj: &Obj, shown: Shown<'_>) {
        let r = self.entry.resource.clone();
        out.put_slice(b"{\"type\":\"");
        out.put_slice(kind.as_bytes());
        out.put_slice(b"\",\"object\":");
        if let (Form::Json, Shown::Event(event), false) = (self.form, &shown, convert::needed(&r, obj.rv)) {
            out.put_slice(&event.json());
        } else if let (Form::Json, Shown::Plain) = (self.form, &shown) {
            out.put_slice(&read::served(&r, obj));
        } else {
            let mut value = obj.full();
            if let Shown::At(rv) = shown {
                tree::meta(&mut value).insert("resourceVersion".into(), rv.to_string().into());
            }
            convert::to_served(&r, &mut value);
            let shown = match self.form {
                Form::Partial => printers::partial(&value),
                Form::Table => {
                    let row = printers::row(&r, &value, self.include, self.core.clock.now());
                    let rv = tree::meta_text(&value, "resourceVersion");
                    let first = std::mem::take(&mut self.first_row);
                    printers::table(&r, vec![row], first, json!({"resourceVersion": rv}))
                }
                _ => value,
            };
            out.put_slice(shown.to_string().as_bytes());
        }
        out.put_slice(b"}\n");
    }

    fn bookmark(&mut self, out: &mut BytesMut, end: bool) {
        let r = &self.entry.resource;
        let mut object = json!({"kind": r.kind, "apiVersion": r.api_version(),
            "metadata": {"resourceVersion": self.cursor.to_string()}});
        if self.form == Form::Partial {
            object["kind"] = json!("PartialObjectMetadata");
            object["apiVersion"] = json!("meta.k8s.io/v1");
        }
        if end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        if self.form == Form::Table {
            let row = json!({"cells": [], "object": object});
            object = printers::table(
                r,
                vec![row],
                std::mem::take(&mut self.first_row),
                json!({"resourceVersion": self.cursor.to_string()}),
            );
        }
        let event: Value = json!({"type": "BOOKMARK", "object": object});
        out.put_slice(event.to_string().as_bytes());
        out.put_u8(b'\n');
    }

    fn expired(&mut self, out: &mut BytesMut, message: String) {
        self.done = true;
        let event = json!({"type": "ERROR", "object": ApiError::expired(message, String::new()).to_value()});
        out.put_slice(event.to_string().as_bytes());
        out.put_u8(b'\n');
    }
}
