//! Clocks that are wrong, the publisher's or the device's, and a publisher's key in a stranger's hands.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use repo_model::{Digest, Trailer};
use repo_testkit::foreign_host::Options;
use serde_json::Value;

use crate::https::{SECRET, abroad, account, at_home, trouble};
use crate::our_host::State;
use crate::world::{Run, World, command, finish, text};

/// So many hours from now, as documents have it.
fn hours(hours: i64) -> String {
    static BEGIN: LazyLock<Timestamp> = LazyLock::new(Timestamp::now);
    (*BEGIN + SignedDuration::from_hours(hours)).to_string()
}

/// Puts a proof of freshness of these times in the place of the publisher's, signed by its key.
fn prove(world: &World, issued: &str, expires: &str) {
    world.hand.forge_on("freshness", |draft| {
        draft.json("freshness.json", |proof| {
            (proof["issued"], proof["expires"]) = (issued.into(), expires.into());
        });
    });
}

/// The publisher's next state.
fn publish(world: &World, greeting: &str) {
    world.hand.want("greeter", &world.app, greeting);
    world.hand.publish();
}

/// From the next state on the publisher's key ends, in half a year.
fn end_the_key(world: &World) {
    world.hand.roster(2, |roster| roster["publishers"][0]["notAfter"] = hours(180 * 24).into(), &["root"]);
}

/// What the newer slot of the floor says.
fn floor(world: &World) -> Value {
    let bytes = fs::read(world.home().join("floor")).expect("a floor");
    let slots = bytes.chunks(4096).filter_map(|slot| {
        let text = String::from_utf8_lossy(slot);
        serde_json::from_str::<Value>(text.trim_end_matches('\0').split_once('\n')?.1).ok()
    });
    slots.max_by_key(|slot| slot["seq"].as_u64()).expect("a slot")
}

/// Writes the floor of time as a syncer did that believed every proof.
fn raise_floor(world: &World, time: &str) {
    let mut slot = floor(world);
    slot["time"] = time.into();
    slot.as_object_mut().expect("an object").remove("issued");
    let json = slot.to_string();
    let mut bytes = format!("{}\n{json}\n", Digest::of(json.as_bytes())).into_bytes();
    bytes.resize(2 * 4096, 0);
    fs::write(world.home().join("floor"), bytes).expect("written");
}

/// Joins the device again with a file that says when it was written.
fn join_again(world: &World, issued: &str) {
    let path = world.hand.path("join.json");
    let mut join: Value = serde_json::from_slice(&fs::read(&path).expect("a join file")).expect("JSON");
    join["issued"] = issued.into();
    fs::write(&path, join.to_string()).expect("written");
    world.init(&world.home());
}

/// One pass of a device whose clock says this.
pub(crate) fn once_at(world: &World, time: &str) -> Run {
    let mut faketime = Command::new("faketime");
    faketime.args(["-m", "--exclude-monotonic", time, env!("CARGO_BIN_EXE_device-syncer")]);
    faketime.arg("--home").arg(world.home()).arg("once").stdin(std::process::Stdio::null());
    faketime.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    finish(faketime.spawn().expect("faketime is installed: ./justw setup stack"))
}

/// A device whose kernel says whether its clock is synchronised, whatever that of the machine says.
pub(crate) struct Kernel<'a> {
    world: &'a World,
    /// What is asked in the C library's place.
    library: PathBuf,
}

impl<'a> Kernel<'a> {
    pub(crate) fn new(world: &'a World, is_synchronised: bool) -> Self {
        let (status, state) = if is_synchronised { ("0", "TIME_OK") } else { ("STA_UNSYNC", "TIME_ERROR") };
        Self::answering(world, state, &format!("time->status = {status}; return {state};"))
    }

    /// One that a sandbox doesn't let be asked.
    fn unasked(world: &'a World) -> Self {
        Self::answering(world, "EPERM", "errno = EPERM; return -1;")
    }

