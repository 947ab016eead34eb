//! Why an override does not apply.

/// What is wrong at a field; the caller adds policy and object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub field: String,
    pub found: String,
    pub allowed: &'static str,
}

impl Problem {
    pub(super) fn new(field: &str, found: impl ToString, allowed: &'static str) -> Self {
        Self { field: field.to_owned(), found: crate::spec::shortened(&found.to_string()), allowed }
    }
}
