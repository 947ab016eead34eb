//! What a plugin may decide, hook by hook.
//!
//! Every function has a neutral default. A plugin writes those it needs and names their hooks in [`Rules::HOOKS`];
//! the others cost nothing, because the table of plugins is resolved when it is compiled.

use crate::group::Group;
use crate::ids::{GroupId, NodeId, PodId, QueueId};
use crate::misfit::{Fit, Misfit};
use crate::node::NodeState;
use crate::pod::{Class, Reserved, Status};
use crate::settings::{Action, ArgumentError, Hook, Hooks, Settings};
use crate::state::State;

/// A question about victims.
#[derive(Clone, Copy, Debug)]
pub struct Taking {
    pub taker: PodId,
    pub action: Action,
    /// Gangs below their minimum are allowed: the caller evicts all of them.
    pub whole: bool,
}

/// The rules of one plugin.
pub trait Rules: Sized {
    /// As `volcano-scheduler.conf` names it.
    const NAME: &'static str;
    /// Arguments by name; a name that ends in `.` is a prefix.
    const ARGUMENTS: &'static [&'static str] = &[];
    /// Arguments that are accepted and have no effect.
    const IDLE: &'static [&'static str] = &[];
    /// Hooks of functions below that the plugin has.
    const HOOKS: &'static [Hook] = &[];
    /// If it orders jobs: a gang that lost places comes before all gangs that wait for their first.
    const REPAIRS_FIRST: bool = false;

    /// Reads the arguments, with their defaults.
    ///
    /// # Errors
    /// The first argument of the wrong type.
    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError>;

    // ---- filter (`enablePredicate`)

    /// Pods of the class may go to the node, whatever runs there.
    fn admits(&self, _: &Class, _: &NodeState) -> Result<(), Misfit> {
        Ok(())
    }

    /// Pods of the queue may go to the node.
    fn admits_queue(&self, _: &State, _: QueueId, _: &NodeState) -> Result<(), Misfit> {
        Ok(())
    }

    /// The node has what one more pod of the class needs, beside amounts.
    fn fits(&self, _: &State, _: &Class, _: NodeId, _: Fit) -> Result<(), Misfit> {
        Ok(())
    }

    /// The pod itself may go to the node, beside the pods that are there and near.
    fn agrees(&self, _: &State, _: PodId, _: NodeId, _: &Spreads, _: Fit) -> Result<(), Misfit> {
        Ok(())
    }

    /// Places of the class depend on more than amounts and nodes: pods cannot be exchanged for others there.
    fn is_sensitive(&self, _: &Class) -> bool {
        false
    }

    /// The answer for a group does not hold for others of its shape.
    fn judges_alone(&self, _: &State, _: GroupId) -> bool {
        false
    }

    // ---- score (`enableNodeOrder`), in millionths of Volcano's points

    /// By what the node is.
    fn fixed_score(&self, _: &Class, _: &NodeState) -> i64 {
        0
    }

    /// By the use of the node, with the pod placed there.
    fn node_score(&self, _: &State, _: &Class, _: NodeId) -> i64 {
        0
    }

    /// [`pod_score`](Self::pod_score) may differ between nodes for this pod.
    fn scores_pod(&self, _: &State, _: PodId) -> bool {
        false
    }

    /// By the pod itself.
    fn pod_score(&self, _: &State, _: PodId, _: NodeId) -> i64 {
        0
    }

    // ---- reserve

    /// What the pod gets on the node beside amounts.
    fn reserve(&self, _: &State, _: PodId, _: Status, _: NodeId, _: &mut Reserved) {}

    // ---- order

    /// Order of jobs in a queue (`enableJobOrder`): the smallest first.
    fn job_order(&self, _: &State, _: &Group) -> i64 {
        0
    }

    /// The group may evict others (`enableJobStarving`).
    fn starves(&self, _: &Group) -> bool {
        true
    }

    /// Pods that leave their nodes for no other pod, in the action shuffle (`enabledVictim`).
    fn leavers(&self, _: &State) -> Vec<PodId> {
        Vec::new()
    }

    /// Which candidates may be victims, in their order (`enablePreemptable`, `enableReclaimable`); `None`: no
    /// opinion.
    fn victims(&self, _: &State, _: Taking, _: &[PodId]) -> Option<Vec<PodId>> {
        None
    }
}

/// A plugin that is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct On<R> {
    pub hooks: Hooks,
    pub rules: R,
}

impl<R: Rules> On<R> {
    /// The rules, if the plugin has the hook and it is on.
    #[inline]
    pub(crate) fn at(this: &Option<Self>, hook: Hook) -> Option<&R> {
        if !const { Hooks::of(R::HOOKS) }.has(hook) {
            return None;
        }
        this.as_ref().filter(|on| on.hooks.has(hook)).map(|on| &on.rules)
    }
}

/// What spreading allows, computed once per search: per rule of the class, the fewest pods in any domain.
#[derive(Clone, Debug, Default)]
pub struct Spreads {
    pub least: Vec<i64>,
}
