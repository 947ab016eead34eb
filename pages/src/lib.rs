//! Pages of the portal: addresses, forms, what each page shows as data, and that as HTML.
//!
//! All of it is a function of its arguments. Deliberately absent: requests, the hub, and who may see what; `fleet-portal`
//! has these.

pub mod administration;
pub mod assets;
pub mod form;
pub mod html;
pub mod page;
pub mod pairs;
mod refill;
pub mod report;
pub mod shown;
