//! What is shown of packages, and of what an update changes.

use super::*;

#[test]
fn the_catalogue_shows_each_version_with_what_uses_it() {
    let lab = Lab::new();
    for version in ["1.10.0", "1.9.0", "1.10.0-rc.1"] {
        lab.run(&["app", "add", text(&package(&lab, version, version))]).good();
    }
    let listed = json(&lab, &["app", "list"]);
    let versions: Vec<_> =
        listed["applications"].as_array().unwrap().iter().map(|one| one["version"].as_str().unwrap()).collect();
    assert_eq!(versions, ["1.9.0", "1.10.0-rc.1", "1.10.0", "1.0.0"]);
    assert_eq!(listed["applications"][3]["usedBy"][0], "hello");
    assert_eq!(
        (&listed["applications"][0]["vendor"][0], &listed["applications"][0]["usedBy"][0]),
        (&"Northstar".into(), &Value::Null)
    );
    let table = lab.run(&["app", "list"]).good();
    assert!(table.contains("counter      1.9.0        Counter  Northstar  compose   -\n"), "{table}");
    // The newest one, unless another is named.
    assert_eq!(json(&lab, &["app", "show", "counter"])["version"], "1.10.0");
    let shown = json(&lab, &["app", "show", "counter@1.9.0"]);
    assert_eq!(shown["profiles"][0]["needs"][0], "2Gi of memory");
    assert_eq!((&shown["parameters"][0]["type"], &shown["parameters"][0]["default"]), (&"integer".into(), &1.into()));
    assert_eq!(
        (&shown["licence"], &shown["files"][2]["path"]),
        (&"resources/license.txt".into(), &"resources/icon.png".into())
    );
    let page = lab.run(&["app", "show", "counter@1.9.0"]).good();
    for line in [
        "counter 1.9.0: Counter\n  Counts\n  vendor:  Northstar\n  licence: resources/license.txt\n  used by: -\n",
        "profile small (compose)\n  component counter: oci://r.example/counter:1.9.0\n  needs 2Gi of memory\n",
        "start      integer  1        minValue 0\n",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let said = lab.run(&["app", "show", "counter@3.0.0"]).failed(1);
    assert!(
        said.contains("no package counter@3.0.0") && said.contains("hint: there is 1.9.0, 1.10.0-rc.1, 1.10.0"),
        "{said}"
    );
    // One that can't be read is told, and hides no other one.
    lab.write("applications/bad/1.0.0/margo.yaml", "id: [");
    lab.commit();
    let ran = lab.run(&["app", "list"]);
    assert!(
        ran.code == Some(1)
            && ran.out.contains("1.10.0-rc.1")
            && ran.err.contains("applications/bad/1.0.0/margo.yaml:1:"),
        "{}",
        ran.err
    );
}

#[test]
fn an_update_is_seen_before_it_is_added() {
    let lab = Lab::new();
    let old = package(&lab, "old", "1.0.0");
    let new = package(&lab, "new", "1.1.0");
    let changed = description("1.1.0")
        .replace("name: Northstar", "name: Southstar")
        .replace("memory: 2Gi", "memory: 4Gi")
        .replace(
            "start: {value: 1,",
            "limit: {targets: [{pointer: LIMIT, components: [counter]}]}\n  start: {value: one,",
        )
        .replace("dataType: integer, minValue: 0", "dataType: string, maxLength: 9");
    let had = "  step: {value: 5, targets: [{pointer: STEP, components: [counter]}]}\n";
    write(&old, "margo.yaml", description("1.0.0").replace("parameters:\n", &format!("parameters:\n{had}")));
    lab.run(&["app", "add", text(&old)]).good();
    write(&new, "margo.yaml", changed);
    write(&new, "resources/license.txt", "other terms");
    write(&new, "resources/manual.txt", "");
    let page = lab.run(&["app", "diff", "counter@1.0.0", text(&new)]).good();
    for line in [
        "counter@1.0.0 → counter@1.1.0\n",
        "  ~ version: 1.0.0 → 1.1.0\n",
        "  ~ vendor: Northstar → Southstar\n",
        "  ~ licence: resources/license.txt (sha256:",
        "  ~ profile small component counter: oci://r.example/counter:1.0.0 → oci://r.example/counter:1.1.0\n",
        "  ~ profile small deviceConstraints: ",
        "  + parameter limit: any, no default\n",
        "  - parameter step: integer, 5 → (none)\n",
        "  ~ parameter start type: integer → string\n",
        "  ~ parameter start default: 1 → \"one\"\n",
        "  ~ parameter start rules: minValue 0 → maxLength 9\n",
        "  ~ file resources/license.txt: ",
        "  + file resources/manual.txt: ",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let archive = lab.dir().join("new.tgz");
    tar(&new, &archive, &["."]);
    let all = json(&lab, &["app", "diff", "counter@1.0.0", text(&archive)]);
    assert_eq!(all["differences"].as_array().unwrap().len(), page.lines().count() - 1);
    assert_eq!(all["differences"][0]["what"], "version");
    let same = lab.run(&["app", "diff", "counter@1.0.0", text(&old)]).good();
    assert_eq!(same, "counter@1.0.0 → counter@1.0.0\n  nothing is different\n");
    assert!(!lab.path("applications/counter/1.1.0").exists());
}

#[test]
fn what_a_vendor_writes_is_harmless_on_a_terminal() {
    let lab = Lab::new();
    let dir = package(&lab, "vendor", "1.0.0");
    let text_of = description("1.0.0")
        .replace("name: Counter\n", "name: \"\\e[2J\\nhello 9.9.9: all is well\"\n")
        .replace("description: Counts", "description: \"a\\u202eb\"")
        .replace("name: Northstar", "name: \"North\\nstar  X\"");
    write(&dir, "margo.yaml", text_of);
    let mut said = lab.run(&["app", "add", text(&dir)]).good();
    for args in [&["app", "list"][..], &["app", "show", "counter"], &["app", "diff", "hello@1.0.0", "counter@1.0.0"]] {
        said += &lab.run(args).good();
        said += &lab.run(&[args, &["--output", "json"]].concat()).good();
    }
    assert!(!said.contains('\u{1b}') && !said.contains('\u{202e}'), "{said:?}");
    assert!(!said.lines().any(|line| line.starts_with("hello 9.9.9")), "{said}");
}
