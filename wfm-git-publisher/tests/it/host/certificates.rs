//! Accounts that come with a TLS certificate, whose key is all that counts.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_http::ClientCertificate;
use repo_model::Digest;
use repo_testkit::deltas::high_water;
use repo_testkit::git;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{ClientConfig, HandshakeKind, SignatureAlgorithm, SignatureScheme};
use serde_json::{Value, json};
use wfm_git_host::accounts::{Role, Store};

use super::parked::next;
use super::{Answer, DEVICE, OTHER, Site, Stream, eventually, printed, said};

const REFS: &str = "/devices/press-01.git/info/refs?service=git-upload-pack";

/// A key with its certificate in one file, as a device has it.
struct Shown {
    path: PathBuf,
    pin: Digest,
}

impl Shown {
    fn new(site: &Site, name: &str) -> Self {
        let path = site.lab.dir().join(format!("{name}.pem"));
        let text = ClientCertificate::generate(Digest::of(name.as_bytes()).as_bytes(), name).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let pin = ClientCertificate::in_one(&path).pin().unwrap();
        Self { path, pin }
    }

    /// The same, with an account of that name.
    fn of(site: &Site, name: &str, role: Role, device: Option<&str>) -> Self {
        let (shown, store, name) = (Self::new(site, name), Store::new(site.lab.home.accounts()), name.parse().unwrap());
        store.add_without_secret(&name, role, device.map(|device| device.parse().unwrap())).unwrap();
        store.take_certificate(&name, shown.pin, Timestamp::now()).unwrap();
        shown
    }

    fn certificate(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(&self.path).unwrap()
    }

    fn key(&self) -> Arc<dyn SigningKey> {
        any_supported_type(&PrivateKeyDer::from_pem_file(&self.path).unwrap()).unwrap()
    }

    /// A client that comes with it.
    fn client(&self, site: &Site) -> Arc<ClientConfig> {
        client(site, vec![self.certificate()], self.key())
    }

    /// Stock git that comes with it.
    fn git(&self, site: &Site, dir: &Path, args: &[&str]) -> Output {
        let file = self.path.display();
        let mut command = site.git(dir, None);
        command.args(["-c", &format!("http.sslCert={file}"), "-c", &format!("http.sslKey={file}")]);
        command.args(args).output().unwrap()
    }
}

/// What is shown in a handshake, whether it fits together or not.
#[derive(Debug)]
struct Any(Arc<CertifiedKey>);

