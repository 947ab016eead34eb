//! Who owns which field: the sets of fields of managers, typed configurations, and how one is merged into an object.
//!
//! Inputs: values and their schemas. Absent on purpose: the managers of an object and their conflicts (`managed` of
//! `apiserver`).

pub mod fieldset;
pub mod merge;
pub mod sent;
pub mod typed;
