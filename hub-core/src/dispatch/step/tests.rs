use serde_json::json;

use super::*;

#[test]
fn what_is_to_be_made_is_made_at_once() {
    let unit = || Write::new(Target::Unit, "team", "u", Verb::Create(json!({})));
    let status = || Write::new(Target::Unit, "team", "u", Verb::MergeStatus(json!({})));
    let check = |pace: Pace, now: usize, later: usize| {
        let mut step = Step::default();
        step.tell(pace, vec![unit(), status()]);
        assert_eq!((step.writes.len(), step.later.len()), (now, later), "{pace:?}");
    };
    check(Pace::Now, 2, 0);
    check(Pace::Between, 1, 1);
    // A job that is placed before it had to wait needs none yet.
    check(Pace::Reason, 0, 2);
}
