//! The tree of a commit: its files, digests and trailers, the envelope, and the documents of deployments.

use repo_model::Trailer;

use super::{Refusals, refused};

#[test]
fn a_tampered_deployment() {
    refused("digest-mismatch", &["deployments/", "envelope.json"], |_, draft| {
        let path = draft.deployment();
        draft.put(&path, draft.text(&path).replace("not this", "tampered"));
    });
}

#[test]
fn a_tampered_manifest() {
    refused("digest-mismatch", &["manifest.json"], |_, draft| {
        draft.json("manifest.json", |manifest| manifest["deployments"] = serde_json::json!([]));
    });
}

#[test]
fn a_deployment_that_the_manifest_gives_another_digest() {
    refused("digest-mismatch", &["deployments/", "manifest.json"], |_, draft| {
        let path = draft.deployment();
        draft.put(&path, draft.text(&path).replace("not this", "tampered"));
        draft.seal_envelope();
    });
}

#[test]
fn a_tampered_envelope() {
    refused("manifest-invalid", &["Envelope-Digest"], |_, draft| {
        draft.json("envelope.json", |envelope| envelope["policy"]["pollSeconds"] = 9.into());
    });
}

#[test]
fn an_envelope_that_is_none() {
    let refusals = Refusals::new();
    for envelope in ["", "{", "[]", "{\"layout\":1}", "{\"layout\":1,\"layout\":1}", "\u{feff}{}"] {
        refusals.refuse("manifest-invalid", &["envelope.json"], |draft| draft.put("envelope.json", envelope));
    }
    refusals.cure();
}

#[test]
fn an_envelope_that_two_readers_could_read_differently() {
    let refusals = Refusals::new();
    for (from, to, word) in [
        ("\"files\":{", "\"files\":{\"manifest.json\":\"sha256:00\",", "manifest.json"),
        ("\"policy\":{", "\"policy\":{\"future\":1,\"future\":2,", "future"),
        ("\"locks\":{", "\"locks\":{\"hello\":{},", "hello"),
    ] {
        refusals.refuse("manifest-invalid", &["envelope.json", "duplicate key", word], |draft| {
            let text = draft.text("envelope.json");
            assert!(text.contains(from), "{text}");
            draft.put("envelope.json", text.replacen(from, to, 1));
        });
    }
    refusals.refuse("manifest-invalid", &["layout 0"], |draft| {
        draft.json("envelope.json", |envelope| envelope["layout"] = 0.into());
        draft.seal_trailers();
    });
    refusals.cure();
}

/// What becomes of a deployment in the envelope.
type Change = fn(&mut serde_json::Value);

#[test]
fn locks_that_are_absent_short_or_of_no_component() {
    let refusals = Refusals::new();
    let changes: [(&str, Change); 3] = [
        ("no lock for component `hello`", |described| drop(described.as_object_mut().unwrap().remove("locks"))),
        ("no lock for component `hello`", |described| described["locks"] = serde_json::json!({})),
        ("a lock for `ghost`", |described| described["locks"]["ghost"] = described["locks"]["hello"].clone()),
    ];
    for (word, change) in changes {
        refusals.refuse("manifest-invalid", &["envelope.json", word], |draft| {
            draft.json("envelope.json", |envelope| {
                change(envelope["deployments"].as_object_mut().unwrap().values_mut().next().unwrap());
            });
            draft.seal_trailers();
        });
    }
    refusals.cure();
}

#[test]
fn a_file_that_is_missing_or_not_listed() {
    let refusals = Refusals::new();
    refusals.refuse("manifest-invalid", &["manifest.json", "missing"], |draft| {
        draft.files.remove("manifest.json");
    });
    refusals.refuse("manifest-invalid", &["surprise.txt"], |draft| draft.put("surprise.txt", "x"));
    refusals.refuse("manifest-invalid", &["deployments/surprise.yaml", "manifest.json"], |draft| {
        draft.put("deployments/surprise.yaml", "x");
        draft.seal();
    });
    refusals.cure();
}

#[test]
fn trailers_that_contradict_the_tree_or_are_not_there_once() {
    let refusals = Refusals::new();
    for (key, value) in
        [(Trailer::Kind, "bundle"), (Trailer::Serial, "3"), (Trailer::Device, "press-02"), (Trailer::Fleet, "none")]
    {
        refusals.refuse("manifest-invalid", &[key.as_str()], |draft| draft.trailer(key, value));
        refusals.refuse("manifest-invalid", &[key.as_str(), "exactly once"], |draft| draft.add_trailer(key, value));
    }
    refusals.refuse("manifest-invalid", &["Kind", "exactly once"], |draft| {
        draft.message = "no trailers".to_owned();
    });
    refusals.cure();
}