    fn answering(world: &'a World, name: &str, body: &str) -> Self {
        let (source, library) = (world.path("kernel.c"), world.path(&format!("kernel-{name}.so")));
        let heads = "#include <errno.h>\n#include <sys/timex.h>\n";
        fs::write(&source, format!("{heads}int adjtimex(struct timex *time) {{ {body} }}\n")).expect("written");
        text(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output().expect("cc runs"));
        Self { world, library }
    }

    /// A command of the syncer, not yet run.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&self.world.home(), args);
        command.env("LD_PRELOAD", &self.library);
        command
    }

    pub(crate) fn syncer(&self, args: &[&str]) -> Run {
        finish(self.command(args).spawn().expect("the syncer starts"))
    }
}

/// One pass of a device whose battery is empty.
fn once_in_1970(world: &World) -> Run {
    once_at(world, "1970-01-03 00:00:00")
}

#[test]
fn a_publisher_more_than_a_year_ahead_locks_no_device_out() {
    let world = World::running();
    end_the_key(&world);
    publish(&world, "ahead");
    prove(&world, &hours(400 * 24), &hours(401 * 24));
    world.once().ended(1).says(&["ProofRefused", "clock"]);
    assert_eq!((world.greetings(), world.conditions()), (vec!["ahead".into()], vec!["Stale ProofRefused".into()]));
    world.assert_quiet();
    assert!(floor(&world)["time"].as_str().expect("a time") < hours(25).as_str());
    // Its clock is right again.
    publish(&world, "on time");
    world.once().good();
    assert_eq!((world.greetings(), world.conditions()), (vec!["on time".to_owned()], Vec::new()));
    world.assert_idle();
}

#[test]
fn a_proof_of_freshness_for_ever_is_none_and_ends_no_key() {
    let world = World::running();
    end_the_key(&world);
    let forever = "9999-12-30T22:00:00Z";
    for (index, (issued, expires)) in [
        (hours(0), hours(25)),
        (hours(0), forever.to_owned()),
        (forever.to_owned(), forever.to_owned()),
        (hours(26), hours(49)),
    ]
    .into_iter()
    .enumerate()
    {
        publish(&world, &format!("\"{index}\""));
        let honest = world.hand.tip("freshness");
        prove(&world, &issued, &expires);
        world.once().ended(1).says(&["ProofRefused"]);
        assert_eq!(world.conditions(), ["Stale ProofRefused"], "{issued} {expires}");
        world.hand.move_branch("freshness", &honest);
        world.once().good();
        assert_eq!(world.conditions(), Vec::<String>::new(), "{issued} {expires}");
    }
    // Clocks may differ by less than a day.
    publish(&world, "a little ahead");
    prove(&world, &hours(20), &hours(44));
    world.once().good();
    world.assert_cured();
}

#[test]
fn a_device_that_was_locked_out_by_a_wrong_clock_comes_back_by_itself() {
    let (world, _host, _proxy) = abroad(Options::default());
    end_the_key(&world);
    publish(&world, "before");
    world.once().good();
    for poison in [hours(400 * 24), "9999-01-01T00:00:00Z".to_owned()] {
        raise_floor(&world, &poison);
        world.once().good();
        world.assert_cured();
        assert!(floor(&world)["time"].as_str().expect("a time") < hours(25).as_str());
    }
}

