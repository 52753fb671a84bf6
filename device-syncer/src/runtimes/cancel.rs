//! How soon an apply that isn't wanted any more ends hangs on what it does at that moment, and so does whether it counts.

/// Whether an apply is to end, by what it does; each is asked again and again.
#[derive(Clone, Copy)]
pub struct Cancel<'a> {
    /// While it waits for health, which changes nothing.
    pub waiting: &'a dyn Fn() -> bool,
    /// While it changes something: it may come to its end first, because half of that is worse.
    pub changing: &'a dyn Fn() -> bool,
    /// While what was applied is put back, and before anything of it is started: it is held or suspended, or one of `waiting` is so.
    pub halted: &'a dyn Fn() -> bool,
    /// While it runs what runs only once, such as a chart's hook: half a migration is worse still.
    pub once: &'a dyn Fn() -> bool,
    /// Told whether it only waits for health from here on, without a process of its own.
    pub waits: &'a dyn Fn(bool),
}

impl<'a> Cancel<'a> {
    /// The same, whatever it does.
    pub fn whatever(ends: &'a dyn Fn() -> bool) -> Self {
        Self { waiting: ends, changing: ends, halted: ends, once: ends, waits: &|_| () }
    }

    /// Whether a change ends of which nobody knows whether it has come to something that runs only once; `began` asks that,
    /// and only where it matters.
    pub(super) fn ends_unless(&self, began: impl FnOnce() -> bool) -> bool {
        (self.changing)() && ((self.once)() || !began())
    }
}

impl std::fmt::Debug for Cancel<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancel").finish_non_exhaustive()
    }
}
