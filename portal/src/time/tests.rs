use std::io::Write as _;

use fleet_views::State;

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fleet-time-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn line(t: i64, event: &str, job: &str, more: &str) -> String {
    format!("{{\"t\":{t},\"event\":\"{event}\",\"job\":\"a/{job}\"{more}}}\n")
}

fn submitted(t: i64, job: &str) -> String {
    line(t, "Submitted", job, ",\"kind\":\"Job\",\"gpus\":1")
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file that can be written");
}

/// Looks at the file again, however fresh what is known is.
fn again(time: &Time) {
    time.read().at = None;
}

fn jobs(time: &Time, at_ms: Option<i64>) -> Vec<(String, State)> {
    again(time);
    let moment = time.moment(at_ms).expect("a moment");
    moment.known.jobs().values().map(|job| (job.name().to_owned(), job.state())).collect()
}

#[test]
fn a_log_is_read_on_while_it_grows_and_anew_when_it_is_another() {
    let folder = folder("grows");
    let path = folder.join("run.jsonl");
    let time = Time::following(&path);
    assert!(time.moment(None).is_none());
    assert!(time.trouble().expect("a reason").starts_with("run.jsonl cannot be read: "));
    write(&path, &submitted(1, "one"));
    assert_eq!(jobs(&time, None), [("one".to_owned(), State::Waiting)]);

    // A line that is being written is waited for.
    let next = submitted(2, "two");
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("the file");
    file.write_all(&next.as_bytes()[..20]).expect("written");
    assert_eq!(jobs(&time, None).len(), 1);
    let notices = time.moment(None).expect("a moment").notices;
    assert!(
        notices.iter().any(|notice| notice == "run.jsonl: its last line, 2, breaks off and is left out."),
        "{notices:?}"
    );
    file.write_all(&next.as_bytes()[20..]).expect("written");
    assert_eq!(jobs(&time, None).len(), 2);
    assert_eq!(jobs(&time, Some(1_500)).len(), 1);
    assert!(time.moment(None).expect("a moment").notices.iter().all(|notice| !notice.contains("breaks off")));

    // Rotated: the older part is read first.
    std::fs::rename(&path, folder.join("run.jsonl.1")).expect("renamed");
    write(
        &path,
        &format!("{{\"t\":3,\"event\":\"Recording\",\"clock\":\"unix\"}}\n{}", submitted(3, "three")),
    );
    assert_eq!(jobs(&time, None), [("three".to_owned(), State::Waiting)]);
    assert_eq!(jobs(&time, Some(2_000)).len(), 2);
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn a_broken_end_is_tolerated_and_a_broken_line_is_named() {
    let folder = folder("broken");
    let path = folder.join("run.jsonl");
    let opened = |text: &str| {
        write(&path, text);
        Time::open(&path)
    };
    let refused = |text: &str| opened(text).err().expect("an error").to_string();
    let good = submitted(1, "one");
    assert!(opened(&format!("{good}{{\"t\":2,\"ev")).is_ok());
    // A last line without its end that is whole counts.
    assert_eq!(jobs(&opened(good.trim_end()).expect("a log"), None).len(), 1);
    let wrong = refused(&format!("{good}{}{good}", line(1, "Vanished", "one", "")));
    assert!(
        wrong.contains("run.jsonl: line 2: found event Vanished; allowed: one of Recording, "),
        "{wrong}"
    );
    assert!(refused(&format!("{good}nonsense\n")).contains("line 2: found no JSON"));
    assert!(refused("").contains("found no events; allowed: the log of a run"));
    let missing = Time::open(&folder.join("none")).err().expect("an error").to_string();
    assert!(missing.contains("none: found No such file or directory"), "{missing}");
    // Of one that is followed, what is good is shown, and the rest told.
    let time = Time::following(&path);
    write(&path, &format!("{good}nonsense\n"));
    let moment = time.moment(None).expect("a moment");
    assert!(moment.notices[0].starts_with("run.jsonl, line 2: found no JSON"), "{:?}", moment.notices);
    std::fs::remove_dir_all(folder).expect("removed");
}
