//! The publisher's command line.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// What is made of thousands of devices are many small pieces: with the C library's allocator a publish to all of them takes a fifth
/// more CPU.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    wfm_git_publisher::cli::main()
}
