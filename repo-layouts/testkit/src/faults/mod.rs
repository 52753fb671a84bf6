//! What goes wrong, made on purpose: power cuts, damaged files, connections and hosts that misbehave.

pub mod connect_proxy;
pub mod damage;
pub mod fault_proxy;
pub mod listening;
pub mod power;
pub mod scripted_host;
