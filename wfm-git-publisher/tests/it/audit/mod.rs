//! `audit`: clean histories are clean, and forgeries are found and named. The tables of all files have more than a hundred.
#![allow(clippy::disallowed_methods, reason = "test data needs no syncing")]

mod archives;
mod clone;
mod command;
mod content;
mod epochs;
mod forge;
mod guide;
pub(crate) mod honest;
mod report;
mod sbom;
mod signed;
mod stored;
