//! A file with known hosts, whose first line is the host that is asked; the same bytes as a host's first words over SSH.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| repo_git::remote::fuzz::known_hosts(bytes));
