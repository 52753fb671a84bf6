//! A request's path and query, and a command over SSH, never name anything but one repository of this host.
#![no_main]

use std::path::{Component, Path};

use fuzz::wire::path::{Target, parse, repository};
use fuzz::wire::ssh::command;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (path, query) = match text.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (text, None),
    };
    let over_ssh = command(text).and_then(|(_, path)| repository(path)).or_else(|| repository(text));
    parse(path, query).map(|(target, _)| target).into_iter().chain(over_ssh).for_each(is_inside);
});

fn is_inside(target: Target<'_>) {
    let place = target.place();
    let parts: Vec<_> = Path::new(&place).components().collect();
    assert!(parts.len() <= 2 && parts.iter().all(|part| matches!(part, Component::Normal(_))), "{place}");
    assert!(place.ends_with(".git") || !place.contains('/'), "{place}");
}
