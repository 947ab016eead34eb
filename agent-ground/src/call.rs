//! One request with the bound that every request has.

use std::{future::Future, time::Duration};

/// Longest wait for the answer to one request, watches excepted.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// A call that did not end well, or not in time.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut,
    /// What was to be sent could not be made.
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

    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }
}

/// Runs one request with the bound that every request has.
///
/// # Errors
/// The request's own error, or `TimedOut`.
pub async fn call<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(CallError::Api),
        Err(_) => Err(CallError::TimedOut),
    }
}
