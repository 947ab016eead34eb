//! Jobs that are applied again: edits of their owners.
//!
//! What waits asks for its new form at once, at the place that the controller's rule gives it. A run stays as it was sent, but
//! for its suspension, and the next one has the new form. A suspended run keeps its places; resumed, it begins again.

use fleet_hub_core::queue_place;
use fleet_planner::{JobPhase, Waiting};
use fleet_policies::reason::Reason;
use fleet_runs::attempts::{WAITS_FOR_RESUME, waits_for_resume};
use jiff::Timestamp;

use super::{
    engine::{PastRun, Phase, Sim},
    hub::Form,
    member::Run,
};

impl Sim<'_> {
    pub fn edit(&mut self, job: usize, form: Form) {
        let known = &mut self.jobs[job];
        known.next = Some(form);
        match known.phase {
            Phase::Waits => {
                self.take_edit(job);
                let waits = self.planner_job(job, JobPhase::Waits);
                self.planner.set_job(waits, self.now_ms);
                self.jobs[job].queue = self.queue_of(job);
            }
            // Places are asked for again.
            Phase::Asked { .. } => self.wait_again(job, Reason::Edited),
            Phase::Bound { member } => self.follow(job, member),
            Phase::Over => {}
        }
    }

    /// A waiting job gets the form that its owner has given it. Whether that is another one.
    pub fn take_edit(&mut self, job: usize) -> bool {
        let told = self.planner.waiting(&self.jobs[job].id).map(|waiting| waiting.reason);
        let now = Timestamp::from_millisecond(self.now_ms).unwrap_or_default();
        let known = &mut self.jobs[job];
        let Some((spec, mut binding)) = known.next.take() else { return false };
        if let Some(before) = &known.binding {
            binding.object.spec.queue_place =
                queue_place::after_edit(before, told, &binding.object.spec, now);
        }
        (known.spec, known.binding) = (spec, Some(binding));
        true
    }

    /// Whether the owner has suspended the job.
    pub fn is_paused(&self, job: usize) -> bool {
        let known = &self.jobs[job];
        known.next.as_ref().map_or(known.spec.paused, |(spec, _)| spec.paused)
    }

    /// The member suspends the run or resumes it, as its job says.
    pub fn follow(&mut self, job: usize, member: usize) {
        let paused = self.is_paused(job);
        if !self.hub_up || !self.members[member].link.reachable() {
            return;
        }
        let Some(stay) = self.members[member].stays.get_mut(&job) else { return };
        let has_places = !stay.nodes.is_empty();
        match stay.run {
            Run::Waits | Run::Runs { .. } | Run::Broken { .. } | Run::Stopped if paused && has_places => {
                stay.run = Run::Suspended;
                self.judge(job);
            }
            Run::Suspended if !paused => self.start(job, member),
            _ => {}
        }
    }

    /// Why a job must not be placed, beside quota and capacity.
    pub fn blocked(&self, job: usize) -> Option<Waiting> {
        let known = &self.jobs[job];
        let attempts = known.attempts.iter().map(PastRun::as_attempt);
        let held = known.spec.suspended.then_some("the policy suspends dispatching");
        let paused = waits_for_resume(attempts, known.spec.paused).then_some(WAITS_FOR_RESUME);
        Some(Waiting::new(Reason::Suspended, held.or(paused)?))
    }
}
