//! What a process costs its machine, under the names that all clients of Prometheus use.
//!
//! Input: `/proc/self`. Where there is none, only the version is told.

use std::fmt::Write;

use crate::Exposed;

/// Linux counts processor time for programs in hundredths of a second on every architecture (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// One process: its version and its use of the machine.
#[derive(Clone, Debug)]
pub struct Process {
    name: &'static str,
    version: &'static str,
}

impl Process {
    /// `name` is the program's.
    pub fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version }
    }
}

struct Use {
    cpu_s: f64,
    threads: u64,
    virtual_bytes: u64,
    started_s: f64,
}

/// Of `/proc/self/stat` and the time at which the machine was started.
fn read(stat: &str, booted_s: f64) -> Option<Use> {
    // The second field is the program's name, which may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // Numbered as in proc(5), of which two are before.
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    let whole = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Use {
        cpu_s: (field(14)? + field(15)?) / TICKS_PER_SECOND,
        threads: whole(20)?,
        virtual_bytes: whole(23)?,
        started_s: booted_s + field(22)? / TICKS_PER_SECOND,
    })
}

fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

impl Exposed for Process {
    fn write(&self, text: &mut String) {
        let Self { name, version } = self;
        let mut tell = |metric: &str, kind: &str, help: &str, sample: String| {
            let suffix = if kind == "counter" { "_total" } else { "" };
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "# HELP {metric} {help}\n# TYPE {metric} {kind}\n{metric}{suffix}{sample}");
        };
        let version = format!("{{process=\"{name}\",version=\"{version}\"}} 1");
        tell("fleet_build_info", "gauge", "Program and version; always 1.", version);
        let of = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let booted = of("/proc/stat");
        let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        if let Some(used) = read(&of("/proc/self/stat"), booted.unwrap_or_default()) {
            let seconds = format!(" {}", used.cpu_s);
            tell("process_cpu_seconds", "counter", "Processor time that the process has used.", seconds);
            tell("process_threads", "gauge", "Threads of the process.", format!(" {}", used.threads));
            let bytes = format!(" {}", used.virtual_bytes);
            tell("process_virtual_memory_bytes", "gauge", "Address space of the process.", bytes);
            let started = format!(" {}", used.started_s);
            tell("process_start_time_seconds", "gauge", "When the process was started, since 1970.", started);
        }
        if let Some(bytes) = resident_bytes(&of("/proc/self/status")) {
            let bytes = format!(" {bytes}");
            tell("process_resident_memory_bytes", "gauge", "Memory that the process occupies.", bytes);
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            tell("process_open_fds", "gauge", "Open files and sockets.", format!(" {}", open.count()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 10 0 0 0 150 50 0 0 20 0 4 0 1000 8192 100 1";
        let used = read(stat, 1_000_000.0).expect("a line of proc(5)");
        assert_eq!((used.cpu_s, used.threads, used.virtual_bytes), (2.0, 4, 8192));
        assert!((used.started_s - 1_000_010.0).abs() < 1e-6, "{}", used.started_s);
        assert!(read("", 0.0).is_none() && read("7 (a) S 1", 0.0).is_none());
    }

    #[test]
    fn resident_memory_is_told_in_bytes() {
        assert_eq!(resident_bytes("VmSize:\t 9 kB\nVmRSS:\t   12 kB\n"), Some(12_288));
        assert_eq!(resident_bytes("Name: x\n"), None);
    }

    #[test]
    fn the_own_process_is_told() {
        let mut text = String::new();
        Process::new("fleet", "1.2.3").write(&mut text);
        assert!(text.contains("fleet_build_info{process=\"fleet\",version=\"1.2.3\"} 1\n"), "{text}");
        for name in ["process_cpu_seconds_total ", "process_resident_memory_bytes ", "process_open_fds "] {
            let value = text.lines().find_map(|line| line.strip_prefix(name)).map(str::parse::<f64>);
            assert!(matches!(value, Some(Ok(value)) if value >= 0.0), "{name} in {text}");
        }
    }
}
