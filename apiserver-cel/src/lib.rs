//! Expressions of the Common Expression Language, as an API server has them.
//!
//! `parse` makes a tree of a text, `eval` a value of a tree; the libraries of Kubernetes come from `kube-cel`.
//! `rules` are `x-kubernetes-validations` of custom resources: types and costs are checked when a definition is
//! written, the rules when an object is. `expression` has match conditions and admission policies.
//! Absent on purpose: which objects are judged, and when (see the admission wing).

pub mod cause;
mod eval;
pub mod expression;
pub mod go_text;
mod lex;
mod made;
mod parse;
pub mod rules;

pub use eval::{Ask, AuthorizationAttributes, Value, compile_pattern};
