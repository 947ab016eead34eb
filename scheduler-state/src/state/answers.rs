//! Answers of the extender as they come and expire.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::State;
use crate::extender::{Answer, GroupQuestion, NO_HOLDS_S, Question, VETO_HOLDS_S, Word, YES_HOLDS_S};
use crate::ids::{GroupId, PodId};

const WAITING: &str = "waiting for the extender to answer";
/// Parts of a point of a score.
const POINT: f64 = 1e6;

impl State {
    /// Questions not yet sent.
    pub fn take_questions(&mut self) -> Vec<GroupQuestion> {
        std::mem::take(&mut self.extender.new)
    }

    /// Takes an answer. An answer to an obsolete question changes nothing.
    pub fn hear(&mut self, asked: GroupQuestion, answer: Answer) {
        let GroupQuestion { number, group, question } = asked;
        if self.extender.asked.get(&(group, question)) != Some(&number) {
            return;
        }
        self.extender.asked.remove(&(group, question));
        let (word, holds) = match answer {
            Answer::Yes => (Word::Yes, YES_HOLDS_S),
            Answer::Scores(points) => {
                let score = |(node, points): (&String, &f64)| {
                    // Far from the bounds of i64, whatever the server sent.
                    let points = points.clamp(-1e9, 1e9) * POINT;
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

    pub fn is_kept(&self, pod: PodId) -> bool {
        self.extender.kept.contains_key(&pod)
    }

    /// No answer came on whether the pods of the pod's group may go to their nodes.
    pub fn no_answer(&mut self, pod: PodId, why: &str) {
        let Some(group) = self.find_pod(pod).map(|pod| pod.group) else { return };
        let until = self.extender.holds(NO_HOLDS_S);
        self.extender.silent.insert(group, (why.into(), until));
        self.reconsider(group);
    }

    /// When the next answer may expire, in seconds since the epoch.
    pub fn next_word_ends(&self) -> Option<i64> {
        self.extender.next_end
    }

    /// Drops expired answers; they are asked for again if still needed.
    pub fn forget_old_answers(&mut self, now: i64) {
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

    /// Why the group must wait: the answer is no, or there is none; asks if there is no answer.
    pub fn answer_to(&mut self, group: GroupId, question: Question) -> Option<Arc<str>> {
        match self.extender.answers.get(&(group, question)) {
            Some((Word::No(why), _)) => Some(why.clone()),
            Some(_) => None,
            None => {
                let answers = &mut self.extender;
                if let Entry::Vacant(vacant) = answers.asked.entry((group, question)) {
                    answers.last += 1;
                    vacant.insert(answers.last);
                    answers.new.push(GroupQuestion { number: answers.last, group, question });
                }
                Some(WAITING.into())
            }
        }
    }
}
