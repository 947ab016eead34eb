//! Requests to the extender: sent outside the cycle, answered before a later one.

use std::{collections::VecDeque, sync::Arc};

use fleet_scheduler::extender::{Answer, Asked, Question};
use tokio::task::JoinSet;

use crate::context::Context;
use crate::scheduler::extender::{self, Inquiry};
use fleet_member_state::MemberState;

/// Most concurrent requests.
const ASKED_AT_ONCE: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Extender {
    due: VecDeque<Asked>,
    asked: JoinSet<(Asked, Answer)>,
}

impl Extender {
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
    pub async fn next(&mut self) -> (Asked, Answer) {
        loop {
            match self.asked.join_next().await {
                Some(Ok(heard)) => return heard,
                Some(Err(error)) => tracing::error!(%error, "a request to the extender panicked"),
                None => std::future::pending().await,
            }
        }
    }
}
