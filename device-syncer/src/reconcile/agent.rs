//! The two loops, until a signal ends them: one makes pass after pass over the device, the other asks the host and tells it what
//! came of them. Neither waits for the other: what one has for the other it leaves in `link`.
//!
//! At a host that offers it, one request waits there while nothing is asked: the host is asked when the wait ends, which it
//! does when something moved and at the latest when the host lets nobody wait longer.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use repo_model::{ErrorCode, error_chain};
use repo_service::ServiceManager;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::watch::{self, Receiver, Sender};

use crate::config::device::POLL;
use crate::decision::backoff;
use crate::decision::failure::is_disk_full;
use crate::host::connection::Current;
use crate::host::refs::{Ask, StatusTip};
use crate::host::wait::Waiter;
use crate::reconcile::engine_events::EngineEvents;
use crate::reconcile::host_side::HostSide;
use crate::reconcile::link::Link;
use crate::reconcile::outcome::{HostAnswer, HostReport, LocalOutcome, Next, PassOutcome, Progress};
use crate::reconcile::pass::{DeviceSide, Syncer};
use crate::reconcile::pass_error::PassError;
use crate::reconcile::reload::{Make, Reload};
use crate::reconcile::schedule::{Asked, Schedule, next_pass, next_turn};
use crate::reconcile::watcher::Watcher;
use crate::state::retry_times::RetryTimes;
use crate::state::shared::Shared;

/// How long requests to the host that are in flight may go on after a signal.
const LEAVE: Duration = Duration::from_secs(5);

/// A pass takes seconds; one that takes so many times as long as the service manager's watchdog waits hangs, and isn't vouched
/// for any more. Jobs run beside passes, and may take as long as they take.
const HANGS: u32 = 6;

/// A turn at the host may take so many times as long as one request may take, besides: a fetch takes ten times that.
const REQUESTS: u32 = 30;

/// What is to be told is gathered for so long: what begins and ends meanwhile is one push, and what was just begun isn't slowed down by
/// telling of it.
const GATHERS: Duration = Duration::from_millis(500);

/// No sign of life is promised for later than this.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Makes passes, and asks the host, until SIGTERM or SIGINT; the step in hand is finished or stopped cleanly.
pub async fn run(syncer: Syncer, make: Make, service: Arc<ServiceManager>) -> std::io::Result<()> {
    let Syncer { host, mut here } = syncer;
    let current = host.client.connection.current();
    let stop = Stop::on_signals(here.reconciler.jobs.stop(), current.clone(), service.clone())?;
    let both = Both::new(Arc::new(Link::new(here.floor.clone())), here.state.clone(), service.clone());
    let told = Arc::clone(&both.link);
    here.state.listen(Some(Box::new(move |_| told.host.notify_one())));
    here.resume_retries();
    here.keeps_silence = true;
    here.state.lock().watches = true;
    service.ready();
    let (host, device) = (ask_and_report(host, &both, stop.clone()), observe_and_reconcile(here, make, &both, stop));
    let ((mut host, ask), mut here) = tokio::join!(host, device);
    if let Err(error) = blocking(move || here.end()).await {
        tracing::error!(error = error_chain(&error), "what was at work couldn't be noted to its end");
    }
    // What that came to is told, if the host is quick.
    let link = Arc::clone(&both.link);
    let last = blocking(move || _ = turn(&mut host, &link, ask));
    tokio::pin!(last);
    while tokio::time::timeout(LEAVE, &mut last).await.is_err() {
        current.interrupt();
    }
    Ok(())
}

/// What both loops use, on the one thread on which they take turns.
struct Both {
    link: Arc<Link>,
    state: Shared,
    service: Arc<ServiceManager>,
    /// A pass that takes longer hangs.
    hangs: Duration,
    alive: Alive,
    log: RefCell<Log>,
    /// What the newest pass came to.
    last: RefCell<Option<Result<LocalOutcome, PassError>>>,
}

/// The loop that gives a sign of life.
#[derive(Debug, Clone, Copy)]
enum Side {
    Host,
    Device,
}

/// By when each loop gives its next sign of life.
#[derive(Debug)]
struct Alive([Cell<Instant>; 2]);

impl Alive {
    /// Both give the first one by then.
    fn until(due: Instant) -> Self {
        Self([(); 2].map(|()| Cell::new(due)))
    }

    /// One of them says within which time it gives the next. Returns how long both have kept their word at least.
    fn says(&self, side: Side, now: Instant, within: Duration) -> Duration {
        let Self(both) = self;
        both[side as usize].set(now + within.min(LONGEST));
        both[0].get().min(both[1].get()).saturating_duration_since(now)
    }
}

