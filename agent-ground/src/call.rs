//! One request with a timeout.

use std::{future::Future, time::Duration};

/// Timeout of one request, watches excepted.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// A request that failed or timed out.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut,
    /// The request could not be built.
    #[error("{0}")]
    Local(String),
}

impl CallError {
    /// Status code of the API server's answer; `None` when there was no answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// The object itself is wrong or too large: the same request would be refused again.
    pub fn is_about_the_object(&self) -> bool {
        matches!(self.code(), Some(400 | 413 | 422))
    }
}

/// Runs one request with the timeout.
///
/// # Errors
/// The request's own error, or `TimedOut`.
pub async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(CallError::Api),
        Err(_) => Err(CallError::TimedOut),
    }
}
