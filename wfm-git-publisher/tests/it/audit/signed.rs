//! Forgers without the branch's key: each kind of forgery at each place.

use super::forge::{BAD, Forge, Forgery, GOOD, Sign, all_are_found, forgery};

const INVALID: &str = "signature-invalid";

/// Branch, and how many commits before its tip.
const PLACES: [(&str, usize); 10] = [
    ("desired", 0),
    ("desired", 2),
    ("desired", 4),
    ("status", 0),
    ("status", 7),
    ("status", 15),
    ("bundle", 0),
    ("freshness", 0),
    ("heartbeat", 0),
    ("site", 0),
];

type Change = fn(String) -> String;

fn subject(text: String) -> String {
    text.replacen("\n\n", "\n\nforged: ", 1)
}

fn date(text: String) -> String {
    let line = text.lines().find(|line| line.starts_with("committer ")).unwrap().to_owned();
    let later = line.replace(" +0000", " +0100");
    assert_ne!(line, later);
    text.replacen(&line, &later, 1)
}

fn tree(text: String) -> String {
    let line = text.lines().next().unwrap().to_owned();
    assert!(line.starts_with("tree "), "{line}");
    // The empty tree.
    text.replacen(&line, "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904", 1)
}

fn trailer(text: String) -> String {
    let changed = text.replacen("\nDevice: ", "\nX: y\nDevice: ", 1);
    assert_ne!(text, changed);
    changed
}

fn same(text: String) -> String {
    text
}

/// Kind, how it is signed, and what is changed. Who signs lists of a site, nobody but the device knows.
fn kinds(branch: &str) -> Vec<(&'static str, Sign<'static>, Change)> {
    let mut all: Vec<(_, _, Change)> = vec![
        ("its signature taken away", Sign::Removed, same),
        ("its subject changed", Sign::Kept, subject),
        ("its date changed", Sign::Kept, date),
        ("its tree exchanged", Sign::Kept, tree),
        ("a trailer put in", Sign::Kept, trailer),
        ("signed for another purpose", Sign::By(Forge::writer(branch), "file"), same),
    ];
    if branch != "site" {
        let other = if branch == "status" || branch == "heartbeat" { "publisher" } else { BAD };
        all.push(("signed by a stranger", Sign::By("stranger", "git"), same));
        all.push(("signed by the other side", Sign::By(other, "git"), same));
        all.push(("signed by another device", Sign::By(GOOD, "git"), same));
    }
    all
}

fn forgeries() -> Vec<Forgery<'static>> {
    let mut all = Vec::new();
    for (branch, back) in PLACES {
        for (kind, sign, change) in kinds(branch) {
            let make = move |forge: &Forge| {
                // Git has no empty tree until somebody writes it.
                forge.hand.object("tree", b"");
                Some(forge.text(branch, back, sign, change))
            };
            all.push(forgery(format!("{branch}~{back}: {kind}"), INVALID, branch, make));
        }
        let pasted = move |forge: &Forge| {
            let other = forge.hand.raw(&forge.line(if branch == "desired" { "bundle" } else { "desired" })[0]);
            let signature: String = other
                .lines()
                .skip_while(|line| !line.starts_with("gpgsig "))
                .take_while(|line| line.starts_with("gpgsig ") || line.starts_with(' '))
                .map(|line| format!("{line}\n"))
                .collect();
            let paste = |text: String| text.replacen("\n\n", &format!("\n{signature}\n"), 1);
            Some(forge.text(branch, back, Sign::Removed, paste))
        };
        all.push(forgery(format!("{branch}~{back}: another commit's signature"), INVALID, branch, pasted));
    }
    all
}

#[test]
fn whoever_has_not_the_branchs_key_is_found_at_each_place() {
    let all = forgeries();
    assert!(all.len() >= 97, "{}", all.len());
    all_are_found(&Forge::new(), &all);
}
