//! What differs between two versions of the roster, in words.

use jiff::Timestamp;
use repo_git::sign::openssh::fingerprint;
use repo_model::KeyText;
use repo_model::roster::{Roster, RosterHost};
use wfm_git_host::ca;

/// Each difference as one line; none if only version and time differ.
pub fn changes(before: &Roster, after: &Roster) -> Vec<String> {
    let mut all = Vec::new();
    if before.threshold != after.threshold {
        all.push(format!(
            "it takes {} of {} root keys, not {} of {}",
            after.threshold,
            after.roots.len(),
            before.threshold,
            before.roots.len()
        ));
    }
    let lacks = |keys: &[KeyText], key: &KeyText| !keys.contains(key);
    let of_roots = |keys: &[KeyText], others: &[KeyText], verb: &str| {
        let only = keys.iter().filter(|key| lacks(others, key));
        only.map(|key| format!("{verb} root {}", fingerprint(key))).collect::<Vec<_>>()
    };
    all.extend(of_roots(&after.roots, &before.roots, "adds"));
    all.extend(of_roots(&before.roots, &after.roots, "drops"));
    let end = |roster: &Roster, key: &KeyText| {
        let found = roster.publishers.iter().find(|publisher| publisher.key == *key);
        found.map(|publisher| publisher.not_after)
    };
    for publisher in &after.publishers {
        let (name, now) = (fingerprint(&publisher.key), shown(publisher.not_after));
        match end(before, &publisher.key) {
            None => all.push(format!("adds publisher {name}, until {now}")),
            Some(then) if then != publisher.not_after => {
                all.push(format!("publisher {name} counts until {now}, not {}", shown(then)));
            }
            Some(_) => {}
        }
    }
    let dropped = before.publishers.iter().filter(|publisher| end(after, &publisher.key).is_none());
    all.extend(dropped.map(|publisher| format!("drops publisher {}", fingerprint(&publisher.key))));
    all.extend(of_host(&before.host.clone().unwrap_or_default(), &after.host.clone().unwrap_or_default()));
    all
}

/// What devices are told otherwise of their host.
fn of_host(before: &RosterHost, after: &RosterHost) -> Vec<String> {
    let mut all = Vec::new();
    if before.url != after.url {
        all.push(match &after.url {
            Some(url) => format!("devices find their host at {url}"),
            None => "devices find their host where their join files say".to_owned(),
        });
    }
    let (known, now) = (certificates(before), certificates(after));
    if now.is_empty() && !known.is_empty() {
        all.push("the host's authority is that of the join files".to_owned());
    }
    let only = |these: &[String], others: &[String]| -> Vec<String> {
        these.iter().filter(|one| !others.contains(one)).cloned().collect()
    };
    all.extend(only(&now, &known).iter().map(|digest| format!("adds authority {digest} of the host")));
    all.extend(only(&known, &now).iter().map(|digest| format!("drops authority {digest} of the host")));
    let keys = |host: &RosterHost| host.host_keys.iter().map(fingerprint).collect::<Vec<_>>();
    let (known, now) = (keys(before), keys(after));
    all.extend(only(&now, &known).iter().map(|key| format!("adds the host's key {key}")));
    all.extend(only(&known, &now).iter().map(|key| format!("drops the host's key {key}")));
    all
}

/// The authorities' certificates, each by the SHA-256 of its DER.
pub fn certificates(host: &RosterHost) -> Vec<String> {
    let digests = ca::digests(host.ca.as_deref().unwrap_or_default());
    digests.iter().map(ToString::to_string).collect()
}

fn shown(end: Option<Timestamp>) -> String {
    end.map_or_else(|| "for ever".to_owned(), |end| format!("{end:.0}"))
}
