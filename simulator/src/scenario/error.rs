//! An error in a scenario file, in one line.

/// A mistake in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {field}: found {found}; allowed: {allowed}")]
pub struct ScenarioError {
    /// As the user named it.
    pub file: String,
    /// 1 for the first.
    pub line: u64,
    /// Path from the top of the file, such as `events[3].job.name`.
    pub field: String,
    pub found: String,
    pub allowed: String,
}