impl ResolvesClientCert for Any {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn client(site: &Site, chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> Arc<ClientConfig> {
    let any = Any(Arc::new(CertifiedKey::new(chain, key)));
    Arc::new(site.trusting().with_client_cert_resolver(Arc::new(any)))
}

/// Asks without an `Authorization`, or with these header lines, on a connection that stays.
fn ask(stream: &mut Stream, path: &str, headers: &str) -> Answer {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").as_bytes()).unwrap();
    next(stream)
}

#[test]
fn stock_git_and_curl_come_with_the_certificate_that_an_account_pins() {
    let site = Site::new();
    let device = Shown::of(&site, "dev-1", Role::Device, Some(DEVICE));
    let (other, nobody) = (Shown::of(&site, "dev-2", Role::Device, Some(OTHER)), Shown::new(&site, "nobody"));
    let (dir, url) = (site.lab.dir(), site.url("devices/press-01.git"));
    let cloned = device.git(&site, dir, &["clone", "-q", &url, "clone"]);
    assert!(cloned.status.success(), "{}", said(&cloned));
    let clone = dir.join("clone");
    assert_eq!(git::git(&clone, &["rev-parse", "HEAD"]), site.lab.tip(DEVICE, "desired").unwrap());
    let commit = site.first_status(&clone, "1");
    printed(&device.git(&site, &clone, &["push", "-q", &url, &format!("{commit}:refs/heads/status")]));
    assert_eq!(site.lab.tip(DEVICE, "status"), Some(commit));
    for version in ["tlsv1.2", "tlsv1.3"] {
        let setting = format!("http.sslVersion={version}");
        let listed = printed(&device.git(&site, dir, &["-c", &setting, "ls-remote", &url, "refs/heads/desired"]));
        assert!(listed.ends_with("refs/heads/desired"), "{version}: {listed}");
    }

    let without = said(&site.git(dir, None).args(["ls-remote", &url]).output().unwrap());
    assert!(without.contains("could not read Username"), "401: {without}");
    assert_eq!(said(&nobody.git(&site, dir, &["ls-remote", &url])), without, "as without one");
    let hidden = said(&other.git(&site, dir, &["ls-remote", &url]));
    assert!(hidden.contains("not found"), "{hidden}");

    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--cacert"]).arg(&site.ca).arg("--cert").arg(&device.path);
    let asked = curl.arg(site.url("account")).output().expect("curl is installed");
    let about: Value = serde_json::from_str(&printed(&asked)).unwrap();
    assert_eq!(about, json!({ "user": "dev-1", "role": "device", "expires": null }));
    // The pin is what OpenSSL says it is.
    let script = "openssl x509 -in \"$1\" -noout -pubkey | openssl pkey -pubin -outform der | sha256sum";
    let pin = Command::new("sh").args(["-c", script, "sh"]).arg(&device.path).output().unwrap();
    assert_eq!(format!("sha256:{}", printed(&pin).split(' ').next().unwrap()), device.pin.to_string());
}

#[test]
fn certificates_with_keys_of_each_kind_that_the_documentation_names_are_taken() {
    let site = Site::new();
    let script = "openssl req -x509 -nodes -subj /CN=line -days 1 -newkey $2 -keyout \"$1.key\" -out \"$1.crt\" 2>&1 &&
        openssl x509 -in \"$1.crt\" -noout -pubkey | openssl pkey -pubin -outform der | sha256sum";
    let store = Store::new(site.lab.home.accounts());
    let curve = |name: &str| format!("ec -pkeyopt ec_paramgen_curve:{name}");
    let kinds = ["ed25519".to_owned(), "rsa:2048".to_owned(), "rsa:4096".to_owned(), curve("P-256"), curve("P-384")];
    for (number, kind) in kinds.iter().enumerate() {
        let (path, name) = (site.lab.dir().join(format!("kind-{number}")), format!("line-{number}"));
        let made = Command::new("sh").args(["-c", script, "sh"]).arg(&path).arg(kind).output().expect("a shell");
        assert!(made.status.success(), "{kind}: {}", said(&made));
        let digest = printed(&made).lines().last().and_then(|line| line.split(' ').next()).map(str::to_owned);
        let pin = format!("sha256:{}", digest.expect("a digest")).parse().unwrap();
        let account = name.parse().unwrap();
        store.add_without_secret(&account, Role::Auditor, None).unwrap();
        store.take_certificate(&account, pin, Timestamp::now()).unwrap();
        for version in ["1.2", "1.3"] {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", &format!("--tlsv{version}"), "--tls-max", version, "--cacert"]);
            curl.arg(&site.ca)
                .arg("--cert")
                .arg(path.with_extension("crt"))
                .arg("--key")
                .arg(path.with_extension("key"));
            curl.arg(site.url("account"));
            let is_known = || {
                let asked = curl.output().expect("curl is installed");
                serde_json::from_slice::<Value>(&asked.stdout).is_ok_and(|about| about["user"] == name)
            };
            assert!(eventually(is_known), "{kind}, TLS {version}");
        }
    }
}

#[test]
fn a_certificate_that_nobody_pins_is_answered_as_none_is() {
    let site = Site::new();
    let nobody = Shown::new(&site, "nobody").client(&site);
    let plain = |answer: Answer| {
        let headers = answer.headers.lines().filter(|line| !line.starts_with("date:")).map(str::to_owned);
        (answer.status, headers.collect::<Vec<_>>(), answer.body)
    };
    for path in ["/account", REFS, "/devices/none.git/info/refs?service=git-upload-pack", "/audit", "/metrics", "/x"] {
        let shown = plain(ask(&mut site.connect_as(&nobody), path, ""));
        assert_eq!(shown, plain(ask(&mut site.connect(), path, "")), "{path}");
        assert_eq!(shown.0, 401, "{path}");
    }
}

#[test]
fn a_certificate_that_ends_is_out_at_once_on_kept_resumed_and_waiting_connections() {
    let site = Site::new();
    let shown = Shown::of(&site, "dev-1", Role::Device, Some(DEVICE));
    let client = shown.client(&site);
    let mut kept = site.connect_as(&client);
    assert_eq!(ask(&mut kept, REFS, "").status, 200);
    let mut resumed = site.connect_as(&client);
    assert_eq!(ask(&mut resumed, REFS, "").status, 200);
    assert_eq!(resumed.conn.handshake_kind(), Some(HandshakeKind::Resumed), "a ticket says who it is");
    let mut waiting = site.connect_as(&client);
    waiting.write_all(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", site.wait_path()).as_bytes()).unwrap();
    let auditor = site.login("aud", Role::Auditor, None);
    assert!(eventually(|| site.waiters(&auditor) == 1));

    let (store, name) = (Store::new(site.lab.home.accounts()), "dev-1".parse().unwrap());
    store.revoke(&name, Timestamp::now()).unwrap();
    assert!(eventually(|| ask(&mut kept, REFS, "").status == 401));
    assert_eq!(next(&mut waiting).status, 401, "who waits is told");
    assert_eq!(ask(&mut resumed, REFS, "").status, 401);
    let mut again = site.connect_as(&client);
    assert_eq!(ask(&mut again, REFS, "").status, 401);
    assert_eq!(again.conn.handshake_kind(), Some(HandshakeKind::Resumed), "and it is asked about at each request");
}

#[test]
fn what_a_request_shows_itself_counts_before_the_certificate() {
    let site = Site::new();
    let client = Shown::of(&site, "dev-1", Role::Device, Some(DEVICE)).client(&site);
    let auditor = site.login("aud", Role::Auditor, None);
    let mut stream = site.connect_as(&client);
    let user = |answer: Answer| serde_json::from_slice::<Value>(&answer.body).unwrap_or_default()["user"].clone();
    assert_eq!(user(ask(&mut stream, "/account", "")), "dev-1");
    assert_eq!(user(ask(&mut stream, "/account", &auditor.header())), "aud");
    for wrong in ["Bearer wrong", "Negotiate x", "", "\u{fc}"] {
        assert_eq!(ask(&mut stream, "/account", &format!("Authorization: {wrong}\r\n")).status, 401, "{wrong}");
    }
    assert_eq!(user(ask(&mut stream, "/account", "")), "dev-1");
    stream.write_all(b"POST /account/renew HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").unwrap();
    let refused = next(&mut stream);
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("comes with a certificate"), "{}", refused.text());
}

#[test]
fn the_digest_of_a_key_is_no_secret_and_a_key_is_one_accounts() {
    let site = Site::new();
    let shown = Shown::of(&site, "dev-1", Role::Device, Some(DEVICE));
    let path = site.lab.home.accounts().join("dev-1.json");
    let account: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!((&account["certificate"]["sha256"], &account["secrets"]), (&json!(shown.pin), &json!([])));
    // What the digest is of, the key, is public: as a secret it lets nobody in.
    for text in [shown.pin.to_string(), shown.pin.hex()] {
        assert_eq!(ask(&mut site.connect(), "/account", &format!("Authorization: Bearer {text}\r\n")).status, 401);
    }
    let (store, other) = (Store::new(site.lab.home.accounts()), "dev-2".parse().unwrap());
    store.add_without_secret(&other, Role::Device, Some(OTHER.parse().unwrap())).unwrap();
    let taken = store.take_certificate(&other, shown.pin, Timestamp::now()).unwrap_err();
    assert_eq!(taken.to_string(), "the certificate is that of account `dev-1` already");
}

/// One value of DER, of less than 64 KiB.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = match u16::try_from(content.len()).unwrap().to_be_bytes() {
        [0, short @ 0..0x80] => vec![short],
        [0, long] => vec![0x81, long],
        long => [&[0x82][..], &long].concat(),
    };
    [&[tag], &length[..], content].concat()
}

