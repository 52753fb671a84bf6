//! What is refused before a document has any meaning, and how the decoder speaks of it.

use repo_model::value::Strictness;
use repo_model::yaml::{self, Field, Limits, Node, Value, parse, parse_at, parse_json};

fn error(bytes: &[u8], limits: &Limits) -> String {
    let problem = parse("a.yaml", bytes, limits).expect_err("must be refused");
    format!("{problem} ({})", problem.hint.as_deref().unwrap_or_default())
}

#[test]
fn what_readers_of_yaml_disagree_about_is_refused_with_its_place_and_advice() {
    let deep = format!("a: {}1{}", "[".repeat(70), "]".repeat(70));
    let block = (0..70).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>();
    for (bytes, place, message) in [
        ("a: 1\nb: \u{7}x".as_bytes(), "a.yaml:2:4", "control character"),
        (b"a: 1\nb: x\xff", "a.yaml:2:5", "not UTF-8"),
        ("\u{feff}a: 1".as_bytes(), "a.yaml:1:1", "byte order mark"),
        (b"a:\n\tb: 1", "a.yaml:2", "tab"),
        (b"a: 1\n---\nb: 2", "a.yaml:2:1", "second document"),
        (b"%YAML 1.1\n---\na: 1", "a.yaml:1", "directive"),
        (b"a: 1\nb: 2\na: 3", "a.yaml:3:1", "duplicate key `a`, first at 1:1"),
        (b"a: {b: 1, \"b\": 2}", "a.yaml:1:11", "duplicate key `b`, first at 1:5"),
        (b"x: &x {a: 1}\ny:\n  <<: *x", "a.yaml:3:3", "merge keys"),
        (b"[a]: 1", "a.yaml:1:1", "a list can't be a key"),
        (b"? {a: 1}\n: 2", "a.yaml:1:3", "a mapping can't be a key"),
        (b"~: 1", "a.yaml:1:1", "nothing can't be a key"),
        (b"a: !!binary aGk=", "a.yaml:1:", "tags such as `!!binary`"),
        (b"a: !secret x", "a.yaml:1:", "tags such as `!secret`"),
        (b"a: !!map {b: 1}", "a.yaml:1:", "tags such as `!!map`"),
        (b"a: *nowhere", "a.yaml:1:4", "`*` names nothing"),
        (b"a: &a [*a]", "a.yaml:1:8", "inside the value"),
        (b"a: b: c", "a.yaml:1:5", "a `: ` stands where none can"),
        (b"a: \"x", "a.yaml:1", "a quote is not closed"),
        (b"a: @x", "a.yaml:1:4", "a value can't begin with `@`"),
        (b"a: [1, 2", "a.yaml:", "is not closed"),
        (b"a: {b: 1", "a.yaml:", "is not closed"),
        (b"", "a.yaml", "is empty"),
        (b"# nothing\n", "a.yaml", "is empty"),
        (deep.as_bytes(), "a.yaml:1:", "is nested too deep"),
        (block.as_bytes(), "a.yaml:", "is nested too deep"),
    ] {
        let error = error(bytes, &Limits::VENDOR);
        assert!(error.starts_with(place) && error.contains(message), "{error}");
    }
}

#[test]
fn of_one_path_only_what_lies_there_is_kept_and_the_rest_is_read_like_it() {
    let at = |text: &str, path: &[&str]| parse_at("a.yaml", text.as_bytes(), &Limits::FLEET, path);
    let text = "kind: x\nall:\n  one: [1, 2]\n  two: {a: b}\nend: 3\n";
    let whole = parse("a.yaml", text.as_bytes(), &Limits::FLEET).unwrap();
    for path in [&["all", "one"][..], &["all"], &["end"], &[]] {
        assert_eq!(at(text, path).unwrap().as_ref(), whole.at(path), "{path:?}");
    }
    for (text, path) in
        [(text, &["all", "three"][..]), (text, &["none", "one"]), ("all:\n", &["all", "one"]), ("", &["all"])]
    {
        assert_eq!(at(text, path), Ok(None), "{text}");
    }
    for (text, message) in [
        ("all: [1]\n", "a.yaml:1:6: a mapping was expected here, and not a list"),
        ("<html>\n", "a.yaml:1:1: a mapping was expected here, and not a string"),
        ("all: {one: 1}\nend: {a: 1, a: 2}\n", "a.yaml:2:13: duplicate key `a`, first at 2:7"),
        ("all: {one: 1, one: 2}\n", "a.yaml:1:15: duplicate key `one`, first at 1:7"),
        ("all: {one: 1}\n---\nb: 1\n", "a.yaml:2:1: a second document starts here"),
    ] {
        assert_eq!(at(text, &["all", "one"]).unwrap_err().to_string(), message);
    }
}

