use super::*;

fn component(name: &str, replicas: i64, cpu: &str) -> Component {
    Component {
        name: name.to_string(),
        replicas,
        request: [("cpu".to_string(), cpu.to_string())].into(),
        ..Component::default()
    }
}

#[test]
fn nothing_is_sent_that_was_not_counted() {
    let counted = [component("worker", 4, "2"), component("master", 1, "1")];
    let check = |asked: Component, expected: Result<(), &str>| {
        assert_eq!(within(&[asked], &counted), expected.map_err(str::to_string));
    };
    check(component("worker", 4, "2"), Ok(()));
    check(component("worker", 1, "500m"), Ok(()));
    check(component("chief", 0, "9"), Ok(()));
    check(component("worker", 5, "1"), Err("component worker: found 5 replicas; counted: 4"));
    check(component("master", 1, "1500m"), Err("component master: found 1500 cpu per pod; counted: 1000"));
    check(component("chief", 1, "1"), Err("component chief: found 1 replicas; counted: none"));
}
