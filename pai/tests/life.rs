//! The life of a job: small plays, and laws over random ones.

use fleet_pai::{
    completion::Rules,
    life::{Did, Life, TaskId, Todo},
    state::State,
};
use proptest::prelude::*;
use serde_json::json;

use crate::common::{lab, protocol, read};

fn task(index: usize) -> TaskId {
    TaskId { role: 0, index }
}

/// Lets all tasks that wait for a pod run.
fn start(life: &mut Life) {
    for todo in life.todo() {
        if let Todo::CreatePod(id) = todo {
            life.did(id, Did::Created);
            life.did(id, Did::Running);
        }
    }
}

/// Deletes what is to be deleted.
fn sweep(life: &mut Life) {
    for todo in life.todo() {
        if let Todo::DeletePod(id) = todo {
            life.did(id, Did::Gone);
        }
    }
}

#[test]
fn the_labs_gang_job_is_over_with_its_first_success() {
    let mut life = Life::new(Rules::of(&read(&lab(6)).expect("a job")));
    assert_eq!((life.state(), life.todo().len()), (State::Waiting, 2));
    life.did(task(0), Did::Created);
    assert_eq!(life.state(), State::Waiting);
    start(&mut life);
    life.did(task(0), Did::Running);
    assert_eq!(life.state(), State::Running);
    life.did(task(0), Did::Ended { code: 0 });
    assert_eq!(life.todo(), [Todo::DeletePod(task(1))]);
    assert_eq!(life.task(task(1)), Some((State::Stopping, None)));
    sweep(&mut life);
    assert_eq!(life.state(), State::Succeeded);
    assert_eq!(life.task(task(0)), Some((State::Succeeded, Some(0))));
    assert_eq!(life.task(task(1)), Some((State::Stopped, Some(-220))));
    assert!(life.todo().is_empty());
}

#[test]
fn a_preempted_gang_starts_again_as_a_whole_and_an_incremental_job_only_its_task() {
    for (gang, attempts, of_task) in [(true, 1, 0), (false, 0, 1)] {
        let mut life = Life::new(Rules::of(&protocol(|job| job["extras"] = json!({"gangAllocation": gang}))));
        start(&mut life);
        life.did(task(1), Did::Gone);
        sweep(&mut life);
        assert_eq!(
            (life.attempt(), life.retried().total, life.retried().accountable),
            (attempts, attempts, 0)
        );
        assert_eq!(life.retried().platform(), attempts, "a platform retry");
        assert_eq!(life.task_retried(task(1)).map(|retried| retried.total), Some(of_task));
        assert_eq!(life.task(task(0)).map(|(state, _)| state == State::Running), Some(!gang));
        start(&mut life);
        life.did(task(0), Did::Ended { code: 0 });
        life.did(task(1), Did::Ended { code: 0 });
        assert_eq!(life.state(), State::Succeeded);
    }
}

#[test]
fn failures_that_count_are_bounded_and_permanent_ones_are_final() {
    for (code, tries) in [(255, 3), (254, 1), (-1200, 1), (-200, 1)] {
        let mut life = Life::new(Rules::of(&protocol(|job| job["jobRetryCount"] = json!(2))));
        for _ in 0..tries {
            assert!(!life.state().is_final(), "{code}");
            start(&mut life);
            life.did(task(0), Did::Ended { code });
            sweep(&mut life);
        }
        assert_eq!((life.state(), life.retried().accountable), (State::Failed, tries - 1), "{code}");
        assert_eq!(life.completed().map(|completed| completed.code), Some(code));
        assert_eq!(life.completed().and_then(|c| c.trigger.clone()), Some(("train".to_owned(), 0)));
    }
}

#[test]
fn who_found_no_room_in_time_waits_before_the_next_try() {
    let mut life = Life::new(Rules::of(&protocol(|_| {})));
    start(&mut life);
    life.did(task(0), Did::Ended { code: 251 });
    sweep(&mut life);
    assert_eq!((life.state(), life.todo()), (State::Waiting, vec![Todo::Wait { delay_s: 60 }]));
    life.delay_over();
    assert_eq!((life.attempt(), life.todo().len()), (1, 2));
}

