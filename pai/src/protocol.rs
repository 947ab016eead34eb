//! OpenPAI's job protocol: `types` as they stand after defaults are filled in, `read` takes a document apart, `check`
//! looks at what one part says of another.

mod check;
mod extras;
mod read;
mod types;

use crate::{Doc, Refusal};

pub use types::{
    Class, Completion, Deployment, Extras, HivedExtras, HivedRole, Prerequisite, PrerequisiteKind, Protocol,
    RegistryAuth, RoleCommands, RoleGroup, TaskResources, TaskRole,
};

impl Protocol {
    /// Reads a document.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(doc: &Doc) -> Result<Self, Refusal> {
        let mut sink = Vec::new();
        let protocol = read::protocol(doc, &mut sink);
        // What one part says of another is looked at when the parts can be read.
        if let Some(protocol) = protocol.as_ref().filter(|_| sink.is_empty()) {
            check::check(protocol, doc, &mut sink);
        }
        Refusal::unless_empty(sink)?;
        // A document that cannot be read has left a problem.
        protocol.ok_or_else(|| {
            Refusal::one(
                crate::Code::InvalidProtocol,
                crate::Problem::new("the document", "nothing", "a job"),
            )
        })
    }
}
