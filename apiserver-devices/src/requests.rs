//! Which requests the parts of a claim mean, by name.
//!
//! Inputs: the requests of a claim. A request with alternatives is meant as a whole, or one of them with a slash.

use super::parts;
use fleet_apiserver_schema::field::At;
use fleet_apiserver_schema::names;
use std::collections::{BTreeMap, BTreeSet};

/// Most requests of a claim, and most of them that one part names.
pub const MOST: usize = 32;

const OTHER: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// The names of the requests of a claim, each with those of its alternatives.
pub struct Requests<'v>(BTreeMap<&'v str, BTreeSet<&'v str>>);

impl<'v> Requests<'v> {
    /// Those of a claim.
    pub fn of(spec: &At<'v, '_>) -> Requests<'v> {
        let mut names = BTreeMap::new();
        for request in spec.at("devices.requests").items() {
            let alternatives = request.at("firstAvailable");
            let alternatives = alternatives.items().map(|one| one.at("name").text()).collect();
            names.insert(request.at("name").text(), alternatives);
        }
        Requests(names)
    }

    /// Checks a name that means one of them.
    pub fn reference(&self, name: &At) {
        let (first, second) = match name.text().split('/').collect::<Vec<_>>().as_slice() {
            [first] => (*first, None),
            [first, second] => (*first, Some(*second)),
            _ => return name.invalid(OTHER),
        };
        for part in [Some(first), second].into_iter().flatten() {
            name.tell(part, &names::label(part));
        }
        let known = self.0.get(first);
        if !known.is_some_and(|all| second.is_none_or(|second| all.contains(second))) {
            name.invalid(OTHER);
        }
    }

    /// Checks a list of such names.
    pub fn references(&self, list: &At) {
        parts::set(list, MOST, |name| self.reference(name), |name| name.value().to_string());
    }
}