#[test]
fn a_stopped_job_is_stopped_whenever_it_was() {
    let mut waits = Life::new(Rules::of(&protocol(|_| {})));
    waits.stop();
    assert_eq!((waits.state(), waits.task(task(0))), (State::Stopped, Some((State::Stopped, Some(-210)))));
    let mut runs = Life::new(Rules::of(&protocol(|job| job["jobRetryCount"] = json!(9))));
    start(&mut runs);
    runs.stop();
    assert_eq!(runs.state(), State::Stopping);
    sweep(&mut runs);
    assert_eq!((runs.state(), runs.attempt()), (State::Stopped, 0));
    let mut delayed = Life::new(Rules::of(&protocol(|_| {})));
    start(&mut delayed);
    delayed.did(task(0), Did::Ended { code: 251 });
    sweep(&mut delayed);
    delayed.stop();
    assert_eq!((delayed.state(), delayed.todo().len()), (State::Stopped, 0));
    let mut over = Life::new(Rules::of(&protocol(|_| {})));
    start(&mut over);
    over.did(task(0), Did::Ended { code: 0 });
    over.did(task(1), Did::Ended { code: 0 });
    over.stop();
    assert_eq!(over.state(), State::Succeeded, "an end is an end");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Did(usize, Did),
    Stop,
    Delay,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let did = prop_oneof![
        3 => Just(Did::Created),
        3 => Just(Did::Running),
        1 => prop_oneof![Just(0i64), Just(255), Just(254), Just(137), Just(251)].prop_map(|code| Did::Ended { code }),
        2 => Just(Did::Gone),
    ];
    let step = prop_oneof![
        40 => (0usize..4, did).prop_map(|(index, did)| Step::Did(index, did)),
        1 => Just(Step::Stop),
        3 => Just(Step::Delay),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens in whatever order: what is over stays over, retries that count stay in their bound, the same
    /// question has the same answer, and a job that is not over has something to do or to wait for.
    #[test]
    fn laws_of_a_life(
        steps in steps(),
        instances in 1i64..4,
        gang in any::<bool>(),
        max in 0i64..3,
        min_failed in -1i64..4,
        min_succeeded in -1i64..4,
    ) {
        let rules = Rules::of(&protocol(|job| {
            job["jobRetryCount"] = json!(max);
            job["taskRoles"]["train"]["instances"] = json!(instances);
            job["taskRoles"]["train"]["taskRetryCount"] = json!(max);
            job["taskRoles"]["train"]["completion"] =
                json!({"minFailedInstances": min_failed, "minSucceededInstances": min_succeeded});
            job["extras"] = json!({"gangAllocation": gang});
        }));
        let mut life = Life::new(rules);
        let mut stopped = false;
        for step in steps {
            let before = (life.state(), life.attempt());
            match step {
                Step::Did(index, did) => life.did(task(index), did),
                Step::Stop => { life.stop(); stopped = true; }
                Step::Delay => life.delay_over(),
            }
            if before.0.is_final() {
                prop_assert_eq!((life.state(), life.attempt()), before);
            }
            prop_assert!(life.attempt() >= before.1);
            prop_assert!(life.retried().accountable <= max);
            prop_assert!(life.retried().total == life.attempt());
            prop_assert_eq!(life.todo(), life.todo());
            let todo = life.todo();
            if life.state().is_final() {
                prop_assert!(todo.is_empty());
            }
            if stopped {
                prop_assert!(!todo.iter().any(|todo| matches!(todo, Todo::CreatePod(_))), "no pod after a stop");
            }
            for index in 0..usize::try_from(instances).unwrap() {
                let of_task = todo.iter().filter(|todo| matches!(todo, Todo::CreatePod(id) | Todo::DeletePod(id) if *id == task(index)));
                prop_assert!(of_task.count() <= 1);
                if gang {
                    prop_assert_eq!(life.task_retried(task(index)).map(|retried| retried.total), Some(0));
                } else {
                    prop_assert!(life.task_retried(task(index)).is_some_and(|retried| retried.accountable <= max));
                }
            }
        }
        // Whoever does what it says, with tasks that succeed, comes to an end.
        for _ in 0..64 {
            for todo in life.todo() {
                match todo {
                    Todo::CreatePod(id) => life.did(id, Did::Created),
                    Todo::DeletePod(id) => life.did(id, Did::Gone),
                    Todo::Wait { .. } => life.delay_over(),
                }
            }
            for index in 0..4 {
                if life.task(task(index)).is_some_and(|(state, _)| !state.is_final()) {
                    life.did(task(index), Did::Running);
                    life.did(task(index), Did::Ended { code: 0 });
                }
            }
        }
        prop_assert!(life.state().is_final(), "{:?} {:?}", life.state(), life.todo());
    }
}
