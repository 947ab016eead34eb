//! Deliberate bugs, to show that the property tests find them. They exist in tests only.

#[cfg(not(test))]
pub(crate) const fn split_breaks_promise() -> bool {
    false
}

#[cfg(not(test))]
pub(crate) const fn leaf_given_twice() -> bool {
    false
}

#[cfg(not(test))]
pub(crate) const fn bad_node_shown() -> bool {
    false
}

#[cfg(test)]
pub(crate) use switched::{Fault, bad_node_shown, leaf_given_twice, set, split_breaks_promise};

#[cfg(test)]
mod switched {
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// A larger free cell is split though a promise needs it.
        SplitBreaksPromise,
        /// A leaf that a guaranteed group has counts as free.
        LeafGivenTwice,
        /// A good cell is split though a damaged one could be, and a bad node could have stayed hidden.
        BadNodeShown,
    }

    thread_local! {
        static FAULT: Cell<Option<Fault>> = const { Cell::new(None) };
    }

    pub(crate) fn set(fault: Option<Fault>) {
        FAULT.set(fault);
    }

    pub(crate) fn split_breaks_promise() -> bool {
        FAULT.get() == Some(Fault::SplitBreaksPromise)
    }

    pub(crate) fn leaf_given_twice() -> bool {
        FAULT.get() == Some(Fault::LeafGivenTwice)
    }

    pub(crate) fn bad_node_shown() -> bool {
        FAULT.get() == Some(Fault::BadNodeShown)
    }
}
