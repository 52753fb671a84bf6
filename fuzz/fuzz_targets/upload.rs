//! Requests to `git-upload-pack` in every version of the protocol; an answer is never longer than the refs.
#![no_main]

use fuzz::wire::upload::Request;
use libfuzzer_sys::fuzz_target;
use repo_git::repo::Ref;

fuzz_target!(|input: (bool, &[u8])| {
    let (is_v2, body) = input;
    match Request::parse(body, is_v2) {
        Ok(Request::LsRefs(asked)) => {
            let id = "0123456789012345678901234567890123456789".parse().ok();
            let symref = Some("refs/heads/desired".to_owned());
            let head = Ref { name: "HEAD".to_owned(), id: None, peeled: None, symref };
            let desired = Ref { name: "refs/heads/desired".to_owned(), id, peeled: id, symref: None };
            assert!(asked.answer(&[head, desired]).len() < 400);
        }
        Ok(Request::Fetch(wants)) => assert!(wants.len() * 40 <= body.len()),
        Ok(Request::Probe) | Err(_) => {}
    }
});
