//! What goes wrong, made on purpose: power cuts, damaged files, connections and hosts that misbehave.

pub mod connect_proxy;
pub mod damage;
pub mod fault_proxy;
pub mod listening;
pub mod lossy_link;
pub mod power;
pub mod scripted_host;

/// How many rounds `just chaos` asks for; `None` where the suite runs, which does less of what takes long.
///
/// # Panics
/// If `MARGO_CHAOS_ROUNDS` is no number.
pub fn chaos_rounds() -> Option<usize> {
    std::env::var("MARGO_CHAOS_ROUNDS").ok().map(|rounds| rounds.parse().expect("MARGO_CHAOS_ROUNDS is a number"))
}