#[test]
fn a_tree_with_anything_but_plain_files() {
    let refusals = Refusals::new();
    for (path, mode, what) in [
        ("deployments/link.yaml", "120000", "symbolic link"),
        ("deployments/run.yaml", "100755", "executable"),
        ("submodule", "160000", "submodule"),
        ("..", "100644", ".."),
        (".git", "100644", ".git"),
        ("deployments/../x", "100644", ".."),
    ] {
        refusals.refuse("manifest-invalid", &[what], |draft| {
            draft.put_as(mode, path, if mode == "160000" { refusals.good.clone() } else { "target".to_owned() });
            draft.seal();
        });
    }
    refusals.cure();
}

/// The document of the only deployment is replaced by what `change` makes of it, and all digests agree.
fn invalid_document(refusals: &Refusals, words: &[&str], change: impl FnOnce(String) -> Vec<u8>) {
    refusals.refuse("deployment-invalid", words, |draft| {
        let path = draft.deployment();
        draft.put(&path, change(draft.text(&path)));
        draft.seal();
    });
}

#[test]
fn a_document_that_is_no_deployment() {
    let refusals = Refusals::new();
    invalid_document(&refusals, &["metadata"], |text| text.replace("metadata:", "metaphor:").into());
    invalid_document(&refusals, &["spec", "duplicate"], |text| format!("{text}spec: {{}}\n").into());
    invalid_document(&refusals, &["tab"], |text| text.replace("  name: greeter", "\tname: greeter").into());
    invalid_document(&refusals, &["components"], |text| {
        text.replace("components:\n      - ", "components:\n        ").into()
    });
    invalid_document(&refusals, &["UTF-8"], |text| {
        text.replace("not this", "\u{1}").into_bytes().iter().map(|c| if *c == 1 { 0xff } else { *c }).collect()
    });
    invalid_document(&refusals, &[], |text| text.replace(": hello\n", ": other\n").replace("id: \"", "id: \"0").into());
    invalid_document(&refusals, &[], |_| Vec::new());
    refusals.cure();
}

#[test]
fn a_document_with_a_byte_order_mark_or_in_another_encoding() {
    let refusals = Refusals::new();
    invalid_document(&refusals, &["deployments/", "byte order mark"], |text| format!("\u{feff}{text}").into());
    for bytes in [u16::to_le_bytes, u16::to_be_bytes] {
        let wide = |text: &str| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        invalid_document(&refusals, &["deployments/"], |text| wide(&text));
        invalid_document(&refusals, &["deployments/"], |text| wide(&format!("\u{feff}{text}")));
    }
    refusals.cure();
}

#[test]
fn a_document_with_a_key_that_nobody_knows() {
    let refusals = Refusals::new();
    let after = |text: &str, line: &str, more: &str| {
        assert!(text.contains(line), "{line} in {text}");
        text.replacen(line, &format!("{line}{more}"), 1).into_bytes()
    };
    for (line, more, key) in [
        ("metadata:\n", "  surprise: 1\n", "surprise"),
        ("spec:\n", "  surprise: {deep: [1]}\n", "surprise"),
        ("    type: compose\n", "    surprise: 1\n", "surprise"),
        ("spec:\n", "  x-Extensions: {}\n", "x-Extensions"),
    ] {
        invalid_document(&refusals, &["deployments/", key, "unknown"], |text| after(&text, line, more));
    }
    invalid_document(&refusals, &["surprise", "unknown"], |text| format!("surprise: 1\n{text}").into());
    // Wrong types, and a second document.
    invalid_document(&refusals, &["deployments/"], |text| text.replace("type: compose", "type: [compose]").into());
    invalid_document(&refusals, &["deployments/"], |text| format!("{text}---\n{text}").into());
    invalid_document(&refusals, &["deployments/"], |text| format!("- {}", text.replace('\n', "\n  ")).into());
    refusals.cure();
}

#[test]
fn a_document_that_would_never_end() {
    let refusals = Refusals::new();
    let bomb = (1..12).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
        let before = vec![format!("*a{}", n - 1); 10].join(", ");
        format!("{text}a{n}: &a{n} [{before}]\n")
    });
    invalid_document(&refusals, &[], |text| format!("{bomb}{text}").into());
    invalid_document(&refusals, &[], |text| format!("deep: {}{}\n{text}", "[".repeat(5000), "]".repeat(5000)).into());
    invalid_document(&refusals, &[], |text| format!("{text}# {}\n", "x".repeat(3 << 20)).into());
    refusals.cure();
}
