//! Requests to servers other than the API server: metrics sources and the extender.

use std::time::Duration;

use serde_json::Value;

/// Bytes of an invalid answer that an error shows.
const SHOWN: usize = 200;

/// A client; `any_certificate` turns off verification of the server's certificate.
///
/// # Errors
/// Why there is none.
pub(crate) fn client(timeout: Duration, any_certificate: bool) -> Result<reqwest::Client, String> {
    // The library uses the process's TLS provider; the first one installed is kept.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().timeout(timeout);
    builder.tls_danger_accept_invalid_certs(any_certificate).build().map_err(|error| innermost(&error))
}

/// Sends the request and reads a JSON answer.
///
/// # Errors
/// What happened, as one sentence without the address.
pub(crate) async fn ask(request: reqwest::RequestBuilder) -> Result<Value, String> {
    let text = tell(request).await?;
    serde_json::from_str(&text).map_err(|error| format!("its answer is not JSON: {error}"))
}

/// Sends the request; the text of the answer.
///
/// # Errors
/// What happened, as one sentence without the address.
pub(crate) async fn tell(request: reqwest::RequestBuilder) -> Result<String, String> {
    let response = request.send().await.map_err(|error| error_message(&error))?;
    let status = response.status();
    let text = response.text().await.map_err(|error| error_message(&error))?;
    if !status.is_success() {
        let start: String = text.chars().take(SHOWN).collect();
        return Err(format!("it answered {status}: {}", start.trim()));
    }
    Ok(text)
}

fn error_message(error: &reqwest::Error) -> String {
    if error.is_timeout() { "it did not answer in time".to_owned() } else { innermost(error) }
}

/// The innermost error of a chain, which is the most specific.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
