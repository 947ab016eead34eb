//! OpenPAI's job protocol: `types` after defaults are applied, `read` parses a document, `check` compares its parts
//! with each other.

mod check;
mod extras;
mod read;
mod types;

use crate::{Doc, Refusal, fields::Sink};

pub(crate) use read::{NAME_MAX, in_label};
pub use types::{
    Class, Completion, Deployment, Extras, HivedExtras, HivedRole, Prerequisite, PrerequisiteKind, Protocol,
    RegistryAuth, RoleCommands, RoleGroup, TaskResources, TaskRole,
};
pub(crate) use types::{ROLES_MAX, TASKS_MAX};

impl Protocol {
    /// Parses a document.
    ///
    /// # Errors
    /// All problems of it.
    pub fn read(doc: &Doc) -> Result<Self, Refusal> {
        let mut sink = Sink::default();
        let protocol = read::protocol(doc, &mut sink);
        // Parts are compared only if all of them could be parsed.
        if let Some(protocol) = protocol.as_ref().filter(|_| sink.is_empty()) {
            check::check(protocol, doc, &mut sink);
        }
        Refusal::unless_empty(sink)?;
        // A document that cannot be parsed has left a problem.
        protocol.ok_or_else(|| {
            Refusal::one(
                crate::Code::InvalidProtocol,
                crate::Problem::new("the document", "nothing", "a job"),
            )
        })
    }
}
