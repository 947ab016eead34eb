//! Names of the program.

/// The program's own name; under any other name it is a plugin of kubectl, or `vcctl`.
pub const OWN_NAME: &str = "fleet";

/// Under this name the program is Volcano's command line.
pub const VCCTL: &str = "vcctl";
