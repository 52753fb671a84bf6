//! `audit report`: what ran when, who changed it, and what went wrong.

use serde_json::Value;

use super::forge::{BAD, Forge, GOOD, Sign};
use super::honest::{DEVICES, Honest};

fn report(honest: &Honest, more: &[&str]) -> crate::support::Ran {
    let (devices, roster) = (honest.lab.home.devices().display().to_string(), honest.roster().display().to_string());
    honest.lab.run(&[&["audit", "report", &devices, "--roster", &roster], more].concat())
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The rows of a section of the page.
fn rows<'a>(page: &'a str, title: &str) -> Vec<&'a str> {
    let section = page.split(&format!("\n## {title}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    section.lines().filter(|line| line.starts_with("| ")).skip(1).collect()
}

#[test]
fn a_report_says_what_ran_from_when_to_when_and_who_changed_what() {
    let honest = Honest::new();
    let said = parsed(&report(&honest, &["--output", "json"]).good());
    assert_eq!(said["devices"].as_array().unwrap().len(), DEVICES.len());
    let record = &said["devices"].as_array().unwrap().iter().find(|one| one["device"] == BAD).unwrap()["record"];
    let runs = record["runs"].as_array().unwrap();
    let of = |name: &str| runs.iter().filter(|run| run["deployment"] == name).collect::<Vec<_>>();
    let (hello, second) = (of("hello"), of("second"));
    // Each state is installed anew there; the next one begins when the one before it ends.
    assert_eq!(hello.iter().map(|run| run["serial"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(hello.iter().all(|run| run["versions"] == "1.0.0"), "{hello:?}");
    for (one, next) in hello.iter().zip(hello.iter().skip(1)) {
        assert!(one["until"].as_str().unwrap() <= next["since"].as_str().unwrap(), "{one} {next}");
    }
    assert_eq!(hello[3]["until"], Value::Null, "it goes on");
    assert_eq!((second.len(), second[0]["until"].is_string()), (1, true), "{second:?}");
    let changes = record["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 4);
    assert_eq!(changes[2]["deployments"], serde_json::json!([["add", "second", "1.0.0"]]));
    assert_eq!(changes[3]["deployments"], serde_json::json!([["remove", "second", ""]]));
    assert_eq!(changes[0]["operatorKey"], "unverified");
    // Only some of the time: what ran then, and nothing that was over.
    let begin = hello[2]["since"].as_str().unwrap();
    let some = parsed(&report(&honest, &["--output", "json", "--device", BAD, "--from", begin]).good());
    let left = &some["devices"][0]["record"];
    assert_eq!(
        left["runs"].as_array().unwrap().iter().filter(|run| run["deployment"] == "hello").count(),
        2,
        "{left:#}"
    );
    assert_eq!(some["devices"].as_array().unwrap().len(), 1);
    let none = parsed(&report(&honest, &["--output", "json", "--to", "2001-01-01T00:00:00Z"]).good());
    assert_eq!(none["devices"][0]["record"]["runs"], serde_json::json!([]));
    report(&honest, &["--device", "press-99"]).failed(1);
}

#[test]
fn a_report_is_a_page_of_tables_and_believes_nothing_that_is_forged() {
    let forge = Forge::new();
    let page = forge.report(&["--device", BAD]).good();
    let ran = rows(&page, "What ran");
    assert_eq!(ran.len(), 6, "{page}");
    assert!(ran[0].starts_with("| press-01 | hello | 1.0.0 | 20"), "{page}");
    assert!(!page.contains(GOOD), "{page}");
    assert_eq!(rows(&page, "Findings of the audit").len(), 0, "{page}");
    assert!(rows(&page, "What this can't prove").len() > 3, "{page}");
    let html = forge.report(&["--device", BAD, "--output", "html"]).good();
    assert!(html.contains("<h2>What ran</h2>") && html.matches("<td>1.0.0</td>").count() == 6, "{html}");
    // A stranger's report that something was installed is told as a finding, and nowhere else.
    forge.text("status", 0, Sign::By("stranger", "git"), |text| text);
    let ran_then = forge.report(&["--device", BAD]);
    assert_eq!(ran_then.code, Some(1));
    assert_eq!(rows(&ran_then.out, "What ran").len(), 5, "{}", ran_then.out);
    assert!(rows(&ran_then.out, "Findings of the audit")[0].contains("signature-invalid"), "{}", ran_then.out);
}

#[test]
fn with_the_fleet_repository_it_says_who_agreed_to_what_was_published_and_where_nobody_did() {
    use repo_testkit::git::git;
    let honest = Honest::new();
    let lab = &honest.lab;
    // Nobody has to agree up to here; from here on Anna has to.
    let fleet = lab.fleet.display().to_string();
    let agreed = |honest: &Honest, code: i32| {
        let ran = report(honest, &["--fleet-clone", &fleet, "--output", "json"]);
        assert_eq!(ran.code, Some(code), "{}{}", ran.out, ran.err);
        parsed(&ran.out)["agreements"].as_array().unwrap().clone()
    };
    let before = agreed(&honest, 0);
    assert_eq!(before.len(), 4);
    assert_eq!(before[0]["covered"], Value::Null, "what was before isn't known");
    assert!(before[1..].iter().all(|one| one["covered"] == true && one["signatures"] == serde_json::json!([])));
    let anna = lab.dir().join("anna");
    let key = crate::support::Lab::device_key("anna");
    key.save(&anna).unwrap();
    let public = key.public().to_string();
    repo_git::durable::replace_file(&anna.with_extension("pub"), public.as_bytes(), 0o644).unwrap();
    let anna = anna.display().to_string();
    lab.run(&["signers", "init", "--name", "anna", "--key", &anna]).good();
    let signed = |lab: &crate::support::Lab, greeting: &str| {
        lab.edit("deployments/hello.yaml", "servus", greeting);
        git(&lab.fleet, &["add", "--all"]);
        let key = format!("user.signingKey={anna}");
        git(&lab.fleet, &["-c", "gpg.format=ssh", "-c", &key, "commit", "--quiet", "-S", "-m", greeting]);
    };
    signed(lab, "by a signed commit");
    lab.publish_all();
    lab.edit("deployments/hello.yaml", "by a signed commit", "by a tag");
    let tagged = lab.commit();
    lab.run(&["approve", "--key", &anna]).good();
    lab.publish_all();
    let all = agreed(&honest, 0);
    let new = &all[4..];
    assert_eq!(new.len(), 2, "{all:?}");
    let by = |one: &Value| (one["signatures"][0]["person"].clone(), one["signatures"][0]["by"].clone());
    // She began with a commit that nobody had to agree to, and counts from then on.
    assert_eq!(new[0]["covered"], true, "{new:?}");
    assert!(new[0]["signatures"].to_string().contains("\"commit\""), "{new:?}");
    assert_eq!((by(&new[1]), &new[1]["covered"]), (("anna".into(), "tag".into()), &true.into()));
    assert_eq!(new[1]["fleetCommit"], tagged.as_str());
    let page = report(&honest, &["--fleet-clone", &fleet]).good();
    let rows = rows(&page, "Who agreed");
    assert!(rows.last().unwrap().contains("| anna | SHA256:"), "{rows:?}");
    assert!(rows.last().unwrap().contains(&format!("approved {}", &tagged[..12])), "{rows:?}");
    // Where the tag isn't, nobody agreed; where the commit isn't, nothing is known.
    let name = git(&lab.fleet, &["tag", "--list", "approve/*"]);
    let other = lab.dir().join("clone").display().to_string();
    git(lab.dir(), &["clone", "--quiet", "--mirror", &fleet, &other]);
    git(other.as_ref(), &["tag", "-d", &name]);
    let ran = report(&honest, &["--fleet-clone", &other, "--output", "json"]);
    let missing = parsed(&ran.out)["agreements"][5].clone();
    assert_eq!((ran.code, &missing["covered"]), (Some(1), &false.into()), "{missing}");
    assert!(missing["missing"].as_str().unwrap().contains("nobody did"), "{missing}");
    let first = git(&lab.fleet, &["rev-list", "--max-parents=0", "HEAD"]);
    git(other.as_ref(), &["update-ref", "refs/heads/main", &first]);
    git(other.as_ref(), &["-c", "gc.reflogExpire=now", "gc", "--quiet", "--prune=now"]);
    let unknown = parsed(&report(&honest, &["--fleet-clone", &other, "--output", "json"]).good())["agreements"].clone();
    assert!(unknown.as_array().unwrap().iter().all(|one| one["covered"] == Value::Null), "{unknown}");
}

#[test]
fn a_report_says_which_wave_of_a_rollout_released_what_to_whom() {
    let lab = crate::waves::lab();
    crate::waves::change(&lab, crate::waves::FIRST, "servus");
    let first = lab.publish();
    lab.run(&["rollout", "promote", "1"]).good();
    lab.publish();
    let roster = lab.dir().join("roster.json");
    std::fs::write(&roster, lab.git("press-01", &["show", "desired:trust/1.json"]) + "\n").unwrap();
    let (devices, roster) = (lab.home.devices().display().to_string(), roster.display().to_string());
    let report = |form: &str| lab.run(&["audit", "report", &devices, "--roster", &roster, "--output", form]).out;
    let page = report("markdown");
    let waves = rows_of(&page, "Rollouts");
    let commit = &first.commit.to_string()[..12];
    let expected = [["1", "1", "1"], ["1", "3", "4"]];
    assert_eq!(waves.iter().map(|row| [row[0], row[1], row[4]]).collect::<Vec<_>>(), expected, "{page}");
    assert!(waves.iter().all(|row| row[6] == "change hello 1.0.0") && waves[0][7] == commit, "{page}");
    let said = parsed(&report("json"));
    let of = |change: &Value| change["rollouts"].as_array().is_some_and(|all| !all.is_empty());
    let all = said["devices"].as_array().unwrap().iter().flat_map(|one| one["record"]["changes"].as_array().unwrap());
    let released: Vec<_> = all.filter(|change| of(change)).map(|change| change["rollouts"][0].to_string()).collect();
    assert_eq!(released.len(), 5, "{said:#}");
    assert_eq!(released.iter().filter(|one| *one == r#"{"rollout":1,"wave":1}"#).count(), 1, "{released:?}");

    // What was decided, and why; a decision that somebody else signed is told as that.
    let control = lab.home.control();
    let with = |path: &std::path::Path| {
        let path = path.display().to_string();
        lab.run(&["audit", "report", &devices, "--roster", &roster, "--control", &path])
    };
    let page = with(&control).good();
    let decided = rows_of(&page, "Decisions about rollouts");
    assert_eq!(decided.iter().map(|row| row[2]).collect::<Vec<_>>(), ["start", "release 1", "release 3"], "{page}");
    assert!(decided[0][3] == "hello on 5 devices" && decided.iter().all(|row| row[1] == "1"), "{page}");
    let forged = lab.dir().join("forged.git");
    repo_testkit::git::git(lab.dir(), &["clone", "--quiet", "--bare", &control.display().to_string(), "forged.git"]);
    let tree = repo_testkit::git::git(&forged, &["rev-parse", "control^{tree}"]);
    let message = "rollout 1: resume 1\n\nRollout: 1\nDecision: resume 1\nReason: trust me\n";
    let commit = repo_testkit::git::git(&forged, &["commit-tree", &tree, "-p", "control", "-m", message]);
    repo_testkit::git::git(&forged, &["update-ref", "refs/heads/control", &commit]);
    let said = with(&forged);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let last = rows_of(&said.out, "Decisions about rollouts").pop().unwrap().join(" | ");
    assert!(last.contains("resume 1 | NOT BELIEVED, ") && last.contains(": trust me"), "{last}");
    let nothing = with(&lab.repo("press-01")).failed(1);
    assert!(nothing.contains("it has no branch `control`"), "{nothing}");
}

/// The cells of a section of the page.
fn rows_of<'a>(page: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let cells = |row: &'a str| row.trim_matches(['|', ' ']).split(" | ").collect();
    rows(page, title).into_iter().map(cells).collect()
}
