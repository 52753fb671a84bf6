//! A fleet of many devices and its host.

use crate::fleet::Fleet;
use crate::host::{Host, Login};
use crate::stage::{Stage, run};

/// How many of the devices a change is for.
pub(crate) const BUSY: usize = 100;

/// The fleet, published, and its host.
pub(crate) struct Crowd {
    pub(crate) fleet: Fleet,
    pub(crate) host: Host,
}

impl Crowd {
    pub(crate) fn new(stage: &Stage, name: &str, devices: usize) -> Self {
        let fleet = Fleet::new(stage, name, devices, BUSY);
        run(&mut fleet.command(&["publish"]));
        let host = Host::start(&fleet, devices);
        Self { fleet, host }
    }

    /// The request of a poll as the syncer sends it.
    pub(crate) fn poll(number: usize) -> Vec<u8> {
        let body = "0014command=ls-refs\n0001001bref-prefix refs/heads/\n0000";
        let headers = "Git-Protocol: version=2\r\nContent-Type: application/x-git-upload-pack-request\r\n\
                       Host: 127.0.0.1\r\n";
        let path = format!("/devices/{}.git/git-upload-pack", crate::fleet::id(number));
        let (login, length) = (Login::of(number).header(), body.len());
        let authorization = format!("Authorization: {login}\r\nContent-Length: {length}\r\n");
        format!("POST {path} HTTP/1.1\r\n{headers}{authorization}\r\n{body}").into_bytes()
    }
}
