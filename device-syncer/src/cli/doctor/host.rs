//! The way to the host, step by step: each that was gone is a row, and the one that wasn't says why.

use jiff::{SignedDuration, Timestamp};
use repo_http::Clock;
use repo_model::error_chain;

use super::{REQUEST, Row};
use crate::cli::show::age;
use crate::config::{Home, Settings};
use crate::home;
use crate::host::account;
use crate::host::check::{HostCheck, Step};
use crate::host::connectivity;
use crate::state::local_condition;

/// A device's clock that is further from its host's is a warning.
const FAR: SignedDuration = SignedDuration::from_mins(1);

/// Where it is further than this, signatures and certificates are judged wrongly.
const TOO_FAR: SignedDuration = SignedDuration::from_hours(24);

/// An account that ends sooner should have been renewed: that is done when a third of its life is left.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

pub(super) fn check(home: &Home) -> Vec<Row> {
    // What is wrong with them has its own rows.
    let (Ok(join), Ok(settings)) = (home::joined(home), Settings::read(home)) else { return Vec::new() };
    let check = match HostCheck::run(home, &join, &settings.host, Clock::default(), REQUEST) {
        Ok(check) => check,
        Err(error) => {
            let todo = "`host` in device.yaml and `url` in the join file say how";
            return vec![Row::failed("host", error_chain(&error), todo)];
        }
    };
    let mut rows = steps(&check);
    let refused = local_condition::read(&home.contact()).filter(|trouble| trouble.reason == connectivity::REFUSED);
    let todo = "tell the host's operator what it says; `device-syncer sync-now` has it tried again at once";
    rows.extend(refused.map(|refused| Row::failed("host: status", refused.to_string(), todo)));
    rows.extend(check.clock.map(of_clock));
    let has_account = join.account.is_some() && settings.host.credentials.is_none();
    rows.extend(has_account.then(|| of_account(home, Timestamp::now())));
    rows
}

fn name(step: Step) -> &'static str {
    match step {
        Step::Name => "host: name",
        Step::Connection => "host: connection",
        Step::Trust => "host: trust",
        Step::Credentials => "host: credentials",
        Step::Repository => "host: repository",
    }
}

/// The steps up to the one that failed.
fn steps(check: &HostCheck) -> Vec<Row> {
    let is_local = !["https://", "ssh://"].iter().any(|scheme| check.url.starts_with(scheme));
    let gone = Step::ALL.into_iter().filter(|step| !is_local || *step == Step::Repository);
    match &check.found {
        Ok(refs) => {
            let tip = refs.desired.map_or("nothing published yet".to_owned(), |tip| format!("`desired` is at {tip}"));
            gone.map(|step| match step {
                Step::Repository if refs.desired.is_none() => Row::warning(name(step), tip.clone(), ENROL),
                Step::Repository => Row::ok(name(step), tip.clone()),
                Step::Connection => Row::ok(name(step), format!("{} in {} ms", check.url, check.took.as_millis())),
                Step::Trust if check.ends_soon => {
                    Row::warning(name(step), "its certificate ends within two weeks", "tell the host's operator")
                }
                _ => Row::ok(name(step), well(step)),
            })
            .collect()
        }
        Err((failed, reason, text)) => gone
            .filter(|step| step <= failed)
            .map(|step| match step {
                _ if step == *failed => Row::failed(name(step), format!("{reason}: {text}"), todo(reason, step)),
                _ => Row::ok(name(step), well(step)),
            })
            .collect(),
    }
}

const ENROL: &str = "have the operator enrol this device (`wfm-git-publisher device enroll`) and publish";

fn well(step: Step) -> &'static str {
    match step {
        Step::Name => "it has an address",
        Step::Connection => "it takes connections",
        Step::Trust => "it is the host that is meant",
        Step::Credentials => "it lets this device in",
        Step::Repository => "it shows this device's repository",
    }
}

