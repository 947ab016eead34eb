//! Pods and pod templates: defaults, validation, what may change, and what the default admission plugins do.
//!
//! Inputs: pods and pod templates in the stored form; PriorityClasses and ServiceAccounts in the store. Source: Kubernetes
//! 1.36. Absent on purpose: volumes with tokens, quotas and LimitRanges.

mod admit;
pub mod amounts;
mod change;
pub mod claim_spec;
mod classes;
mod container;
pub mod defaults;
pub mod placing;
mod resize;
pub mod spec;
mod volume;
pub mod warnings;

pub use admit::{admit, check_account, gate, tolerate};
pub use change::check_change;
pub use classes::{CLASSES, SYSTEM_CLASSES, admit_class, check_class, system_class};
pub use defaults::qos;
pub use resize::through;