impl Both {
    fn new(link: Arc<Link>, state: Shared, service: Arc<ServiceManager>) -> Self {
        let hangs = service.watchdog().map_or(LONGEST, |watchdog| watchdog.saturating_mul(HANGS).min(LONGEST));
        let (alive, log, last) = (Alive::until(Instant::now() + hangs), RefCell::default(), RefCell::default());
        Self { link, state, service, hangs, alive, log, last }
    }

    /// The watchdog is fed while both loops keep their word.
    fn alive(&self, side: Side, within: Duration) {
        self.service.alive(self.alive.says(side, Instant::now(), within));
    }

    /// Logs what it all comes to, if that isn't what it was. What is new waits for the end of the pass that takes it over, and
    /// what a pass says for the turn by which that is told.
    fn note(&self) {
        let Some(report) = self.link.report().filter(|_| !self.link.has_new()) else { return };
        let mut last = self.last.borrow_mut();
        match &mut *last {
            None => {}
            Some(Err(error)) => self.log.borrow_mut().note(Err(error), &self.service),
            Some(Ok(local)) => {
                let tip = StatusTip::from(self.state.lock().store.status_tip());
                let is_told = report.is_told && (report.status == tip || report.status == StatusTip::Unknown);
                // The commit since then makes another turn begin.
                if report.is_told && !is_told && report.answer == HostAnswer::Complete {
                    return;
                }
                let outcome = local.clone().with(&HostReport { is_told, ..report });
                self.log.borrow_mut().note(Ok(&outcome), &self.service);
                // That was said.
                local.done.acted = false;
            }
        }
    }
}

/// Turn after turn at the host. Returns what one more turn may ask.
async fn ask_and_report(mut side: HostSide, both: &Both, mut stop: Stop) -> (HostSide, Ask) {
    let (mut waiter, mut schedule) = (Waiter::default(), Schedule::new(Instant::now()));
    let (mut ask, mut poll) = (Ask::Host, POLL);
    while !stop.is_set() {
        if let Some(device) = both.link.device() {
            side.follow(device);
        }
        let longest = side.device.settings.host.timeouts.total.saturating_mul(REQUESTS).saturating_add(both.hangs);
        both.alive(Side::Host, longest);
        tracing::debug!(?ask, "a turn at the host begins");
        let (link, answer, rests);
        link = Arc::clone(&both.link);
        (side, answer, rests) = blocking(move || {
            let ask = side.unless_silent(ask, &link.floor());
            let (answer, rests) = turn(&mut side, &link, ask);
            (side, answer, rests)
        })
        .await;
        match (answer, side.client.waited_refs()) {
            (HostAnswer::Unreachable | HostAnswer::Unfetched, _) => waiter.end().await,
            _ if side.silent.is_some() => waiter.end().await,
            (HostAnswer::Complete, Some(refs)) => waiter.hold(side.client.remote(), refs).await,
            _ => {}
        }
        let report = both.link.report();
        poll = report.as_ref().map_or(poll, |report| report.poll);
        let waits = side.client.remote().waits().filter(|_| waiter.is_in_flight());
        let retry_after = report.and_then(|report| report.retry_after).max(side.silent).unwrap_or_default();
        let asked = Asked { next: Next::after(answer), poll, waits, retry_after };
        let jitter = backoff::jitter(Timestamp::now());
        schedule.asked(Instant::now(), asked, jitter);
        both.note();
        let regular = Instant::now() + next_turn(poll, jitter);
        let rests = rests.filter(|_| waiter.is_in_flight()).unwrap_or_default();
        let (mut tick, mut tell) = (regular.max(Instant::now() + rests), None);
        ask = loop {
            let due = schedule.due().min(tick);
            let next = tell.map_or(due, |tell: Instant| tell.min(due));
            both.alive(Side::Host, next.saturating_duration_since(Instant::now()) + longest);
            tokio::select! {
                // Cancel-safe: a timer holds nothing.
                () = tokio::time::sleep_until(next.into()) => {
                    let now = Instant::now();
                    break if now < due { schedule.report(now) } else { schedule.ask(now, waiter.is_in_flight()) };
                }
                // Cancel-safe: the wait goes on in its own thread, and a pause until its moment.
                retry_after = waiter.ended() => match retry_after {
                    Some(retry_after) => schedule.called(Instant::now(), retry_after),
                    None => tick = regular,
                },
                // Cancel-safe: a permit stays until it is taken.
                () = both.link.later.notified() => tick = regular,
                // Cancel-safe: a permit stays until it is taken.
                () = both.link.host.notified() => {
                    if both.link.asks() {
                        break Ask::Host;
                    }
                    tell = tell.or(Some(Instant::now() + GATHERS));
                }
                // Cancel-safe: what was set stays so.
                () = stop.set() => break Ask::IfMoved,
            }
        };
    }
    waiter.end().await;
    both.alive(Side::Host, both.hangs);
    (side, schedule.report(Instant::now()))
}

