//! The loop of the watchdog: reads the lease, judges, writes the content file, stops containers.

use std::{
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use crate::{
    judge::{Judge, LeaseVerdict, Renewal},
    lease::LeaseError,
    names::{KILL_GRACE, PERIOD, STATE_FOLDER},
};

/// Period of the check. Processes that the kubelet has restarted are stopped again in each.
const TICK: Duration = Duration::from_millis(200);

/// How containers are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
}

/// File that exists while the lease holds; the startup probe reads it.
pub fn content_file() -> PathBuf {
    PathBuf::from(STATE_FOLDER).join("content")
}

/// Runs forever, or until `goes_on` says no. `ask` blocks and runs on its own thread; `tell` gets each new verdict;
/// `stop` sends a signal to the other containers.
pub fn watch(
    ask: impl Fn() -> Result<Renewal, LeaseError> + Send + 'static,
    mut tell: impl FnMut(LeaseVerdict),
    mut stop: impl FnMut(Signal),
    mut goes_on: impl FnMut() -> bool,
) {
    let start = Instant::now();
    let (sender, answers) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let asked = start.elapsed();
            let answer = ask();
            if sender.send((asked, answer)).is_err() {
                return;
            }
            std::thread::sleep(PERIOD);
        }
    });
    let mut judge = Judge::new(Duration::ZERO);
    let mut told = None;
    let mut lapsed_at = None;
    let mut terminated = false;
    while goes_on() {
        match answers.recv_timeout(TICK) {
            Ok((asked, Ok(renewal))) => judge.read(asked, renewal),
            Ok((_, Err(error))) => eprintln!("cannot read the lease: {error}"),
            Err(RecvTimeoutError::Timeout) => {}
            // The reading thread is gone: without answers the lease lapses.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
        }
        let now = start.elapsed();
        let verdict = judge.verdict(now);
        if told.replace(verdict) != Some(verdict) {
            tell(verdict);
        }
        if verdict != LeaseVerdict::Lapsed {
            (lapsed_at, terminated) = (None, false);
            continue;
        }
        let since = *lapsed_at.get_or_insert(now);
        if now >= since + KILL_GRACE {
            stop(Signal::Kill);
        } else if !terminated {
            terminated = true;
            stop(Signal::Terminate);
        }
    }
}
