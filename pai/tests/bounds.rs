//! What a job file, or whoever writes a job's object, makes large by repeating it.

use fleet_pai::{Protocol, Refusal, completion::Rules, hived::Offer, native::native, render};
use serde_json::{Value, json};

use crate::common::{job, protocol, submission};

fn made(protocol: &Protocol) -> Result<usize, Refusal> {
    native(&submission(protocol), &Offer::default()).map(|native| native.job.to_string().len())
}

/// A job of roles of these names, each with one task.
fn with_roles(names: impl Iterator<Item = String> + Clone, change: impl Fn(&mut Value)) -> Protocol {
    protocol(|job| {
        let mut role = job["taskRoles"]["train"].take();
        role["instances"] = json!(1);
        job["taskRoles"] = names.clone().map(|name| (name, role.clone())).collect();
        change(job);
    })
}

#[test]
fn templates_do_not_multiply_a_value() {
    let with = |size: usize, commands: Value| {
        protocol(|job| {
            job["secrets"] = json!({"a": "x".repeat(size)});
            job["taskRoles"]["train"]["commands"] = commands.clone();
            job["taskRoles"]["ps"] = job["taskRoles"]["train"].clone();
        })
    };
    let often = |times: usize| "<%$secrets.a%>".repeat(times);
    let large = with(1_500_000, json!([often(13_000), often(13_000)]));
    let refusal = render::scripts(&large).expect_err("19 GB");
    let [problem] = refusal.problems.as_slice() else { panic!("{refusal}") };
    assert!(problem.path.ends_with(".commands[0]") && problem.found == WHAT, "{problem}");
    // All roles together.
    assert!(render::scripts(&with(1_000, json!([often(500)]))).is_ok());
    let refusal = render::scripts(&with(1_000, json!(vec![often(1); 600]))).expect_err("1.2 MB");
    let [problem] = refusal.problems.as_slice() else { panic!("{refusal}") };
    assert!(problem.path.starts_with("taskRoles.") && problem.found == WHAT, "{problem}");
}

/// Each parameter looked for among all takes minutes.
#[test]
fn templates_find_their_parameters_without_a_search() {
    const PARAMETERS: usize = 60_000;
    let made = protocol(|job| {
        let parameters = (0..PARAMETERS).map(|i| (format!("a{i}"), json!(i % 10)));
        job["parameters"] = Value::Object(parameters.collect());
        let names = (0..PARAMETERS).rev().map(|i| format!("<%$parameters.a{i}%>"));
        job["taskRoles"]["train"]["commands"] = json!([names.collect::<String>()]);
    });
    let scripts = render::scripts(&made).expect("a small script");
    let train = scripts.iter().find(|script| script.role == "train").expect("a script");
    assert!(train.text.contains(&"9876543210".repeat(PARAMETERS / 10)));
}

const WHAT: &str = "more than 1024 KiB in all, with the values of templates";

#[test]
fn logins_do_not_multiply_a_value() {
    let with = |images: usize| {
        let image = |i: usize| {
            let auth =
                json!({"username": "u", "password": "<% $secrets.a %>", "registryuri": "<% $secrets.a %>"});
            json!({"name": format!("i{i}"), "type": "dockerimage", "uri": "x", "auth": auth})
        };
        protocol(|job| {
            job["secrets"] = json!({"a": "x".repeat(10_000)});
            let all = job["prerequisites"].as_array_mut().expect("a list");
            all.extend((0..images).map(image));
        })
    };
    assert_eq!(render::logins(&with(50)).expect("1 MB").len(), 50);
    let refusal = render::logins(&with(2_000)).expect_err("40 MB");
    let [problem] = refusal.problems.as_slice() else { panic!("{refusal}") };
    assert_eq!((problem.path.as_str(), problem.found.as_str()), ("prerequisites[53].auth.password", WHAT));
}

#[test]
fn of_many_wrong_templates_a_hundred_are_told_with_the_first_choices() {
    let wrong = protocol(|job| {
        job["parameters"] = (0..5_000).map(|i| (format!("p{i}"), json!(i))).collect();
        job["taskRoles"]["train"]["commands"] = json!(vec!["<% $parameters.x %><% $parameters.y %>"; 5_000]);
    });
    let refusal = render::scripts(&wrong).expect_err("10,000 mistakes");
    assert_eq!(refusal.problems.len(), 100);
    assert!(refusal.to_string().len() < 300_000, "{}", refusal.to_string().len());
}