#[test]
fn aliases_are_for_vendors_only_and_bounded() {
    let ok = b"a: &a [1, 2]\nb: *a\n";
    let node = parse("a.yaml", ok, &Limits::VENDOR).unwrap();
    assert_eq!(node.get("b"), node.get("a"));
    assert!(error(ok, &Limits::FLEET).starts_with("a.yaml:2:4: aliases are not supported here"));

    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let items = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{items}]\n");
    }
    assert!(error(bomb.as_bytes(), &Limits::VENDOR).contains("more than 100000 values"));

    let nested = format!("a: {}x{}", "&a [".repeat(60), "]".repeat(60));
    assert!(parse("a", nested.as_bytes(), &Limits::VENDOR).is_ok());
    let deeper = (1..8).fold("a0: &a0 [[[[[[[[[[x]]]]]]]]]]\n".to_owned(), |text, level| {
        text + &format!("a{level}: &a{level} [[[[[[[[[[*a{}]]]]]]]]]]\n", level - 1)
    });
    assert!(error(deeper.as_bytes(), &Limits::VENDOR).contains("nested deeper than 64"));
}

#[test]
fn limits_hold_on_both_sides_of_their_edges() {
    let limits = Limits { bytes: 9, depth: 2, nodes: 4, aliases: true };
    assert!(parse("a", b"a: 123456", &limits).is_ok());
    assert!(error(b"a: 1234567", &limits).contains("larger than 9 bytes"));
    assert!(parse("a", b"[1,2,3]", &limits).is_ok());
    assert!(error(b"[1,2,3,4]", &limits).contains("more than 4 values"));
    assert!(parse("a", b"[[1]]", &limits).is_ok());
    assert!(parse("a", b"[[[1]]]", &limits).is_err());
    let huge = vec![b'a'; (1 << 20) + 1];
    assert!(error(&huge, &Limits::default()).contains("larger than 1048576 bytes"));
}

#[test]
fn a_quoted_merge_key_and_odd_line_ends_are_text() {
    let node = parse("a", b"\"<<\": 1\r\nb: |\r\n  x\r\n  y\r\n", &Limits::FLEET).unwrap();
    assert!(node.get("<<").is_some());
    assert_eq!(node.get("b").and_then(Node::text), Some("x\ny\n"));
    let tagged = parse("a", b"a: !!str 1", &Limits::FLEET).unwrap();
    assert_eq!(tagged.get("a").map(Node::kind), Some("a string"));
}

#[test]
fn json_keeps_its_own_rules() {
    let read = |text: &str| parse_json("a.json", text.as_bytes(), &Limits::VENDOR).map_err(|error| error.to_string());
    let node = read("{\"a\": [18446744073709551615, -1, 1.0, \"1\", null, true]}").unwrap();
    let texts: Vec<_> = match &node.get("a").unwrap().value {
        Value::Sequence(items) => items.iter().map(|item| item.text().unwrap_or("-")).collect(),
        _ => panic!("not a list"),
    };
    assert_eq!(texts, ["18446744073709551615", "-1", "1.0", "1", "-", "true"]);
    for (text, message) in [
        ("{\"a\": 1, \"a\": 2}", "duplicate key `a`"),
        ("{a: 1}", "a.json:1:2"),
        ("{\"a\": 1} x", "trailing characters"),
        ("", "EOF"),
        ("{\"a\": 1,}", "trailing comma"),
        ("{\"a\": NaN}", "expected value"),
        (&"[".repeat(1000), "recursion limit"),
    ] {
        assert!(read(text).unwrap_err().contains(message), "{text}: {:?}", read(text));
    }
}

#[test]
fn a_mistake_in_json_is_told_with_its_place_too() {
    let text =
        "{\n  \"ä\\\"}\": [1, {\"b\": -2.5e+3, \"c\": \"\\\\\"}, [], {}, null],\r\n\t\"täglich\" : true, \"d\": 1}\n";
    let node = parse_json("a.json", text.as_bytes(), &Limits::VENDOR).unwrap();
    let mut places = Vec::new();
    fn walk(node: &Node, places: &mut Vec<(usize, usize)>) {
        places.push((node.span.line, node.span.column));
        match &node.value {
            Value::Sequence(items) => items.iter().for_each(|item| walk(item, places)),
            Value::Mapping(entries) => entries.iter().for_each(|(key, value)| {
                walk(key, places);
                walk(value, places);
            }),
            _ => {}
        }
    }
    walk(&node, &mut places);
    let second = [(2, 3), (2, 11), (2, 12), (2, 15), (2, 16), (2, 21), (2, 30), (2, 35), (2, 42), (2, 46), (2, 50)];
    let third = [(3, 2), (3, 14), (3, 20), (3, 25)];
    assert_eq!(places, [&[(1, 1)], &second[..], &third[..]].concat());
    let problems =
        yaml::read_json("a.json", text.as_bytes(), |field| field.mapping(|reader| reader.required("d", Field::bool)));
    let told = problems.unwrap_err().to_string();
    assert!(told.contains("a.json:3:25: d: is `1`") && told.contains("a.json:3:2: täglich: unknown key"), "{told}");
}

