//! The agent against real TLS on loopback: what it sends, whom it believes, and what it calls each kind of trouble.

mod answers;
mod proxy;
mod trouble;
mod trust;

use std::time::Duration;

use repo_http::{Agent, Settings, Timeouts, Url};
use repo_testkit::scripted_host::Host;

/// The URL of a path at a host.
fn url_of(host: &Host, path: &str) -> Url {
    Url::parse(&host.url(path)).expect("a URL")
}

/// Trusts a host, with short limits.
fn settings_of(host: &Host) -> Settings {
    Settings { authorities: vec![host.authority.certificate().to_owned()], timeouts: short(), ..Settings::default() }
}

fn agent_of(host: &Host) -> Agent {
    Agent::new(&settings_of(host)).expect("an agent")
}

fn short() -> Timeouts {
    let ms = Duration::from_millis;
    Timeouts { connect: ms(2000), answer: ms(600), stall: ms(300), total: ms(1500) }
}
