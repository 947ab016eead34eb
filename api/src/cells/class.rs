//! Names of the classes that OpenPAI knows, and their numbers: what jobs may name, and what statuses print.

/// Classes by name, as OpenPAI numbers them. Its job files name all but `crit`.
pub const CLASSES: [(&str, i32); 4] =
    [("oppo", fleet_cells::OPPORTUNISTIC), ("test", 10), ("prod", 100), ("crit", 120)];
/// Of a job that names none.
pub const DEFAULT_CLASS: i32 = 10;
/// What a class may be, in messages.
pub const CLASSES_TEXT: &str = "oppo, test, prod, crit, or a number from -1 to 1000";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_asked_for() {
        for priority in fleet_cells::OPPORTUNISTIC..=fleet_cells::MAX_PRIORITY {
            assert_eq!(class_priority(&class_name(priority)), Some(priority));
        }
        for (name, _) in CLASSES {
            assert!(CLASSES_TEXT.contains(name), "{name}");
        }
        for wrong in ["", "gold", "-2", "1001", "Prod"] {
            assert_eq!(class_priority(wrong), None, "{wrong:?}");
        }
    }
}
