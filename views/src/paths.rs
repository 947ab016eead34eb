//! Paths of queues.

/// Whether `path` is the node `of`, or below it.
pub(crate) fn holds(of: &str, path: &str) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Path of the root, whatever its name is.
pub const ROOT: &str = "root";

/// Path of a node below the node at `parent`; of the root, whose parent is empty, always [`ROOT`].
pub fn path_of(name: &str, parent: &str) -> String {
    if parent.is_empty() { ROOT.to_owned() } else { format!("{parent}/{name}") }
}
