//! The program itself: names, exit statuses, errors of a user's making.

mod portal;
mod simulate;

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

fn fleet() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleet"));
    command.env_remove("KUBECONFIG").env_remove("FLEET_HOME").env("HOME", "/nonexistent");
    command
}

fn run(arguments: &[&str]) -> Output {
    fleet().args(arguments).output().expect("runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).to_string()
}

/// One line, `error: ...`, exit status 1, nothing on stdout.
fn one_error(output: &Output, says: &[&str]) {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with("error: "), "{text}");
    for word in says {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(output.stdout.is_empty());
}

#[test]
fn a_usage_error_has_status_2() {
    assert_eq!(run(&["get"]).status.code(), Some(2));
    assert_eq!(run(&["up", "--members", "0"]).status.code(), Some(2));
    assert_eq!(run(&["up", "--runtime", "soon"]).status.code(), Some(2));
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let bad = directory.path().join("bad");
    std::fs::write(&bad, "a: [\n").expect("written");
    let bad = bad.to_string_lossy().to_string();
    one_error(&run(&["--kubeconfig", "/nowhere/config", "get", "pod"]), &["/nowhere/config"]);
    one_error(&run(&["--kubeconfig", &bad, "get", "pod"]), &[&bad, "line 1"]);
    one_error(&run(&["clusters"]), &["no kubeconfig", "fleet up"]);
    let listed = fleet().env("KUBECONFIG", "/nowhere/a:/nowhere/b").args(["queue"]).output().expect("runs");
    one_error(&listed, &["/nowhere/a, /nowhere/b"]);
}

#[test]
fn a_server_that_is_away_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {}}]\n";
    std::fs::write(&file, text).expect("written");
    let file = file.to_string_lossy().to_string();
    one_error(&run(&["--kubeconfig", &file, "get", "pod"]), &["http://127.0.0.1:1", "refused"]);
    one_error(&run(&["--kubeconfig", &file, "--context", "b", "get", "pod"]), &["\"b\"", "allowed: a"]);
}

/// A server that takes the connection and says nothing.
#[test]
fn a_silent_server_is_waited_for_as_long_as_was_said() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    );
    std::fs::write(&file, text).expect("written");
    let file = file.to_string_lossy().to_string();
    for (time, says) in [("1", "nothing heard for 1 s"), ("2s", "nothing heard for 2 s")] {
        for command in [["get", "pod"].as_slice(), &["queue"], &["clusters"], &["drain", "east"]] {
            let output = run(&[&["--kubeconfig", &file, "--request-timeout", time], command].concat());
            let told = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{command:?}: {told}");
            assert!(told.contains(&url) && told.contains(says), "{command:?}: {told}");
        }
    }
    assert_eq!(run(&["--request-timeout", "soon", "clusters"]).status.code(), Some(2));
}

#[test]
fn up_says_what_is_in_its_way() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("written");
    let file = file.to_string_lossy().to_string();
    one_error(&run(&["up", "--data-dir", &file]), &[&file, "--data-dir"]);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let data = directory.path().join("data").to_string_lossy().to_string();
    one_error(&run(&["up", "--data-dir", &data, "--port", &port]), &[&port, "--port"]);
    assert!(!Path::new(&data).join("fleet.json").exists(), "nothing was started");
}

