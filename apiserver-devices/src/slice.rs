//! Slices of what a node or network has: devices with attributes, capacities, counters and taints.
//!
//! Inputs: the spec of a slice, defaults applied, and the spec before. Source: the validation of Kubernetes 1.36.

use super::allocation::binding_conditions;
use super::capacity;
use super::claim::EFFECTS;
use super::parts::{self, fits};
use fleet_apiserver_pods::{placing, shown};
use fleet_apiserver_schema::error::Cause;
use fleet_apiserver_schema::field::{At, same};
use fleet_apiserver_schema::go_text;
use fleet_apiserver_schema::names::{self, NameRule};
use serde_json::{Value, json};

/// Most devices of a slice, and of one with taints or counters.
const MOST_DEVICES: usize = 128;
const MOST_SPECIAL: usize = 64;
/// Most attributes and capacities of a device together, and most values of attributes.
const MOST_ATTRIBUTES: usize = 32;
const MOST_VALUES: usize = 48;
/// Longest value of an attribute, in bytes.
const LONGEST_VALUE: usize = 64;
/// Most taints of a device.
const MOST_TAINTS: usize = 16;
/// Most sets of counters, most counters of one, and most sets that a device counts in.
const MOST_SETS: usize = 8;
const MOST_COUNTERS: usize = 32;
const MOST_COUNTED: usize = 2;

/// Checks the spec of a slice.
pub fn spec(spec: &At, old: Option<&At>) {
    spec.at("driver").driver_name();
    let pool = spec.at("pool");
    parts::pool(&pool.at("name"));
    number(&pool.at("resourceSliceCount"), 1, "must be greater than zero");
    number(&pool.at("generation"), 0, "must be greater than or equal to zero");
    if let Some(old) = old {
        for field in ["pool.name", "driver", "nodeName"] {
            spec.at(field).same_as(&old.at(field));
        }
    }
    of_nodes(spec);
    let (devices, sets) = (spec.at("devices"), spec.at("sharedCounters"));
    if devices.is_set() && sets.is_set() {
        spec.note(Cause::invalid(
            spec.path(),
            &json!(""),
            "only one of `sharedCounters` or `devices` is allowed",
        ));
    }
    let each_by_itself = spec.at("perDeviceNodeSelection").is_true();
    let special =
        devices.items().any(|item| !item.at("taints").is_empty() || !item.at("consumesCounters").is_empty());
    let most = if special { MOST_SPECIAL } else { MOST_DEVICES };
    parts::set(
        &devices,
        most,
        |item| device(item, old.and_then(|old| taints_before(old, item)), each_by_itself),
        |item| parts::text_of(item, "name"),
    );
    parts::set(&sets, MOST_SETS, counter_set, |set| parts::text_of(set, "name"));
}

/// A number that is at least this; one that is not written is 0.
fn number(at: &At, least: i64, why: &str) {
    let found = at.number().unwrap_or(0);
    if found < least {
        at.note(Cause::invalid(at.path(), &json!(found), why));
    }
}

/// The taints that a device had before.
fn taints_before<'v>(old: &At<'v, '_>, device: &At) -> Option<&'v Value> {
    let name = device.at("name").text();
    let before = old.at("devices");
    let before = before.items().find(|before| before.at("name").text() == name)?;
    Some(before.at("taints").value())
}

