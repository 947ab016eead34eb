//! Plugin extender: answers of an external server about placement.
//!
//! No cycle waits for the server. A cycle records its questions (may this group be admitted, which nodes are good
//! for these pods), skips the groups that need the answers, and finds these in a later cycle. Whether a pod may go
//! to a node is asked when the node is chosen, before anything is bound: a no is a veto, and the group is placed
//! again. Whether a pod may be a victim is asked when victims are chosen, before one is evicted: a pod that must
//! stay is no candidate for a while. Every answer expires. A restart loses all answers, and asks again. Source:
//! Volcano's plugin of that name (`extender.*`). Deliberately absent: requests.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::config::{ArgumentError, Plugin, error, read_bool};
use crate::group::GroupId;
use crate::node::NodeId;
use crate::pod::{ClassId, PodId};
use crate::score::POINT;

/// Seconds for which a yes, or scores, are valid.
const YES_HOLDS_S: i64 = 60;
/// Seconds for which a no to a node is valid.
const VETO_HOLDS_S: i64 = 30;
/// Seconds after which a refused or unanswered group is asked about again.
const NO_HOLDS_S: i64 = 5;

/// The plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderPolicy {
    /// Without a trailing `/`.
    pub url: String,
    pub timeout_ms: u64,
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

impl ExtenderPolicy {
    pub(crate) fn compile(plugin: &Plugin) -> Result<Self, ArgumentError> {
        let text = |name: &str| plugin.arguments.get(name).cloned().filter(|text| !text.is_empty());
        let url = text("extender.urlPrefix").unwrap_or_default();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(error(plugin, "extender.urlPrefix", &url, "an address such as http://extender:8080"));
        }
        let timeout = "extender.httpTimeout";
        let timeout_ms = match text(timeout) {
            None => 1_000,
            Some(found) => milliseconds(&found)
                .ok_or_else(|| error(plugin, timeout, &found, "a duration such as 100ms or 2s"))?,
        };
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            timeout_ms,
            predicate: text("extender.predicateVerb"),
            prioritize: text("extender.prioritizeVerb"),
            enqueueable: text("extender.jobEnqueueableVerb"),
            queue_overused: text("extender.queueOverusedVerb"),
            job_ready: text("extender.jobReadyVerb"),
            preemptable: text("extender.preemptableVerb"),
            reclaimable: text("extender.reclaimableVerb"),
            ignorable: read_bool(plugin, "extender.ignorable")?.unwrap_or(false),
        })
    }
}

fn milliseconds(text: &str) -> Option<u64> {
    let (number, scale) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1_000),
    };
    number.parse::<u64>().ok().filter(|n| *n > 0)?.checked_mul(scale)
}

/// What a cycle wants to know about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// Whether its queue may admit it.
    MayEnter,
    /// Whether its queue may use more.
    MayHold,
    /// How good nodes are for its pods of a class.
    Scores(ClassId),
}

/// A question about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    number: u64,
    pub group: GroupId,
    pub question: Question,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Yes,
    /// Points by node name; an absent node has none.
    Scores(BTreeMap<String, f64>),
    /// With the reason.
    No(String),
}

#[derive(Clone, Debug)]
enum Word {
    Yes,
    Scores(BTreeMap<NodeId, i64>),
    No(Arc<str>),
}

/// Answers by subject, each with the second in which it expires.
#[derive(Debug, Default)]
pub(crate) struct ExtenderAnswers {
    answers: BTreeMap<(GroupId, Question), (Word, i64)>,
    vetoes: BTreeMap<(GroupId, ClassId, NodeId), (Arc<str>, i64)>,
    /// Pods that must not be victims.
    kept: BTreeMap<PodId, i64>,
    /// Groups without an answer.
    silent: BTreeMap<GroupId, (Arc<str>, i64)>,
    /// By serial number, because numbers of groups are reused.
    asked: BTreeMap<(GroupId, Question), u64>,
    last: u64,
    new: Vec<Asked>,
    /// Time of the last cycle, in seconds since the epoch.
    now: i64,
    /// No answer expires before.
    next_end: Option<i64>,
}