#[test]
fn it_is_a_plugin_of_kubectl_under_its_other_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = run(&["plugins", &directory.path().to_string_lossy()]);
    assert!(made.status.success(), "{}", stderr(&made));
    let plugin = directory.path().join("kubectl-amc");
    let help = Command::new(&plugin).arg("--help").output().expect("runs");
    assert!(String::from_utf8_lossy(&help.stdout).contains("Usage: kubectl amc "));
    // kubectl completes by it: a word a line, and how the shell goes on.
    let complete = directory.path().join("kubectl_complete-fleet");
    let words = Command::new(&complete).arg("que").output().expect("runs");
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    assert!(words.lines().any(|line| line.split('\t').next() == Some("queue")), "{words}");
    assert!(words.lines().last().is_some_and(|line| line.starts_with(':')), "{words}");
    // And Volcano's program under its name, with its flags.
    let vcctl = directory.path().join("vcctl");
    let said = |arguments: &[&str]| Command::new(&vcctl).args(arguments).output().expect("runs");
    assert!(String::from_utf8_lossy(&said(&["--help"]).stdout).contains("Usage: vcctl "));
    assert!(String::from_utf8_lossy(&said(&["version"]).stdout).starts_with("vcctl "));
    one_error(&said(&["-k", "/nowhere", "job", "list"]), &["/nowhere"]);
    one_error(&said(&["-k", "/nowhere", "queue", "operate", "-n", "q", "-a", "close"]), &["/nowhere"]);
    let bad = said(&["job", "run", "-N", "a", "-R", "cpu=x"]);
    assert_eq!(bad.status.code(), Some(2), "{}", stderr(&bad));
    assert!(stderr(&bad).contains("is not a quantity"), "{}", stderr(&bad));
    // Again is fine; a file that is no link is left alone.
    assert!(run(&["plugins", &directory.path().to_string_lossy()]).status.success());
    std::fs::remove_file(&plugin).expect("removed");
    std::fs::write(&plugin, "mine").expect("written");
    one_error_or_text(&run(&["plugins", &directory.path().to_string_lossy()]));
    assert_eq!(std::fs::read_to_string(&plugin).expect("readable"), "mine");
    assert!(std::fs::metadata(&plugin).expect("there").permissions().mode() & 0o111 == 0);
}

fn one_error_or_text(output: &Output) {
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(output).contains("was not changed"), "{}", stderr(output));
}