/// What says which nodes have something: the words of what is set.
struct Places(Vec<&'static str>);

impl Places {
    /// A node by its name.
    fn name(&mut self, at: &At, missing: &str) {
        if at.is_set() && at.text().is_empty() {
            at.invalid(missing);
        } else if at.is_set() {
            self.0.push("`nodeName`");
            at.name(NameRule::Subdomain);
        }
    }

    /// Nodes by their labels.
    fn selector(&mut self, at: &At) {
        if at.is_set() {
            self.0.push("`nodeSelector`");
            placing::node_selector(at);
        }
    }

    /// A switch, which is not turned off but left out.
    fn flag(&mut self, at: &At, word: &'static str) {
        if at.is_true() {
            self.0.push(word);
        } else if at.is_set() {
            at.invalid("must be either unset or set to true");
        }
    }

    /// One of them is set; `several` says what is wrong with more.
    fn one(&self, at: &At, why: &str, several: &str) {
        match self.0.as_slice() {
            [] => at.required(why),
            [_] => {}
            all => {
                let found = json!(format!("{{{}}}", all.join(", ")));
                at.note(Cause::invalid(at.path(), &found, &format!("{why}{several}")));
            }
        }
    }
}

/// Which nodes have what is in the slice.
fn of_nodes(spec: &At) {
    let mut places = Places(Vec::new());
    places.name(&spec.at("nodeName"), "must be either unset or set to a non-empty string");
    let selector = spec.at("nodeSelector");
    places.selector(&selector);
    let terms = selector.at("nodeSelectorTerms");
    if selector.is_set() && terms.len() != 1 {
        let shown = terms.items().map(|term| shown::line("NodeSelectorTerm", term.value()));
        let shown = go_text::cut(format!("[{}]", shown.collect::<Vec<_>>().join(",")));
        terms.wrong(&format!("{shown}: must have exactly one node selector term"));
    }
    places.flag(&spec.at("allNodes"), "`allNodes`");
    places.flag(&spec.at("perDeviceNodeSelection"), "`perDeviceNodeSelection`");
    let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    places.one(spec, why, ", but multiple fields are set");
}

/// Which nodes have a device, where each device says so itself.
fn of_device(device: &At, each_by_itself: bool) {
    let (name, selector, all) = (device.at("nodeName"), device.at("nodeSelector"), device.at("allNodes"));
    if !each_by_itself {
        if name.is_set() || selector.is_set() || all.is_set() {
            let why = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            device.note(Cause::invalid(device.path(), &Value::Null, why));
        }
        return;
    }
    let mut places = Places(Vec::new());
    places.name(&name, "must not be empty");
    places.selector(&selector);
    places.flag(&all, "`allNodes`");
    let why = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    places.one(device, why, "");
}

fn device(device: &At, taints_before: Option<&Value>, each_by_itself: bool) {
    parts::label(&device.at("name"));
    let (attributes, capacities, taints) =
        (device.at("attributes"), device.at("capacity"), device.at("taints"));
    let count = |found: usize, most: usize, what: &str| {
        if found > most {
            let why = format!("the total number of {what} must not exceed {most}");
            device.note(Cause::invalid(device.path(), &json!(found), &why));
        }
    };
    count(attributes.len() + capacities.len(), MOST_ATTRIBUTES, "attributes and capacities");
    count(attributes.len(), MOST_VALUES, "attribute values");
    for (name, value) in attributes.entries() {
        parts::qualified(&attributes, name);
        attribute(&attributes.entry(&parts::shown_key(name), value.value()));
    }
    let shared = device.at("allowMultipleAllocations").is_true();
    for (name, value) in capacities.entries() {
        parts::qualified(&capacities, name);
        capacity::check(&capacities.entry(&parts::shown_key(name), value.value()), shared);
    }
    // What was accepted once stays so.
    if !taints_before.is_some_and(|before| same(before, taints.value())) && fits(&taints, MOST_TAINTS) {
        taints.items().for_each(|one| taint(&one));
    }
    let counted = device.at("consumesCounters");
    parts::set(&counted, MOST_COUNTED, counted_in, |one| parts::text_of(one, "counterSet"));
    of_device(device, each_by_itself);
    binding_conditions(device);
}

fn attribute(at: &At) {
    const ONE: &str = "exactly one value must be specified";
    let (text, version) = (at.at("string"), at.at("version"));
    if text.text().len() > LONGEST_VALUE {
        text.too_long(LONGEST_VALUE);
    }
    if version.is_set() && !is_semver(version.text()) {
        version.invalid("must be a string compatible with semver.org spec 2.0.0");
    }
    if version.text().len() > LONGEST_VALUE {
        version.too_long(LONGEST_VALUE);
    }
    match ["bool", "int", "string", "version"].iter().filter(|kind| at.at(kind).is_set()).count() {
        0 => at.tell("", &[ONE]),
        1 => {}
        _ => at.wrong(&format!("{}: {ONE}", go_text::cut(shown::line("DeviceAttribute", at.value())))),
    }
}

/// True for a version of three numbers, with what comes before a release and what it was built from.
fn is_semver(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
    let (core, before) = text.split_once('-').map_or((text, None), |(core, before)| (core, Some(before)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    core.split('.').count() == 3
        && core.split('.').all(number)
        && before.is_none_or(|all| all.split('.').all(|part| word(part) && (!digits(part) || number(part))))
        && build.is_none_or(|all| all.split('.').all(word))
}

fn taint(at: &At) {
    at.at("key").qualified();
    let value = at.at("value");
    value.tell(value.text(), &names::label_value(value.text()));
    at.at("effect").need_one_of(&EFFECTS);
}

fn counters(at: &At) {
    if at.is_empty() {
        at.required("");
    } else if fits(at, MOST_COUNTERS) {
        at.entries().for_each(|(name, _)| at.tell(name, &names::label(name)));
    }
}

fn counter_set(set: &At) {
    parts::needed_label(&set.at("name"));
    counters(&set.at("counters"));
}

fn counted_in(set: &At) {
    parts::needed_label(&set.at("counterSet"));
    counters(&set.at("counters"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        for text in ["1.2.3", "0.0.0", "1.2.3-alpha.1+b.01", "1.2.3-0a", "1.2.3+001"] {
            assert!(is_semver(text), "{text}");
        }
        for text in ["", "1.2", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "v1.2.3", "1.2.3-a..b"] {
            assert!(!is_semver(text), "{text}");
        }
    }
}
