use super::*;

fn typed(words: &str) -> Wanted {
    wanted(&words.split(' ').map(str::to_string).collect::<Vec<_>>())
}

fn names(kind: &str) -> Wanted {
    Wanted::Names(kind.into(), Form::Name)
}

#[track_caller]
fn has(wanted: &Wanted, some: &[&str]) {
    let Wanted::Words(words) = wanted else { panic!("{wanted:?}") };
    for word in some {
        assert!(words.iter().any(|found| found == word), "{word} in {words:?}");
    }
}

#[test]
fn what_was_typed_says_what_is_wanted() {
    has(&typed(""), &["get", "queue", "vc"]);
    has(&typed("ge"), &["get"]);
    assert_eq!(typed("get "), Wanted::Kinds);
    assert_eq!(typed("get pytorchjob a"), names("pytorchjob"));
    assert_eq!(typed("get -n team pytorchjob "), names("pytorchjob"));
    assert_eq!(typed("explain deploy/w"), Wanted::Names("deploy".into(), Form::WithKind));
    assert_eq!(typed("explain tr"), Wanted::KindsAndJobs);
    assert_eq!(typed("describe pod x -n "), Wanted::Namespaces);
    assert_eq!(typed("get pod -m ea"), Wanted::Clusters);
    assert_eq!(typed("drain "), Wanted::Clusters);
    assert_eq!(typed("drain --dry-run east w"), Wanted::Clusters);
    assert_eq!(typed("status "), Wanted::Clusters);
    assert_eq!(typed("join --confirm "), Wanted::Clusters);
    assert_eq!(typed("join "), Wanted::Nothing);
    has(&typed("get --s"), &["--selector", "--sort-by", "--kubeconfig"]);
    has(&typed("get pod -o "), &["jsonpath=", "wide"]);
    has(&typed("bench -o "), &["json"]);
    assert_eq!(typed("--context "), Wanted::Contexts);
    assert_eq!(typed("simulate "), Wanted::Files);
    has(&typed("completion "), &["bash", "zsh"]);
}

#[test]
fn commands_below_commands_have_names_too() {
    has(&typed("queue "), &["create", "operate"]);
    has(&typed("job vi"), &["view"]);
    has(&typed("queue operate --a"), &["--action", "--name", "--context"]);
    has(&typed("queue operate -n a -a "), &["open", "close"]);
    assert_eq!(typed("queue get -n "), names(QUEUES));
    assert_eq!(typed("queue create -n "), Wanted::Nothing);
    assert_eq!(typed("job -n team view -N "), Wanted::Nothing, "no flag of `job` itself");
    assert_eq!(typed("job view -n team -N "), names(JOBS));
    assert_eq!(typed("job list -q "), names(QUEUES));
    assert_eq!(typed("jobflow describe --name "), names(FLOWS));
    assert_eq!(typed("vc get a "), Wanted::VirtualClusters);
    assert_eq!(typed("vc cells --vc "), Wanted::VirtualClusters);
    assert_eq!(typed("vc explain "), Wanted::Jobs);
    assert_eq!(typed("vc apply -f "), Wanted::Files);
    assert_eq!(typed("pai logs -n team "), Wanted::PaiJobs);
    let words: Vec<String> = "job view -n team -N a".split(' ').map(str::to_string).collect();
    assert_eq!(value_of(&words, "namespace").as_deref(), Some("team"));
    assert_eq!(value_of(&words, "name").as_deref(), Some("a"));
    let words: Vec<String> = "queue get -n gold".split(' ').map(str::to_string).collect();
    assert_eq!(value_of(&words, "namespace"), None, "the name of a queue");
}

/// New names, and names of nothing on the hub.
const FREE: [&str; 12] = [
    "apiserver --san",
    "job list --scheduler",
    "job run --name",
    "job run --scheduler",
    "join --member-context",
    "pai list --user",
    "pai logs --role",
    "pai submit --user",
    "queue create --name",
    "sim down --name",
    "sim up --name",
    "up --node-names",
];

/// Every argument that is the name of an object is completed.
#[test]
fn every_name_of_an_object_is_completed() {
    let root = Cli::command();
    let mut open = vec![(String::new(), &root)];
    let mut without = Vec::new();
    while let Some((path, command)) = open.pop() {
        open.extend(command.get_subcommands().map(|sub| (format!("{path} {}", sub.get_name()), sub)));
        for argument in command.get_arguments().filter(|arg| arg.get_action().takes_values()) {
            let words = argument.get_value_names().unwrap_or_default();
            let is_name = words.iter().any(|word| {
                ["NAME", "NAME,..", "CLUSTER", "CLUSTER,..", "JOB", "KIND NAME", "KIND [NAME]"]
                    .contains(&word.as_str())
            });
            let flag = argument.get_long().map(|long| format!("--{long}"));
            let line = match &flag {
                Some(flag) => format!("{path} {flag}"),
                None if path == " join" => format!("{path} --confirm"),
                None => path.clone(),
            };
            if is_name && typed(&format!("{} ", line.trim())) == Wanted::Nothing {
                without.push(line.trim().to_string());
            }
        }
    }
    without.sort();
    assert_eq!(without, FREE);
}
