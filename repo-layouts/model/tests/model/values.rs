//! Parameter values: what they are, as what text they are passed on, and that writing keeps them.

use proptest::prelude::*;
use repo_model::Digest;
use repo_model::value::{Param, ParamValue, Strictness, input_digest};
use repo_model::yaml;

fn read(yaml: &[u8], strictness: Strictness) -> Result<(ParamValue, usize), String> {
    yaml::read("f", yaml, strictness, |field| field.mapping(|reader| reader.required("v", ParamValue::read)))
        .map(|(value, warnings)| (value, warnings.0.len()))
        .map_err(|problems| problems.to_string())
}

fn plain(text: &str, strictness: Strictness) -> Result<(ParamValue, usize), String> {
    read(format!("v: {text}\n").as_bytes(), strictness)
}

/// Writes the value and reads it back, as the fleet's own file would be.
fn round_trip(value: &ParamValue) -> ParamValue {
    let map = std::collections::BTreeMap::from([("v", value)]);
    let written = yaml::to_yaml(&map);
    let strictness = if is_exact(value) { Strictness::Fleet } else { Strictness::Vendor };
    let (read, _) =
        read(&written, strictness).unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(&written)));
    read
}

fn is_exact(value: &ParamValue) -> bool {
    match value {
        ParamValue::String(_) | ParamValue::Boolean(_) => true,
        ParamValue::Integer(value) => value.unsigned_abs() < 1 << 53,
        // The YAML library's own spelling of doubles need not be ours.
        ParamValue::Double(_) => false,
        ParamValue::Array(items) => items.iter().all(is_exact),
    }
}

#[test]
fn types_and_texts_are_those_of_the_contract() {
    use ParamValue::*;
    for (yaml, value, tag, text) in [
        ("hello", String("hello".into()), "string", "hello"),
        ("\"1.10\"", String("1.10".into()), "string", "1.10"),
        ("'yes'", String("yes".into()), "string", "yes"),
        ("\"\"", String("".into()), "string", ""),
        ("30", Integer(30), "integer", "30"),
        ("-7", Integer(-7), "integer", "-7"),
        ("9007199254740991", Integer(9007199254740991), "integer", "9007199254740991"),
        ("30.0", Double(30.0), "double", "30.0"),
        ("0.1", Double(0.1), "double", "0.1"),
        ("1.5e-7", Double(1.5e-7), "double", "1.5e-7"),
        ("1.0e+20", Double(1e20), "double", "1.0e+20"),
        ("true", Boolean(true), "boolean", "true"),
        ("[]", Array(vec![]), "array", "[]"),
        (
            "[1, 1.0, \"1\", a b, true]",
            Array(vec![Integer(1), Double(1.0), String("1".into()), String("a b".into()), Boolean(true)]),
            "array",
            "[1,1.0,\"1\",\"a b\",true]",
        ),
        ("[\"\\\"\\\\\\n\\u0001é\"]", Array(vec![String("\"\\\n\u{1}é".into())]), "array", "[\"\\\"\\\\\\n\\u0001é\"]"),
    ] {
        let (read, warnings) = plain(yaml, Strictness::Fleet).unwrap();
        assert_eq!((&read, read.type_tag(), read.text().as_str(), warnings), (&value, tag, text, 0), "{yaml}");
    }
    assert_ne!(Integer(30), Double(30.0));
    assert_ne!(Integer(30), String("30".into()));
    assert_ne!(Array(vec![Integer(1)]), Array(vec![Double(1.0)]));
}

#[test]
fn ambiguous_plain_scalars_need_quotes_in_the_fleets_files_and_warn_in_vendors() {
    use ParamValue::*;
    let string = |text: &str| String(text.to_owned());
    for (yaml, by_core_schema) in [
        ("yes", string("yes")),
        ("no", string("no")),
        ("on", string("on")),
        ("off", string("off")),
        ("y", string("y")),
        ("n", string("n")),
        ("1e3", Double(1000.0)),
        ("0o10", Integer(8)),
        ("012", Integer(12)),
        ("0x1F", Integer(31)),
        ("+1", Integer(1)),
        ("1:30", string("1:30")),
        ("1_000", string("1_000")),
        (".5", Double(0.5)),
        ("5.", Double(5.0)),
        ("1.10", Double(1.1)),
        ("2020-01-01", string("2020-01-01")),
        ("=", string("=")),
        ("True", Boolean(true)),
        ("9007199254740992", Integer(9007199254740992)),
        ("123456789012345678901234567890", Integer(123456789012345678901234567890)),
    ] {
        let error = plain(yaml, Strictness::Fleet).expect_err(yaml);
        assert!(error.contains("without quotes"), "{error}");
        assert_eq!(plain(yaml, Strictness::Vendor), Ok((by_core_schema, 1)), "{yaml}");
    }
}

#[test]
fn what_has_no_value_is_refused_everywhere() {
    let huge = "9".repeat(60);
    for yaml in
        ["~", "null", "", ".inf", "-.inf", ".nan", &huge, "{a: 1}", "[[1]]", "[{}]", "[~]", "[a, ]x", "\"a\\0b\""]
    {
        for strictness in [Strictness::Fleet, Strictness::Vendor] {
            assert!(plain(yaml, strictness).is_err(), "{yaml}");
        }
    }
}

