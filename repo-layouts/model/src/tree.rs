//! A Git tree as plain data: paths and bytes.

use std::collections::BTreeMap;

/// The files of a tree: `/`-separated relative path → exact bytes. Every file has mode 100644.
pub type FileTree = BTreeMap<String, Vec<u8>>;
