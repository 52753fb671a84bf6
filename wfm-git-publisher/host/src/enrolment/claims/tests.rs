//! Places, times and damage of what waits.

use repo_model::enrolment::Nonce;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn claim(index: u8) -> String {
    let key = repo_git::SigningKey::from_seed(&[index; 32]).public();
    format!(r#"{{"account":"{}","key":"{key}","layout":1,"version":"0"}}"#, Digest::of(&[index]))
}

fn waiting(index: u8, address: &str, received: i64) -> Waiting {
    let nonce = Nonce::new([index; 32]);
    Waiting {
        layout: 1,
        request: format!("{index:032x}"),
        number: 0,
        received: at(received),
        address: address.parse().unwrap(),
        claim: claim(index),
        transcript: Transcript::of((&nonce, &nonce), b"", b""),
        roster: Digest::of(b""),
        token: None,
        rekeys: None,
        verdict: None,
    }
}

#[test]
fn no_more_wait_than_may_and_no_network_takes_all_places() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path().join("enroll"));
    for index in 0..64 {
        // The other half of the places is the neighbours'.
        let address = if index < 32 { "2001:db8::1".to_owned() } else { format!("192.0.2.{index}") };
        let kept = claims.add(waiting(index, &address, 0), 0, at(0)).unwrap().unwrap();
        assert_eq!(kept.number, u64::from(index) + 1);
        assert_eq!(claims.has_room("2001:db8::ffff".parse().unwrap(), at(0)).unwrap(), index < 31);
    }
    assert_eq!(claims.add(waiting(64, "203.0.113.1", 0), 0, at(0)).unwrap(), None);
    // A word of a person, or an hour, makes room.
    let (listed, broken) = claims.list(at(0)).unwrap();
    assert_eq!((listed.len(), broken.len()), (64, 0));
    claims.decide(listed[40].clone(), Verdict::Rejected { at: at(0) }).unwrap();
    assert!(claims.add(waiting(64, "203.0.113.1", 0), 0, at(0)).unwrap().is_some());
    assert_eq!(claims.add(waiting(65, "203.0.113.1", 3601), 0, at(3601)).unwrap().unwrap().number, 1);
    assert_eq!(claims.files().unwrap().len(), 1, "what is over is gone");
}

#[test]
fn what_waits_by_a_token_has_places_of_its_own_and_takes_no_other_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path().join("enroll"));
    let by = |token: &str, index| {
        let token = Some(TokenProof { name: token.to_owned(), proof: String::new() });
        Waiting { token, ..waiting(index, "192.0.2.1", 0) }
    };
    let add = |one: Waiting| claims.add(one, 3, at(0)).unwrap();
    for index in 0..6 {
        assert!(add(by("graz", index)).is_some());
    }
    assert_eq!(add(by("graz", 6)), None, "twice as many as the token is for");
    assert!(add(by("linz", 7)).is_some(), "another token's");
    // The same device again has one place, and the newest counts.
    let again = Waiting { request: "ab".repeat(16), ..by("graz", 3) };
    assert!(add(again.clone()).is_some());
    let (listed, _) = claims.list(at(0)).unwrap();
    let of_three: Vec<_> = listed.iter().filter(|one| one.claim == again.claim).collect();
    assert!(matches!(of_three[..], [one] if one.request == again.request));
    // Codes don't count them, nor they codes.
    for index in 100..132 {
        assert!(add(waiting(index, "192.0.2.1", 0)).is_some());
    }
    assert_eq!(add(waiting(200, "192.0.2.1", 0)), None);
    assert!(add(by("linz", 8)).is_some());
}

#[test]
fn a_new_key_waits_for_a_week_and_takes_no_places_but_those_of_its_device() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path().join("enroll"));
    let of = |device: &str, index| Waiting { rekeys: Some(device.parse().unwrap()), ..waiting(index, "192.0.2.1", 0) };
    let add = |one: Waiting, now| claims.add(one, 0, at(now)).unwrap();
    assert!((0..4).all(|index| add(of("press-01", index), 0).is_some()));
    assert_eq!(add(of("press-01", 4), 0), None);
    assert!(add(of("press-02", 5), 0).is_some(), "another device's");
    // The same key again has one place, and the newest counts.
    assert!(add(Waiting { request: "ab".repeat(16), ..of("press-02", 5) }, 0).is_some());
    assert_eq!(claims.list(at(0)).unwrap().0.len(), 5);
    assert!((100..132).all(|index| add(waiting(index, "192.0.2.1", 0), 0).is_some()), "codes don't count them");
    let week = 7 * 24 * 3600;
    assert_eq!(claims.list(at(week)).unwrap().0.len(), 5, "codes are over within an hour");
    assert!(claims.list(at(week + 1)).unwrap().0.is_empty());
    assert!(add(of("press-01", 4), week + 1).is_some());
}

#[test]
fn tokens_are_written_where_they_changed_and_there_are_none_at_first() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path().join("enroll"));
    claims.set_tokens(&Tokens { layout: 1, tokens: Vec::new() }).unwrap();
    assert!(!claims.dir().exists() && claims.tokens().unwrap().tokens.is_empty());
    let key = repo_git::SigningKey::from_seed(&[1; 32]).public().to_string().parse().unwrap();
    let token = Token { name: "graz".to_owned(), key, count: 2, used: 1, until: at(100) };
    let some = Tokens { layout: 1, tokens: vec![token] };
    claims.set_tokens(&some).unwrap();
    assert_eq!(claims.tokens().unwrap(), some);
    let none = Tokens { layout: 1, tokens: Vec::new() };
    claims.set_tokens(&none).unwrap();
    assert_eq!(claims.tokens().unwrap(), none);
    assert_eq!(claims.files().unwrap(), Vec::<PathBuf>::new(), "no request");
}

#[test]
fn a_damaged_file_is_named_and_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::new(dir.path().join("enroll"));
    let kept = claims.add(waiting(1, "192.0.2.1", 0), 0, at(0)).unwrap().unwrap();
    let odd = claims.path(&"ab".repeat(16));
    durable::replace_file(&odd, b"{\"layout\":1", 0o600).unwrap();
    let (listed, broken) = claims.list(at(0)).unwrap();
    assert_eq!(listed, [kept]);
    assert!(broken[0].to_string().contains(odd.to_str().unwrap()), "{broken:?}");
    for odd in ["", "../accounts/press-01", &"AB".repeat(16), &"a".repeat(33)] {
        assert_eq!(claims.get(odd, at(0)).unwrap(), None, "{odd}");
    }
}

#[test]
fn it_is_open_for_so_long_and_for_these() {
    let opening = |from: &[&str]| Opening {
        layout: 1,
        until: at(100),
        from: from.iter().map(|range| range.parse().unwrap()).collect(),
        offer: String::new(),
    };
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    assert!(opening(&[]).admits(address("192.0.2.1"), at(99)));
    assert!(!opening(&[]).admits(address("192.0.2.1"), at(100)));
    let some = opening(&["10.1.0.0/16", "fd00::/8"]);
    assert!(some.admits(address("10.1.2.3"), at(0)) && some.admits(address("fd00::1"), at(0)));
    assert!(!some.admits(address("10.2.0.1"), at(0)) && !some.admits(address("2001:db8::1"), at(0)));
}