#[test]
fn roles_do_not_multiply_what_each_of_them_has() {
    let short = |many: usize| (0..many).map(|i| format!("r{i}"));
    let small = with_roles(short(20), |_| {});
    assert!(made(&small).expect("a job") < 1_500_000);
    let told = made(&with_roles(short(100), |_| {})).expect_err("each has the variables of all").to_string();
    assert!(
        told.contains("taskRoles: found variables of more than 10 KiB in each of 100 task roles"),
        "{told}"
    );
    // Addresses of tasks with many ports.
    let ported = with_roles(short(2), |job| {
        for role in ["r0", "r1"] {
            let ports: Value = (0..1_000).map(|i| (format!("p{i}"), json!(1))).collect();
            job["taskRoles"][role]["resourcePerInstance"]["ports"] = ports;
            job["taskRoles"][role]["instances"] = json!(100);
        }
    });
    let told = made(&ported).expect_err("200,000 variables in each").to_string();
    assert!(told.contains("variables of more than 512 KiB in each of 2 task roles"), "{told}");
    // The name of a group has those of its roles, and each of its roles has all of them.
    let long = || (0..60).map(|i| format!("{i}_{}", "x".repeat(250)));
    let grouped = with_roles(long(), |job| {
        let names: Vec<String> = long().collect();
        job["extras"] = json!({"hivedScheduler": {"taskRoleGroups": [{"taskRoles": names}]}});
    });
    let told = made(&grouped).expect_err("60 times 60 names of 15 KB").to_string();
    assert!(told.contains("extras.hivedScheduler: found scheduling specs of more than 1024 KiB"), "{told}");
}

#[test]
fn a_job_has_a_hundred_roles_and_a_hundred_thousand_tasks_at_most() {
    let with = |roles: usize, tasks: i64| {
        Protocol::read(&job(|job| {
            let mut role = job["taskRoles"]["train"].take();
            role["instances"] = json!(tasks);
            job["taskRoles"] = (0..roles).map(|i| (format!("r{i}"), role.clone())).collect();
        }))
        .map(|job| job.tasks())
        .map_err(|refusal| refusal.to_string())
    };
    assert_eq!(with(100, 1_000), Ok(100_000));
    assert_eq!(with(101, 1), Err("taskRoles: found 101 task roles; allowed: at most 100".to_owned()));
    assert_eq!(
        with(2, 50_001),
        Err("taskRoles: found 100002 tasks; allowed: at most 100000 of all task roles together".to_owned())
    );
}

#[test]
fn a_long_name_is_not_in_the_path_of_all_below_it() {
    let name = "x".repeat(100_000);
    let refusal = Protocol::read(&job(|job| {
        let mut role = job["taskRoles"]["train"].take();
        for i in 0..20_000 {
            role[format!("f{i}")] = json!(1);
        }
        job["taskRoles"] = json!({&name: role});
    }))
    .expect_err("a long name, and unknown fields");
    assert_eq!(refusal.problems.len(), 100);
    assert!(refusal.to_string().len() < 100_000, "{}", refusal.to_string().len());
}

#[test]
fn rules_that_no_job_file_makes_are_none() {
    let role = |change: &dyn Fn(&mut Value)| {
        let mut role = json!({"role": "ps_server", "task": "ps-server", "instances": 2, "minFailed": 1, "minSucceeded": 2,
            "taskRetry": {"fancy": true, "max": 0}});
        change(&mut role);
        role
    };
    let read = |roles: Vec<Value>| {
        Rules::read(&json!({"roles": roles, "jobRetry": {"fancy": true, "max": 0}}).to_string())
    };
    assert_eq!(read(vec![role(&|_| {})]).map(|rules| rules.tasks()), Some(2));
    let instances = |number: i64| role(&|role| role["instances"] = json!(number));
    assert_eq!(read(vec![instances(100_000)]).map(|rules| rules.tasks()), Some(100_000));
    for wrong in [instances(-1), instances(100_001), instances(10_000_000_000), instances(i64::MAX)] {
        assert_eq!(read(vec![wrong]), None);
    }
    assert_eq!(read(vec![instances(60_000), instances(60_000)]), None);
    assert!(read(vec![instances(1); 100]).is_some());
    assert_eq!(read(vec![instances(1); 101]), None);
    for text in ["", "0/proxy/x?", "..", "a/b", "A", "a b", "-a", &"x".repeat(64)] {
        assert_eq!(read(vec![role(&|role| role["task"] = json!(text))]), None, "{text}");
    }
    for text in ["", "a/b", "a-b", &"x".repeat(256)] {
        assert_eq!(read(vec![role(&|role| role["role"] = json!(text))]), None, "{text}");
    }
    assert_eq!(Rules::read("no JSON"), None);
    // Those of every job file are read.
    for number in 1..=7 {
        let job = crate::common::read(&crate::common::lab(number)).expect("a job");
        let rules = Rules::of(&job);
        assert_eq!(Rules::read(&serde_json::to_string(&rules).expect("JSON")), Some(rules));
    }
}
