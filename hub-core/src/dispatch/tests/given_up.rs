//! What is recorded of runs that end before their job, and what follows from it.

use jiff::SignedDuration;

use super::*;

/// On its word that it ends in time a job passes another one with a claim.
#[test]
fn a_run_that_is_suspended_beyond_its_time_ends_and_its_job_waits_until_it_is_resumed() {
    let job = |suspend: bool| {
        let mut job = batch();
        job["spec"]["activeDeadlineSeconds"] = 60.into();
        job["spec"]["suspend"] = suspend.into();
        job
    };
    for (admitted, resumed) in [(true, false), (true, true), (false, false)] {
        let mut hub = Hub::new(job(false), &["east"]);
        if admitted {
            let admitted = json!({"preemptible": true, "runTimeSeconds": 60});
            hub.change_binding(&json!({"spec": {"admitted": admitted}}));
        }
        hub.settle(None);
        let work = hub.world.works.keys().next().expect("a Work").clone();
        hub.report(&work, &json!({"active": 1}));
        hub.settle(None);
        let at = |seconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        hub.now = at(30);
        hub.submit(job(true));
        hub.settle(None);
        hub.report(&work, &json!({"active": 0}));
        hub.settle(None);
        let run = hub.world.bindings[&key()].object.status.clone().and_then(|status| status.run);
        let since = run.and_then(|run| run.suspended_since);
        assert_eq!(since.as_deref(), Some("1970-01-01T00:00:30Z"), "when its member was told");
        if resumed {
            hub.submit(job(false));
            hub.settle(None);
            hub.report(&work, &json!({"active": 1}));
        }
        hub.now = at(59);
        hub.settle(None);
        assert!(hub.world.bindings[&key()].attempt(1).is_none(), "its time is not over");
        hub.now = at(60);
        hub.settle(None);
        let entry = &hub.world.bindings[&key()];
        let reason = entry.attempt(1).map(|attempt| attempt.reason.clone());
        assert_eq!(reason.as_deref(), admitted.then_some("RunTimeOver"));
        assert_eq!(waits_for_resume(&hub.world, entry), admitted && !resumed);
        hub.submit(job(false));
        assert!(!waits_for_resume(&hub.world, &hub.world.bindings[&key()]));
    }
}
