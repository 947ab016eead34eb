//! `watchdog`: the side container. `watchdog check` is its startup probe.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use fleet_watchdog::{
    IN_POD_VARIABLE, TOKEN_FOLDER,
    guard::{self, Signal, content_file},
    judge::LeaseVerdict,
    lease::Source,
};

fn main() -> ExitCode {
    let ended = match std::env::args().nth(1).as_deref() {
        None => run(),
        Some("check") if content_file().is_file() => return ExitCode::SUCCESS,
        Some("check") => Err("not content".to_owned()),
        Some("--version") => {
            println!("watchdog {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some(other) => Err(format!("argument: found {other:?}; allowed: check, --version, or none")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    safe_to_signal()?;
    // Installed before the first connection; there is no other provider in the process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let source = source()?;
    guard::watch(move || source.read(), note, signal_others, || true);
    Ok(())
}

/// Signals go to every process of the namespace, so it must be the pod's own.
fn safe_to_signal() -> Result<(), String> {
    if std::env::var_os(IN_POD_VARIABLE).is_none() {
        return Err(format!(
            "{IN_POD_VARIABLE} is not set: this program runs as a side container that Fleet adds"
        ));
    }
    if std::process::id() == 1 {
        return Err("shareProcessNamespace: found false; allowed with fencing Watchdog: true".to_owned());
    }
    let first = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    if matches!(first.trim(), "systemd" | "init") {
        return Err("hostPID: found true; allowed with fencing Watchdog: false".to_owned());
    }
    Ok(())
}

fn source() -> Result<Source, String> {
    let variable =
        |name: &str| std::env::var(name).map_err(|_| format!("{name} is not set: this is not a pod"));
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let folder = Path::new(TOKEN_FOLDER);
    Ok(Source {
        host: variable("KUBERNETES_SERVICE_HOST")?,
        port: port
            .parse()
            .map_err(|_| format!("KUBERNETES_SERVICE_PORT: found {port:?}; allowed: a port"))?,
        token: folder.join("token"),
        ca: folder.join("ca.crt"),
    })
}

fn note(verdict: LeaseVerdict) {
    eprintln!("the lease of the cluster: {verdict:?}");
    let file: PathBuf = content_file();
    let noted = match verdict {
        LeaseVerdict::Content => std::fs::write(&file, ""),
        _ => match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
    };
    if let Err(error) = noted {
        eprintln!("{}: {error}", file.display());
    }
}

/// To every process of the pod except the first of its namespace and this one.
#[allow(unsafe_code, reason = "kill(2) has no safe form in the standard library")]
fn signal_others(signal: Signal) {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    // SAFETY: no memory is involved. -1 spares process 1 of the namespace and the caller.
    let sent = unsafe { libc::kill(-1, number) };
    let error = std::io::Error::last_os_error();
    // No process left to signal is what is wanted.
    if sent != 0 && error.raw_os_error() != Some(libc::ESRCH) {
        eprintln!("{signal:?}: {error}");
    }
}
