//! Pods and pod templates: defaults, validation, what may change, and what the default admission plugins do.
//!
//! Inputs: pods and pod templates in the stored form; PriorityClasses and ServiceAccounts in the store. Source: Kubernetes
//! 1.36. Absent on purpose: volumes with tokens, quotas and LimitRanges.

mod addresses;
mod admit;
pub mod amounts;
mod annotations;
mod birth;
mod change;
pub mod claim_spec;
mod classes;
mod container;
mod debuggers;
pub mod defaults;
mod environment;
mod files;
mod gated;
mod handlers;
mod images;
mod line_diff;
mod mounts;
mod names;
mod network;
mod overlaps;
mod paths;
pub mod placing;
mod projections;
pub mod requirements;
mod resize;
mod security;
pub mod shown;
mod shown_fields;
pub mod spec;
mod status;
mod template_warnings;
mod volume;
mod volume_defaults;
mod volume_drivers;
pub mod warnings;
mod windows;

pub use addresses::interface_problem;
pub use admit::{admit, admit_change, check_account, place};
pub use annotations::check_change;
pub use birth::gate;
pub use classes::{CLASSES, SYSTEM_CLASSES, admit_class, check_class, system_class};
pub use defaults::qos;
pub use resize::through;
pub use status::keep as keep_status;
