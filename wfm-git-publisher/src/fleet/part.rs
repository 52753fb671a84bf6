//! Parts of a deployment's file on their own, read as in one: for whoever asks for them before there is a file.

use repo_model::problem::Problems;
use repo_model::yaml::{Strictness, read};

use super::selector::Selector;
use super::values::{Values, values};

/// Reads values by the parameters' names, as `parameters` of a deployment has them.
pub fn read_values(file: &str, yaml: &[u8]) -> Result<Values, Problems> {
    read(file, yaml, Strictness::Fleet, values).map(|(values, _)| values)
}

/// Reads what means devices, as `targets` of a deployment has it.
pub fn read_selectors(file: &str, yaml: &[u8]) -> Result<Vec<Selector>, Problems> {
    read(file, yaml, Strictness::Fleet, Selector::read_list).map(|(selectors, _)| selectors)
}
