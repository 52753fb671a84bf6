//! What the host shows and a device must not believe: what runs keeps running, `status` says why, and the next good
//! commit cures it.

mod floor;
mod history;
mod pack;
mod signature;
mod tree;

use repo_testkit::hand::Draft;

use crate::world::World;

/// A device on which serial 1 runs, and a good serial 2 that it hasn't seen. Instead of that the host shows others.
struct Refusals {
    world: World,
    good: String,
}

impl Refusals {
    fn new() -> Self {
        let world = World::running();
        world.hand.want("greeter", &world.app, "not this");
        world.hand.publish();
        let good = world.hand.tip("desired");
        Self { world, good }
    }

    /// Shows what `change` makes of serial 2, which must be refused with this code and these words.
    fn refuse(&self, code: &str, words: &[&str], change: impl FnOnce(&mut Draft)) {
        let mut draft = self.world.hand.draft_of(&self.good);
        change(&mut draft);
        let bad = self.world.hand.commit(&draft);
        self.world.hand.move_branch("desired", &bad);
        self.world.assert_refused(code, &[words, &[&bad]].concat());
    }

    /// The good one is adopted after all.
    fn cure(self) {
        self.world.hand.move_branch("desired", &self.good);
        self.world.once().good();
        assert_eq!(self.world.greetings(), ["not this"]);
        self.world.assert_quiet();
    }
}

/// A state with this one change is refused with this code, and the message has these words.
fn refused(code: &str, words: &[&str], change: impl FnOnce(&World, &mut Draft)) {
    let refusals = Refusals::new();
    refusals.refuse(code, words, |draft| change(&refusals.world, draft));
    refusals.cure();
}
