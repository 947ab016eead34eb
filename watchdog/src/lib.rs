//! The watchdog of a pod: stops the pod's containers when the lease of its cluster lapses.
//!
//! `judge` decides, as a pure state machine that hollow kubelets also use; `lease` reads the lease over HTTPS;
//! `guard` connects both with a way to stop containers. Deliberately absent: any knowledge of the hub or of jobs.

pub mod guard;
pub mod judge;
pub mod lease;
mod names;

pub use names::{
    ANSWER_TIMEOUT, CONTAINER, IN_POD_VARIABLE, KILL_GRACE, LEASE_NAME, LEASE_NAMESPACE, PERIOD,
    STATE_FOLDER, TOKEN_FOLDER,
};
