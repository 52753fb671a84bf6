//! Rosters that somebody tells are followed from the known one, and only as far as each is signed by the roots before it.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use repo_model::json;
use repo_model::roster::{RosterSteps, Trust};

const ROOT: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1hcmdvTWFyZ29NYXJnb01hcmdvTWFyZ29NYXJnb00R";

static KNOWN: LazyLock<Trust> = LazyLock::new(|| {
    let fleet = "5d3f7d5e-7a3a-4c3a-9a57-1c1f6a3f9f10";
    let text = format!(r#"{{"version":1,"fleet":"{fleet}","threshold":1,"roots":["{ROOT}"],"publishers":[]}}"#);
    Trust::pin("trust/1.json", text.as_bytes(), fleet.parse().expect("an id")).expect("a roster")
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(steps) = json::read::<RosterSteps>(bytes) else { return };
    // What stands in the place of a signature is the key that made it.
    let Ok(Some((newest, text))) = steps.follow(&KNOWN, &|_, signature| signature.parse().ok()) else { return };
    assert!(newest.roster.version > 1 && newest.roster.fleet == KNOWN.roster.fleet);
    let next = steps.rosters.iter().find(|step| step.version > 1).expect("it was followed");
    assert!(next.version == 2 && next.signatures.get(&0).is_some_and(|signature| signature == ROOT));
    assert!(steps.rosters.iter().any(|step| step.roster == text && step.version == newest.roster.version));
});