#[test]
fn a_device_in_1970_is_not_locked_out_by_a_stolen_key() {
    let (world, _host, _proxy) = abroad(Options::default());
    join_again(&world, &hours(0));
    end_the_key(&world);
    publish(&world, "in 1970");
    once_in_1970(&world).good();
    let reached = |greeting: &str| {
        publish(&world, greeting);
        let run = once_in_1970(&world);
        assert_eq!(world.greetings(), [greeting], "{run:?}");
        run
    };
    publish(&world, "stolen");
    prove(&world, "9999-12-29T22:00:00Z", "9999-12-30T22:00:00Z");
    once_in_1970(&world).ended(1).says(&["ProofRefused"]);
    reached("still there").good();
    // As far as the host's certificate reaches, which is 30 days here, it has to believe the publisher.
    publish(&world, "20 days ahead");
    prove(&world, &hours(20 * 24), &hours(21 * 24));
    once_in_1970(&world).good();
    reached("too early").ended(1).says(&["Stale", "Expired"]);
    publish(&world, "40 days ahead");
    prove(&world, &hours(40 * 24), &hours(41 * 24));
    once_in_1970(&world).ended(1).says(&["ProofRefused"]);
    // A new join file tells it better.
    join_again(&world, &hours(1));
    reached("told better").good();
}

#[test]
fn a_new_join_file_brings_back_a_device_in_1970_that_was_locked_out() {
    let (world, _host, _proxy) = abroad(Options::default());
    join_again(&world, &hours(0));
    once_in_1970(&world).good();
    raise_floor(&world, &hours(400 * 24));
    once_in_1970(&world).ended(1);
    assert_eq!(trouble(&world).as_deref(), Some("Stalled CertificateExpired"));
    join_again(&world, &hours(1));
    once_in_1970(&world).good();
    publish(&world, "back");
    once_in_1970(&world).good();
    assert_eq!(world.greetings(), ["back"]);
}

#[test]
fn a_device_in_1970_learns_the_time_from_one_proof() {
    let (world, _host, _proxy) = abroad(Options::default());
    // However long it was off: what it knows is what it knew then, and its host's certificate began before that.
    join_again(&world, &hours(-20));
    once_in_1970(&world).good();
    assert!(floor(&world)["time"].as_str().expect("a time") > hours(-1).as_str());
}

#[test]
fn a_renewed_secret_that_ends_before_the_one_in_use_is_not_taken() {
    let (world, host) = at_home(State { wait: Some(Duration::from_secs(300)), ..State::default() });
    world.once().good();
    let mut kept = account(&world);
    kept["current"]["since"] = "1600-01-01T00:00:00Z".into();
    // The host gives secrets that end in 2096.
    kept["current"]["expires"] = "2097-01-01T00:00:00Z".into();
    fs::write(world.home().join("account.json"), kept.to_string()).expect("written");
    world.once().good().says(&["the host's clock is wrong"]);
    assert_eq!((account(&world)["current"]["secret"].as_str(), host.asked("/account/renew").len()), (Some(SECRET), 1));
    world.assert_idle();
}

