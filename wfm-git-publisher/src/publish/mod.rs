//! Publishing: one level-triggered pass over the fleet at a commit.
//!
//! **One decision.** What is known of each device (`known`) and what the fleet says of it make a `FleetPlan`
//! (`decide`), a pure value. `plan` and `validate` print it (`planned`), `publish` carries it out (`steps`); both get
//! it from the same `decide_all`. A device's documents are written once: its tip is read with them, and the decision is
//! made of them.
//!
//! The order of a pass: the fleet is read from the commit's objects → every device's verified tip and report are read,
//! but for those that nothing changed for since they were up to date → tags without a lock are resolved, the first
//! meaning wins for ever → where there are rollouts, all devices are compared as if nothing were held back, and what that
//! comes to is decided and kept in `control.git` → each device is decided about: it keeps its tip, it gets a new state, or something refuses
//! that → what is new becomes three signed commits in memory → all new serials are reserved in `control.git` by one
//! commit → per device one pack with the new commits, synced, then `bundle`, `desired`, `freshness` move by
//! compare-and-swap (a new device's repository comes into its place with all that in it); the syncs of many devices are
//! put together → one commit in `control.git` notes what was published.
//! A pass that is cut off anywhere is completed by the next one: a reserved serial is used again for the same envelope
//! and for no other.

mod clock;
mod commits;
mod covered;
mod decide;
mod error;
mod findings;
mod fleet_at;
mod freshness;
mod gone;
mod hints;
mod holds;
mod known;
mod locks;
mod message;
mod options;
mod outcome;
mod pass;
mod planned;
mod publisher;
mod renamed;
mod retired;
mod rollout_progress;
mod rollouts;
mod serial;
mod since;
mod ssh_keys;
mod standing;
mod steps;
mod tips;
mod tokens;
mod up_to_date;

pub use clock::check_clock;
pub use covered::CoveredCommits;
pub(crate) use decide::doubt;
pub use error::{ClockError, DeviceError, PublishError};
pub use findings::{Findings, Gone};
pub(crate) use findings::{of_pass, usable_fleet};
pub use freshness::FRESH_FOR;
pub(crate) use hints::hint;
pub use locks::{NewKey, Resolve, ResolveError};
pub use options::{Options, Work};
pub use outcome::{Done, Outcome, Planned};
pub use planned::{check, device_context, known_devices, plan, plan_read};
pub use publisher::Publisher;
pub(crate) use publisher::check_key;
pub use rollout_progress::RolloutProgress;
pub use serial::{KnownNumbers, SerialError};
pub(crate) use up_to_date::program;
pub use up_to_date::{is_as_left, unchanged};
