//! Requests to servers that are no API server: what measures nodes, and what has a say in placing.

use std::time::Duration;

use serde_json::Value;

/// Bytes of an answer that are told where it was not understood.
const SHOWN: usize = 200;

/// A client; `any_certificate` takes every server for what it says it is.
///
/// # Errors
/// Why there is none.
pub(crate) fn client(timeout: Duration, any_certificate: bool) -> Result<reqwest::Client, String> {
    // The library asks the process for its TLS provider; the first one installed stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().timeout(timeout);
    builder.tls_danger_accept_invalid_certs(any_certificate).build().map_err(|error| innermost(&error))
}

/// Sends the request and reads a JSON answer.
///
/// # Errors
/// What happened, in one sentence without the address.
pub(crate) async fn ask(request: reqwest::RequestBuilder) -> Result<Value, String> {
    let response = request.send().await.map_err(|error| told(&error))?;
    let status = response.status();
    let text = response.text().await.map_err(|error| told(&error))?;
    if !status.is_success() {
        let start: String = text.chars().take(SHOWN).collect();
        return Err(format!("it answered {status}: {}", start.trim()));
    }
    serde_json::from_str(&text).map_err(|error| format!("its answer is not JSON: {error}"))
}

fn told(error: &reqwest::Error) -> String {
    if error.is_timeout() { "it did not answer in time".to_owned() } else { innermost(error) }
}

/// The last error of a chain: the one that says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
