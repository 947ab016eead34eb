//! Colours: at a terminal, which `script` of util-linux makes here; none in a pipe, at a dumb terminal, and with NO_COLOR.

use std::process::{Command, Output, Stdio};

/// How a colour begins. Whatever it is, a terminal also gets codes that clear the line of a progress.
const COLOUR: &str = "\u{1b}[3";

fn output(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.env_remove("KUBECONFIG").env_remove("NO_COLOR").env_remove("COLUMNS").stdin(Stdio::null());
    command.env("HOME", "/nonexistent").env("FLEET_HOME", "/nonexistent");
    command.envs(variables.iter().copied()).args(arguments).output().expect("runs")
}

/// Whether this machine makes terminals; tells if not.
pub fn can_make_terminals() -> bool {
    let mut script = Command::new("script");
    let made = script.args(["-qec", "true", "/dev/null"]).stdin(Stdio::null()).output();
    let can = made.is_ok_and(|made| made.status.success());
    if !can {
        eprintln!("skipped: no script of util-linux that makes a terminal");
    }
    can
}

/// The word of what `fleet ARGUMENTS` prints has this colour where there are any, and none elsewhere.
#[track_caller]
pub fn assert_coloured(arguments: &[&str], word: &str, code: &str) {
    let program = env!("CARGO_BIN_EXE_fleet");
    let words = [program].into_iter().chain(arguments.iter().copied());
    let line: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    let text = |output: Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let at_terminal = |variables: &[(&str, &str)]| {
        text(output("script", &["-qec", &line.join(" "), "/dev/null"], variables))
    };
    let coloured = at_terminal(&[("TERM", "xterm")]);
    assert!(coloured.contains(&format!("\u{1b}[{code}m{word}\u{1b}[0m")), "{coloured:?}");
    let no_color = at_terminal(&[("TERM", "xterm"), ("NO_COLOR", "1")]);
    let dumb = at_terminal(&[("TERM", "dumb")]);
    let piped = text(output(program, arguments, &[("TERM", "xterm")]));
    for plain in [no_color, dumb, piped] {
        assert!(plain.contains(word) && !plain.contains(COLOUR), "{plain:?}");
    }
}

#[test]
fn a_simulated_run_has_colours_where_they_are_wanted() {
    if can_make_terminals() {
        let file = format!("{}/../examples/scenarios/reclaim.yaml", env!("CARGO_MANIFEST_DIR"));
        assert_coloured(&["simulate", &file], "RUNS", "32");
        assert_coloured(&["simulate", &file], "PREEMPTED", "33");
    }
}
