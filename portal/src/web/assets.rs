//! Serves the files that pages refer to.

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use fleet_pages::assets::FILES;
use http::{StatusCode, header};

pub async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, kind, text)) => {
            let headers = [(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "public, max-age=300")];
            (headers, *text).into_response()
        }
        None => (StatusCode::NOT_FOUND, "There is no such file.\n").into_response(),
    }
}
