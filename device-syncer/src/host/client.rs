//! This device's side of the host: the connection, how it goes, and where the branches stood when they were last asked for.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_git::repo::Pack;
use repo_git::{CommitId, PushError, PushResult, PushUpdate, Remote, RemoteError, Repo};
use repo_model::error_chain;
use repo_model::roster::{RosterError, Trust};

use crate::config::Device;
use crate::decision::backoff;
use crate::host::account::Keeper;
use crate::host::connection::{HostConnection, RostersError};
use crate::host::connectivity::Connectivity;
use crate::host::push_size::PushSize;
use crate::host::refs::{Ask, RemoteRefs, StatusTip};
use crate::host::verify::roster_signer;
use crate::host::wait::WaitedRefs;
use crate::state::roster;

/// What a poll is, where it fails.
const POLLING: &str = "the host can't be asked";

/// Talks with the host for one pass after the other.
#[derive(Debug)]
pub struct HostClient {
    pub connection: HostConnection,
    pub connectivity: Connectivity,
    /// `None` before the host was asked, and after it didn't take what this device pushed.
    refs: Option<RemoteRefs>,
    waited: Option<WaitedRefs>,
    /// The tip of `site` that couldn't be fetched, and when that was tried.
    unfetched_site: Option<(CommitId, Instant)>,
    /// How much of `status` the next push brings.
    pub(super) push_size: PushSize,
    /// The host refuses `status`, whatever the push's size.
    refusal: Option<Refusal>,
    /// What the host said last of a push that it refused.
    said: String,
    /// When the host last refused what an epoch of `status` needs.
    refused_epoch: Option<Instant>,
    /// Whether the host showed a certificate last that isn't believed.
    is_distrusted: bool,
    /// When it was asked last for rosters that say another authority.
    rosters_asked: Option<Instant>,
}

/// A host that takes no `status`.
#[derive(Debug)]
struct Refusal {
    /// Refusals one after the other, by which the back-off grows.
    times: u32,
    /// It isn't pushed before that.
    again: Instant,
    said: String,
}

/// How long a host whose certificate isn't believed is asked for no rosters again.
const ROSTERS_AGAIN: Duration = Duration::from_secs(3600);

/// How often a host is asked for more rosters in one go: each answer holds as many as fit.
const ROSTER_ANSWERS: usize = 16;

/// Rosters aren't followed: they can't be had, aren't proven, or can't be kept.
#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Rosters(#[from] RostersError),
    #[error(transparent)]
    Unproven(#[from] RosterError),
    #[error("can't keep the roster")]
    Keep(#[from] std::io::Error),
}

/// How long a tip of `site` that couldn't be fetched is left alone.
const UNFETCHED: Duration = Duration::from_secs(300);

/// How long a host that lets no epoch of `status` end isn't asked for it.
const REFUSED_EPOCH: Duration = Duration::from_secs(24 * 3600);

/// What a push came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// The host stored the commit and moved its branch.
    Done,
    /// The host won't have this commit, or lacks what it builds on.
    Refused,
    /// It took too long, or the connection broke: it may have been too much at once.
    BrokeOff,
    /// The branch stands elsewhere by now, the host is busy, or what is here can't be read: the next pass tries again.
    NotNow,
}

impl HostClient {
    /// Nothing is asked yet.
    pub fn new(connection: HostConnection, connectivity: Connectivity) -> Self {
        let (refs, waited, unfetched_site, refused_epoch) = (None, None, None, None);
        let (is_distrusted, rosters_asked) = (false, None);
        let (push_size, refusal, said) = (PushSize::default(), None, String::new());
        Self {
            connection,
            connectivity,
            refs,
            waited,
            unfetched_site,
            push_size,
            refusal,
            said,
            refused_epoch,
            is_distrusted,
            rosters_asked,
        }
    }

    /// The device's repository at the host.
    pub fn remote(&self) -> &Remote {
        &self.connection.remote
    }

    /// The present moment, by which keys and proofs are judged as certificates are.
    pub fn now(&self) -> Timestamp {
        self.connection.now()
    }

    /// What a wait at the host waits for to change; `None` where the host's last answer isn't known.
    pub fn waited_refs(&self) -> Option<WaitedRefs> {
        self.waited
    }

    /// Whether a pass that knows this much asks the host.
    pub fn is_asked(&self, ask: Ask) -> bool {
        ask == Ask::Host || ask == Ask::IfMoved && self.refs.is_none()
    }

