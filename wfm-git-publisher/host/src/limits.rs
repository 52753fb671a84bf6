//! What the host bears: the section `limits:` of `serve:` in `publisher.yaml`, and what is fixed.

use std::time::Duration;

use repo_model::yaml::{Field, Reader};

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $key:literal, $default:expr, $range:expr;)*) => {
        /// What one client, one account or all of them together may use.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Limits {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Limits {
            /// Reads the section `limits:`; what it doesn't say is as in [`Limits::default`].
            pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
                let mut limits = Self::default();
                $(if let Some(value) = reader.optional($key, |field| number(field, $range)) {
                    limits.$name = <$type>::try_from(value).unwrap_or(<$type>::MAX);
                })*
                Some(limits)
            }
        }
    };
}

limits! {
    /// Open connections of everyone.
    connections: usize = "connections", 20_000, 1..=1_000_000;
    /// Open connections of one IPv4 address or IPv6 network (/64). Many devices may share one behind a router.
    connections_per_address: usize = "connectionsPerAddress", 10_000, 1..=1_000_000;
    /// Open connections of one IPv4 address or IPv6 network (/64) that didn't show an account yet.
    strangers_per_address: usize = "strangersPerAddress", 500, 1..=1_000_000;
    /// Open connections of one account.
    connections_per_account: usize = "connectionsPerAccount", 32, 1..=100_000;
    /// Requests of one account at the same time, and as many that wait for a change.
    requests_per_account: usize = "requestsPerAccount", 8, 1..=10_000;
    /// Requests of everyone at the same time; those who wait for a change don't count.
    requests: usize = "requests", 1_000, 1..=100_000;
    /// Git processes for readers at the same time, and as many for writers.
    processes: usize = "processes", processes(), 1..=256;
    /// Git processes of one account at the same time; what it asks for beyond that waits its turn.
    processes_per_account: usize = "processesPerAccount", processes() / 4, 1..=256;
    /// Requests that wait for a process, accounts in turn; more are turned away.
    queue: usize = "queue", 500, 0..=100_000;
    /// Bytes on the disk of answers that don't fit into memory, until their clients have taken them. Of one account with
    /// several such answers a quarter.
    spool_bytes: u64 = "spoolBytes", 4 << 30, 1 << 20..=1 << 50;
    /// Bytes that a client takes of an answer in a second at least, averaged over a minute.
    least_bytes_per_second: u64 = "leastBytesPerSecond", 1 << 10, 0..=1 << 30;
    /// Seconds that a request waits for a change at most.
    wait_seconds: u64 = "waitSeconds", 300, 1..=3_600;
    /// Bytes of one push of a device.
    push_bytes: u64 = "pushBytes", 16 << 20, 1 << 10..=1 << 30;
    /// Objects in one push of a device.
    push_objects: u64 = "pushObjects", 20_000, 10..=10_000_000;
    /// Bytes of one push to the fleet repository.
    fleet_push_bytes: u64 = "fleetPushBytes", 256 << 20, 1 << 10..=1 << 40;
    /// Bytes of one device's repository; when it is full, pushes are refused.
    repository_bytes: u64 = "repositoryBytes", 512 << 20, 1 << 20..=1 << 50;
}

/// More than there are cores, because they also wait for the disk.
fn processes() -> usize {
    std::thread::available_parallelism().map_or(4, usize::from).saturating_mul(4).clamp(4, 64)
}

impl Limits {
    /// Longest time for a TLS handshake, and again until somebody shows an account.
    pub const HEAD: Duration = Duration::from_secs(10);
    /// Longest silence of a connection between two requests; more than a usual poll.
    pub const IDLE: Duration = Duration::from_secs(120);
    /// Longest silence of a session over SSH between two requests; sshd looks after clients that are gone.
    pub const SESSION_IDLE: Duration = Duration::from_secs(3600);
    /// Connections over SSH that nobody is known of yet, which cost an sshd each, and how many of them one network may
    /// have at the same time; others wait for their turn.
    pub const SSH_STRANGERS: (usize, usize) = (200, 100);
    /// Longest wait for a turn: all devices of a large site come at once when its power is back.
    pub const SSH_TURN: Duration = Duration::from_secs(60);
    /// As [`Limits::SSH_STRANGERS`], of those who wait for the server to speak first.
    pub const SSH_PATIENT: (usize, usize) = (40, 20);
    /// Longest time in which a client takes or sends nothing.
    pub const STALL: Duration = Duration::from_secs(30);
    /// How long it is waited in all for a client that takes its answer, before it is looked at how much it took.
    pub const ROUND: Duration = Duration::from_secs(60);
    /// Longest time for the body of a request, and for a Git process that makes an answer.
    pub const TOTAL: Duration = Duration::from_secs(600);
    /// Longest time for a Git process that receives a push: all of the push is here when it starts.
    pub const RECEIVE: Duration = Duration::from_secs(120);
    /// Longest wait for a free process.
    pub const QUEUE: Duration = Duration::from_secs(15);
    /// Questions about the fleet that are answered at the same time, of one account one, and how many wait; more are turned away.
    pub const QUESTIONS: (usize, usize) = (2, 16);
    /// Longest time for the answer to a question about the fleet.
    pub const QUESTION: Duration = Duration::from_secs(120);
    /// Most bytes of the head of a request.
    pub const HEAD_BYTES: usize = 16 << 10;
    /// Most bytes of a request for objects, unpacked.
    pub const FETCH_BYTES: u64 = 4 << 20;
    /// How long running pushes may take to end after a signal.
    pub const SHUTDOWN: Duration = Duration::from_secs(60);
}

impl Limits {
    /// Logins over SSH at the same time, as many as take about a second together, and how many of them may be one network's.
    pub(crate) fn ssh_logins() -> (usize, usize) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (16 * cores, 12 * cores)
    }
}

fn number(field: Field<'_>, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let value = field.clone().integer::<u64>()?;
    if range.contains(&value) {
        Some(value)
    } else {
        field.fail(format!("must be {} to {}", range.start(), range.end()))
    }
}
