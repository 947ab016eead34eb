//! What an external extender has said about placement, each answer with its time; nothing is kept over a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::ids::{ClassId, GroupId, NodeId, PodId};

/// Seconds for which a yes, or scores, are valid.
pub const YES_HOLDS_S: i64 = 60;
/// Seconds for which a no to a node is valid.
pub const VETO_HOLDS_S: i64 = 30;
/// Seconds after which a refused or unanswered group is asked about again.
pub const NO_HOLDS_S: i64 = 5;

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
pub struct GroupQuestion {
    pub number: u64,
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
pub enum Word {
    Yes,
    Scores(BTreeMap<NodeId, i64>),
    No(Arc<str>),
}

/// Answers by subject, each with the second in which it expires.
#[derive(Debug, Default)]
pub struct ExtenderAnswers {
    pub answers: BTreeMap<(GroupId, Question), (Word, i64)>,
    pub vetoes: BTreeMap<(GroupId, ClassId, NodeId), (Arc<str>, i64)>,
    /// Pods that must not be victims.
    pub kept: BTreeMap<PodId, i64>,
    /// Groups without an answer.
    pub silent: BTreeMap<GroupId, (Arc<str>, i64)>,
    /// By serial number, because numbers of groups are reused.
    pub asked: BTreeMap<(GroupId, Question), u64>,
    pub last: u64,
    pub new: Vec<GroupQuestion>,
    /// Time of the last cycle, in seconds since the epoch.
    pub now: i64,
    /// No answer expires before.
    pub next_end: Option<i64>,
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

    /// Forgets what was said about classes that are gone, because their numbers are reused.
    pub(crate) fn forget_classes(&mut self, gone: &BTreeSet<ClassId>) {
        let about = |question: &Question| matches!(question, Question::Scores(class) if gone.contains(class));
        self.answers.retain(|(_, question), _| !about(question));
        self.asked.retain(|(_, question), _| !about(question));
        self.vetoes.retain(|(_, class, _), _| !gone.contains(class));
        self.new.retain(|asked| !about(&asked.question));
    }

    /// When an answer given now expires.
    pub fn holds(&mut self, seconds: i64) -> i64 {
        let end = self.now + seconds;
        self.next_end = Some(self.next_end.map_or(end, |next| next.min(end)));
        end
    }
}

/// Keys of all vetoes about a group.
pub fn nodes_of(group: GroupId) -> RangeInclusive<(GroupId, ClassId, NodeId)> {
    (group, 0, 0)..=(group, ClassId::MAX, NodeId::MAX)
}
