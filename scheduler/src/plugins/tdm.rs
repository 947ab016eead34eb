//! Plugin tdm: nodes that are offered at some times of the day only, to pods that accept it. The action shuffle
//! evicts them when the time is over.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Rules, Spreads};
use crate::ids::{NodeId, PodId};
use crate::misfit::{Fit, Misfit};
use crate::node::NodeState;
use crate::pod::Status;
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

/// Label of a node: its zone.
const LABEL: &str = "volcano.sh/revocable-zone";
const REVOKED: Misfit = Misfit::Rule("were revocable and not offered now");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tdm {
    /// Zone to minutes of the day (from, to) in which its nodes may be used.
    pub zones: BTreeMap<String, (i64, i64)>,
}

impl Rules for Tdm {
    const NAME: &'static str = "tdm";
    const ARGUMENTS: &'static [&'static str] = &["tdm.revocable-zone.", "tdm.evict.period"];
    const IDLE: &'static [&'static str] = &["tdm.evict.period"];
    const HOOKS: &'static [Hook] = &[Hook::Predicate, Hook::Victim];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let mut zones = BTreeMap::new();
        for (name, text) in settings.arguments {
            let Some(zone) = name.strip_prefix("tdm.revocable-zone.") else { continue };
            let window = text.split_once('-').and_then(|(from, to)| Some((minute(from)?, minute(to)?)));
            let window = window
                .filter(|(from, to)| from != to && !zone.is_empty())
                .ok_or_else(|| settings.error(name, text, "two times of the day such as 22:00-06:00"))?;
            zones.insert(zone.to_owned(), window);
        }
        Ok(Self { zones })
    }

    fn agrees(&self, state: &State, pod: PodId, node: NodeId, _: &Spreads, _: Fit) -> Result<(), Misfit> {
        let Some(zone) = state.nodes.get(node).labels.get(LABEL) else { return Ok(()) };
        let extras = state.class(state.pod(pod).class).extras();
        let accepted = extras.and_then(|extras| extras.revocable_zone.as_deref());
        let open = self.zones.get(zone).is_some_and(|window| within(*window, state.minute));
        if open && accepted.is_some_and(|accepted| accepted == "*" || accepted == zone) {
            Ok(())
        } else {
            Err(REVOKED)
        }
    }

    /// Pods on nodes of a zone whose time is over, one of a group at a time.
    fn leavers(&self, state: &State) -> Vec<PodId> {
        let over = |node: &NodeState| {
            let window = node.labels.get(LABEL).and_then(|zone| self.zones.get(zone));
            window.is_some_and(|window| !within(*window, state.minute))
        };
        let nodes = state.nodes.iter().filter(|(_, node)| over(node));
        let mut disturbed = BTreeSet::new();
        nodes
            .flat_map(|(_, node)| node.pods.iter().copied())
            .filter(|pod| {
                let known = state.pod(*pod);
                let leaves = matches!(known.status, Status::Running | Status::Bound) && known.preemptable;
                leaves && !known.critical && disturbed.insert(known.group)
            })
            .collect()
    }
}

impl Tdm {
    /// When a zone opens or closes next, in seconds since the epoch.
    pub(crate) fn next(&self, now: i64) -> Option<i64> {
        let minute = now.div_euclid(60);
        let ends = self.zones.values().flat_map(|(from, to)| [*from, *to]);
        ends.map(|end| (minute + 1 + (end - minute - 1).rem_euclid(24 * 60)) * 60).min()
    }
}

/// `22:00` as the minute of the day.
fn minute(text: &str) -> Option<i64> {
    let (h, m) = text.trim().split_once(':')?;
    let (h, m): (i64, i64) = (h.parse().ok()?, m.parse().ok()?);
    ((0..=23).contains(&h) && (0..60).contains(&m)).then_some(h * 60 + m)
}

/// Whether a minute of the day is in a window that may cross midnight.
fn within((from, to): (i64, i64), minute: i64) -> bool {
    if from <= to { (from..to).contains(&minute) } else { minute >= from || minute < to }
}
