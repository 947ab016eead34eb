use super::*;

#[test]
fn durations_are_read_as_go_writes_them() {
    let check = |text: &str, expect: Option<u64>| {
        let found = text.parse::<RunTime>().ok();
        assert_eq!(found, expect.map(|ms| RunTime::For(Duration::from_millis(ms))), "{text}");
    };
    check("60s", Some(60_000));
    check("5m", Some(300_000));
    check("500ms", Some(500));
    check("1h30m", Some(5_400_000));
    check("1.5s", Some(1_500));
    check("0", Some(0));
    for bad in ["", "60", "s", "5 m", "-1s", "1d", "1..2s"] {
        check(bad, None);
    }
    assert_eq!("forever".parse(), Ok(RunTime::Forever));
}

#[test]
fn the_pod_speaks_before_its_owner() {
    let annotations = |pairs: &[(&str, &str)]| -> Annotations {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    };
    let default = RunTime::For(Duration::from_secs(3));
    let pod = annotations(&[(SIM_RUNTIME_ANNOTATION, "1s")]);
    let owner = annotations(&[(SIM_RUNTIME_ANNOTATION, "9s"), (SIM_FAIL_ON_ANNOTATION, "east, west")]);
    let plan = |cluster| run_plan(&pod, &owner, Nature::Batch, cluster, default);
    let second = RunTime::For(Duration::from_secs(1));
    assert_eq!(plan("west"), RunPlan { run_time: second, ending: Ending::Fails });
    assert_eq!(plan("north"), RunPlan { run_time: second, ending: Ending::Succeeds });
    let none = annotations(&[]);
    assert_eq!(run_plan(&none, &none, Nature::Batch, "east", default).run_time, default);
    assert_eq!(run_plan(&none, &none, Nature::Service, "east", default).run_time, RunTime::Forever);
}
