use serde_json::json;

use super::*;

fn work(name: &str, binding: &str, uid: &str) -> Write {
    let binding = json!({"namespace": "team", "name": binding, "uid": uid});
    Write::new(
        Target::Work,
        "fleet-west",
        name,
        Verb::Create(json!({"spec": {"binding": binding, "epoch": 2}})),
    )
}

#[test]
fn a_work_is_on_its_way_until_it_is_heard_of() {
    let mut sent = SentWorks::default();
    let (key, old) = (("team".to_owned(), "job".to_owned()), ("fleet-west".to_owned(), "job-a".to_owned()));
    sent.note(&work("job-a", "job", "a"));
    sent.note(&work("other-c", "other", "c"));
    let mut change = work("job-b", "job", "b");
    change.verb = Verb::Delete { uid: String::new() };
    sent.note(&change);
    let keys: Vec<&Key> = sent.of(&key).map(|(work, _)| work).collect();
    assert_eq!(keys, [&old], "a delete sends no run");
    assert_eq!(sent.get(&old).map(|sent| (sent.binding.uid.as_str(), sent.epoch)), Some(("a", 2)));
    assert_eq!((sent.heard(&old), sent.heard(&old)), (Some(key.clone()), None));
    assert_eq!(sent.of(&key).count(), 0);
}
