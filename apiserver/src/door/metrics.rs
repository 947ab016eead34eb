//! `/metrics`: counts of objects and answers in the text format of Prometheus.
//!
//! Inputs: the store, and each answer.

use axum::body::Body;
use fleet_apiserver_admission::call::Core;
use fleet_apiserver_schema::http_io;
use http::{HeaderValue, Response, StatusCode, header};
use std::fmt::Write;

/// The answer to a scrape.
pub fn answer(core: &Core) -> Response<Body> {
    let mut text = String::from(
        "# HELP apiserver_storage_objects Number of stored objects by resource.\n\
         # TYPE apiserver_storage_objects gauge\n",
    );
    for table in core.store.tables() {
        let resource = match table.name.split_once('/') {
            Some(("", plural)) => plural.to_string(),
            Some((group, plural)) => format!("{plural}.{group}"),
            None => table.name.to_string(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "apiserver_storage_objects{{resource=\"{resource}\"}} {}", table.len());
    }
    core.requests.write(&mut text);
    let _ = write!(
        text,
        "# HELP kubernetes_build_info The version that clients see.\n\
         # TYPE kubernetes_build_info gauge\n\
         kubernetes_build_info{{git_version=\"{}\",major=\"1\",minor=\"36\",platform=\"linux/amd64\"}} 1\n",
        core.git_version
    );
    let (requests, bodies) = core.shares.in_use();
    let _ = write!(
        text,
        "# HELP apiserver_current_inflight_requests Requests from the network that are worked on.\n\
         # TYPE apiserver_current_inflight_requests gauge\n\
         apiserver_current_inflight_requests {requests}\n\
         # HELP fleet_apiserver_bodies Request bodies from the network that are read or worked on.\n\
         # TYPE fleet_apiserver_bodies gauge\n\
         fleet_apiserver_bodies {bodies}\n\
         # HELP fleet_apiserver_resource_version Newest revision that was handed out.\n\
         # TYPE fleet_apiserver_resource_version gauge\n\
         fleet_apiserver_resource_version {}\n",
        core.store.durable()
    );
    let mut response = http_io::text_response(StatusCode::OK, text);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
