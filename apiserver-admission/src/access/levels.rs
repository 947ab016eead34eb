//! The processor, shared by callers.
//!
//! Inputs: the work of requests. What a request computes until it waits for something is one *step*, and needs one of
//! a level's slots. Callers get slots in turn, whatever number of requests each has. A request that waits, for a
//! webhook or for the disk, has no slot; so webhooks that ask the server cannot block it. Absent on purpose:
//! interruption of a step, and weights.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use tokio::sync::oneshot;

/// Requests that wait for each other, and for no others.
pub struct Level {
    state: Mutex<State>,
    slots: usize,
    /// Of those, one caller's.
    each: usize,
}

#[derive(Default)]
struct State {
    next: u64,
    taken: usize,
    /// Callers with a slot or with a request that waits.
    callers: BTreeMap<Arc<str>, Queue>,
    /// Callers with a request that waits; the first is next.
    turns: VecDeque<Arc<str>>,
}

#[derive(Default)]
struct Queue {
    taken: usize,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Level {
    /// As many slots as there are cores. One caller leaves one to the others, unless there is only one.
    pub fn of_cores(cores: usize) -> Level {
        Level { state: Mutex::default(), slots: cores.max(1), each: (cores.max(2)) - 1 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a slot.
    pub async fn slot(self: &Arc<Self>, caller: &Arc<str>) -> Slot {
        let asked = {
            let mut state = self.state();
            let number = state.next;
            state.next += 1;
            let (told, hears) = oneshot::channel();
            let queue = state.callers.entry(caller.clone()).or_default();
            let first = queue.waiting.is_empty();
            queue.waiting.insert(number, told);
            if first {
                state.turns.push_back(caller.clone());
            }
            self.give(&mut state);
            WaitingRequest { level: self.clone(), caller: caller.clone(), number, hears: Some(hears) }
        };
        asked.answered().await
    }

    /// Gives free slots to callers in turn.
    fn give(&self, state: &mut State) {
        // Who has all it may have keeps its place in the line.
        let mut passed = Vec::new();
        while self.slots > state.taken {
            let Some(caller) = state.turns.pop_front() else { break };
            let Some(queue) = state.callers.get_mut(&caller) else { continue };
            if queue.taken >= self.each {
                passed.push(caller);
                continue;
            }
            let told = queue.waiting.pop_first().is_some_and(|(_, asked)| asked.send(()).is_ok());
            queue.taken += usize::from(told);
            state.taken += usize::from(told);
            match (queue.waiting.is_empty(), queue.taken) {
                (false, _) => state.turns.push_back(caller),
                (true, 0) => drop(state.callers.remove(&caller)),
                (true, _) => {}
            }
        }
        passed.into_iter().rev().for_each(|caller| state.turns.push_front(caller));
    }

    fn take_back(&self, caller: &Arc<str>) {
        let mut state = self.state();
        state.taken = state.taken.saturating_sub(1);
        if let Some(queue) = state.callers.get_mut(caller) {
            queue.taken = queue.taken.saturating_sub(1);
            if queue.taken == 0 && queue.waiting.is_empty() {
                state.callers.remove(caller);
            }
        }
        self.give(&mut state);
    }

    /// A request of this caller does not wait any more.
    fn forget(&self, caller: &Arc<str>, number: u64) {
        let mut state = self.state();
        let Some(queue) = state.callers.get_mut(caller) else { return };
        if queue.waiting.remove(&number).is_some() && queue.waiting.is_empty() {
            if queue.taken == 0 {
                state.callers.remove(caller);
            }
            state.turns.retain(|other| other != caller);
        }
    }

    /// Runs the work of a request, each step with a slot; the first slot is there already.
    pub async fn run<T>(self: &Arc<Self>, caller: &Arc<str>, slot: Slot, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut slot = Some(slot);
        loop {
            let taken = match slot.take() {
                Some(slot) => slot,
                None => self.slot(caller).await,
            };
            let step = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
            drop(taken);
            if let Poll::Ready(answer) = step {
                return answer;
            }
            // The work has this task's waker: the next poll follows when there is something to do.
            let mut waited = false;
            poll_fn(|_| match std::mem::replace(&mut waited, true) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
        }
    }
}

/// The right to compute one step; dropped, the next request has it.
pub struct Slot {
    level: Arc<Level>,
    caller: Arc<str>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.level.take_back(&self.caller);
    }
}

/// A request that waits for a slot; it may be given up at any time.
struct WaitingRequest {
    level: Arc<Level>,
    caller: Arc<str>,
    number: u64,
    /// None once the slot is handed on.
    hears: Option<oneshot::Receiver<()>>,
}

impl WaitingRequest {
    async fn answered(mut self) -> Slot {
        if let Some(hears) = self.hears.as_mut() {
            // The sender is in the line until this request is told, or forgotten.
            let _ = hears.await;
        }
        self.hears = None;
        Slot { level: self.level.clone(), caller: self.caller.clone() }
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        let Some(mut hears) = self.hears.take() else { return };
        hears.close();
        match hears.try_recv() {
            Ok(()) => self.level.take_back(&self.caller),
            Err(_) => self.level.forget(&self.caller, self.number),
        }
    }
}

#[cfg(test)]
mod tests;
