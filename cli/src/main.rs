//! The `fleet` program; also run as `kubectl-fleet` and `kubectl-amc`.

/// The system's allocator took a third of a busy fleet's time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    fleet_cli::main(std::env::args_os().collect())
}