/// What to do where the way ends.
fn todo(reason: &str, step: Step) -> &'static str {
    match (reason, step) {
        (_, Step::Name) => "look at DNS (`/etc/resolv.conf`), and at the name in the join file's `url`",
        ("ProxyFailed" | "ProxyUnauthorized", _) => "look at `host.proxy` in device.yaml, and ask who runs the proxy",
        (_, Step::Connection) => {
            "look at cable, route and firewall; behind a proxy, `host.proxy` in device.yaml names it"
        }
        ("CertificateNotYetValid" | "CertificateExpired", _) => {
            "look at this device's clock first, then at the host's certificate"
        }
        ("CertificateUnknownAuthority", _) => {
            "`host.ca` in device.yaml names the authority; behind an inspecting proxy, that proxy's"
        }
        ("NotTheHost", _) => "something else answers: log in to the captive portal, or mend the proxy",
        (_, Step::Trust) => {
            "the host shows another key than it should: ask its operator before you change anything here"
        }
        ("CredentialUnreadable" | "SshKeyUnreadable", _) => "the text names the file and what is wrong with it",
        (_, Step::Credentials) => {
            "have the operator look at this device's account; a new join file (`wfm-git-publisher device join`) brings a new one"
        }
        (_, Step::Repository) => "tell the host's operator what it says",
    }
}

fn of_clock(ahead: SignedDuration) -> Row {
    let far = ahead.abs();
    let direction = if ahead.is_negative() { "ahead of" } else { "behind" };
    let found = format!("{} {direction} the host's", age(far));
    let todo = "find out which clock is wrong; this one is kept by systemd-timesyncd or chrony";
    match far {
        _ if far >= TOO_FAR => Row::failed("host: clock", found, todo),
        _ if far >= FAR => Row::warning("host: clock", found, todo),
        _ => Row::ok("host: clock", found),
    }
}

fn of_account(home: &Home, now: Timestamp) -> Row {
    match account::expires(&home.account()) {
        Ok(Some(ends)) if ends <= now => Row::failed(
            "host: account",
            format!("it ended on {ends:.0}"),
            "have a new join file made by `wfm-git-publisher device join`",
        ),
        Ok(Some(ends)) if ends.duration_since(now) < SOON => Row::warning(
            "host: account",
            format!("it ends on {ends:.0}, and wasn't renewed"),
            "see that the syncer runs and reaches its host: it renews it by itself",
        ),
        Ok(Some(ends)) => Row::ok("host: account", format!("it ends on {ends:.0}, and is renewed before")),
        Ok(None) => Row::ok("host: account", "it has no end that is known"),
        Err(error) => Row::failed(
            "host: account",
            error_chain(&error),
            "have a new join file made by `wfm-git-publisher device join`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Verdict;

    #[test]
    fn a_clock_far_from_the_hosts_is_told() {
        for (seconds, expected, text) in [
            (-2, Verdict::Ok, "2 s ahead of the host's"),
            (90, Verdict::Warning, "90 s behind the host's"),
            (-200_000, Verdict::Failed, "2 days ahead of the host's"),
        ] {
            let row = of_clock(SignedDuration::from_secs(seconds));
            assert_eq!((row.result, row.found.as_str()), (expected, text));
        }
    }

    #[test]
    fn the_way_is_shown_up_to_the_step_that_failed() {
        let failed = (Step::Trust, "CertificateUnknownAuthority", "no authority".to_owned());
        let (took, url) = (std::time::Duration::ZERO, "https://git.example/a.git".to_owned());
        let check = HostCheck { url, found: Err(failed), took, clock: None, ends_soon: false };
        let rows: Vec<_> = steps(&check).into_iter().map(|row| (row.check, row.result)).collect();
        let expected =
            [("host: name", Verdict::Ok), ("host: connection", Verdict::Ok), ("host: trust", Verdict::Failed)];
        assert_eq!(rows, expected.map(|(check, result)| (check.to_owned(), result)));
    }
}
