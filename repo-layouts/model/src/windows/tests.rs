use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;

use super::*;

/// What Python's zoneinfo says of two years, minute by minute.
const ZONEINFO: &str = include_str!("../../../../fixtures/windows/zoneinfo.json");

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn span(start: &str, length: &str) -> Span {
    serde_json::from_value(serde_json::json!({"start": start, "length": length})).unwrap()
}

fn rules(allow: &[(&str, &str)], deny: &[(&str, &str)]) -> Rules {
    let spans = |all: &[(&str, &str)]| all.iter().map(|(start, length)| span(start, length)).collect();
    Rules { allow: spans(allow), deny: spans(deny) }
}

#[derive(Deserialize)]
struct Known {
    begin: Timestamp,
    end: Timestamp,
    zones: std::collections::BTreeMap<String, Vec<Covered>>,
}

#[derive(Deserialize)]
struct Covered {
    start: String,
    minutes: i64,
    covered: usize,
    sha256: String,
}

#[test]
fn every_minute_of_two_years_in_twelve_zones_is_as_pythons_zoneinfo_says() {
    let known: Known = serde_json::from_str(ZONEINFO).unwrap();
    assert_eq!(known.zones.len(), 12);
    let minute = |moment: Timestamp| moment.duration_since(known.begin).as_secs().div_euclid(60);
    let all = usize::try_from(minute(known.end)).unwrap();
    for (name, spans) in &known.zones {
        let zone = zone(name);
        for one in spans {
            let length = format!("{}m", one.minutes);
            let mut bits = vec![0_u8; all];
            for (start, end) in span(&one.start, &length).times(known.begin, known.end, &zone, Spread::NONE) {
                let place = |moment| usize::try_from(minute(moment).max(0)).unwrap().min(all);
                bits[place(start)..place(end)].fill(1);
            }
            let covered = bits.iter().filter(|bit| **bit == 1).count();
            assert_eq!(covered, one.covered, "{name}: {} for {length}", one.start);
            assert_eq!(crate::Digest::of(&bits).hex(), one.sha256, "{name}: {} for {length}", one.start);
            // What is asked of a single moment is the same, and the moment that it names is the next change.
            let (allowed, denied) = (rules(&[(&one.start, &length)], &[]), rules(&[], &[(&one.start, &length)]));
            for now in (0..all).step_by(20011) {
                let moment = known.begin + SignedDuration::from_mins(now as i64);
                let change = bits[now..].iter().position(|bit| *bit != bits[now]).map(|further| now + further);
                let change = change.map(|change| known.begin + SignedDuration::from_mins(change as i64));
                let said = [&allowed, &denied].map(|rules| rules.at(moment, &zone, Spread::NONE));
                let Some(change) = change.filter(|change| change.duration_since(moment) < HORIZON) else { continue };
                let expected = match bits[now] {
                    1 => [Opening::Open(Some(change)), Opening::Closed(change)],
                    _ => [Opening::Closed(change), Opening::Open(Some(change))],
                };
                assert_eq!(said, expected, "{name}: {} for {length} at {moment}", one.start);
            }
        }
    }
}

#[test]
fn a_start_that_the_clock_leaps_over_is_when_it_leaps_and_one_that_comes_twice_is_the_first() {
    let vienna = zone("Europe/Vienna");
    let half_past_two = rules(&[("30 2 * * *", "1h")], &[]);
    for (now, opens, closes) in [
        ("2025-03-29T12:00:00Z", "2025-03-30T01:00:00Z", "2025-03-30T02:00:00Z"),
        ("2025-10-25T12:00:00Z", "2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z"),
        ("2025-10-26T01:30:00Z", "2025-10-27T01:30:00Z", "2025-10-27T02:30:00Z"),
    ] {
        assert_eq!(half_past_two.at(at(now), &vienna, Spread::NONE), Opening::Closed(at(opens)));
        assert_eq!(half_past_two.at(at(opens), &vienna, Spread::NONE), Opening::Open(Some(at(closes))));
    }
    // A day that a place left out: its starts are at the end of the leap.
    let apia = rules(&[("0 12 30 * *", "1h")], &[]);
    let opens = apia.at(at("2011-12-30T00:00:00Z"), &zone("Pacific/Apia"), Spread::NONE);
    assert_eq!(opens, Opening::Closed(at("2011-12-30T10:00:00Z")));
}