/// Asks the host, if this asks it, leaves what it has, and tells it what there is to tell. Returns what was had of it, and how long
/// no other turn is needed while nothing changes, if the host knows everything.
fn turn(host: &mut HostSide, link: &Link, ask: Ask) -> (HostAnswer, Option<Duration>) {
    let clone = host.clone.clone();
    let _in_use = clone.take();
    host.begin();
    let answer = match host.ask(ask, &link.floor()) {
        Ok(found) => {
            let answer = found.as_ref().map_or(HostAnswer::NotAsked, |found| found.host);
            found.into_iter().for_each(|found| link.hand_over(found));
            answer
        }
        Err(error) => {
            link.fail(error);
            HostAnswer::Unreachable
        }
    };
    let mut seen = link.seen();
    let acted = seen.as_ref().is_some_and(|seen| seen.acted);
    let is_told = host.push(&mut seen).unwrap_or_else(|error| {
        link.fail(error);
        false
    });
    if acted && seen.as_ref().is_some_and(|seen| !seen.acted) {
        link.acted_is_reported();
    }
    if host.has_more() {
        link.host.notify_one();
    }
    link.stands(host.report(ask, is_told));
    (answer, host.rests(seen.as_ref(), is_told))
}

/// Pass after pass over the device.
async fn observe_and_reconcile(mut here: DeviceSide, make: Make, both: &Both, mut stop: Stop) -> DeviceSide {
    let (ended, answered) = (here.reconciler.jobs.ended(), here.reconciler.observer.answered());
    let mut watcher = Watcher::watch(&here.device);
    let mut engine = EngineEvents::listen(&here.reconciler.runtimes);
    let mut reload = Reload::new(&here.device, make);
    let mut retry_times = RetryTimes::new(here.device.home.retries());
    let (mut poll, mut is_waited_for) = (POLL, false);
    while !stop.is_set() {
        tracing::debug!("a pass begins");
        let began = Instant::now();
        both.alive(Side::Device, both.hangs);
        let (link, hurry) = (Arc::clone(&both.link), here.reconciler.observer.hurry());
        let (changed, passed);
        let pass = blocking(move || {
            let changed = reload.refresh(&mut here);
            let passed = (!changed).then(|| {
                let found = link.found().transpose();
                here.pass(found, is_waited_for, &|| (!link.has_found()).then(|| link.pushed()))
            });
            (here, reload, changed, passed)
        });
        tokio::pin!(pass);
        is_waited_for = false;
        (here, reload, changed, passed) = loop {
            tokio::select! {
                passed = &mut pass => break passed,
                () = wanted(&both.link, &mut watcher, &mut engine, &ended, &mut stop), if !is_waited_for => {
                    is_waited_for = true;
                    hurry.say();
                }
            }
        };
        if changed {
            watcher = Watcher::watch(&here.device);
            both.link.follow(here.device.clone());
            engine = EngineEvents::listen(&here.reconciler.runtimes);
        }
        let Some(result) = passed else {
            // One follows at once that goes by what is new.
            is_waited_for = true;
            continue;
        };
        both.link.pass_ended();
        let result = result.map(|(local, seen)| {
            both.link.see(seen, &here.floor);
            local
        });
        if let Ok(local) = &result {
            poll = local.poll;
            if local.is_outdated {
                both.link.ask();
            }
        }
        *both.last.borrow_mut() = Some(result);
        both.note();
        retry_times.note(&here.state.lock().retries, Timestamp::now());
        let rest = next_pass(poll, here.due(began), backoff::jitter(Timestamp::now()));
        both.alive(Side::Device, rest + both.hangs);
        if is_waited_for {
            continue;
        }
        tokio::select! {
            // Cancel-safe: a timer holds nothing.
            () = tokio::time::sleep(rest) => {}
            // Cancel-safe: a permit stays until it is taken.
            () = answered.notified() => tracing::debug!("a runtime has answered in the end"),
            () = wanted(&both.link, &mut watcher, &mut engine, &ended, &mut stop) => is_waited_for = true,
        }
    }
    both.alive(Side::Device, both.hangs);
    here
}

