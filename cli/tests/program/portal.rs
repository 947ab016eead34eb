//! `fleet portal`: whom it serves.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use super::{fleet, one_error, run, stderr};

#[test]
fn the_portal_serves_callers_with_their_own_rights_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let path = data.to_string_lossy().to_string();
    let start = |arguments: &[&str]| {
        let mut command = fleet();
        command.env("KUBECONFIG", data.join("kubeconfig"));
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("runs")
    };
    let mut server = start(&["apiserver", "--listen", "127.0.0.1:0", "--data-dir", &path]);
    let mut said = BufReader::new(server.stdout.take().expect("piped")).lines().map_while(Result::ok);
    said.next().expect("an address");
    said.next().expect("a kubeconfig");
    let mut portal = start(&["portal", "--listen", "127.0.0.1:0"]);
    let mut said = BufReader::new(portal.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let url = said.next().expect("an address");
    assert_eq!(said.next().as_deref(), Some("ready"));
    let address = url.trim_start_matches("http://").to_string();
    let ask = |path: &str, token: &str| {
        let mut socket = std::net::TcpStream::connect(&address).expect("connects");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}\r\n",
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") }
        );
        std::io::Write::write_all(&mut socket, request.as_bytes()).expect("sent");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut socket, &mut answer).expect("answered");
        answer
    };
    let info = ask("/api/v2/info", "");
    assert!(info.starts_with("HTTP/1.1 200"), "{info}");
    // Pages ask to sign in, with what the command prints.
    let page = ask("/jobs", "");
    assert!(page.starts_with("HTTP/1.1 303") && page.contains("location: /sign-in?back="), "{page}");
    let token =
        fleet().env("KUBECONFIG", data.join("kubeconfig")).args(["portal", "token"]).output().expect("runs");
    let token = String::from_utf8_lossy(&token.stdout).trim().to_string();
    let known = ask("/api/v2/jobs", &token);
    assert!(!known.starts_with("HTTP/1.1 401") && !token.is_empty(), "{known}");
    // The kubeconfig's own user is an administrator; nobody gets in on its ticket.
    for token in ["", "nonsense"] {
        let answer = ask("/api/v2/jobs", token);
        assert!(answer.starts_with("HTTP/1.1 401") && answer.contains("UnauthorizedUserError"), "{answer}");
    }
    for child in [&mut portal, &mut server] {
        Command::new("kill").args(["-TERM", &child.id().to_string()]).status().expect("kill runs");
        assert_eq!(child.wait().expect("ends").code(), Some(0));
    }
    one_error(&run(&["portal", "--listen", "0.0.0.0:0"]), &["--listen", "0.0.0.0:0", "--allow-plain-http"]);
}

/// A recording asks nobody to sign in: it is this machine's own unless that is said in as many words.
#[test]
fn a_recording_is_not_shown_to_the_network_by_accident() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("run.jsonl");
    let log = log.to_str().expect("text");
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/scenarios/reclaim.yaml");
    assert!(run(&["simulate", scenario, "--log", log]).status.success());
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = run(&["portal", "--log", log, "--listen", address]);
        one_error(&refused, &["--listen", address, "sign in", "--allow-anonymous"]);
    }
    // The flag for tokens is not the one for this.
    let other = run(&["portal", "--log", log, "--listen", "0.0.0.0:0", "--allow-plain-http"]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr(&other));
    assert_eq!(run(&["portal", "--allow-anonymous"]).status.code(), Some(2));
    for arguments in [&["--listen", "127.0.0.1:0"][..], &["--listen", "0.0.0.0:0", "--allow-anonymous"]] {
        let mut portal = fleet()
            .args(["portal", "--log", log])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(portal.stdout.take().expect("piped")).lines();
        let address = lines.next().expect("a line").expect("text");
        assert!(address.starts_with("http://"), "{address}");
        portal.kill().expect("ends");
        portal.wait().expect("ends");
    }
}
