//! OpenPAI's job protocol, version 2: what a job file says, what it becomes, and when it ends.
//!
//! A document ([`Doc`]) is read into a [`Protocol`], with every mistake in it named; [`render`] fills in parameters and
//! secrets; [`hived`] maps it to the affinity groups of virtual clusters and refuses what can never run; [`native`]
//! writes the objects that run it in the fleet; [`completion`] and [`retry`] are the rules by which it ends and is tried
//! again, which the members' job controller follows; [`state`] and [`exit`] say how that is shown. Sources: the protocol of microsoft/pai and the
//! framework controller's completion and retry policies.
//!
//! Deliberately absent: YAML (callers read it into a [`Doc`]), any API server, clocks.

pub mod completion;
mod doc;
pub mod exit;
mod fields;
pub mod hived;
pub mod names;
pub mod native;
mod problem;
mod protocol;
pub mod render;
pub mod retry;
pub mod state;

pub use doc::{Doc, Node};
pub use problem::{Code, Problem, Refusal};
pub use protocol::{
    Class, Completion, Deployment, Extras, HivedExtras, HivedRole, Prerequisite, PrerequisiteKind, Protocol,
    RegistryAuth, RoleCommands, RoleGroup, TaskResources, TaskRole,
};
