//! `fleet crds`: the CustomResourceDefinitions of a hub or of a member.

use fleet_api::crds::{self, Side};
use fleet_cli_ground::answer::Answer;

use crate::args::CrdsArgs;

/// # Errors
/// The definitions cannot be written.
pub fn run(args: &CrdsArgs) -> anyhow::Result<Answer> {
    let side = if args.hub { Side::Hub } else { Side::Member };
    Ok(Answer::text(crds::yaml(side)?))
}