/// Text that some reader of YAML is known to take for something else, or to change.
const AWKWARD: [&str; 64] = [
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "Yes",
    "NO",
    "true",
    "False",
    "null",
    "~",
    "",
    " ",
    "1_000",
    "12:30:45",
    "1:30",
    "2020-01-01",
    "2001-12-14t21:59:43.10-05:00",
    "=",
    "<<",
    "1.10",
    "007",
    "014",
    "0o10",
    "0x1F",
    "0b1",
    "1e3",
    "+1",
    ".5",
    "5.",
    ".inf",
    "-.INF",
    ".nan",
    "NaN",
    "1.2.3",
    "'",
    "\"",
    "''",
    " a",
    "a ",
    "\ta",
    "a: b",
    "a:",
    ": a",
    "#x",
    "a #b",
    "- a",
    "-",
    "? a",
    "[a]",
    "{a}",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a",
    "|",
    ">",
    "a\nb\n",
    "\n\n a\n",
    "é \u{1f600} \u{2028}\u{85}\u{feff}",
    "$x ${y} \\ \u{7}\u{1b}\r\t\u{7f}\u{fffe}",
];

#[test]
fn awkward_strings_survive_as_values_keys_and_items() {
    for text in AWKWARD {
        let value = ParamValue::String(text.to_owned());
        assert_eq!(round_trip(&value), value);
        let list = ParamValue::Array(vec![value.clone(), value]);
        assert_eq!(round_trip(&list), list);

        let written = yaml::to_yaml(&std::collections::BTreeMap::from([(text, 1)]));
        let keys =
            yaml::read("f", &written, Strictness::Fleet, |field| field.entries(|_, field| field.integer::<u8>()));
        let (keys, _) = keys.unwrap_or_else(|error| panic!("{error} in {}", String::from_utf8_lossy(&written)));
        assert_eq!(keys.keys().collect::<Vec<_>>(), [text]);
        assert!(written.is_ascii() || !text.is_ascii());
        assert_eq!(written.iter().filter(|c| **c == b'\n').count(), 1, "one line");
    }
}

proptest! {
    #[test]
    fn any_value_survives_writing_and_reading(value in any_value()) {
        prop_assert_eq!(round_trip(&value), value);
    }

    #[test]
    fn any_text_survives_as_a_string(text in "[^\u{0}]*") {
        let value = ParamValue::String(text);
        prop_assert_eq!(round_trip(&value), value);
    }

    #[test]
    fn the_text_of_a_double_reads_back_as_the_same_double(value in any::<f64>().prop_filter("finite", |v| v.is_finite())) {
        let text = ParamValue::Double(value).text();
        prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        prop_assert_eq!(plain(&text, Strictness::Fleet), Ok((ParamValue::Double(value), 0)));
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = yaml::parse("f", &bytes, &yaml::Limits::VENDOR);
        let _ = yaml::parse_json("f", &bytes, &yaml::Limits::VENDOR);
    }

    #[test]
    fn no_text_of_yaml_makes_the_parser_panic(text in "[-:?,\\[\\]{}#&*!|>'\"%@`~<=a1.0 \\n]{0,60}") {
        let _ = read(text.as_bytes(), Strictness::Vendor);
    }

    #[test]
    fn an_input_digest_is_independent_of_order(mut params in prop::collection::vec(("[a-c]", "[a-c]"), 0..5), seed in any::<usize>()) {
        let digest = |params: &[(String, String)]| {
            let params: Vec<_> = params.iter().map(|(p, t)| Param::new(p.clone(), &ParamValue::String(t.clone()))).collect();
            input_digest("compose", "a", None, Digest::of(b""), &params)
        };
        let before = digest(&params);
        let len = params.len().max(1);
        params.rotate_left(seed % len);
        prop_assert_eq!(before, digest(&params));
    }
}

fn any_value() -> impl Strategy<Value = ParamValue> {
    let item = prop_oneof![
        "[^\u{0}]*".prop_map(ParamValue::String),
        any::<i128>().prop_map(ParamValue::Integer),
        any::<i64>().prop_map(|value| ParamValue::Integer(value.into())),
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(ParamValue::Double),
        any::<bool>().prop_map(ParamValue::Boolean),
    ];
    prop_oneof![item.clone(), prop::collection::vec(item, 0..4).prop_map(ParamValue::Array)]
}

#[test]
fn an_input_digest_is_over_the_canonical_json_of_the_contract() {
    let params = [
        Param::new("SITE_ID", &ParamValue::String("é\n".into())),
        Param::new("POLL", &ParamValue::Integer(30)),
        Param { pointer: "PASSWORD".into(), tag: "secret".into(), text: "00".into() },
    ];
    let content = Digest::of(b"");
    let digest = input_digest("compose", "web", None, content, &params);
    let json = format!(
        r#"{{"content":"{content}","name":"web","params":[["PASSWORD","secret","00"],["POLL","integer","30"],["SITE_ID","string","é\n"]],"type":"compose","v":1}}"#
    );
    assert_eq!(digest, Digest::of(json.as_bytes()));
    let helm = input_digest("helm", "web", Some("ns"), content, &[]);
    let json = format!(r#"{{"content":"{content}","name":"web","namespace":"ns","params":[],"type":"helm","v":1}}"#);
    assert_eq!(helm, Digest::of(json.as_bytes()));
    let double = [Param::new("POLL", &ParamValue::Double(30.0))];
    let integer = [Param::new("POLL", &ParamValue::Integer(30))];
    assert_ne!(
        input_digest("compose", "a", None, content, &double),
        input_digest("compose", "a", None, content, &integer)
    );
}
