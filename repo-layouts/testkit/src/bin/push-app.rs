//! Packs a directory with a `compose.yaml` and pushes it: `push-app DIR oci://HOST/PATH:TAG [--plain-http]`.
//!
//! Prints the digests of manifest and layer.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use repo_artifacts::{Reference, Registry, Settings, pack};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [dir, reference] => report(push(dir, reference, false)),
        [dir, reference, "--plain-http"] => report(push(dir, reference, true)),
        _ => {
            eprintln!("usage: push-app DIR oci://HOST/PATH:TAG [--plain-http]");
            ExitCode::from(2)
        }
    }
}

fn push(dir: &str, reference: &str, plain_http: bool) -> Result<String, Box<dyn Error>> {
    let (repository, tag) = reference.rsplit_once(':').ok_or("the reference has no tag")?;
    let reference = Reference::parse(repository, tag)?;
    let plain_http = plain_http.then(|| reference.host().to_owned()).into_iter().collect();
    let name = Path::new(dir).canonicalize()?;
    let name = name.file_name().ok_or("the directory has no name")?.to_string_lossy().into_owned();
    let archive = pack(Path::new(dir), &name)?;
    let registry = Registry::new(Settings { plain_http, ..Settings::default() });
    let lock = registry.push(&reference, archive)?;
    Ok(format!("manifest {}\ncontent {}", lock.manifest, lock.content))
}

fn report(result: Result<String, Box<dyn Error>>) -> ExitCode {
    match result {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprintln!("caused by: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}