impl ExtenderAnswers {
    pub fn forget(&mut self, group: GroupId) {
        let questions = (group, Question::MayEnter)..=(group, Question::Scores(ClassId::MAX));
        let answered: Vec<_> = self.answers.range(questions.clone()).map(|(key, _)| *key).collect();
        let asked: Vec<_> = self.asked.range(questions).map(|(key, _)| *key).collect();
        let vetoed: Vec<_> = self.vetoes.range(nodes_of(group)).map(|(key, _)| *key).collect();
        for key in answered {
            self.answers.remove(&key);
        }
        for key in asked {
            self.asked.remove(&key);
        }
        for key in vetoed {
            self.vetoes.remove(&key);
        }
        self.silent.remove(&group);
        self.new.retain(|asked| asked.group != group);
    }

    /// When an answer given now expires.
    fn holds(&mut self, seconds: i64) -> i64 {
        let end = self.now + seconds;
        self.next_end = Some(self.next_end.map_or(end, |next| next.min(end)));
        end
    }
}

/// Keys of all vetoes about a group.
fn nodes_of(group: GroupId) -> RangeInclusive<(GroupId, ClassId, NodeId)> {
    (group, 0, 0)..=(group, ClassId::MAX, NodeId::MAX)
}

const WAITING: &str = "waiting for the extender to answer";

impl Cluster {
    /// Questions not yet sent.
    pub fn take_questions(&mut self) -> Vec<Asked> {
        std::mem::take(&mut self.extender.new)
    }

    /// Takes an answer. An answer to an obsolete question changes nothing.
    pub fn hear(&mut self, asked: Asked, answer: Answer) {
        let Asked { number, group, question } = asked;
        if self.extender.asked.get(&(group, question)) != Some(&number) {
            return;
        }
        self.extender.asked.remove(&(group, question));
        let (word, holds) = match answer {
            Answer::Yes => (Word::Yes, YES_HOLDS_S),
            Answer::Scores(points) => {
                let score = |(node, points): (&String, &f64)| {
                    // Far from the bounds of i64, whatever the server sent.
                    let points = points.clamp(-1e9, 1e9) * POINT as f64;
                    Some((self.nodes.find(node)?, points as i64))
                };
                (Word::Scores(points.iter().filter_map(score).collect()), YES_HOLDS_S)
            }
            Answer::No(why) => (Word::No(why.into()), NO_HOLDS_S),
        };
        let until = self.extender.holds(holds);
        self.extender.answers.insert((group, question), (word, until));
        self.reconsider(group);
    }

    /// The pod may not go to the node.
    pub fn veto(&mut self, pod: PodId, node: &str, why: &str) {
        let Some(known) = self.find_pod(pod) else { return };
        let Some(id) = self.nodes.find(node) else { return };
        let key = (known.group, known.class, id);
        let until = self.extender.holds(VETO_HOLDS_S);
        self.extender.vetoes.insert(key, (why.into(), until));
        self.reconsider(key.0);
    }

    /// The pod must not be a victim.
    pub fn keep(&mut self, pod: PodId) {
        let until = self.extender.holds(VETO_HOLDS_S);
        self.extender.kept.insert(pod, until);
        self.freed();
    }

    pub(crate) fn is_kept(&self, pod: PodId) -> bool {
        self.extender.kept.contains_key(&pod)
    }

    pub(crate) fn forget_kept(&mut self, pod: PodId) {
        self.extender.kept.remove(&pod);
    }

    /// No answer came on whether the pods of the group may go to their nodes.
    pub fn no_answer(&mut self, group: GroupId, why: &str) {
        let until = self.extender.holds(NO_HOLDS_S);
        self.extender.silent.insert(group, (why.into(), until));
        self.reconsider(group);
    }

    /// When the next answer may expire, in seconds since the epoch.
    pub fn next_word_ends(&self) -> Option<i64> {
        self.extender.next_end
    }

