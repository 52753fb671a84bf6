//! Whether something keeps the clock, as the kernel has it.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Once;

use crate::decision::windows::KernelClock;

/// The seconds since the device was started, also those in which it slept: no clock that anybody can set (`CLOCK_BOOTTIME`).
#[expect(unsafe_code, reason = "the standard library doesn't ask for it")]
pub fn since_boot() -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes a `timespec` there and nowhere else.
    let (result, time) = unsafe { (libc::clock_gettime(libc::CLOCK_BOOTTIME, time.as_mut_ptr()), time.assume_init()) };
    u64::try_from(time.tv_sec).ok().filter(|_| result == 0)
}

/// What the kernel says of its clock. NTP, PTP and GPS daemons tell it that it is synchronised; it takes that back itself some
/// hours after the last word (`adjtimex(2)`, `STA_UNSYNC`). A sandbox may forbid even to ask; the log says so once.
#[expect(unsafe_code, reason = "rustix and the standard library don't ask for it")]
pub fn ask() -> KernelClock {
    static LOGGED: Once = Once::new();
    let mut time = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zero is a `timex` that asks and sets nothing, and the kernel writes into it and nowhere else.
    let (state, time) = unsafe { (libc::adjtimex(time.as_mut_ptr()), time.assume_init()) };
    match state {
        ..0 => {
            let error = io::Error::last_os_error();
            LOGGED.call_once(|| tracing::warn!(%error, "the kernel can't be asked whether its clock is synchronised"));
            KernelClock::Unasked
        }
        0..libc::TIME_ERROR if time.status & libc::STA_UNSYNC == 0 => KernelClock::Synchronised,
        _ => KernelClock::Unsynchronised,
    }
}