/// A certificate with an RSA key of so many bits, which nobody has.
fn rsa(bits: usize) -> CertificateDer<'static> {
    let oid = |last| der(0x30, &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last, 5, 0]);
    let modulus = der(2, &[&[0][..], &vec![0xff; bits / 8]].concat());
    let key = der(0x30, &[&modulus[..], &[2, 3, 1, 0, 1]].concat());
    let key = der(0x30, &[&oid(1)[..], &der(3, &[&[0], &key[..]].concat())].concat());
    let time = der(0x17, b"260101000000Z");
    let validity = der(0x30, &[&time[..], &time].concat());
    let signed = [&[0xa0, 3, 2, 1, 2, 2, 1, 1][..], &oid(11), &[0x30, 0], &validity, &[0x30, 0], &key].concat();
    let signature = der(3, &[&[0][..], &vec![1; bits / 8]].concat());
    der(0x30, &[&der(0x30, &signed)[..], &oid(11), &signature].concat()).into()
}

/// Signs with RSA, and wrongly.
#[derive(Debug)]
struct Wrong(usize);

impl SigningKey for Wrong {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Self(self.0)))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::RSA
    }
}

impl Signer for Wrong {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![1; self.0 / 8])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::RSA_PSS_SHA256
    }
}

#[test]
fn what_is_no_certificate_of_the_clients_own_ends_the_handshake_and_costs_little() {
    let site = Site::new();
    let (shown, thief) = (Shown::of(&site, "dev-1", Role::Device, Some(DEVICE)), Shown::new(&site, "thief"));
    let before = high_water(&format!("/proc/{}/status", site.pid())).unwrap();
    let cases: [(&str, Vec<CertificateDer<'static>>, Arc<dyn SigningKey>); 7] = [
        ("another's certificate", vec![shown.certificate()], thief.key()),
        ("no certificate at all", vec![b"none".to_vec().into()], thief.key()),
        ("a certificate that is cut", vec![shown.certificate()[..100].to_vec().into()], shown.key()),
        ("1 MB", vec![vec![0x30; 1 << 20].into()], thief.key()),
        ("a chain of a hundred", vec![shown.certificate(); 100], shown.key()),
        ("RSA with 8,192 bits", vec![rsa(8192)], Arc::new(Wrong(8192))),
        ("RSA with 16,384 bits", vec![rsa(16384)], Arc::new(Wrong(16384))),
    ];
    for (what, chain, key) in cases {
        let client = client(&site, chain, key);
        let start = Instant::now();
        for _ in 0..50 {
            let mut stream = site.connect_as(&client);
            let _ = stream.write_all(format!("GET {REFS} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.is_empty(), "{what}: {}", String::from_utf8_lossy(&answer));
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: {:?}", start.elapsed());
    }
    let peak = high_water(&format!("/proc/{}/status", site.pid())).unwrap();
    assert!(peak - before < 20_000_000, "the host took {} bytes more", peak - before);
    // What comes along with a good one is no matter.
    let chain = vec![shown.certificate(), thief.certificate(), shown.certificate()];
    let mut stream = site.connect_as(&client(&site, chain, shown.key()));
    assert_eq!(ask(&mut stream, REFS, "").status, 200);
}
