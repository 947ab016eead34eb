//! PodDisruptionBudgets: the allowed disruptions for the scheduler's plugin pdb.

use fleet_scheduler::budgets::Budget;

use fleet_agent_ground::{Event, Object};
use fleet_member_state::{MemberState, read_labels};

/// Applies an event to the scheduler.
pub(crate) fn take(told: Event<Object>, state: &mut MemberState) {
    match told {
        Event::Apply(object) => {
            // A selector that cannot be parsed protects no pods, as in Volcano.
            let selector = read_labels(&object.spec["selector"]).unwrap_or_default();
            let allowed = object.status["disruptionsAllowed"].as_i64().unwrap_or(0);
            let budget = Budget { selector, allowed };
            state.cluster.set_budget(object.namespace(), object.name(), Some(budget));
        }
        Event::Gone((namespace, name)) => state.cluster.set_budget(&namespace, &name, None),
        Event::Listed => {}
    }
}
