//! `trust show`, `trust propose`, `trust sign`, `trust publish`, `trust offline`, `trust export`, `trust switch`.

mod export;
mod publish;
mod show;
mod switch;

use std::fs;
use std::path::PathBuf;

use clap::Subcommand;
use jiff::Timestamp;
use repo_git::sign::openssh::fingerprint;
use repo_model::KeyText;
use serde_json::json;

use super::{OutputArgs, Place};
use crate::config::Config;
use crate::error::Failure;
use crate::operator::trust::{
    Changes, HostChanges, NotAfter, Offline, Signing, TrustError, authorities, changes, offline, propose, sign,
};
use crate::repos::{Control, Home};

/// Whose signatures devices believe: the roster, its keys, and how they are replaced
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Show(show::ShowArgs),
    Propose(ProposeArgs),
    Sign(SignArgs),
    Publish(publish::PublishArgs),
    Offline(OfflineArgs),
    Export(export::ExportArgs),
    Switch(switch::SwitchArgs),
}

/// Writes the next version of the roster, for the root keys to sign
///
/// It is made of the newest published version and what is named here, and lies in the publisher's home as trust/<N>.json; an
/// earlier proposal is replaced. Nothing changes anywhere before `trust publish`. Keys are named by their line, by a file, or,
/// to drop one, by their fingerprint.
///
/// With --new-publisher this home gets another key, keys/publisher.next until then. The key that it replaces goes on counting
/// for 90 days, or until its end if that is sooner; where it was stolen, drop it as well. Devices notice nothing of a new key:
/// with the next `publish` each gets a commit with the new roster, also one that was away for long. A key that is dropped
/// counts for nothing more at a device from the moment on at which it has that roster, and until then up to its end. Keys
/// that have ended go by themselves, and none is left without an end.
///
/// A roster may also say where the host is and how it is known, in place of what join files say; devices that have it follow. The
/// address of a host that moves is --host-url. Its authority is replaced without a gap in three steps: --new-authority names
/// another one beside that of today, `trust switch` begins to use it once all devices have the roster, and --only-authority
/// names it alone. Devices that were away meanwhile ask the host for the rosters, and follow them.
///
/// A root key that is dropped signs no version after this one. It takes --threshold of the new root keys to sign the next
/// version, so have one more than that. Exit code 0 once it is written.
///
///   wfm-git-publisher trust propose --add-root second-root.pub
///   wfm-git-publisher trust propose --new-publisher --drop-publisher ../my-fleet.wfm/keys/publisher
///   wfm-git-publisher trust propose --host-url 'https://git2.plant.example/devices/{device}.git'
///   wfm-git-publisher trust propose --new-publisher
///   wfm-git-publisher trust propose --new-publisher --new-authority
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct ProposeArgs {
    /// This home gets another key for signing what it publishes
    #[arg(long)]
    new_publisher: bool,

    /// The key of another publisher that devices believe; may be repeated
    #[arg(long, value_name = "KEY")]
    add_publisher: Vec<String>,

    /// A publisher's key that counts no more; may be repeated
    #[arg(long, value_name = "KEY")]
    drop_publisher: Vec<String>,

    /// When the new publishers' keys end, in days or as a time, by default after 400 days; with no new one, when this home's ends
    #[arg(long, value_name = "DAYS|TIME", value_parser = not_after)]
    not_after: Option<NotAfter>,

    /// One more root key (Ed25519); may be repeated
    #[arg(long, value_name = "KEY")]
    add_root: Vec<String>,

    /// A root key that signs no version after this one; may be repeated
    #[arg(long, value_name = "KEY")]
    drop_root: Vec<String>,

    /// How many root keys it takes to sign the version after
    #[arg(long, value_name = "N")]
    threshold: Option<usize>,

    /// Where devices find their repositories; `{device}` stands for a device's id
    #[arg(long, value_name = "URL")]
    host_url: Option<String>,

    /// PEM of an authority that devices believe of the host, in place of those of before; may be repeated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["new_authority", "only_authority"])]
    host_ca: Vec<PathBuf>,

    /// A public key of the host over SSH, in place of those of before; may be repeated
    #[arg(long, value_name = "KEY")]
    host_key: Vec<KeyText>,

    /// Another authority of this home's host, beside the one of today
    #[arg(long, conflicts_with = "only_authority")]
    new_authority: bool,

    /// The authority of this home's host alone
    #[arg(long)]
    only_authority: bool,

    /// Devices go by their join files again to find their host
    #[arg(long, conflicts_with_all = ["host_url", "host_ca", "host_key", "new_authority", "only_authority"])]
    no_host: bool,

    /// Give up a proposal that somebody signed already
    #[arg(long)]
    anew: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Adds a root key's signature to the proposed roster
///
/// Run it with each root key, until `trust show` says that nothing is missing. As many root keys of the version before have to
/// sign as that one says, and of the proposed one's own as that says itself: so a root key that was mistyped, or that nobody
/// has, shows before it is final. One signature counts as both where the key is in both.
///
/// On a machine of its own, sign the file by `ssh-keygen -Y sign -n wfm-roster -f KEY FILE`, bring FILE.sig back, and name it
/// with --signature. That is the way, too, for a key with a passphrase. `trust show` prints the name of the file, and what the
/// proposal changes: look at that before you sign.
///
///   wfm-git-publisher trust sign --key /media/usb/root
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct SignArgs {
    /// The file of the root key
    #[arg(long, value_name = "FILE", required_unless_present = "signature", conflicts_with = "signature")]
    key: Option<PathBuf>,

    /// A signature that was made elsewhere; whose it is, it says itself
    #[arg(long, value_name = "FILE")]
    signature: Option<PathBuf>,

    #[command(flatten)]
    output: OutputArgs,
}

/// Moves the root key off this machine, into a directory of a medium that you take away
///
/// Copies it, sees that the copy signs, and removes it here; then `status` reminds of it no more. Publishing doesn't need it.
/// Make a second copy of the medium, and lock both away: without root keys, a publisher's key that was stolen can't be
/// replaced. The medium needs a file system that knows owners, like ext4.
///
///   wfm-git-publisher trust offline /media/usb
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct OfflineArgs {
    /// The directory that the key goes to, as the file `root`
    dir: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

fn not_after(text: &str) -> Result<NotAfter, String> {
    let time = || text.parse().map(NotAfter::At).ok();
    text.parse()
        .map(NotAfter::Days)
        .ok()
        .or_else(time)
        .ok_or_else(|| "expected a number of days, like 400, or a time, like 2027-12-31T00:00:00Z".to_owned())
}

pub(super) fn run(place: &Place, command: Command) -> Result<u8, Failure> {
    match command {
        Command::Show(args) => show::run(place, &args),
        Command::Propose(args) => propose_next(place, args),
        Command::Sign(args) => sign_next(place, &args),
        Command::Publish(args) => publish::run(place, &args),
        Command::Offline(args) => take_off(place, &args),
        Command::Export(args) => export::run(place, &args),
        Command::Switch(args) => switch::run(place, &args),
    }
}

/// The PEM that the proposal names.
fn authorities_of(home: &Home, args: &ProposeArgs) -> Result<Vec<String>, Failure> {
    if !args.new_authority && !args.only_authority {
        let read = |path: &PathBuf| {
            fs::read_to_string(path).map_err(|error| Failure::new(format!("cannot read `{}`: {error}", path.display())))
        };
        return args.host_ca.iter().map(read).collect();
    }
    let serve = Config::load(&home.config())?.serve.filter(|serve| serve.certificate.is_none());
    let names = serve.ok_or(TrustError::NoAuthority)?.names;
    Ok(authorities(home, &names, args.new_authority)?)
}

fn propose_next(place: &Place, args: ProposeArgs) -> Result<u8, Failure> {
    let home = place.home()?;
    let host = HostChanges {
        authorities: authorities_of(&home, &args)?,
        url: args.host_url,
        keys: args.host_key,
        nothing: args.no_host,
    };
    let wanted = Changes {
        new_publisher: args.new_publisher,
        add_publishers: args.add_publisher,
        drop_publishers: args.drop_publisher,
        not_after: args.not_after,
        add_roots: args.add_root,
        drop_roots: args.drop_root,
        threshold: args.threshold,
        host,
        anew: args.anew,
    };
    let proposed = propose(&home, &wanted, Timestamp::now())?;
    let rosters = Control::known_rosters(&home)?;
    let differences = changes(&rosters.newest.roster, &proposed.trust.roster);
    let version = proposed.trust.roster.version;
    let lines: String = differences.iter().map(|line| format!("  {line}\n")).collect();
    let text = format!(
        "roster {version} is proposed: {}\n{lines}{}\n\
         Each root key signs it: wfm-git-publisher trust sign --key FILE\n\
         Then:                   wfm-git-publisher trust publish\n",
        proposed.path.display(),
        show::missing(&rosters, &proposed),
    );
    args.output.print(&text, || json!({ "file": proposed.path, "version": version, "changes": differences }));
    Ok(0)
}

fn sign_next(place: &Place, args: &SignArgs) -> Result<u8, Failure> {
    let by = match (&args.key, &args.signature) {
        (Some(key), _) => Signing::Key(key),
        (None, Some(made)) => Signing::Made(made),
        (None, None) => return Err(Failure::new("name a root key with --key, or a signature with --signature")),
    };
    let (key, proposed, rosters) = sign(&place.home()?, by)?;
    let version = proposed.trust.roster.version;
    let next =
        if proposed.is_complete(&rosters.newest.roster) { "Then: wfm-git-publisher trust publish\n" } else { "" };
    let text =
        format!("roster {version} is signed by {}\n{}{next}", fingerprint(&key), show::missing(&rosters, &proposed));
    args.output.print(&text, || {
        json!({
            "key": fingerprint(&key),
            "version": version,
            "signatures": show::signatures(&rosters.newest.roster, &proposed),
        })
    });
    Ok(0)
}

fn take_off(place: &Place, args: &OfflineArgs) -> Result<u8, Failure> {
    let Offline { path, fingerprint, on_same_disk } = offline(&place.home()?, &args.dir)?;
    if on_same_disk {
        eprintln!("warning: `{}` is on the disk of the publisher's home: carry it off this machine", path.display());
    }
    let text = format!("the root key {fingerprint} is at {}, and no more in the publisher's home\n", path.display());
    args.output.print(&text, || json!({ "file": path, "fingerprint": fingerprint, "onSameDisk": on_same_disk }));
    Ok(0)
}
