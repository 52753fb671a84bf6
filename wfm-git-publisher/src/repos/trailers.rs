//! Names that stand in every commit of the publisher.

use repo_git::Person;
use repo_model::Branch;

/// The name of the publisher in its commits.
pub const PUBLISHER: &str = "wfm-git-publisher";

/// The branch of a device's repository that holds its desired state.
pub const DESIRED: &str = Branch::Desired.as_str();

/// The branch of `control.git`.
pub const CONTROL: &str = Branch::Control.as_str();

/// Who makes the publisher's commits. The address is one that can't exist (RFC 2606).
pub fn publisher() -> Person {
    Person::new(PUBLISHER, "publisher@wfm.invalid")
}