#[test]
fn what_is_denied_is_closed_whatever_is_allowed() {
    let utc = TimeZone::UTC;
    let now = at("2026-11-23T12:00:00Z"); // a Monday
    let says = |rules: Rules| rules.at(now, &utc, Spread::NONE);
    let opens = |text: &str| Opening::Closed(at(text));
    for (allow, deny, expected) in [
        (&[][..], &[][..], Opening::Open(None)),
        (&[("0 11 * * *", "2h")], &[], Opening::Open(Some(at("2026-11-23T13:00:00Z")))),
        (&[("0 11 * * *", "2h")], &[("0 12 * * 1", "30m")], opens("2026-11-23T12:30:00Z")),
        (&[("0 11 * * *", "2h")], &[("0 12 * * 1", "1h")], opens("2026-11-24T11:00:00Z")),
        (&[("0 11 * * *", "2h")], &[("30 12 * * *", "1m")], Opening::Open(Some(at("2026-11-23T12:30:00Z")))),
        // Windows that touch or overlap are one, and so are denials.
        (
            &[("0 11 * * *", "2h"), ("0 13 * * *", "1h"), ("30 13 * * *", "2h")],
            &[],
            Opening::Open(Some(at("2026-11-23T15:30:00Z"))),
        ),
        (&[], &[("0 10 * * *", "4h"), ("0 14 * * *", "1h")], opens("2026-11-23T15:00:00Z")),
        (&[("0 2 * * 6", "4h")], &[], opens("2026-11-28T02:00:00Z")),
        (&[("0 2 * * 6", "4h")], &[("0 0 1-28 11 *", "1d"), ("0 0 * 12 *", "2d")], opens("2027-01-02T02:00:00Z")),
        (&[], &[("0 0 * * *", "24h")], Opening::NeverOpens),
        (&[("0 2 * * *", "4h")], &[("0 1 * * *", "6h")], Opening::NeverOpens),
        // The next leap year is further away than anybody plans.
        (&[("0 0 29 2 *", "24h")], &[], Opening::NeverOpens),
    ] {
        assert_eq!(says(rules(allow, deny)), expected, "{allow:?} {deny:?}");
    }
}

#[test]
fn several_rules_let_it_be_done_when_all_of_them_do() {
    let (utc, vienna) = (TimeZone::UTC, zone("Europe/Vienna"));
    let now = at("2026-11-23T15:00:00Z");
    let says = |site: &Rules, fleet: &Rules| {
        let part = |rules, zone| Part { rules, zone, spread: Spread::NONE };
        let both = meet(&[part(site, &utc), part(fleet, &vienna)], SignedDuration::ZERO, now);
        let turned = meet(&[part(fleet, &vienna), part(site, &utc)], SignedDuration::ZERO, now);
        assert_eq!(turned, both, "their order means nothing");
        both
    };
    let (from, until) = (|text| Opening::Closed(at(text)), |text| Opening::Open(Some(at(text))));
    let always = Rules::default();
    let day = rules(&[("0 14 * * *", "4h")], &[]);
    for (fleet, alone, together) in [
        (rules(&[], &[]), Opening::Open(None), until("2026-11-23T18:00:00Z")),
        // From 17 to 20 by the clock of Vienna.
        (rules(&[("0 17 * * *", "3h")], &[]), from("2026-11-23T16:00:00Z"), from("2026-11-23T16:00:00Z")),
        (rules(&[("0 15 * * *", "3h")], &[]), until("2026-11-23T17:00:00Z"), until("2026-11-23T17:00:00Z")),
        (rules(&[("0 21 * * *", "3h")], &[]), from("2026-11-23T20:00:00Z"), Opening::NeverOpens),
        (
            rules(&[("0 16 * * *", "4h")], &[("0 15 * * *", "2h")]),
            from("2026-11-23T16:00:00Z"),
            from("2026-11-23T16:00:00Z"),
        ),
        (rules(&[], &[("30 18 * * *", "1h")]), until("2026-11-23T17:30:00Z"), until("2026-11-23T17:30:00Z")),
        (rules(&[("0 17 * * 3", "1h")], &[]), from("2026-11-25T16:00:00Z"), from("2026-11-25T16:00:00Z")),
    ] {
        assert_eq!(says(&always, &fleet), alone, "{fleet:?}");
        assert_eq!(says(&day, &fleet), together, "{fleet:?}");
    }
}

