//! A deployment's file as this program writes it: what a person answered, in the form that the documentation teaches, or an
//! edit of what is there; as one commit of that file alone.

mod answer;
mod edit;
mod questions;
mod restart;
mod target;
mod text;
mod write;

pub use answer::given;
pub use edit::{DeploymentEdit, edited};
pub use questions::{Question, questions};
pub use restart::restarted;
pub(super) use target::word as yaml_word;
pub use target::{InvalidTarget, Target, selectors};
pub use text::NewDeployment;
pub(super) use write::link_in;
pub use write::{DeployError, DeploymentFile};
