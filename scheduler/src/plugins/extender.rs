//! Plugin extender: an external server takes part in decisions about placement.
//!
//! No cycle waits for the server. A cycle records its questions (may this group be admitted, which nodes are good
//! for these pods), skips the groups that need the answers, and finds these in a later cycle. Whether a pod may go
//! to a node is asked when the node is chosen, before anything is bound: a no is a veto, and the group is placed
//! again. Whether a pod may be a victim is asked when victims are chosen, before one is evicted: a pod that must
//! stay is no candidate for a while. Every answer expires. A restart loses all answers, and asks again. Source:
//! Volcano's plugin of that name (`extender.*`). Deliberately absent: requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rules::{Rules, Spreads};
use crate::extender::{Question, Word, nodes_of};
use crate::ids::{ClassId, GroupId, NodeId, PodId};
use crate::misfit::{Fit, Misfit};
use crate::settings::{ArgumentError, Hook, Settings};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extender {
    /// Without a trailing `/`.
    pub url: String,
    pub timeout_ms: u64,
    pub session_open: Option<String>,
    pub session_close: Option<String>,
    pub predicate: Option<String>,
    pub prioritize: Option<String>,
    pub enqueueable: Option<String>,
    pub queue_overused: Option<String>,
    pub job_ready: Option<String>,
    pub preemptable: Option<String>,
    pub reclaimable: Option<String>,
    /// No answer counts as a yes.
    pub ignorable: bool,
}

impl Rules for Extender {
    const NAME: &'static str = "extender";
    const ARGUMENTS: &'static [&'static str] = &[
        "extender.urlPrefix",
        "extender.httpTimeout",
        "extender.onSessionOpenVerb",
        "extender.onSessionCloseVerb",
        "extender.predicateVerb",
        "extender.prioritizeVerb",
        "extender.preemptableVerb",
        "extender.reclaimableVerb",
        "extender.queueOverusedVerb",
        "extender.jobEnqueueableVerb",
        "extender.jobReadyVerb",
        "extender.ignorable",
    ];
    const HOOKS: &'static [Hook] = &[Hook::Predicate, Hook::NodeOrder];

    fn compile(settings: &Settings<'_>) -> Result<Self, ArgumentError> {
        let text = |name: &str| settings.text(name).filter(|text| !text.is_empty());
        let verb = |name: &str| text(name).map(str::to_owned);
        let url = text("extender.urlPrefix").unwrap_or_default();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(settings.error("extender.urlPrefix", url, "an address such as http://extender:8080"));
        }
        let timeout = "extender.httpTimeout";
        let timeout_ms = match text(timeout) {
            None => 1_000,
            Some(found) => milliseconds(found)
                .ok_or_else(|| settings.error(timeout, found, "a duration such as 100ms or 2s"))?,
        };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            timeout_ms,
            session_open: verb("extender.onSessionOpenVerb"),
            session_close: verb("extender.onSessionCloseVerb"),
            predicate: verb("extender.predicateVerb"),
            prioritize: verb("extender.prioritizeVerb"),
            enqueueable: verb("extender.jobEnqueueableVerb"),
            queue_overused: verb("extender.queueOverusedVerb"),
            job_ready: verb("extender.jobReadyVerb"),
            preemptable: verb("extender.preemptableVerb"),
            reclaimable: verb("extender.reclaimableVerb"),
            ignorable: settings.flag("extender.ignorable", false)?,
        })
    }

    fn agrees(&self, state: &State, pod: PodId, node: NodeId, _: &Spreads, _: Fit) -> Result<(), Misfit> {
        if state.extender.vetoes.is_empty() {
            return Ok(());
        }
        let pod = state.pod(pod);
        let veto = state.extender.vetoes.get(&(pod.group, pod.class, node));
        veto.map_or(Ok(()), |(why, _)| Err(Misfit::Vetoed(why.clone())))
    }

    /// The group has answers of its own.
    fn judges_alone(&self, state: &State, group: GroupId) -> bool {
        self.prioritize.is_some()
            || self.queue_overused.is_some()
            || state.extender.silent.contains_key(&group)
            || state.extender.vetoes.range(nodes_of(group)).next().is_some()
    }

    fn scores_pod(&self, state: &State, pod: PodId) -> bool {
        given_scores(state, pod).is_some()
    }

    fn pod_score(&self, state: &State, pod: PodId, node: NodeId) -> i64 {
        given_scores(state, pod).and_then(|scores| scores.get(&node)).copied().unwrap_or(0)
    }
}

/// Scores by node, if there are any for pods of the class.
fn given_scores(state: &State, pod: PodId) -> Option<&BTreeMap<NodeId, i64>> {
    let pod = state.pod(pod);
    match state.extender.answers.get(&(pod.group, Question::Scores(pod.class))) {
        Some((Word::Scores(scores), _)) => Some(scores),
        _ => None,
    }
}

impl Extender {
    /// Why the group may not be admitted to its queue now; asks if there is no answer.
    pub(crate) fn not_to_enter(&self, state: &mut State, group: GroupId) -> Option<Arc<str>> {
        self.enqueueable.as_ref()?;
        state.answer_to(group, Question::MayEnter)
    }

    /// Why the group may not be placed now; asks if there is no answer.
    pub(crate) fn not_to_place(&self, state: &mut State, group: GroupId) -> Option<Arc<str>> {
        if let Some((why, _)) = state.extender.silent.get(&group) {
            return Some(why.clone());
        }
        if self.queue_overused.is_some()
            && let Some(why) = state.answer_to(group, Question::MayHold)
        {
            return Some(why);
        }
        self.prioritize.as_ref()?;
        let classes: Vec<ClassId> = state.group(group).pending_by_class.keys().copied().collect();
        let refusals: Vec<Option<Arc<str>>> =
            classes.into_iter().map(|class| state.answer_to(group, Question::Scores(class))).collect();
        refusals.into_iter().flatten().next()
    }
}

fn milliseconds(text: &str) -> Option<u64> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1_000),
    };
    number.parse::<u64>().ok().filter(|n| *n > 0)?.checked_mul(scale)
}
