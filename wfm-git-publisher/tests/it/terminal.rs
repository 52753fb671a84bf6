//! What is seen on a terminal and not elsewhere: tables that fit into its lines.

use crate::support::{Lab, PROGRAM, Ran};

/// A command line of the program for a shell.
pub(crate) fn quoted(args: &[&str]) -> String {
    [&[PROGRAM], args].concat().iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_table_fits_into_the_lines_of_a_terminal_and_is_whole_where_there_is_none() {
    let lab = Lab::with(&["press-01"]);
    // No machine is called so.
    lab.run(&["publish"]).failed(1);
    let whole = lab.command(&["status"]).env("COLUMNS", "60").output().map(Ran::of).unwrap().good();
    let row = whole.lines().find(|line| line.contains("artifact-unavailable")).unwrap();
    assert!(row.contains("push it with `app push`"), "{whole}");
    let widest = |line: &str| {
        let page = lab.on_terminal(line, "").good();
        let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("\r\npress-01  hello ") && text.ends_with("`revision` in its margo.yaml"), "{page}");
        page.lines().map(|line| line.chars().count()).max().unwrap()
    };
    // Warnings are no table.
    let status = format!("{} 2>/dev/null", quoted(&["status"]));
    assert!(widest(&format!("stty cols 100; {status}")) <= 100);
    assert!(widest(&format!("stty cols 100; COLUMNS=80 {status}")) <= 80);
    assert!(widest(&status) > 200, "nobody knows how wide its lines are");
}
