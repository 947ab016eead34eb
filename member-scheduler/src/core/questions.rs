//! Requests to the extender: sent outside the cycle, answered before a later one.

use std::{collections::VecDeque, sync::Arc};

use fleet_scheduler::extender::{Answer, GroupQuestion, Question};
use tokio::{
    sync::oneshot,
    task::JoinSet,
    time::{Duration, Instant},
};

use crate::context::Context;
use crate::scheduler::extender::{self, Inquiry};
use fleet_member_state::MemberState;

/// Most concurrent requests.
const ASKED_AT_ONCE: usize = 16;
/// Volcano's period of cycles: the extender is told of one cycle in it. Ours follow each change.
const SESSION_PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Extender {
    due: VecDeque<GroupQuestion>,
    asked: JoinSet<(GroupQuestion, Answer)>,
    /// The messages about a cycle that are on their way, one at most.
    told: JoinSet<()>,
    told_at: Option<Instant>,
}

impl Extender {
    /// Tells the extender that a cycle begins; it ends when something is sent through what is returned.
    pub fn begin_cycle(&mut self, state: &MemberState, now: Instant) -> Option<oneshot::Sender<()>> {
        while self.told.try_join_next().is_some() {}
        let is_early = self.told_at.is_some_and(|at| now < at + SESSION_PERIOD);
        if is_early || !self.told.is_empty() {
            return None;
        }
        let session = extender::session(state)?;
        self.told_at = Some(now);
        let (ends, ended) = oneshot::channel();
        self.told.spawn(extender::tell_of(session, ended));
        Some(ends)
    }

    /// Takes the requests of a cycle.
    pub fn take_questions(&mut self, state: &mut MemberState) {
        self.due.extend(state.cluster.take_questions());
    }

    /// Sends waiting requests. A request about an object that is gone is answered with no.
    pub fn start(&mut self, state: &mut MemberState, context: &Arc<Context>) {
        while self.asked.len() < ASKED_AT_ONCE
            && let Some(asked) = self.due.pop_front()
        {
            let inquiry: Option<Inquiry> = match asked.question {
                Question::MayEnter => extender::may_enter(state, asked.group),
                Question::MayHold => extender::may_hold(state, asked.group),
                Question::Scores(class) => extender::scores(state, asked.group, class),
            };
            let Some(inquiry) = inquiry else {
                state.cluster.hear(asked, Answer::No("it is gone".to_owned()));
                continue;
            };
            let context = context.clone();
            self.asked.spawn(async move { (asked, extender::answer(&context, inquiry).await) });
        }
    }

    /// Waits for an answer; never ready while none is pending.
    pub async fn next(&mut self) -> (GroupQuestion, Answer) {
        loop {
            match self.asked.join_next().await {
                Some(Ok(heard)) => return heard,
                Some(Err(error)) => tracing::error!(%error, "a request to the extender panicked"),
                None => std::future::pending().await,
            }
        }
    }
}