#[test]
fn a_host_that_feeds_one_old_state_a_day_is_seen_when_the_last_proof_ends() {
    let world = World::running();
    publish(&world, "two");
    let second = (world.hand.tip("desired"), world.hand.tip("freshness"));
    publish(&world, "three");
    let third = world.hand.tip("desired");
    let show = |desired: &str| world.hand.move_branch("desired", desired);
    // Proofs are all of today, and the host shows what it was given one after the other.
    show(&second.0);
    world.hand.move_branch("freshness", &second.1);
    once_at(&world, &hours(20)).good();
    assert_eq!((world.greetings(), world.conditions()), (vec!["two".to_owned()], Vec::new()));
    once_at(&world, &hours(25)).ended(1).says(&["Expired"]);
    show(&third);
    once_at(&world, &hours(40)).ended(1).says(&["Expired"]);
    assert_eq!(
        (world.greetings(), world.conditions()),
        (vec!["three".to_owned()], vec!["Stale Expired".to_owned()]),
        "what it adopts is applied, and is no proof that it is the newest"
    );
    // What the publisher says then is one.
    world.hand.publish();
    prove(&world, &hours(40), &hours(64));
    once_at(&world, &hours(41)).good();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn the_proof_of_the_state_before_holds_for_the_one_that_came_after_it() {
    let world = World::running();
    let before = world.hand.tip("freshness");
    publish(&world, "two");
    // A publisher moves `freshness` after `desired`.
    let fresh = world.hand.tip("freshness");
    world.hand.move_branch("freshness", &before);
    once_at(&world, &hours(20)).good();
    assert_eq!((world.greetings(), world.conditions()), (vec!["two".to_owned()], Vec::new()));
    once_at(&world, &hours(25)).ended(1).says(&["Expired"]);
    world.hand.move_branch("freshness", &fresh);
    prove(&world, &hours(20), &hours(44));
    once_at(&world, &hours(26)).good();
}

#[test]
fn an_adoption_ends_no_stale_also_where_an_older_proof_still_holds() {
    let world = World::running();
    let before = world.hand.tip("freshness");
    publish(&world, "two");
    prove(&world, &hours(26), &hours(49));
    world.once().ended(1).says(&["ProofRefused"]);
    publish(&world, "three");
    let fresh = world.hand.tip("freshness");
    world.hand.move_branch("freshness", &before);
    world.once().ended(1).says(&["Expired"]);
    assert_eq!((world.greetings(), world.conditions()), (vec!["three".into()], vec!["Stale Expired".into()]));
    world.hand.move_branch("freshness", &fresh);
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn a_first_state_without_a_proof_is_stale() {
    let world = World::enrolled();
    publish(&world, "hello");
    let fresh = world.hand.tip("freshness");
    repo_testkit::git::git(&world.hand.repository(), &["update-ref", "-d", "refs/heads/freshness"]);
    world.once().ended(1).says(&["Expired"]);
    assert_eq!((world.greetings(), world.conditions()), (vec!["hello".into()], vec!["Stale Expired".into()]));
    world.hand.move_branch("freshness", &fresh);
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn only_a_whole_and_single_proof_for_the_accepted_commit_ends_stale() {
    let world = World::running();
    publish(&world, "two");
    let fresh = world.hand.tip("freshness");
    prove(&world, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    world.once().ended(1).says(&["Expired"]);
    let first = world.hand.tip("desired^");
    type Change = fn(&World, &str, &mut repo_testkit::hand::Draft);
    let changes: &[(&str, Change)] = &[
        ("another commit", |_, first, draft| draft.json("freshness.json", |proof| proof["tip"] = first.into())),
        ("no commit", |_, _, draft| draft.json("freshness.json", |proof| proof["tip"] = "x".into())),
        ("another serial", |_, _, draft| draft.json("freshness.json", |proof| proof["serial"] = 1.into())),
        ("another envelope", |_, _, draft| {
            draft.json("freshness.json", |proof| proof["envelopeDigest"] = Digest::of(b"").to_string().into());
        }),
        ("a parent", |_, first, draft| draft.parents.push(first.to_owned())),
        ("Kind twice", |_, _, draft| draft.add_trailer(Trailer::Kind, "freshness")),
        ("Fleet twice", |world, _, draft| draft.add_trailer(Trailer::Fleet, &world.hand.fleet())),
        ("Device twice", |_, _, draft| draft.add_trailer(Trailer::Device, crate::world::DEVICE)),
        ("no device", |_, _, draft| draft.message = draft.message.replace("Device:", "Advice:")),
        ("another device", |_, _, draft| draft.trailer(Trailer::Device, "press-02")),
        ("nobody", |_, _, draft| draft.key = None),
        ("a stranger", |world, _, draft| draft.key = Some(world.hand.stranger())),
        ("backwards", |_, _, draft| {
            draft.json("freshness.json", |proof| {
                (proof["issued"], proof["expires"]) = (hours(3).into(), hours(2).into())
            })
        }),
        ("a key twice", |_, _, draft| {
            let text = draft.text("freshness.json");
            draft.put("freshness.json", text.replacen('{', "{\"serial\":2,", 1));
        }),
        ("no issued", |_, _, draft| {
            draft.json("freshness.json", |proof| drop(proof.as_object_mut().map(|proof| proof.remove("issued"))));
        }),
    ];
    for (what, change) in changes {
        world.hand.move_branch("freshness", &fresh);
        world.hand.forge_on("freshness", |draft| change(&world, &first, draft));
        world.once().ended(1);
        assert!(world.conditions()[0].starts_with("Stale "), "{what}: {:?}", world.conditions());
    }
    world.hand.move_branch("freshness", &fresh);
    world.once().good();
    assert_eq!(world.conditions(), Vec::<String>::new());
}

#[test]
fn windows_are_kept_by_a_clock_of_which_the_kernel_or_the_site_says_that_it_is_right() {
    let world = World::running();
    let settings = |clock: &str| world.settings(&format!("{clock}\ngates: {{windows: {{zone: UTC}}}}\n"));
    let (synchronised, unsynchronised) = (Kernel::new(&world, true), Kernel::new(&world, false));
    settings("clock: {rtc: false}");
    publish(&world, "servus");
    let words = "the kernel doesn't say that this device's clock is synchronised";
    unsynchronised.syncer(&["once"]).ended(1);
    assert_eq!(world.states("greeter"), ["hello pending waiting-window"]);
    assert!(world.message("greeter").starts_with(words), "{}", world.message("greeter"));
    let said = unsynchronised.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with(&format!("closed: {words}")), "{said}");
    let doctor = unsynchronised.syncer(&["doctor"]).stdout;
    assert!(doctor.contains("no window of the site's is open"), "{doctor}");
    let said = synchronised.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with("open: "), "{said}");
    synchronised.syncer(&["once"]).good();
    assert_eq!(world.greetings(), ["servus"]);
    let unasked = Kernel::unasked(&world);
    publish(&world, "moin");
    let words = "the syncer may not ask the kernel whether this device's clock is synchronised";
    let said = unasked.syncer(&["once"]).ended(1).stderr;
    assert_eq!(said.matches("the kernel can't be asked").count(), 1, "{said}");
    assert!(world.message("greeter").starts_with(words), "{}", world.message("greeter"));
    let said = unasked.syncer(&["windows"]).good().stdout;
    assert!(said.starts_with(&format!("closed: {words}")) && said.contains("rtc: true"), "{said}");
    let doctor = unasked.syncer(&["doctor"]).stdout;
    assert!(doctor.contains("may not be asked whether it is synchronised"), "{doctor}");
    settings("clock: {rtc: true}");
    unasked.syncer(&["once"]).good();
    assert_eq!(world.greetings(), ["moin"]);
    // Who has no windows needs no clock.
    world.settings("clock: {rtc: false}\n");
    publish(&world, "danke");
    unsynchronised.syncer(&["once"]).good();
    assert_eq!(world.greetings(), ["danke"]);
}

#[test]
fn where_the_clock_is_behind_what_was_proven_no_window_is_open() {
    let world = World::running();
    let windows = |deny: &str| {
        let allow = "allow: [{start: '0 0 * * *', length: 24h}]";
        world.settings(&format!("gates: {{windows: {{zone: UTC, apply: {{{allow}{deny}}}}}}}\n"));
    };
    windows(", deny: [{start: '0 0 * * *', length: 24h}]");
    publish(&world, "servus");
    world.once().ended(1);
    windows("");
    let away = world.path("away.git");
    fs::rename(world.hand.repository(), &away).expect("moved");
    raise_floor(&world, &hours(40 * 24));
    let containers = world.containers();
    world.once().ended(1).says(&["waiting-window: this device's clock shows less than a time that was proven"]);
    let plan = world.syncer(&["plan"]).ended(1).stdout;
    assert!(plan.contains("clock shows less"), "{plan}");
    assert_eq!(world.containers(), containers);
    // The proof of a newer state says that the clock is right.
    fs::rename(&away, world.hand.repository()).expect("moved");
    publish(&world, "danke");
    world.once().good();
    assert_eq!(world.greetings(), ["danke"]);
}
