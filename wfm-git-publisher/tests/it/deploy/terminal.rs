//! On a terminal, by a real one: `script` makes it.

use super::*;
use crate::support::Ran;
use crate::terminal::quoted;

/// What a person sees who types these lines, and how it ends.
fn typed(lab: &Lab, args: &[&str], lines: &[&str]) -> Ran {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    lab.on_terminal(&quoted(args), &text)
}

#[test]
fn a_person_is_asked_shown_the_plan_and_asked_whether_it_is_meant() {
    let lab = lab();
    let answers = ["0", "10", "", "", "ab", "80, 443", "site=nowhere", "line=1", "site=linz", ""];
    let before = count(&lab);
    let ran = typed(&lab, &["deploy", "pump"], &[&answers[..], &["n"]].concat());
    let page = ran.out.replace("\r\n", "\n");
    for expected in [
        "pump 1.0.0, Pump\\nid: evil: Pumps\\u{1b}[2J\\r\\ntargets: []\n",
        "General\n  Interval: Seconds between\\u{2028}two strokes\n    integer, maxValue 3600, minValue 1\n    interval [5]: ",
        "    ! is 0, and must be at least 1 (its rule is `seconds`)\n",
        "    mode [\"slow\"]: ",
        "Network\n  Channel\n    string, allowEmpty false; can't be changed once it is installed\n    channel [none]: ",
        "    ! it needs a value\n",
        "  line: 1 (1), 2 (2)\n",
        "    ! no device has these labels\n",
        "    1 device: press-01\n",
        "    2 devices: press-01, press-02\n",
        "press-01, press-02: first desired state",
        "Write deployments/pump.yaml and commit it? [y/N]",
    ] {
        assert!(page.contains(expected), "{expected}\nin\n{page}");
    }
    assert!(!page.contains('\u{1b}'), "{page}");
    assert_eq!((ran.code, count(&lab), lab.path(FILE).exists()), (Some(1), before, false));
    let ran = typed(&lab, &["deploy", "pump"], &[&answers[..], &["y"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.out);
    let text = committed(&lab, FILE);
    let end = "  interval: 10\n  # Mode\n  # mode: \"slow\"\n  # Channel (can't be changed once it is installed)\n  \
        channel: \"ab\"\n  # Ports\n  ports: [80,443]\n";
    assert!(text.ends_with(end), "{text}");
    assert!(text.contains("targets:\n  - matchLabels: {line: \"1\"}\n  - matchLabels: {site: linz}\n"), "{text}");
    // Asked again with what is there: Enter keeps, and what is given by options isn't asked.
    let ran = typed(&lab, &["deploy", "edit", "pump", "--set", "ports=8080"], &["20", "fast", "", "", "y"]);
    let page = ran.out.replace("\r\n", "\n");
    assert!(
        page.contains("interval [10]: ") && page.contains("channel [\"ab\"]: ") && page.contains("[2 devices]: "),
        "{page}"
    );
    assert_eq!(ran.code, Some(0), "{page}");
    let after = text.replace("interval: 10", "interval: 20").replace("[80,443]\n", "[8080]\n  mode: \"fast\"\n");
    assert_eq!(committed(&lab, FILE), after);
}

#[test]
fn answers_that_end_write_nothing() {
    let lab = lab();
    let before = crate::catalogue::stands(&lab);
    let ran = typed(&lab, &["deploy", "pump"], &["10"]);
    assert!(ran.out.contains("the answers ended, and nothing is written"), "{}", ran.out);
    assert_eq!((ran.code, crate::catalogue::stands(&lab)), (Some(1), before));
}
