//! device-syncer: see `lib.rs`.

fn main() -> std::process::ExitCode {
    device_syncer::cli::main()
}
