//! Names of the classes that OpenPAI knows, and their numbers.

/// Classes by name, as OpenPAI numbers them.
const CLASSES: [(&str, i32); 4] =
    [("oppo", fleet_cells::OPPORTUNISTIC), ("test", 10), ("prod", 100), ("crit", 120)];

/// The name of a class; the number itself if it has no name.
pub fn class_name(priority: i32) -> String {
    let known = CLASSES.iter().find(|(_, number)| *number == priority);
    known.map_or_else(|| priority.to_string(), |(name, _)| (*name).to_string())
}

/// The number of a class given by name or number; `None` if it is neither.
pub fn class_priority(class: &str) -> Option<i32> {
    let known = CLASSES.iter().find(|(name, _)| *name == class).map(|(_, number)| *number);
    let number = || class.parse().ok();
    known.or_else(number).filter(|n| (fleet_cells::OPPORTUNISTIC..=fleet_cells::MAX_PRIORITY).contains(n))
}
