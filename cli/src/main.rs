//! The `fleet` program; also run as `kubectl-fleet` and `kubectl-amc`.

fn main() -> std::process::ExitCode {
    fleet_cli::main(std::env::args_os().collect())
}
