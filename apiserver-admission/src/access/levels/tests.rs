use super::*;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, yield_now};

const CORES: usize = 2;

type Log = Arc<Mutex<Vec<String>>>;

/// A request that holds a slot for a while, and notes when it had it.
fn ask(level: &Arc<Level>, caller: &str, log: &Log) -> JoinHandle<()> {
    let (level, caller, log) = (level.clone(), Arc::<str>::from(caller), log.clone());
    tokio::spawn(async move {
        let slot = level.slot(&caller).await;
        log.lock().unwrap().push(caller.to_string());
        yield_now().await;
        drop(slot);
    })
}

fn is_idle(level: &Level) -> bool {
    let state = level.state();
    state.taken == 0 && state.callers.is_empty() && state.turns.is_empty()
}

/// How many steps of others come before the one of a caller who asks after them.
async fn before_ann(others: &[&str]) -> usize {
    let (level, log) = (Arc::new(Level::of_cores(CORES)), Log::default());
    let mut all: Vec<_> = others.iter().flat_map(|one| (0..100).map(|_| ask(&level, one, &log))).collect();
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(level.state().callers.values().all(|queue| queue.taken < CORES), "a slot is left to others");
    let before = log.lock().unwrap().len();
    all.push(ask(&level, "ann", &log));
    for task in all {
        task.await.unwrap();
    }
    assert!(is_idle(&level));
    let log = log.lock().unwrap();
    for one in others {
        let share = log[before..before + 40].iter().filter(|caller| caller == one).count();
        assert!(share.abs_diff(40 / others.len()) <= 2, "{share} of {one}");
    }
    log[before..].iter().position(|caller| caller == "ann").unwrap()
}

#[tokio::test]
async fn callers_take_turns_however_many_requests_each_has() {
    // Those that have a slot, and one of each caller in the line.
    for others in [&["mallory"][..], &["mallory", "eve"], &["mallory", "eve", "trudy"]] {
        let before = before_ann(others).await;
        assert!(before <= CORES + others.len(), "{before} before her, of {others:?}");
    }
}

#[tokio::test]
async fn who_waits_has_no_slot() {
    let level = Arc::new(Level::of_cores(1));
    let (caller, answer) = (Arc::<str>::from("ann"), Arc::new(Notify::new()));
    let (of_webhook, waits) = (answer.clone(), level.clone());
    let who = caller.clone();
    let outer = tokio::spawn(async move {
        let slot = waits.slot(&who).await;
        waits.run(&who, slot, of_webhook.notified()).await;
    });
    yield_now().await;
    // The webhook asks the server before it answers.
    let slot = level.slot(&caller).await;
    assert_eq!(
        level
            .run(&caller, slot, async {
                yield_now().await;
                7
            })
            .await,
        7
    );
    answer.notify_one();
    outer.await.unwrap();
    assert!(is_idle(&level));
}

#[tokio::test]
async fn requests_that_are_given_up_leave_the_line() {
    let (level, log) = (Arc::new(Level::of_cores(1)), Log::default());
    let ann = Arc::<str>::from("ann");
    let slot = level.slot(&ann).await;
    let given_up: Vec<_> = (0..10).map(|_| ask(&level, "mallory", &log)).collect();
    let (last, told) = (ask(&level, "bob", &log), ask(&level, "mallory", &log));
    yield_now().await;
    assert_eq!(level.state().callers["mallory"].waiting.len(), 11);
    given_up.iter().for_each(JoinHandle::abort);
    for task in given_up {
        assert!(task.await.unwrap_err().is_cancelled());
    }
    assert_eq!(level.state().callers["mallory"].waiting.len(), 1);
    // The first in the line is told, and ends before it has heard it.
    drop(slot);
    told.abort();
    let _ = told.await;
    last.await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["bob"]);
    assert!(is_idle(&level));
}
