//! Clients that are not stock git: go-git and libgit2, which speak protocol v0 only.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Weak};

use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream, Transport};

use repo_testkit::git;

use super::{DEVICE, Login, Report, Site, printed, said};

/// The program of `.ci/tools/go-git-client`, which `.ci/setup clients` builds.
fn go_git(site: &Site, login: &Login, args: &[&str], dir: &Path) -> Output {
    let program =
        std::env::var("MARGO_TEST_GO_GIT").expect("MARGO_TEST_GO_GIT is set: run the tests by `./justw test`");
    let url = site.url("devices/press-01.git");
    let mut command = Command::new(program);
    command.env("CA_FILE", &site.ca).env("USER_NAME", &login.name).env("USER_SECRET", &login.secret);
    command.args([args[0], &url]).arg(dir).args(&args[1..]).output().expect("go-git-client runs")
}

#[test]
fn go_git_lists_clones_and_pushes_and_is_refused_with_a_reason() {
    let site = Site::new();
    let device = site.device();
    let dir = site.lab.dir().join("go-git.git");
    let listed = printed(&go_git(&site, &device, &["list"], &dir));
    assert!(listed.contains(&format!("{}\trefs/heads/desired", site.lab.tip(DEVICE, "desired").unwrap())), "{listed}");
    let cloned = go_git(&site, &device, &["clone"], &dir);
    assert!(cloned.status.success(), "{}", said(&cloned));
    git::git(&dir, &["fsck", "--strict"]);
    let commit = site.first_status(&dir, "1");
    git::git(&dir, &["update-ref", "refs/heads/status", &commit]);
    let refused = go_git(&site, &device, &["push", "refs/heads/status:refs/heads/main"], &dir);
    assert!(!refused.status.success() && said(&refused).contains("may only push"), "{}", said(&refused));
    let pushed = go_git(&site, &device, &["push", "refs/heads/status:refs/heads/status"], &dir);
    assert!(pushed.status.success(), "{}", said(&pushed));
    assert_eq!(site.lab.tip(DEVICE, "status"), Some(commit));
    let stranger = Login { name: device.name.clone(), secret: "wrong".to_owned() };
    let denied = go_git(&site, &stranger, &["list"], &dir);
    assert!(said(&denied).contains("authentication required"), "{}", said(&denied));
}

/// libgit2 on the tests' own TLS: what it reads and writes goes to the host as it is.
#[derive(Clone)]
struct Wire {
    /// Weak, because libgit2 keeps its transports for ever.
    site: Weak<Site>,
    login: Login,
}

impl Wire {
    #[expect(unsafe_code, reason = "git2 offers it in no other way")]
    fn register(self) {
        // SAFETY: once, before libgit2 is used in this process: each test has one of its own.
        let registered =
            unsafe { git2::transport::register("wire", move |remote| Transport::smart(remote, true, self.clone())) };
        registered.unwrap();
    }
}

impl SmartSubtransport for Wire {
    fn action(&self, _url: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        let (method, path) = match service {
            Service::UploadPackLs => ("GET", "info/refs?service=git-upload-pack"),
            Service::ReceivePackLs => ("GET", "info/refs?service=git-receive-pack"),
            Service::UploadPack => ("POST", "git-upload-pack"),
            Service::ReceivePack => ("POST", "git-receive-pack"),
        };
        let head = format!("{method} /devices/press-01.git/{path} HTTP/1.1");
        Ok(Box::new(Call { wire: self.clone(), head, body: Vec::new(), answer: None }))
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

/// One request, sent when its answer is first read.
struct Call {
    wire: Wire,
    head: String,
    body: Vec<u8>,
    answer: Option<io::Cursor<Vec<u8>>>,
}

impl Read for Call {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { wire, head, body, answer } = self;
        let answer = answer.get_or_insert_with(|| {
            let answer = wire.site.upgrade().unwrap().request(head, Some(&wire.login), body);
            assert_eq!(answer.status, 200, "{head}: {}", answer.text());
            io::Cursor::new(answer.body)
        });
        answer.read(buffer)
    }
}

impl Write for Call {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.body.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Pushes by libgit2; what it was told of the ref.
pub(super) fn libgit2_push(repository: &git2::Repository, refspec: &str) -> Option<String> {
    let said = RefCell::new(None);
    let mut callbacks = git2::RemoteCallbacks::new();
    callbacks.push_update_reference(|_, refusal| {
        *said.borrow_mut() = refusal.map(str::to_owned);
        Ok(())
    });
    let mut options = git2::PushOptions::new();
    options.remote_callbacks(callbacks);
    repository.remote_anonymous("wire://x").unwrap().push(&[refspec], Some(&mut options)).unwrap();
    drop(options);
    said.into_inner()
}

#[test]
fn libgit2_fetches_and_pushes_and_is_refused_with_a_reason() {
    let site = Arc::new(Site::new());
    let login = site.device();
    Wire { site: Arc::downgrade(&site), login }.register();
    let dir = site.lab.dir().join("libgit2.git");
    let repository = git2::Repository::init_bare(&dir).unwrap();
    let mut remote = repository.remote_anonymous("wire://x").unwrap();
    remote.fetch(&["refs/heads/*:refs/heads/*"], None, None).unwrap();
    assert_eq!(git::tip(&dir, "desired"), site.lab.tip(DEVICE, "desired"));
    git::git(&dir, &["fsck", "--strict"]);
    let mut shallow = git2::FetchOptions::new();
    shallow.depth(1);
    let alone = git2::Repository::init_bare(site.lab.dir().join("shallow.git")).unwrap();
    let mut remote = alone.remote_anonymous("wire://x").unwrap();
    remote.fetch(&["refs/heads/desired:refs/heads/desired"], Some(&mut shallow), None).unwrap();
    let commit = site.first_status(&dir, "1");
    git::git(&dir, &["update-ref", "refs/heads/status", &commit]);
    let refused = libgit2_push(&repository, "refs/heads/status:refs/heads/main");
    assert_eq!(refused.as_deref(), Some("a device may only push refs/heads/status and refs/heads/heartbeat"));
    let unsigned = Report { device: DEVICE, kind: "status", parents: &[], signer: None }.commit(&site, &dir, "2");
    git::git(&dir, &["update-ref", "refs/heads/unsigned", &unsigned]);
    let refused = libgit2_push(&repository, "refs/heads/unsigned:refs/heads/status");
    assert!(refused.as_deref().is_some_and(|text| text.contains("there is no signature")), "{refused:?}");
    assert_eq!(libgit2_push(&repository, "refs/heads/status:refs/heads/status"), None);
    assert_eq!(site.lab.tip(DEVICE, "status"), Some(commit));
}

#[test]
fn both_versions_of_tls_are_spoken() {
    let site = Site::new();
    let device = site.device();
    for version in ["tlsv1.2", "tlsv1.3"] {
        let setting = format!("http.sslVersion={version}");
        let args = ["-c", &setting, "ls-remote", &site.url("devices/press-01.git"), "refs/heads/desired"];
        let listed = printed(&site.run(site.lab.dir(), &device, &args));
        assert!(listed.ends_with("refs/heads/desired"), "{version}: {listed}");
    }
}
