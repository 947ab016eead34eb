//! Every deliberate bug is found by the simulation. A process of its own, because a bug is on for the whole process.

use fleet_api::mutation::{self, Mutation};
use fleet_kubesim::whole::{Plan, run_plan};

/// Seeds in which each bug must be found; see `docs/simulation.md` for the number each took.
const SEEDS: u64 = 60;

#[test]
fn the_simulation_finds_every_bug() {
    let mut missed = Vec::new();
    for bug in Mutation::ALL {
        mutation::set(*bug);
        let found = (1..=SEEDS).find_map(|seed| {
            let outcome = run_plan(&Plan::of_seed(seed)).expect("the fleet starts");
            outcome.found.first().map(|found| (seed, found.violation.to_string()))
        });
        mutation::set(Mutation::None);
        match found {
            Some((seed, what)) => println!("{bug:?}: seed {seed}: {what}"),
            None => missed.push(*bug),
        }
    }
    assert_eq!(missed, [], "not found in {SEEDS} seeds");
}
