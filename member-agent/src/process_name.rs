//! A name for this process that no other process has, not even a later one on the same machine.
//!
//! It says machine, boot, process namespace, process and the time at which that started. So a process that is
//! started after a crash knows that its predecessor has ended, and need not wait for its lease to expire.

use std::fs;

/// What tells one process of a machine from all others.
#[derive(Debug, PartialEq, Eq)]
struct Process<'a> {
    /// Of the machine since its last boot, and the process namespace in which `pid` counts.
    boot: &'a str,
    namespace: &'a str,
    pid: &'a str,
    /// In the kernel's clock ticks since the boot.
    started: &'a str,
}

/// The name of this process.
pub fn own() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("agent").to_owned();
    let pid = std::process::id();
    match (boot(), namespace(), started(&pid.to_string())) {
        (Some(boot), Some(namespace), Some(started)) => format!("{host}_{boot}_{namespace}_{pid}_{started}"),
        // Not Linux: the name is unique all the same.
        _ => format!("{host}_{}", uuid::Uuid::new_v4()),
    }
}

/// Whether the process of that name is known to have ended. Of other machines and containers nothing is known.
pub(crate) fn has_ended(name: &str) -> bool {
    let (Some(process), Some(boot), Some(namespace)) = (parse(name), boot(), namespace()) else {
        return false;
    };
    process.boot == boot
        && process.namespace == namespace
        && started(process.pid).as_deref() != Some(process.started)
}

fn parse(name: &str) -> Option<Process<'_>> {
    let mut parts = name.rsplit('_');
    let (started, pid) = (parts.next()?, parts.next()?);
    let (namespace, boot) = (parts.next()?, parts.next()?);
    // Before them is the host's name.
    parts.next()?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    [started, pid, namespace].into_iter().all(is_number).then_some(Process { boot, namespace, pid, started })
}

/// The first part of the machine's boot id.
fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    text.split('-').next().filter(|part| !part.is_empty()).map(str::to_owned)
}

/// The number of this process's process namespace.
fn namespace() -> Option<String> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    let number: String = link.to_str()?.chars().filter(char::is_ascii_digit).collect();
    Some(number).filter(|number| !number.is_empty())
}

/// When a process of this namespace started; `None`: it has ended.
fn started(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command is in parentheses and may have spaces; the start is the 20th field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    // A zombie runs nothing any more.
    let started = fields.nth(18)?;
    (state != "Z" && state != "X").then(|| started.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_known_to_have_ended_only_on_its_own_machine() {
        let own = own();
        assert!(!has_ended(&own), "{own} lives");
        let other = |change: &dyn Fn(&mut Vec<&str>)| {
            let mut parts: Vec<&str> = own.split('_').collect();
            change(&mut parts);
            parts.join("_")
        };
        let last = own.split('_').count() - 1;
        assert!(has_ended(&other(&|parts| parts[last] = "1")), "another process had this number before");
        assert!(
            !has_ended(&other(&|parts| (parts[last], parts[last - 3]) = ("1", "00000000"))),
            "another boot"
        );
        assert!(
            !has_ended(&other(&|parts| (parts[last], parts[last - 2]) = ("1", "1"))),
            "another container"
        );
        for name in ["", "east", "member-agent-7d9c5b-x2v4k", "a_b_c_d_e", "_1_2_3"] {
            assert!(!has_ended(name), "{name:?} says nothing");
        }
    }

    #[test]
    fn a_process_that_was_waited_for_has_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().to_string();
        let name = format!("h_{}_{}_{pid}_{}", boot().unwrap(), namespace().unwrap(), started(&pid).unwrap());
        assert!(!has_ended(&name));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&name));
    }
}