    /// Where the host's branches stand: asked now, or as they were known last. `None` if the host isn't to be asked
    /// yet, or doesn't answer.
    pub fn remote_refs(&mut self, ask: Ask, device: &Device) -> Option<RemoteRefs> {
        match (ask, &self.refs) {
            (Ask::Later(_), _) => return None,
            (Ask::IfMoved, Some(refs)) => return Some(refs.clone()),
            _ => {}
        }
        self.connection.refresh(&device.home, &device.join, &device.settings.host);
        let polled = self.poll(device);
        self.is_distrusted = matches!(&polled, Err(RemoteError::Http(error)) if error.is_of_certificate());
        let refs = polled.inspect_err(|error| self.connectivity.failed(error, POLLING, Timestamp::now())).ok();
        let site = |refs: &RemoteRefs| (!device.settings.gates.keys.is_empty()).then_some(refs.site);
        self.waited =
            refs.as_ref().map(|refs| WaitedRefs { desired: refs.desired, freshness: refs.freshness, site: site(refs) });
        self.refs = refs;
        let now = self.now();
        // Only a host of our kind lets devices wait, and has accounts that end.
        if let Some(keeper) =
            self.connection.keeper.as_mut().filter(|_| self.refs.is_some() && self.connection.remote.waits().is_some())
        {
            keeper.renew_if_due(now);
        }
        self.refs.clone()
    }

    /// Asks the host, with a secret that it knows: one that it knew before, the one that came with a new key, or
    /// another, where it knows this device's key.
    fn poll(&mut self, device: &Device) -> Result<RemoteRefs, RemoteError> {
        if let Some(keeper) = &mut self.connection.keeper {
            keeper.prove();
        }
        let refs = RemoteRefs::poll(&self.connection.remote);
        let is_over = matches!(&refs, Err(error) if error.reason() == "Unauthorized");
        if is_over && self.connection.keeper.is_none() && device.home.next_ssh_key().exists() {
            // A session lives as long as the key that it was opened with: over SSH a new one is opened with the key that took its place.
            self.connection.renew(&device.home, &device.join, &device.settings.host);
            return RemoteRefs::poll(&self.connection.remote);
        }
        let refused = matches!(&refs, Err(RemoteError::Http(error)) if error.status() == Some(401));
        let now = self.now();
        let knows_us = |keeper: &mut Keeper| keeper.fall_back() || keeper.follow_rekey(now) || keeper.come_back(now);
        let is_let_in = refused
            && (self.connection.keeper.as_mut().is_some_and(knows_us) || self.comes_with_a_certificate_again(device));
        if is_let_in { RemoteRefs::poll(&self.connection.remote) } else { refs }
    }

    /// The host doesn't know the certificate with which this device comes. Returns whether it does now, or knows the one that came with
    /// a new key.
    fn comes_with_a_certificate_again(&mut self, device: &Device) -> bool {
        let Some(keeper) = &mut self.connection.certificate else { return false };
        if keeper.follow_rekey() {
            self.connection.renew(&device.home, &device.join, &device.settings.host);
            return true;
        }
        keeper.come_back()
    }

    /// Whether the rosters are to be asked for: the host's certificate isn't believed, so its authority may have been replaced while
    /// this device was away. Once an hour at most.
    pub fn asks_for_rosters(&self) -> bool {
        let is_asked = self.rosters_asked.is_some_and(|asked| asked.elapsed() < ROSTERS_AGAIN);
        self.is_distrusted && !is_asked
    }