    /// Drops expired answers; they are asked for again if still needed.
    pub(crate) fn forget_old_answers(&mut self, now: i64) {
        self.extender.now = now;
        if self.extender.next_end.is_none_or(|end| end > now) {
            return;
        }
        let mut groups: BTreeSet<GroupId> = BTreeSet::new();
        let mut next_end: Option<i64> = None;
        let mut holds = |group: GroupId, until: i64| {
            if until <= now {
                groups.insert(group);
            } else {
                next_end = Some(next_end.map_or(until, |next| next.min(until)));
            }
            until > now
        };
        self.extender.answers.retain(|(group, _), (_, until)| holds(*group, *until));
        self.extender.vetoes.retain(|(group, ..), (_, until)| holds(*group, *until));
        self.extender.silent.retain(|group, (_, until)| holds(*group, *until));
        self.extender.kept.retain(|_, until| {
            if *until > now {
                next_end = Some(next_end.map_or(*until, |next: i64| next.min(*until)));
            }
            *until > now
        });
        self.extender.next_end = next_end;
        self.freed();
        groups.into_iter().for_each(|group| self.reconsider(group));
    }

    fn reconsider(&mut self, group: GroupId) {
        if self.groups_has(group) {
            self.mark(group);
            self.freed();
        }
    }

    /// Why the group may not be admitted to its queue now; asks if there is no answer.
    pub(crate) fn not_to_enter(&mut self, group: GroupId) -> Option<Arc<str>> {
        self.policy.extender.as_ref()?.enqueueable.as_ref()?;
        self.answer_to(group, Question::MayEnter)
    }

    /// Why the group may not be placed now; asks if there is no answer.
    pub(crate) fn not_to_place(&mut self, group: GroupId) -> Option<Arc<str>> {
        let policy = self.policy.extender.as_ref()?;
        if let Some((why, _)) = self.extender.silent.get(&group) {
            return Some(why.clone());
        }
        let scores = policy.prioritize.is_some();
        if policy.queue_overused.is_some()
            && let Some(why) = self.answer_to(group, Question::MayHold)
        {
            return Some(why);
        }
        if !scores {
            return None;
        }
        let classes: Vec<ClassId> = self.group(group).pending_by_class.keys().copied().collect();
        let refusals: Vec<Option<Arc<str>>> =
            classes.into_iter().map(|class| self.answer_to(group, Question::Scores(class))).collect();
        refusals.into_iter().flatten().next()
    }

    fn answer_to(&mut self, group: GroupId, question: Question) -> Option<Arc<str>> {
        match self.extender.answers.get(&(group, question)) {
            Some((Word::No(why), _)) => Some(why.clone()),
            Some(_) => None,
            None => {
                let answers = &mut self.extender;
                if let Entry::Vacant(vacant) = answers.asked.entry((group, question)) {
                    answers.last += 1;
                    vacant.insert(answers.last);
                    answers.new.push(Asked { number: answers.last, group, question });
                }
                Some(WAITING.into())
            }
        }
    }

    pub(crate) fn vetoed(&self, pod: PodId, node: NodeId) -> Option<&Arc<str>> {
        if self.extender.vetoes.is_empty() {
            return None;
        }
        let pod = self.pod(pod);
        self.extender.vetoes.get(&(pod.group, pod.class, node)).map(|(why, _)| why)
    }

    /// The group has answers of its own, so its equals do not decide about it.
    pub(crate) fn is_spoken_of(&self, group: GroupId) -> bool {
        let asks = |policy: &ExtenderPolicy| policy.prioritize.is_some() || policy.queue_overused.is_some();
        self.policy.extender.as_ref().is_some_and(asks)
            || self.extender.silent.contains_key(&group)
            || self.extender.vetoes.range(nodes_of(group)).next().is_some()
    }

    /// Scores by node, if there are any for pods of the class.
    pub(crate) fn given_scores(&self, group: GroupId, class: ClassId) -> Option<&BTreeMap<NodeId, i64>> {
        match self.extender.answers.get(&(group, Question::Scores(class))) {
            Some((Word::Scores(scores), _)) => Some(scores),
            _ => None,
        }
    }
}
