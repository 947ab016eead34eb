//! Schemas of built-in kinds and of custom resources, in one compact form.
//!
//! Inputs: the embedded artefact (see `data/README.md`) or an OpenAPI v3 schema of a CustomResourceDefinition.
//! Built-in definitions refer to each other by number through one table shared by all servers of a process.
//! Absent on purpose: what is done with a schema (see `decode`, `validate`, `patch`, `apply`).

pub mod base;
pub mod builtins;
pub mod canonical;
pub mod client_config;
pub mod compiled;
pub mod conditions;
pub mod convert;
pub mod crd;
pub mod custom;
pub mod decode;
pub mod definition;
pub mod error;
pub mod field;
mod formats;
mod go_names;
pub mod http_io;
pub mod jsonpath;
mod keyed;
mod label_text;
pub mod names;
pub mod patch;
pub mod pattern;
pub mod pem;
pub mod presence;
pub mod registry;
pub mod resource;
mod schema;
mod schema_defaults;
mod schema_rules;
pub mod selectors;
pub mod structural;
pub mod syntax;
pub mod times;
pub mod validate;
mod values;
pub mod yaml;

pub use fleet_apiserver_cel::go_text;
pub use schema::{ListKind, MICRO_TIME, OBJECT_META, Rules, Schema, Type, artefact};