/// Returns when something waits for a pass. Cancel-safe, as each of its arms is: what it returned for is lost with that alone.
async fn wanted(link: &Link, watcher: &mut Watcher, engine: &mut EngineEvents, ended: &Notify, stop: &mut Stop) {
    tokio::select! {
        // Cancel-safe: a permit stays until it is taken.
        () = link.here.notified() => tracing::debug!("the host has something new"),
        // Cancel-safe: a change stays in its channel.
        () = watcher.next() => {
            tracing::debug!("something changed at the device");
            link.ask();
        }
        // Cancel-safe: what was heard and when that is due are kept.
        () = engine.next() => tracing::debug!("something of ours ended or went"),
        // Cancel-safe: a permit stays until it is taken.
        () = ended.notified() => tracing::debug!("a job ended"),
        // Cancel-safe: what was set stays so.
        () = stop.set() => {}
    }
}

/// Runs blocking code off the loops, within the caller's span.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(work)).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The name of the event that says what passes come to, whenever that isn't what it was.
pub const OUTCOME: &str = "outcome";

/// What passes came to when it was last logged; nothing after one that failed.
#[derive(Debug, Default)]
struct Log(Option<(bool, Vec<String>)>);

impl Log {
    fn note(&mut self, result: Result<&PassOutcome, &PassError>, service: &ServiceManager) {
        match result {
            // What has just begun says soon what it comes to.
            Ok(outcome) if outcome.just_began => {}
            Ok(outcome) => {
                let PassOutcome { progress, problems, not_ready, .. } = outcome;
                // The reason of each is logged by itself; it may be another one each time.
                let not_ready = not_ready.iter().map(|one| format!("{}: {}", one.name, one.how));
                let problems: Vec<_> = problems.iter().cloned().chain(not_ready).collect();
                let good = outcome.is_up_to_date();
                let now = (good, problems.clone());
                if *progress == Progress::BroughtUpToDate || self.0.as_ref() != Some(&now) {
                    tracing::info!(name: OUTCOME, good, ?problems, "pass");
                }
                service.status(&if good { "up to date".to_owned() } else { now.1.join("; ") });
                self.0 = Some(now);
            }
            Err(error) => {
                let code = is_disk_full(error).then_some(ErrorCode::DiskFull.as_str());
                tracing::error!(code, error = error_chain(error), "the pass failed");
                service.status(&format!("the pass failed: {}", error_chain(error)));
                self.0 = None;
            }
        }
    }
}

/// Set by SIGTERM or SIGINT, and never cleared.
#[derive(Clone)]
struct Stop {
    set: Arc<AtomicBool>,
    heard: Receiver<bool>,
}

impl Stop {
    /// What is to be set, and whose requests don't hold up the end.
    fn on_signals(set: Arc<AtomicBool>, host: Current, service: Arc<ServiceManager>) -> std::io::Result<Self> {
        let (tell, heard) = watch::channel(false);
        let tell: Arc<Sender<bool>> = Arc::new(tell);
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let (mut signals, set, tell) = (signal(kind)?, Arc::clone(&set), Arc::clone(&tell));
            let (host, service) = (host.clone(), service.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    tracing::info!("stopping");
                    set.store(true, Ordering::Relaxed);
                    tell.send_replace(true);
                    service.stopping();
                    // A host that is slow or silent doesn't hold up the end; a turn may ask it, and push two branches.
                    for _ in 0..3 {
                        tokio::time::sleep(LEAVE).await;
                        host.interrupt();
                    }
                }
            });
        }
        Ok(Self { set, heard })
    }

    fn is_set(&self) -> bool {
        self.set.load(Ordering::Relaxed)
    }

    /// Returns once it is set.
    async fn set(&mut self) {
        // Whoever sets it lives as long as the program.
        _ = self.heard.wait_for(|set| *set).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_keeps_its_word_does_not_speak_for_the_other() {
        let (now, minute) = (Instant::now(), Duration::from_secs(60));
        let alive = Alive::until(now + 60 * minute);
        assert_eq!(alive.says(Side::Host, now, minute), minute);
        assert_eq!(alive.says(Side::Device, now, 10 * minute), minute, "the host's side comes first");
        assert_eq!(alive.says(Side::Device, now + minute, 10 * minute), Duration::ZERO, "and hasn't come");
        assert_eq!(alive.says(Side::Host, now + minute, 20 * minute), 10 * minute);
        assert_eq!(alive.says(Side::Host, now, Duration::MAX), 11 * minute);
    }
}