#[test]
fn nothing_begins_shortly_before_a_window_closes() {
    let now = at("2026-11-23T15:00:00Z");
    let says = |rules: &Rules, minutes| {
        let part = Part { rules, zone: &TimeZone::UTC, spread: Spread::NONE };
        meet(&[part], SignedDuration::from_mins(minutes), now)
    };
    let tomorrow = Opening::Closed(at("2026-11-24T14:00:00Z"));
    let until = |text| Opening::Open(Some(at(text)));
    let hours = [("0 14 * * *", "2h")];
    for (rules, minutes, expected) in [
        (rules(&hours, &[]), 60, until("2026-11-23T16:00:00Z")),
        (rules(&hours, &[]), 61, tomorrow),
        (rules(&hours, &[]), 121, Opening::NeverOpens),
        (rules(&hours, &[("30 15 * * *", "10m")]), 30, until("2026-11-23T15:30:00Z")),
        (rules(&hours, &[("30 15 * * *", "10m")]), 31, tomorrow),
        (rules(&hours, &[("30 15 23 * *", "10m")]), 91, tomorrow),
        // What follows another one is one with it.
        (rules(&[("0 14 * * *", "2h"), ("0 16 * * *", "2h")], &[]), 180, until("2026-11-23T18:00:00Z")),
        (rules(&[("0 14 * * *", "2h"), ("30 15 * * *", "1h")], &[]), 91, tomorrow),
        (rules(&[], &[]), 10_000, Opening::Open(None)),
    ] {
        assert_eq!(says(&rules, minutes), expected, "{rules:?} {minutes}");
    }
}

