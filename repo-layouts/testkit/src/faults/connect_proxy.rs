//! An HTTP proxy in the test's own process: it makes tunnels for whoever shows the right account, and keeps what it was
//! asked.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A running proxy, there until the test's process ends.
#[derive(Debug)]
pub struct ConnectProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    /// A proxy on a free port of this machine. With a header such as `Basic bGluZS0yOnB3` only who shows it as
    /// `Proxy-Authorization` is let through.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn start(authorization: Option<&str>) -> Self {
        Self::with(authorization, None)
    }

    /// A proxy whose tunnels all lead to this address, whatever name was asked for: so a test has hosts with names.
    ///
    /// # Panics
    /// If no port can be had.
    pub fn leading_to(address: SocketAddr) -> Self {
        Self::with(None, Some(address))
    }

    fn with(authorization: Option<&str>, to: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (log, wanted) = (Arc::clone(&asked), authorization.map(|value| format!("Proxy-Authorization: {value}")));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (log, wanted) = (Arc::clone(&log), wanted.clone());
                thread::spawn(move || tunnel(client, wanted.as_deref(), to, &log));
            }
        });
        Self { address, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of the requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn tunnel(
    mut client: TcpStream,
    wanted: Option<&str>,
    to: Option<SocketAddr>,
    log: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let lines = BufReader::new(client.try_clone()?).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    log.lock().unwrap_or_else(PoisonError::into_inner).push(head.join("\n"));
    if wanted.is_some_and(|wanted| !head.iter().any(|line| line == wanted)) {
        return client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
    }
    let Some(asked) = head.first().and_then(|line| line.strip_prefix("CONNECT ")?.split(' ').next()) else {
        return client.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n");
    };
    let mut server = match to {
        Some(address) => TcpStream::connect(address)?,
        None => TcpStream::connect(asked)?,
    };
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut from, mut back) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || io::copy(&mut from, &mut server));
    io::copy(&mut back, &mut client)?;
    // The other direction still holds it: an end has to be seen as one.
    client.shutdown(Shutdown::Both)
}
