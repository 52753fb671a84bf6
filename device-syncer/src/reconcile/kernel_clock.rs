//! Whether something keeps the clock, as the kernel has it.

use std::mem::MaybeUninit;

/// The seconds since the device was started, also those in which it slept: no clock that anybody can set (`CLOCK_BOOTTIME`).
#[expect(unsafe_code, reason = "the standard library doesn't ask for it")]
pub fn since_boot() -> Option<u64> {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel writes a `timespec` there and nowhere else.
    let (result, time) = unsafe { (libc::clock_gettime(libc::CLOCK_BOOTTIME, time.as_mut_ptr()), time.assume_init()) };
    u64::try_from(time.tv_sec).ok().filter(|_| result == 0)
}

/// Whether the kernel says that its clock is synchronised. NTP, PTP and GPS daemons tell it; it takes that back itself some
/// hours after the last word (`adjtimex(2)`, `STA_UNSYNC`). Where it may not be asked, it doesn't say so.
#[expect(unsafe_code, reason = "rustix and the standard library don't ask for it")]
pub fn is_synchronised() -> bool {
    let mut time = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: all zero is a `timex` that asks and sets nothing, and the kernel writes into it and nowhere else.
    let (state, time) = unsafe { (libc::adjtimex(time.as_mut_ptr()), time.assume_init()) };
    (0..libc::TIME_ERROR).contains(&state) && time.status & libc::STA_UNSYNC == 0
}
