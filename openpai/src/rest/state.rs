//! State shared by all handlers.

use std::sync::Arc;

use axum::extract::State;
use kube::Client;

use crate::users::Users;

/// What the API needs to answer.
#[derive(Clone)]
pub struct Portal {
    /// A client of the hub without credentials of its own.
    pub hub: Client,
    pub url: String,
    /// Namespace of submitted jobs.
    pub namespace: String,
    /// Users with passwords, where this process has the rights to keep them.
    pub users: Option<Arc<Users>>,
}

/// The state as handlers receive it.
pub type Shared = State<Arc<Portal>>;
