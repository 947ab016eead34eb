//! The `fleet` program; also run as `kubectl-fleet` and `kubectl-amc`.

/// A third of a busy fleet's time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    fleet_cli::main(std::env::args_os().collect())
}
