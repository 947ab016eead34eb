//! Opportunistic jobs that run for long on what others were promised, and the jobs of those who want it back.
//!
//! Without them opportunistic jobs end before anybody has waited for their cells for long, so that a hub which only
//! waits is not found. Drawn from a branch of its own.

use super::{FREE, KINDS, Layout, Promised, VCS, tolerate};
use crate::{
    people::jobs::job,
    plan::{EXPECT_LABEL, SimulationPlan, What},
    random::Random,
};
use fleet_api::names;

/// In how many of 1000 seeds with virtual clusters they are there.
const BORROWERS: u32 = 400;
/// Kinds whose pods are all alike.
const ALIKE: [(&str, &str); 2] = [KINDS[1], KINDS[2]];

impl SimulationPlan {
    pub(super) fn add_borrowers(&mut self, layout: &Layout, promised: &Promised, tainted: bool) {
        let random = &mut Random::branch(self.seed, "borrowers");
        if !random.per_mille(BORROWERS) {
            return;
        }
        for index in 0..random.between(2, 5) {
            let (workers, cells) = (random.between(1, 4), *random.one_of(&[1, 2]));
            // Longer than anything that may last a moment, also with faults.
            let runtime_ms = random.between(600_000, 1_800_000);
            let mut borrower =
                job(*random.one_of(&ALIKE), &format!("b{index}"), FREE, workers, cells, runtime_ms);
            let labels = &mut borrower["metadata"]["labels"];
            labels[names::VIRTUAL_CLUSTER_LABEL] = (*random.one_of(&VCS)).into();
            labels[names::CLASS_LABEL] = "oppo".into();
            labels[EXPECT_LABEL] = "Any".into();
            if tainted {
                tolerate(&mut borrower);
            }
            self.people_do(random.time(16_000, 30_000), What::Apply(borrower));
        }
        for (index, promise) in promised.cells.iter().enumerate() {
            let unit = promise.leaves.min(layout.leaves(promise.letter));
            let pods = promise.leaves / unit;
            let runtime_ms = random.between(10_000, 60_000);
            let mut owner = job(*random.one_of(&ALIKE), &format!("o{index}"), FREE, pods, unit, runtime_ms);
            let labels = &mut owner["metadata"]["labels"];
            labels[names::VIRTUAL_CLUSTER_LABEL] = promise.vc.into();
            labels[names::CLASS_LABEL] = (*random.one_of(&["test", "prod"])).into();
            if !layout.fits(promised, promise.vc, false, pods, unit) {
                labels[EXPECT_LABEL] = "Any".into();
            }
            if tainted {
                tolerate(&mut owner);
            }
            self.people_do(random.time(45_000, 110_000), What::Apply(owner));
        }
    }
}
