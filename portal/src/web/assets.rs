//! Files that pages refer to; all are the portal's own and part of the program.

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};

const FILES: [(&str, &str, &str); 3] = [
    ("style.css", "text/css; charset=utf-8", include_str!("assets/style.css")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("assets/live.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

pub async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, kind, text)) => {
            let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "public, max-age=300")];
            (headers, *text).into_response()
        }
        None => (StatusCode::NOT_FOUND, "There is no such file.\n").into_response(),
    }
}
