//! What stops a group.

use crate::ids::PodId;

/// What stopped a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// No node fits this pod.
    Pod(PodId),
    /// Its queue may not use more.
    Queue(String),
}
