//! Registries that want an account, on real Docker and a real registry.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use repo_testkit::ports::free_port;
use serde_json::json;

use crate::docker::{Real, client, docker};
use crate::docker_images::{Image, app, images};
use crate::world::{registry, text};

const SECRET: &str = "s3cr3t";
/// `press-01` with that password, as `htpasswd -B` writes it.
const USERS: &str = "press-01:$2y$05$abcdefghijklmnopqrstuu9Avu/WgbsK7g7xfCY1X3pdjsTgxqQLS\n";

/// A registry that lets in one user.
struct Guarded {
    dir: tempfile::TempDir,
    server: Child,
    host: String,
}

impl Guarded {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (host, at) = (format!("127.0.0.1:{}", free_port()), dir.path().display());
        fs::write(dir.path().join("users"), USERS).unwrap();
        let config = json!({
            "version": 0.1, "storage": {"filesystem": {"rootdirectory": format!("{at}/data")}},
            "http": {"addr": host, "secret": "only-on-loopback"},
            "auth": {"htpasswd": {"realm": "plant", "path": format!("{at}/users")}},
        });
        fs::write(dir.path().join("config.yml"), config.to_string()).unwrap();
        let mut server = Command::new("docker-registry");
        server.arg("serve").arg(dir.path().join("config.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let server = server.spawn().expect("docker-registry: run the tests by `./justw test`");
        let began = Instant::now();
        while TcpStream::connect(&host).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "the registry doesn't listen");
            thread::sleep(Duration::from_millis(50));
        }
        Self { dir, server, host }
    }

    /// Puts a content of an image there, and gives its name with its digest; the engine keeps nothing of it.
    fn push(&self, image: &Image) -> String {
        let name = image.name.replace(&registry(), &self.host);
        let auth = BASE64_STANDARD.encode(format!("press-01:{SECRET}"));
        fs::write(self.dir.path().join("config.json"), json!({"auths": {&self.host: {"auth": auth}}}).to_string())
            .unwrap();
        docker(&["pull", "--quiet", &image.name]);
        docker(&["tag", &image.name, &name]);
        text(
            Command::new(client())
                .env("DOCKER_CONFIG", self.dir.path())
                .args(["push", "--quiet", &name])
                .output()
                .unwrap(),
        );
        docker(&["image", "rm", &name]);
        image.leave_engine();
        format!("{}@{}", name.strip_suffix(":1").unwrap(), image.digest(0))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Writes the account of a registry into the settings, its password in a file.
fn account(real: &Real, host: &str, password: &str) {
    use std::os::unix::fs::PermissionsExt;
    real.use_program(&client());
    let (file, secret) = (real.home().join("device.yaml"), real.home().join("registry-password"));
    fs::write(&secret, password).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let accounts = json!({host: {"user": "press-01", "password": {"file": "registry-password"}}});
    let settings = fs::read_to_string(&file).unwrap();
    let with = settings.replace("registries: {", &format!("registries: {{accounts: {accounts}, "));
    assert_ne!(with, settings);
    fs::write(&file, with).unwrap();
}

/// Where a text stands below a directory, but for the file that it belongs in.
fn found(below: &Path, text: &str) -> String {
    let output = Command::new("grep").args(["-rlaF", text]).arg(below).output().unwrap();
    let files = String::from_utf8(output.stdout).unwrap();
    files.lines().filter(|file| !file.ends_with("/registry-password")).collect()
}

#[test]
fn docker_pulls_an_image_in_the_name_of_the_account_that_device_yaml_has_for_its_registry_alone() {
    let (real, image, guarded) = (Real::enrolled(), Image::new("guarded"), Guarded::start());
    let name = guarded.push(&image);
    app(&real, "guarded", &name);
    real.hand.publish();
    let once = || {
        let run = real.once();
        (run.code, run.stdout + &run.stderr)
    };
    let nobodys = "an account for it goes under `registries.accounts`";
    for other in [None, Some(registry())] {
        if let Some(other) = other {
            account(&real, &other, SECRET);
        }
        let (code, said) = once();
        assert!(code == 1 && said.contains(nobodys), "{said}");
    }
    account(&real, &guarded.host, "wr0ng");
    let (code, said) = once();
    let todo = format!("its account is `registries.accounts.{}` of device.yaml", guarded.host);
    assert!(code == 1 && said.contains(&todo) && !said.contains("wr0ng"), "{said}");
    assert_eq!(real.states("greeter"), ["hello pending artifact-unavailable"]);
    account(&real, &guarded.host, SECRET);
    let (code, said) = once();
    assert_eq!((code, images(&real)), (0, vec![image.id(0).to_owned()]), "{said}");
    assert_eq!((said.contains(SECRET), found(&real.home(), SECRET)), (false, String::new()), "it stays where it was");
}
