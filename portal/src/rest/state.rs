//! What every handler works with.

use std::sync::Arc;

use axum::extract::State;
use kube::Client;

/// What the API is served from.
#[derive(Clone)]
pub struct Portal {
    /// A way to the hub that carries no credential of its own.
    pub hub: Client,
    pub url: String,
    /// Where jobs are submitted to.
    pub namespace: String,
}

/// How handlers get at it.
pub type Shared = State<Arc<Portal>>;
