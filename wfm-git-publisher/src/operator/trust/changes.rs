//! What differs between two versions of the roster, in words.

use jiff::Timestamp;
use repo_git::sign::openssh::fingerprint;
use repo_model::KeyText;
use repo_model::roster::Roster;

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
    all
}

fn shown(end: Option<Timestamp>) -> String {
    end.map_or_else(|| "for ever".to_owned(), |end| format!("{end:.0}"))
}
