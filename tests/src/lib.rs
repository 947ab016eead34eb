//! The end-to-end harness: whole fleets in a test, and what a test may ask of them.
//!
//! Inputs: the production crates, API servers ([`ApiServers`]: embedded, or the real ones of
//! `KUBEBUILDER_ASSETS`), the `fleet` binary and a kubectl where they are wanted. A suite waits on
//! conditions with a bound ([`wait_for`]) and never sleeps; what it waits for is a sentence, which the
//! failure repeats together with what was last seen. Deliberately absent: any expectation about the
//! product; those stand in `tests/*.rs`, but for the invariants of the design ([`fleet_check`]).

pub mod browser;
pub mod console;
pub mod fleet;
pub mod gate;
pub mod history;
pub mod jobs;
pub mod kubectl;
pub mod metrics;
pub mod objects;
pub mod process;
pub mod proxy;
pub mod random;
pub mod rights;
pub mod servers;
pub mod table;
pub mod tools;
pub mod volcano;
pub mod wait;

pub use fleet::{FleetSpec, TestFleet};
pub use fleet_check::{History, Snapshot, check_invariants};
pub use kubectl::Kubectl;
pub use process::FleetProcess;
pub use random::Random;
pub use servers::ApiServers;
pub use table::Table;
pub use wait::{Polled, wait_for};

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A manifest of the walkthrough.
pub fn walkthrough(file: &str) -> PathBuf {
    repository().join("examples/walkthrough").join(file)
}