#[derive(Debug, PartialEq)]
struct Example {
    id: String,
    waves: Vec<u8>,
    on: Option<bool>,
}

fn example(field: Field<'_>) -> Option<Example> {
    field.mapping(|reader| {
        let id = reader.required("id", Field::string);
        let waves = reader.required("waves", |field| field.list(Field::integer));
        let on = reader.optional("on", Field::bool);
        reader.refuse("rollout", "rollouts are not built yet");
        Some(Example { id: id?, waves: waves?, on })
    })
}

#[test]
fn every_mistake_is_reported_at_once_with_place_path_and_advice() {
    let text = "wafes: [1]\nrollout: {}\nwaves: [1, x, 300, \"4\", 0x5]\n\"on\": yes\nmatchLables: 1\n";
    let problems = yaml::read("f.yaml", text.as_bytes(), Strictness::Fleet, example).unwrap_err();
    let shown: Vec<_> = problems.iter().map(|p| format!("{p} [{}]", p.hint.as_deref().unwrap_or("-"))).collect();
    assert_eq!(
        shown,
        [
            "f.yaml:1:1: id: is missing [-]",
            "f.yaml:3:12: waves[1]: is `x`, expected an integer in decimal, without quotes [-]",
            "f.yaml:3:15: waves[2]: 300 is out of range [-]",
            "f.yaml:3:20: waves[3]: is `4`, expected an integer in decimal, without quotes [-]",
            "f.yaml:3:25: waves[4]: is `0x5`, expected an integer in decimal, without quotes [-]",
            "f.yaml:4:7: on: is `yes`, expected `true` or `false` without quotes [-]",
            "f.yaml:2:1: rollout: rollouts are not built yet [-]",
            "f.yaml:1:1: wafes: unknown key [did you mean `waves`?]",
            "f.yaml:5:1: matchLables: unknown key [known here: `id`, `waves`, `on`, `rollout`]",
        ]
    );
}

#[test]
fn a_string_that_readers_could_take_for_something_else_needs_quotes_in_the_fleets_own_files() {
    let read =
        |text: &str, strictness| yaml::read("f", format!("id: {text}\nwaves: []").as_bytes(), strictness, example);
    for text in ["1.2.3", "press-04", "a:b", "\"1.10\"", "'yes'", "192.168.0.1", "!!str 7"] {
        let (_, warnings) = read(text, Strictness::Fleet).unwrap();
        assert!(warnings.is_empty(), "{text}");
    }
    for text in ["1.10", "yes", "on", "007", "1e3", "2020-01-01", "12:30:45", "=", "1_000", "true", "0x1F", ".5", "nan"]
    {
        let problems = read(text, Strictness::Fleet).unwrap_err();
        assert!(problems.0[0].hint.as_ref().is_some_and(|hint| hint.contains("quotes")), "{problems}");
        let (example, warnings) = read(text, Strictness::Vendor).unwrap();
        assert_eq!((example.id.as_str(), warnings.0.len()), (text, 1), "a vendor's file keeps the text and warns");
    }
    for text in ["~", "null", "", "[]", "{}"] {
        assert!(read(text, Strictness::Fleet).is_err() && read(text, Strictness::Vendor).is_err(), "{text}");
    }
}

#[test]
fn extension_keys_have_one_pattern() {
    let read = |key: &str| {
        yaml::read("f", format!("{key}: {{a: 1}}").as_bytes(), Strictness::Vendor, |field| {
            field.mapping(|reader| Some(reader.extensions()))
        })
    };
    for key in ["x-a-extensions", "x-rollback-extensions", "x-a1-b--extensions"] {
        assert_eq!(read(key).unwrap().0[key], serde_json::json!({"a": 1}));
    }
    for key in [
        "x--extensions",
        "x-1-extensions",
        "x-A-extensions",
        "x-a-extension",
        "x-extensions",
        "y-a-extensions",
        "x-a_b-extensions",
    ] {
        assert!(read(key).is_err(), "{key}");
    }
    let scalar = yaml::read("f", b"x-a-extensions: 1", Strictness::Vendor, |field| {
        field.mapping(|reader| Some(reader.extensions()))
    });
    assert!(scalar.unwrap_err().to_string().contains("expected a mapping"));
}
