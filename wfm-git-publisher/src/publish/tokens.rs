//! The batch tokens that count at the host follow the fleet, as it was published last.

use repo_model::envelope::LAYOUT;
use repo_model::problem::Problem;
use wfm_git_host::enrolment::{Claims, Token, Tokens};

use crate::fleet::Fleet;
use crate::repos::Home;

/// Brings the host to the tokens of the fleet, each with how many devices of the fleet have it. What that can't be done for
/// is a warning: devices are published all the same.
pub(super) fn follow(home: &Home, fleet: &Fleet) -> Option<Problem> {
    let tokens = fleet.tokens.values().map(|token| Token {
        name: token.name.clone(),
        key: token.key.clone(),
        count: token.count,
        used: fleet.enrolled_by(&token.name).count().try_into().unwrap_or(u32::MAX),
        until: token.until,
    });
    let tokens = Tokens { layout: LAYOUT, tokens: tokens.collect() };
    let error = Claims::new(home.enrolments()).set_tokens(&tokens).err()?;
    Some(Problem::error("tokens", format!("the host doesn't know which count now: {error}")).warning())
}
