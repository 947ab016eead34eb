//! What an authorizer is asked: who may do what is answered elsewhere (see `rbac` and `node`).

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Verb.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Plural, empty for a path.
    pub resource: String,
    /// Subresource.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Object name.
    pub name: String,
    /// URL path of a non-resource request.
    pub path: String,
    /// Field selector of a list or watch.
    pub selector: String,
}
