//! Whatever is desired and whatever goes wrong, in any order.

use repo_model::IntoSet;

use super::*;

/// What goes wrong during one pass.
#[derive(Debug, Clone)]
enum LocalCondition {
    None,
    /// One verb fails for one component.
    Fails(&'static str, &'static str, &'static str, u8),
    /// The end is asked for before anything is begun.
    Cancelled,
    /// The device went down, and what it had begun is open.
    Reboot,
}

fn any_trouble() -> impl Strategy<Value = LocalCondition> {
    let verb = prop::sample::select(vec!["prefetch", "apply", "remove"]);
    let (deployment, name) = (prop::sample::select(vec!["a", "b", "c"]), prop::sample::select(vec!["x", "y", "z"]));
    prop_oneof![
        1 => Just(LocalCondition::None),
        4 => (verb, deployment, name, 0..4_u8).prop_map(|(verb, a, x, kind)| LocalCondition::Fails(verb, a, x, kind)),
        1 => Just(LocalCondition::Cancelled),
        1 => Just(LocalCondition::Reboot),
    ]
}

/// Which of two jobs goes on at each call of a runtime.
fn any_turns() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..2_usize, 0..24)
}

impl Bench {
    fn suffer(&mut self, trouble: &LocalCondition, boot: usize) {
        self.cancelled.set(matches!(trouble, LocalCondition::Cancelled));
        match trouble {
            LocalCondition::Fails(verb, deployment, name, kind) => {
                let error = [transient(), permanent(), unhealthy("x"), RuntimeError::Cancelled];
                self.fail(verb, (deployment, name), error.into_iter().skip((*kind).into()).take(1).collect());
            }
            LocalCondition::Reboot => self.boot(&format!("boot {boot}")),
            _ => {}
        }
    }

    /// No transition was told twice since this was last asked.
    fn assert_told_once(&mut self) {
        let mut told: Vec<_> = self.told().iter().flat_map(|one| one.split("; ")).map(str::to_owned).collect();
        told.retain(|one| !one.is_empty());
        let all = told.clone().into_set();
        assert_eq!(told.len(), all.len(), "{told:?}");
    }

    /// Every transition begins where the one before of the same thing ended.
    fn assert_continuous(&self) {
        let view = self.view();
        let repo = &view.repo;
        let history = view.status.map_or(Vec::new(), |tip| repo.history(tip, None, 1000).unwrap());
        let mut states: BTreeMap<String, String> = BTreeMap::new();
        for commit in history.iter().rev() {
            let message = Message::parse(&repo.commit(*commit).unwrap().message);
            for state in message.all(Trailer::State) {
                let words: Vec<_> = state.split(' ').collect();
                let before = states.insert(words[0].to_owned(), words[3].to_owned());
                let before = before.unwrap_or_else(|| "none".to_owned());
                assert_ne!(words[1], words[3], "{state}");
                assert!(before == words[1] || before == "removed" && words[1] == "none", "{state} after {before}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_goes_wrong_it_converges_once_nothing_does_and_each_step_is_told_once(
        passes in prop::collection::vec((any_wanted(), any_trouble(), any_turns()), 1..6),
    ) {
        let mut bench = Bench::new();
        bench.at_once = 2;
        for (n, (desired, trouble, turns)) in passes.iter().enumerate() {
            bench.suffer(trouble, n);
            bench.runtimes.turns.choose(turns);
            bench.later(desired);
            bench.assert_continuous();
            bench.assert_told_once();
        }
        let (last, _, _) = passes.last().unwrap();
        bench.cancelled.set(false);
        bench.runtimes.failures.lock().unwrap().clear();
        last.iter().for_each(|wanted| bench.tamper(|state| state.forget_failures(wanted, "no boot")));
        let able = last.iter().all(|wanted| wanted.components.iter().all(|component| component.input.is_ok()));
        prop_assert_eq!(bench.later(last).up_to_date, able);
        bench.assert_continuous();
        bench.listen_anew();
        let before = bench.view().repo.reference(crate::decision::device_state::STATE).unwrap();
        prop_assert!(!bench.later(last).acted);
        prop_assert_eq!((bench.told(), bench.runtimes.log()), (vec![], vec![]));
        prop_assert_eq!(bench.view().repo.reference(crate::decision::device_state::STATE).unwrap(), before);
    }

    #[test]
    fn nothing_is_given_up_by_an_apply_while_anything_is_left_to_remove(
        passes in prop::collection::vec((any_wanted(), any::<[u8; 9]>()), 1..8),
    ) {
        let mut bench = Bench::new();
        for (desired, failures) in &passes {
            let all = ["a", "b", "c"].into_iter().flat_map(|one| ["x", "y", "z"].map(|part| (one, part)));
            for (of, bits) in all.zip(failures) {
                bench.fail("remove", of, if bits & 1 == 0 { vec![stays()] } else { vec![] });
                bench.fail("apply", of, [transient(), permanent(), unhealthy("x")].into_iter().skip(usize::from(bits >> 6)).collect());
            }
            let before = bench.view().device_state.failed_inputs;
            bench.later(desired);
            let is_left = bench.state.lock().removals_are_left;
            let after = bench.view().device_state.failed_inputs;
            let given_up: Vec<_> = after.iter().filter(|(project, now)| before.get(*project) != Some(*now)).collect();
            prop_assert!(!is_left || given_up.is_empty(), "{given_up:?}");
        }
    }
}
