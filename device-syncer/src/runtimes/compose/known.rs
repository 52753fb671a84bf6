//! What inspecting each container gave last, so that a look at which nothing changed asks for their list alone.
//!
//! The list says since when a container is in its state, in words: `Up 3 minutes (healthy)`. One that is in it for a minute or
//! longer, and was listed with the same state, health and exit code less than a minute ago, was neither started nor stopped
//! in between, so it is as it was inspected. What the list doesn't show, such as another restart policy, is seen within
//! [`ANEW`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use repo_model::IntoMap;

use super::engine::Listed;

/// A container for which the engine doesn't count seconds any more is in its state for so long at least.
const MINUTE: Duration = Duration::from_secs(60);

/// For so long what a container was inspected to be is used.
const ANEW: Duration = Duration::from_secs(600);

/// What inspecting gave of containers, by id; of each a `T`.
#[derive(Debug)]
pub(super) struct KnownContainers<T> {
    all: BTreeMap<String, Known<T>>,
    /// When the newest list was asked for.
    listed: Option<Instant>,
}

#[derive(Debug)]
struct Known<T> {
    steady: String,
    state: T,
    inspected: Instant,
}

impl<T> Default for KnownContainers<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), listed: None }
    }
}

impl<T: Clone> KnownContainers<T> {
    /// What is known of those of a list that was asked for and answered at these moments. All else is forgotten.
    pub(super) fn of(&mut self, list: &[Listed], asked: Instant, answered: Instant) -> BTreeMap<String, T> {
        let before = self.listed.replace(asked);
        let is_soon = before.is_some_and(|before| answered.duration_since(before) < MINUTE);
        let mut all = std::mem::take(&mut self.all);
        for listed in list {
            let known = all.remove(&listed.id).filter(|known| {
                is_soon && steady(listed).as_ref() == Some(&known.steady) && asked - known.inspected < ANEW
            });
            self.all.extend(known.map(|known| (listed.id.clone(), known)));
        }
        self.all.iter().map(|(id, known)| (id.clone(), known.state.clone())).into_map()
    }

    /// Keeps what a container was inspected to be after that list.
    pub(super) fn note(&mut self, listed: &Listed, state: &T, inspected: Instant) {
        let known = |steady| Known { steady, state: state.clone(), inspected };
        self.all.extend(steady(listed).map(|steady| (listed.id.clone(), known(steady))));
    }
}

/// State, health and exit code of a container that is in its state for a minute or longer; `None` for one that isn't, or of
/// which the engine says it in other words.
fn steady(listed: &Listed) -> Option<String> {
    let said = &listed.status;
    let is_long = ["minute", "hour", "day", "week", "month", "year"].iter().any(|unit| said.contains(unit));
    // `(healthy)`, `(Paused)`, and `(137)` of one that ended.
    let brackets = said.split('(').skip(1).filter_map(|part| part.split_once(')')).map(|(inside, _)| inside);
    (is_long && !said.contains("second")).then(|| brackets.fold(listed.state.clone(), |all, one| all + " " + one))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: &str, status: &str) -> Listed {
        let state = if status.starts_with("Up") { "running" } else { "exited" };
        serde_json::from_value(serde_json::json!({"Id": id, "State": state, "Status": status})).unwrap()
    }

    /// Whether what was inspected at the first list is used at a second one so many seconds later.
    fn is_used(first: &str, second: &str, later: u64) -> bool {
        let (mut known, begin) = (KnownContainers::default(), Instant::now());
        let (first, then) = (listed("a", first), begin + Duration::from_secs(later));
        assert!(known.of(std::slice::from_ref(&first), begin, begin).is_empty());
        known.note(&first, &(), begin);
        !known.of(&[listed("a", second)], then, then).is_empty()
    }

    #[test]
    fn what_is_in_its_state_for_longer_than_two_looks_are_apart_is_not_inspected_again() {
        for same in ["Up 3 minutes", "Up About a minute (healthy)", "Up 7 weeks (unhealthy)", "Exited (0) 2 days ago"] {
            assert!(is_used(same, same, 15), "{same}");
            assert!(!is_used(same, same, 60), "{same}: it may have been started and have stayed up since");
        }
        assert!(is_used("Up About an hour (healthy)", "Up 2 hours (healthy)", 15));
        for (first, second) in [
            ("Up 3 minutes", "Up 12 seconds"),
            ("Up 3 minutes", "Up Less than a second"),
            ("Up 50 seconds", "Up About a minute"),
            ("Up 3 minutes (healthy)", "Up 3 minutes (unhealthy)"),
            ("Up 3 minutes (healthy)", "Up 3 minutes"),
            ("Up 3 minutes", "Up 3 minutes (Paused)"),
            ("Exited (0) 3 minutes ago", "Exited (1) 3 minutes ago"),
            ("Up 3 minutes", "Exited (0) 3 minutes ago"),
            ("Up", "Up"),
            ("", ""),
        ] {
            assert!(!is_used(first, second, 15), "{first} > {second}");
        }
    }

    #[test]
    fn what_is_known_is_inspected_anew_after_ten_minutes_and_forgotten_with_its_container() {
        let (mut known, begin) = (KnownContainers::default(), Instant::now());
        let all = [listed("a", "Up 2 days"), listed("b", "Up 2 days")];
        known.of(&all, begin, begin);
        all.iter().for_each(|one| known.note(one, &(), begin));
        let mut ids = |list: &[Listed], second| {
            let at = begin + Duration::from_secs(second);
            known.of(list, at, at).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(ids(&all, 15), ["a", "b"]);
        assert_eq!(ids(&all[..1], 30), ["a"]);
        assert_eq!(ids(&all, 45), ["a"]);
        for second in (60..600).step_by(15) {
            assert_eq!(ids(&all, second), ["a"], "{second}");
        }
        assert!(ids(&all, 600).is_empty());
    }
}
