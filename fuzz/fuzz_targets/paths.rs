//! A request's path and query never name anything but one repository of this host.
#![no_main]

use std::path::{Component, Path};

use fuzz::wire::path::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    let Some((target, _)) = parse(path, query) else { return };
    let place = target.place();
    let parts: Vec<_> = Path::new(&place).components().collect();
    assert!(parts.len() <= 2 && parts.iter().all(|part| matches!(part, Component::Normal(_))), "{place}");
    assert!(place.ends_with(".git") || !place.contains('/'), "{place}");
});