#[test]
fn definitions_and_completions_are_printed() {
    let hub = run(&["crds", "--hub"]);
    let text = String::from_utf8_lossy(&hub.stdout);
    assert!(text.contains("name: clusters.fleet.dev"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completion", shell]).stdout.len() > 1000, "{shell}");
    }
    assert_eq!(run(&["crds"]).status.code(), Some(2));
}

#[test]
fn the_demo_tells_the_whole_story() {
    let output = run(&["demo", "--runtime", "1s"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", stderr(&output));
    for line in [
        "elasticquotatree.scheduling.sigs.k8s.io/elasticquotatree created",
        "pytorchjob.kubeflow.org/pytorch-test created",
        "Queuing",
        ":0,[{master 1} {worker 2}]}",
        "pytorch-test-worker-1",
        "Succeeded",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn up_becomes_ready_and_ends_cleanly_and_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().to_string_lossy().to_string();
    // Two starts on one directory; the second finds the first one's members.
    for flags in [["--members", "2"].as_slice(), &[]] {
        let port = free_ports().to_string();
        let arguments = ["up", "--data-dir", &data, "--port", &port];
        let mut up = fleet()
            .args(arguments)
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("runs");
        let lines = BufReader::new(up.stdout.take().expect("piped")).lines();
        let said: Vec<String> = lines.map_while(Result::ok).take_while(|line| line != "ready").collect();
        assert!(said.contains(&format!("export KUBECONFIG={data}/kubeconfig")), "{said:?}");
        assert!(said.contains(&format!("export PATH={data}/bin:$PATH")), "{said:?}");
        let listed = fleet()
            .env("KUBECONFIG", directory.path().join("kubeconfig"))
            .args(["clusters"])
            .output()
            .expect("runs");
        let listed = String::from_utf8_lossy(&listed.stdout).to_string();
        assert_eq!(listed.lines().count(), 3, "{listed}");
        assert!(listed.contains("GPU USED/TOTAL") && listed.contains("0/32"), "{listed}");
        assert!(said.iter().any(|line| line.contains("Kubeconfigs of the members")), "{said:?}");
        assert!(said.iter().any(|line| line.starts_with("Portal: http://127.0.0.1:")), "{said:?}");
        assert!(said.iter().any(|line| line.contains("plugins ~/.local/bin")), "{said:?}");
        // Without a variable, and before a kubeconfig of the reader's own, which is named.
        let home = directory.path().join("home");
        std::fs::create_dir_all(home.join(".kube")).expect("a directory");
        std::fs::write(home.join(".kube/config"), "{}").expect("written");
        let here = |command: &[&str]| {
            fleet().env("FLEET_HOME", &data).env("HOME", &home).args(command).output().expect("runs")
        };
        let found = here(&["clusters"]);
        assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 3, "{}", stderr(&found));
        assert!(stderr(&found).contains("note: this is the fleet of `fleet up`"), "{}", stderr(&found));
        let healthy = here(&["doctor"]);
        let text = String::from_utf8_lossy(&healthy.stdout).to_string();
        assert!(healthy.status.success(), "{text}");
        for line in
            ["ok       hub: https://127.0.0.1", "ok       definitions", "cluster west: its agent answers"]
        {
            assert!(text.contains(line), "{line} in {text}");
        }
        let member = directory.path().join("members/east.kubeconfig").display().to_string();
        let queues = here(&["--kubeconfig", &member, "queue"]);
        let text = String::from_utf8_lossy(&queues.stdout).to_string();
        assert!(text.starts_with("QUEUE") && text.contains("default"), "{text}{}", stderr(&queues));
        // Contradicting the directory is refused while it is in use and after.
        Command::new("kill").args(["-TERM", &up.id().to_string()]).status().expect("kill runs");
        assert_eq!(up.wait().expect("ends").code(), Some(0));
    }
    one_error(
        &run(&["up", "--data-dir", &data, "--members", "5"]),
        &["--members 2", "found --members 5", "allowed: 2"],
    );
}

/// What joins a cluster also writes the credential of its agent, which reaches its own namespace and nothing else.
#[test]
fn joining_writes_the_agents_credential() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_string_lossy().to_string();
    let start = |arguments: &[&str], until: &str| {
        let mut child = fleet().args(arguments).stdout(Stdio::piped()).spawn().expect("runs");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(until)), "{arguments:?} said no {until:?}");
        // Whoever reads no more must not close the pipe.
        (child, lines)
    };
    let (data, port) = (path("up"), free_ports().to_string());
    let (mut up, _up_lines) = start(&["up", "--members", "1", "--data-dir", &data, "--port", &port], "ready");
    let alone = path("alone");
    let listen = ["apiserver", "--listen", "127.0.0.1:0", "--data-dir", &alone];
    let (mut server, _server_lines) = start(&listen, "export KUBECONFIG");

    let (hub, member, agent) = (format!("{data}/kubeconfig"), format!("{alone}/kubeconfig"), path("agent"));
    let joined = run(&[
        "--kubeconfig",
        &hub,
        "join",
        "west",
        "--member-kubeconfig",
        &member,
        "--agent-kubeconfig",
        &agent,
    ]);
    let text = String::from_utf8_lossy(&joined.stdout).to_string();
    assert!(joined.status.success(), "{text}{}", stderr(&joined));
    let command =
        format!("member-agent --cluster west --hub-kubeconfig {agent} --member-kubeconfig {member}");
    assert!(text.contains(&command), "{text}");
    assert_eq!(std::fs::metadata(&agent).expect("written").permissions().mode() & 0o777, 0o600);
    let as_agent = |command: &[&str]| run(&[&["--kubeconfig", &agent], command].concat());
    let own = as_agent(&["get", "cluster", "west"]);
    assert!(own.status.success(), "{}", stderr(&own));
    for other in [["get", "cluster", "east"].as_slice(), &["get", "secret", "-n", "fleet-west"]] {
        let refused = as_agent(other);
        assert!(!refused.status.success() && stderr(&refused).contains("forbidden"), "{}", stderr(&refused));
    }
    // By name it reads its own Cluster, so its credential is enough to check an installation (`helm test`).
    let checked = as_agent(&["status", "west", "--check"]);
    assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
    let why = "error: cluster \"west\": its agent has never answered";
    assert!(stderr(&checked).contains(why), "{}", stderr(&checked));
    // A member without an agent: the doctor says so.
    let doctor = run(&["--kubeconfig", &hub, "doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).to_string();
    assert_eq!(doctor.status.code(), Some(1), "{text}");
    assert!(text.contains("ERROR    cluster west: its agent has never answered"), "{text}");
    for child in [&mut up, &mut server] {
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
        assert_eq!(child.wait().expect("ends").code(), Some(0));
    }
}

#[test]
fn a_doctor_without_a_fleet_says_what_to_do() {
    let output = run(&["doctor"]);
    let text = String::from_utf8_lossy(&output.stdout).to_string();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("ERROR    kubeconfig: no kubeconfig") && text.contains("fleet up"), "{text}");
    let output = run(&["doctor", "-o", "json"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"level\": \"error\""));
}

/// The first of a few ports in a row that are free now.
fn free_ports() -> u16 {
    const NEEDED: u16 = 4;
    for _ in 0..100 {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let first = probe.local_addr().expect("an address").port();
        drop(probe);
        let Some(last) = first.checked_add(NEEDED) else { continue };
        if (first..last).all(|port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return first;
        }
    }
    panic!("no free ports");
}

#[test]
fn the_api_server_alone_answers_kept_objects_and_ends_cleanly() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let kubeconfig = data.join("kubeconfig");
    let path = data.to_string_lossy().to_string();
    for start in 0..2 {
        let mut server = fleet()
            .args(["apiserver", "--listen", "127.0.0.1:0", "--data-dir", &path])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("runs");
        let mut lines = BufReader::new(server.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let url = lines.next().expect("an address");
        assert!(url.starts_with("https://127.0.0.1:"), "{url}");
        assert_eq!(lines.next(), Some(format!("export KUBECONFIG={path}/kubeconfig")));
        assert_eq!(std::fs::metadata(&kubeconfig).expect("written").permissions().mode() & 0o777, 0o600);
        if start == 0 {
            let taken = url.trim_start_matches("https://");
            let other = directory.path().join("other").to_string_lossy().to_string();
            one_error(&run(&["apiserver", "--listen", taken, "--data-dir", &other]), &[taken]);
            one_error(
                &run(&["apiserver", "--listen", "127.0.0.1:0", "--data-dir", &path]),
                &["in use", &path],
            );
            assert!(kubeconfig.exists(), "a second start leaves the first one's kubeconfig alone");
        }
        let named =
            |name: &str| fleet().env("KUBECONFIG", &kubeconfig).args(["get", "namespace", name]).output();
        assert!(named("default").expect("runs").status.success());
        Command::new("kill").args(["-INT", &server.id().to_string()]).status().expect("kill runs");
        assert_eq!(server.wait().expect("ends").code(), Some(0));
        assert!(!kubeconfig.exists());
    }
    let none = ["apiserver", "--data-dir", &path, "--controllers", "none,job"];
    one_error(&run(&none), &["--controllers", "none"]);
}

/// A file among the examples.
fn example(name: &str) -> String {
    format!("{}/../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_job_of_openpais_protocol_is_shown_before_it_is_made() {
    // Whoever says owner and place needs no hub.
    for number in 0..8 {
        let file = example(&format!("hived/jobs/job-config-{number}.yaml"));
        let output = run(&["pai", "submit", &file, "-n", "team-a", "--user", "alice", "--dry-run"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", stderr(&output));
        for line in [
            "kind: Job",
            &format!("name: alice-job-config-{number}"),
            "namespace: team-a",
            "hivedscheduler.microsoft.com/pod-scheduling-spec",
            "image: openpai/pai.example.pytorch",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}

#[test]
fn a_wrong_job_file_is_told_with_file_line_and_field() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.yaml").to_string_lossy().to_string();
    let good = std::fs::read_to_string(example("hived/jobs/job-config-0.yaml")).expect("a lab file");
    let dry = |text: &str| {
        std::fs::write(&file, text).expect("written");
        run(&["pai", "submit", &file, "-n", "a", "--user", "alice", "--dry-run"])
    };
    for (text, says) in [
        (
            good.replace("instances: 1", "instances: 0"),
            "line 11: taskRoles.train.instances: found 0; allowed: a whole",
        ),
        (
            good.replace("jobPriorityClass: prod", "jobPriorityClass: crit"),
            "jobPriorityClass: found \"crit\"; allowed",
        ),
        (
            good.replace("--lr 0.01", "--lr <% $parameters.lr %>"),
            "taskRoles.train.commands[0]: found <% $parameters.lr",
        ),
        ("a: [".to_string(), "allowed: one YAML document"),
    ] {
        one_error(&dry(&text), &[&format!("{file}: line "), says]);
    }
    let two = dry(&good.replace("instances: 1", "instances: 0").replace("type: job", "type: task"));
    let lines: Vec<String> = stderr(&two).lines().map(str::to_string).collect();
    assert_eq!((two.status.code(), lines.len()), (Some(1), 2), "{lines:?}");
    one_error(&run(&["pai", "submit", "/nowhere.yaml"]), &["/nowhere.yaml cannot be read"]);
    one_error(&run(&["pai", "list"]), &["no kubeconfig"]);
    for arguments in [
        ["pai", "list", "--state", "DONE"].as_slice(),
        &["pai", "submit", &file, "--user", "a b"],
        &["pai", "stop"],
        &["pai", "logs", "a", "--tail", "0"],
    ] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