#[test]
fn the_fleets_windows_are_written_in_seconds_and_judged_alike_at_each_time() {
    let text = r#"{"zone":"Europe/Vienna","apply":{"allow":[{"start":"0 2 * * 6","lengthSeconds":14400}],"deny":[{"start":"0 0 24 12 *","lengthSeconds":259200}]},"downtime":[{"start":"0 0 1 8 *","lengthSeconds":604800}],"fetch":{"deny":[{"start":"0 6 * * 1-5","lengthSeconds":43200}]},"talk":{"allow":[{"start":"0 5 * * *","lengthSeconds":7200}]},"lastStartSeconds":600,"overrun":"component"}"#;
    let policy: WindowsPolicy = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&policy).unwrap(), text);
    let words = "Europe/Vienna, in 0 2 * * 6 for 4h, not in 0 0 24 12 * for 72h, down in 0 0 1 8 * for 168h, fetches nothing in 0 6 * * 1-5 for 12h, talks in 0 5 * * * for 2h, begun 10m before the end at the \
         latest, overrun by one component";
    assert_eq!(policy.to_string(), words);
    let only_zone: WindowsPolicy = serde_json::from_str(r#"{"zone":"UTC"}"#).unwrap();
    assert_eq!(
        (serde_json::to_string(&only_zone).unwrap().as_str(), only_zone.to_string().as_str()),
        (r#"{"zone":"UTC"}"#, "UTC, at any time")
    );
    let opens = |apply: Rules, downtime: &[(&str, &str)]| {
        let downtime = downtime.iter().map(|(start, length)| span(start, length)).collect();
        let zone = zone("Europe/Vienna");
        let (last_start_seconds, overrun) = (Some(60), Overrun::Deployment);
        let (fetch, talk) = (None, Rules::default());
        WindowsPolicy { zone: String::new(), apply, downtime, fetch, talk, last_start_seconds, overrun }
            .ever_opens(&zone)
    };
    assert!(opens(rules(&[("0 2 * * 6", "4h")], &[("0 0 24 12 *", "3d")]), &[("0 0 1 8 *", "7d")]));
    assert!(opens(rules(&[("0 2 1 3 *", "2m")], &[]), &[]), "once a year");
    for (apply, downtime) in [
        (rules(&[("0 0 29 2 *", "24h")], &[]), &[][..]),
        (rules(&[("0 2 * * *", "1m")], &[]), &[]),
        (rules(&[], &[("0 0 * * *", "25h")]), &[]),
        (rules(&[], &[]), &[("0 0 * * *", "25h")]),
        (rules(&[("0 2 * * *", "4h")], &[]), &[("0 1 * * *", "6h")]),
    ] {
        assert!(!opens(apply.clone(), downtime), "{apply:?}, down in {downtime:?}");
    }
    let never = rules(&[], &[("0 0 * * *", "25h")]);
    let (fetch, talk) = (Some(never.clone()), never);
    assert!(!WindowsPolicy { fetch, ..only_zone.clone() }.ever_opens(&TimeZone::UTC), "nothing would ever be fetched");
    let at_any: WindowsPolicy = serde_json::from_str(r#"{"zone":"UTC","fetch":{}}"#).unwrap();
    assert_eq!(serde_json::to_string(&at_any).unwrap(), r#"{"zone":"UTC","fetch":{}}"#, "it isn't the same as none");
    assert_eq!(at_any.to_string(), "UTC, at any time, fetches at any time");
    assert!(!WindowsPolicy { talk, ..only_zone }.ever_opens(&TimeZone::UTC), "it would never be heard again");
}

#[test]
fn in_a_downtime_of_the_fleet_a_device_talks_no_more_than_outside_its_windows_for_that() {
    let again = |text: &str, now: &str| {
        let policy: WindowsPolicy = serde_json::from_str(text).unwrap();
        (policy.talks_again(&TimeZone::UTC, at(now)).map(|again| again.to_string()), policy.ever_opens(&TimeZone::UTC))
    };
    let down = r#"{"zone":"UTC","downtime":[{"start":"0 0 1 8 *","lengthSeconds":604800}]}"#;
    assert_eq!(again(down, "2026-07-31T23:59:59Z"), (None, true));
    assert_eq!(again(down, "2026-08-01T00:00:00Z"), (Some("2026-08-08T00:00:00Z".to_owned()), true));
    let both = r#"{"zone":"UTC","downtime":[{"start":"0 5 * * *","lengthSeconds":3600}],"talk":{"allow":[{"start":"0 5 * * *","lengthSeconds":7200}]}}"#;
    assert_eq!(again(both, "2026-08-01T05:30:00Z"), (Some("2026-08-01T06:00:00Z".to_owned()), true));
    let never = both.replace("7200", "3600");
    assert_eq!(again(&never, "2026-08-01T05:30:00Z"), (None, false), "it would never be heard again");
}

#[test]
fn a_device_begins_later_by_its_own_share_and_ends_with_the_window() {
    let utc = TimeZone::UTC;
    let long = rules(&[("0 2 * * *", "4h")], &[]);
    let short = rules(&[("0 2 * * *", "10m")], &[]);
    let mut delays = std::collections::BTreeSet::new();
    for number in 0..50 {
        let spread = Spread::of(&format!("press-{number}").parse().unwrap());
        let delay = |rules: &Rules| match rules.at(at("2026-11-23T00:00:00Z"), &utc, spread) {
            Opening::Closed(opens) => {
                let Opening::Open(Some(end)) = rules.at(opens, &utc, spread) else { panic!("it opens") };
                assert_eq!(end.duration_since(at("2026-11-23T02:00:00Z")), rules.allow[0].length, "no later for that");
                opens.duration_since(at("2026-11-23T02:00:00Z")).as_secs()
            }
            other => panic!("{other:?}"),
        };
        assert!((0..600).contains(&delay(&long)) && (0..60).contains(&delay(&short)));
        assert_eq!(delay(&long), delay(&long));
        delays.insert(delay(&long));
        // What never closes opens for nobody later than for others.
        let always = rules(&[("0 0 * * *", "24h")], &[]);
        assert_eq!(always.at(at("2026-11-23T00:00:00Z"), &utc, spread), Opening::Open(None));
    }
    assert!(delays.len() > 40, "{delays:?}");
}

#[test]
fn what_is_no_span_is_refused_with_what_is_wrong() {
    let read = |text: &str| serde_yaml::from_str::<Rules>(text).map_err(|error| error.to_string());
    for (start, words) in [
        ("0 2 * *", "4 fields"),
        ("0  2 * * 6", "6 fields"),
        ("60 2 * * 6", "minute `60` isn't from 0 to 59"),
        ("0 24 * * 6", "hour `24`"),
        ("0 2 0 * *", "day `0`"),
        ("0 2 * 13 *", "month `13`"),
        ("0 2 * * 8", "weekday `8`"),
        ("0 2 * * MON", "weekday `MON`"),
        ("0 2 1 * 6", "day and weekday are both restricted"),
        ("0 2 30 2 *", "no month has such a day"),
        ("5-1 2 * * *", "minute `5-1`"),
        ("5/2 2 * * *", "minute `5/2`"),
        ("*/0 2 * * *", "minute `*/0`"),
        ("+5 2 * * *", "minute `+5`"),
        ("1, 2 * * *", "minute `1,`"),
    ] {
        let said = read(&format!("allow: [{{start: '{start}', length: 1h}}]")).unwrap_err();
        assert!(said.contains(words) && said.contains(start), "{start}: {said}");
    }
    for length in ["59s", "8d", "7d 1m", "x", "-1h", "1mo"] {
        let said = read(&format!("allow: [{{start: '0 2 * * 6', length: '{length}'}}]")).unwrap_err();
        assert!(said.contains(&format!("length `{length}` isn't from 1m to 7d")), "{said}");
    }
    assert!(read("allow: []").unwrap_err().contains("leave it out"));
    assert!(read("allowed: []").unwrap_err().contains("allowed"));
    for start in ["0 2 * * 6", "*/15 8-18/2 * 1,7 1-5", "0 0 29 2 *", "0 0 31 * *", "0 0 * * 7"] {
        read(&format!("deny: [{{start: '{start}', length: 7d}}]")).unwrap();
    }
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused_and_what_is_read_has_an_answer(
        start in "[0-9*/,-]{1,4} [0-9*/,-]{1,4} [0-9*]{1,2} [0-9*]{1,2} [0-9*-]{1,3}",
        seconds in -62_000_000_000_i64..253_000_000_000,
        name in prop::sample::select(vec!["UTC", "Europe/Vienna", "Pacific/Apia", "Africa/Casablanca"]),
    ) {
        let Ok(start) = start.parse() else { return Ok(()) };
        let span = Span { start, length: SignedDuration::from_hours(1) };
        let (zone, now) = (zone(name), Timestamp::from_second(seconds).unwrap());
        for rules in [Rules { allow: vec![span.clone()], deny: Vec::new() }, Rules::denied(vec![span])] {
            if let Opening::Closed(opens) = rules.at(now, &zone, Spread::NONE) {
                prop_assert!(opens > now && matches!(rules.at(opens, &zone, Spread::NONE), Opening::Open(_)));
            }
        }
    }
}
