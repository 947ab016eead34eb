use super::*;
use serde_json::json;

#[test]
fn long_lists_of_a_patch_cost_what_they_are_long() {
    let numbers: Vec<Value> = (0..60_000).map(|n| json!(format!("f{n}"))).collect();
    let mut items: Vec<Value> = numbers.iter().rev().cloned().collect();
    let began = std::time::Instant::now();
    reorder(&mut items, &numbers, None);
    assert_eq!(items, numbers);
    let named: Vec<Value> = numbers.iter().map(|name| json!({"name": name})).collect();
    let mut items: Vec<Value> = named.iter().rev().cloned().collect();
    reorder(&mut items, &named[..3], Some("name"));
    assert_eq!(items[..4], [named[0].clone(), named[1].clone(), named[2].clone(), named[59_999].clone()]);
    // A list that is compared with a list takes minutes.
    assert!(began.elapsed().as_secs() < 30);
}

#[test]
fn operations_visit_no_more_than_is_allowed() {
    let mut target = json!({"a": vec![0; 100_000]});
    let moves: Vec<Value> = (0..2_000)
        .map(|n| match n % 2 {
            0 => json!({"op": "move", "from": "/a", "path": "/b"}),
            _ => json!({"op": "move", "from": "/b", "path": "/a"}),
        })
        .collect();
    let Err(Rejected::Other(why)) = try_json_patch(&mut target, json!(moves)) else { panic!("it applies") };
    assert!(why.message().contains("allowed: 20000000"), "{}", why.message());
    let mut target = json!({"l": vec![0; 1_000]});
    let removes: Vec<Value> = (0..1_000).map(|_| json!({"op": "remove", "path": "/l/0"})).collect();
    assert!(try_json_patch(&mut target, json!(removes)).is_ok());
    assert_eq!(target, json!({"l": []}));
}

#[test]
fn json_patches_are_read_as_kubernetes_reads_them() {
    let patched = |operations: Value| {
        let mut target = json!({"m": {"a": 1}, "l": [1, 2, 3]});
        json_patch(&mut target, operations).ok().map(|()| target)
    };
    for (operation, want) in [
        (
            json!({"op": "replace", "path": "/m/b", "value": 2}),
            Some(json!({"m": {"a": 1, "b": 2}, "l": [1, 2, 3]})),
        ),
        (
            json!({"op": "replace", "path": "/n", "value": 2}),
            Some(json!({"m": {"a": 1}, "l": [1, 2, 3], "n": 2})),
        ),
        (json!({"op": "replace", "path": "/n/b", "value": 2}), None),
        (json!({"op": "replace", "path": "/l/3", "value": 2}), None),
        (json!({"op": "replace", "path": "/l/-", "value": 2}), None),
        (json!({"op": "replace", "path": "/l/-1", "value": 9}), Some(json!({"m": {"a": 1}, "l": [1, 2, 9]}))),
        (json!({"op": "add", "path": "/l/-1", "value": 4}), Some(json!({"m": {"a": 1}, "l": [1, 2, 3, 4]}))),
        (json!({"op": "add", "path": "/l/-4", "value": 0}), Some(json!({"m": {"a": 1}, "l": [0, 1, 2, 3]}))),
        (json!({"op": "add", "path": "/l/-5", "value": 0}), None),
        (json!({"op": "remove", "path": "/l/-3"}), Some(json!({"m": {"a": 1}, "l": [2, 3]}))),
        (json!({"op": "remove", "path": "/m/b"}), None),
        (
            json!({"op": "copy", "from": "/l/-1", "path": "/m/b"}),
            Some(json!({"m": {"a": 1, "b": 3}, "l": [1, 2, 3]})),
        ),
        (json!({"op": "test", "path": "/m/b", "value": null}), Some(json!({"m": {"a": 1}, "l": [1, 2, 3]}))),
        (json!({"op": "test", "path": "/m/b", "value": 1}), None),
    ] {
        assert_eq!(patched(json!([operation])), want, "{operation}");
    }
}

#[test]
fn containers_merge_by_name() {
    let schema = Schema::builtin("api.core.v1.Pod");
    let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "1", "tty": true}, {"name": "b"}]}});
    let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
        "containers": [{"name": "a", "image": "2", "tty": null}, {"name": "c", "image": "3"},
            {"name": "b", "$patch": "delete"}]}});
    strategic(Some(&schema), &mut pod, patch).unwrap();
    let want = json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c", "image": "3"}]}});
    assert_eq!(pod, want);
}

#[test]
fn json_patches_build_nothing_deep() {
    let deep = |levels: usize| (0..levels).fold(json!(1), |v, _| json!({"a": v}));
    let mut v = json!({"spec": {"x": 1}, "keep": deep(60)});
    let before = nesting::levels(&v);
    let steps: Vec<Value> = (0..60)
        .map(|n| json!({"op": "replace", "path": format!("/spec/x{}", "/a".repeat(n * 100)), "value": deep(100)}))
        .collect();
    let e = json_patch(&mut v, steps.into()).unwrap_err();
    assert_eq!(e.code(), 422);
    assert!(e.message().starts_with("/spec/x/a/a/a"), "{}", e.message());
    assert!(
        e.message().ends_with("found 202 levels of nested objects and lists; allowed: 100"),
        "{}",
        e.message()
    );
    for op in ["copy", "move"] {
        let mut v = json!({"spec": {"x": deep(60)}, "keep": deep(60)});
        let path = format!("/spec/x{}", "/a".repeat(60));
        let e = json_patch(&mut v, json!([{"op": op, "from": "/keep", "path": path}])).unwrap_err();
        assert_eq!((e.code(), nesting::levels(&v)), (422, 62), "{op}");
    }
    let mut v = json!({"spec": {"x": 1}});
    json_patch(&mut v, json!([{"op": "add", "path": "/spec/x", "value": deep(97)}])).unwrap();
    assert!(before < nesting::levels(&v));
}

#[test]
fn json_patch_test_failure() {
    let mut v = json!({"a": 1});
    let e = json_patch(&mut v, json!([{"op": "test", "path": "/a", "value": 2}])).unwrap_err();
    assert_eq!(e.code(), 422);
}