    /// Follows the host's rosters from the newest that is known, and keeps the newest that they lead to; `None` where none is newer.
    /// They prove themselves.
    pub fn newer_roster(&mut self, device: &Device, known: &Trust) -> Option<Trust> {
        self.rosters_asked = Some(Instant::now());
        let mut newest: Option<Trust> = None;
        for _ in 0..ROSTER_ANSWERS {
            match self.follow_rosters(device, newest.as_ref().unwrap_or(known)) {
                Ok(Some(next)) => newest = Some(next),
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(error = error_chain(&error), "the host's rosters aren't followed");
                    break;
                }
            }
        }
        let newest = newest?;
        tracing::info!(version = newest.roster.version, "a newer roster is believed, of a host that isn't yet");
        Some(newest)
    }

    fn follow_rosters(&self, device: &Device, known: &Trust) -> Result<Option<Trust>, FollowError> {
        let steps = self.connection.rosters_after(known.roster.version, &device.settings.host)?;
        let Some((trust, text)) = steps.unwrap_or_default().follow(known, &roster_signer)? else { return Ok(None) };
        roster::keep(&device.home, &device.join, &trust, text.as_bytes())?;
        Ok(Some(trust))
    }

    /// A publisher moves `freshness` after `desired`, so where a state was just adopted and nothing proves it, the host is
    /// asked once more. Only for the proof: what else moved is the next pass's.
    pub fn poll_proof(&mut self, refs: &mut RemoteRefs) {
        let Ok(again) = RemoteRefs::poll(&self.connection.remote) else { return };
        refs.freshness = again.freshness;
        if let Some(known) = &mut self.refs {
            known.freshness = again.freshness;
        }
        self.waited = self.waited.map(|known| WaitedRefs { freshness: again.freshness, ..known });
    }

    /// Whether this tip of `site` is to be fetched: one that couldn't be isn't tried again in each pass.
    pub fn may_fetch_site(&self, tip: CommitId) -> bool {
        self.unfetched_site.is_none_or(|(failed, since)| failed != tip || since.elapsed() >= UNFETCHED)
    }

    /// This tip of `site` can't be fetched now.
    pub fn site_is_unfetched(&mut self, tip: CommitId) {
        self.unfetched_site = Some((tip, Instant::now()));
    }

    /// Whether the host is asked to keep the end of an epoch of `status`.
    pub fn may_end_epoch(&self) -> bool {
        self.refused_epoch.is_none_or(|since| since.elapsed() >= REFUSED_EPOCH)
    }

    /// The host lets no epoch of `status` end, or none begin.
    pub fn epoch_is_refused(&mut self) {
        self.refused_epoch = Some(Instant::now());
    }

    /// `status` stands there now. Where that isn't known, the next pass asks for all branches.
    pub fn status_is_at(&mut self, status: StatusTip) {
        self.refs.take_if(|known| !known.take_status(status));
    }

    /// Whether `status` is pushed now: not for a while after the host refused it, which is noted for as long.
    pub fn may_push_status(&mut self) -> bool {
        let Some(refusal) = self.refusal.as_ref().filter(|refusal| Instant::now() < refusal.again) else { return true };
        self.connectivity.refused(&refusal.said, Timestamp::now());
        false
    }

    /// The host refuses `status`, which it may do for as long as nobody looks at it: it is tried less and less often.
    pub(super) fn status_is_refused(&mut self) {
        let now = Timestamp::now();
        let times = self.refusal.as_ref().map_or(1, |before| before.times.saturating_add(1));
        let again = Instant::now() + backoff::wait(times, backoff::jitter(now));
        let said = std::mem::take(&mut self.said);
        self.connectivity.refused(&said, now);
        self.refusal = Some(Refusal { times, again, said });
    }

    /// The host took some of `status`.
    pub(super) fn status_is_taken(&mut self) {
        self.refusal = None;
    }

    /// A person wants `status` to be pushed at once.
    pub fn push_status_again(&mut self) {
        if let Some(refusal) = &mut self.refusal {
            refusal.again = Instant::now();
        }
    }

    /// Pushes one branch in one request. Where the host's branches stand is known afterwards only if it took this.
    pub fn push(&mut self, repo: &Repo, update: &PushUpdate) -> Pushed {
        let push = |remote: &Remote| remote.push(repo, std::slice::from_ref(update));
        self.push_by(|remote| push(remote).map(|results| results.into_iter().next()), update)
    }

    /// The same of a commit that isn't in the clone.
    pub fn push_pack(&mut self, pack: &Pack, update: &PushUpdate) -> Pushed {
        self.push_by(|remote| remote.push_pack(pack, update).map(Some), update)
    }

    fn push_by(
        &mut self,
        push: impl FnOnce(&Remote) -> Result<Option<PushResult>, PushError>,
        update: &PushUpdate,
    ) -> Pushed {
        // Where it stands is known again only if the host takes it.
        let known = self.refs.take();
        match push(&self.connection.remote) {
            Ok(result) => match result {
                Some(PushResult::Done) => {
                    self.refs = known.map(|refs| refs.moved(&update.branch, update.new));
                    Pushed::Done
                }
                other => {
                    tracing::warn!(branch = update.branch, answer = ?other, "the host didn't take the push");
                    match other {
                        Some(PushResult::Refused { text }) => self.refused(text),
                        _ => Pushed::NotNow,
                    }
                }
            },
            Err(PushError::Remote(error)) => {
                let doing = format!("can't push `{}`", update.branch);
                self.connectivity.failed(&error, &doing, Timestamp::now());
                if error.retry_after().is_some() { Pushed::NotNow } else { Pushed::BrokeOff }
            }
            Err(error) => {
                tracing::warn!(branch = update.branch, error = error_chain(&error), "can't push");
                match error {
                    PushError::Unpack { text } => self.refused(text),
                    _ => Pushed::NotNow,
                }
            }
        }
    }

    fn refused(&mut self, said: String) -> Pushed {
        self.said = said;
        Pushed::Refused
    }
}
