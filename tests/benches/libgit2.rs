//! libgit2 as a client, over the syncer's own agent: a poll is `connect` and `list` of protocol version 0.

use std::io::{self, Cursor, Read, Write};
use std::sync::{Mutex, OnceLock};

use git2::transport::{Service, SmartSubtransport, SmartSubtransportStream, Transport};
use repo_http::{Agent, Credential, Request, Url};

/// The scheme under which libgit2 knows the way below.
const SCHEME: &str = "bench-agent";

/// The way to the one repository that is asked.
struct Way {
    agent: Agent,
    url: Url,
    credential: Credential,
}

static WAY: Mutex<Option<Way>> = Mutex::new(None);

/// Leads libgit2 to this repository from now on.
#[expect(unsafe_code, reason = "git2 offers registering a transport in no other way")]
pub(crate) fn lead_to(agent: Agent, url: Url, credential: Credential) {
    *WAY.lock().expect("nobody panics") = Some(Way { agent, url, credential });
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        // SAFETY: once, and before any transport is made.
        let made = unsafe { git2::transport::register(SCHEME, |remote| Transport::smart(remote, true, Subtransport)) };
        made.expect("registered");
    });
}

/// Asks for the refs; how many there are.
pub(crate) fn poll() -> usize {
    let mut remote = git2::Remote::create_detached(format!("{SCHEME}://x/x")).expect("a remote");
    remote.connect(git2::Direction::Fetch).expect("connected");
    let count = remote.list().expect("refs").len();
    remote.disconnect().expect("disconnected");
    count
}

struct Subtransport;

impl SmartSubtransport for Subtransport {
    fn action(&self, _url: &str, service: Service) -> Result<Box<dyn SmartSubtransportStream>, git2::Error> {
        match service {
            Service::UploadPackLs => Ok(Box::new(Stream(None))),
            _ => Err(git2::Error::from_str("only asked for refs")),
        }
    }

    fn close(&self) -> Result<(), git2::Error> {
        Ok(())
    }
}

/// The answer, once it was asked for: read whole, because else its connection can't be kept.
struct Stream(Option<Cursor<Vec<u8>>>);

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_none() {
            let way = WAY.lock().expect("nobody panics");
            let way = way.as_ref().expect("set before");
            let url = way.url.below("info/refs?service=git-upload-pack");
            let request = Request { credential: &way.credential, ..Request::get(&url) };
            let body = way.agent.send(&request).map_err(io::Error::other)?.body;
            self.0 = Some(Cursor::new(body.bytes(1 << 20).map_err(io::Error::other)?));
        }
        self.0.as_mut().map_or(Ok(0), |body| body.read(buffer))
    }
}

impl Write for Stream {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::Error::other("nothing is sent"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
