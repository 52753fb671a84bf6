//! The stand-in for `docker`; see `repo_testkit::fake_docker`.

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    repo_testkit::fake_docker::main(&args)
}
