//! The agent against real TLS on loopback: what it sends, whom it believes, and what it calls each kind of trouble.

mod answers;
mod proxy;
mod socket;
mod trouble;
mod trust;

use repo_http::{Agent, Settings, Url};
use repo_testkit::faults::scripted_host::Host;

/// The URL of a path at a host.
fn url_of(host: &Host, path: &str) -> Url {
    Url::parse(&host.url(path)).expect("a URL")
}

fn settings_of(host: &Host) -> Settings {
    Settings { authorities: vec![host.authority.certificate().to_owned()], ..Settings::default() }
}

fn agent_of(host: &Host) -> Agent {
    Agent::new(&settings_of(host)).expect("an agent")
}
