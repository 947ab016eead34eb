//! Partitions between hub and members, and processes that are down: leases, fencing, and the hub's view of a silent
//! member.

use fleet_api::names;
use fleet_hub_core::Options as HubOptions;
use fleet_policies::spec::Fencing;

use super::{
    engine::{Phase, Sim, Tick},
    member::Run,
};
use crate::scenario::{Process, log::What};

/// The bounds of the processes, in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Times {
    pub renew_ms: i64,
    /// From the last renewal that went through to the agent's own deadline.
    pub lapse_ms: i64,
    /// From the last renewal that the hub saw until the cluster gets no new work.
    pub not_ready_ms: i64,
    /// And until it counts as lost.
    pub lost_ms: i64,
    pub runs: fleet_runs::Limits,
}

impl Times {
    /// The defaults of the processes.
    pub fn production() -> Self {
        let hub = HubOptions::default();
        let ms = |time: std::time::Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let not_ready_ms = ms(hub.lease_duration + hub.lease_margin);
        Self {
            renew_ms: ms(names::LEASE_RENEW),
            lapse_ms: ms(names::LEASE_DURATION),
            not_ready_ms,
            lost_ms: not_ready_ms + ms(hub.fence_grace),
            runs: hub.run_limits(),
        }
    }
}

impl Sim<'_> {
    pub fn partition(&mut self, cluster: &str) {
        self.change_link(cluster, |link| link.partitioned = true);
    }

    pub fn heal(&mut self, cluster: &str) {
        self.change_link(cluster, |link| link.partitioned = false);
    }

    /// While the hub does not take them the agent is as good as cut off.
    pub fn credentials(&mut self, cluster: &str, valid: bool) {
        self.change_link(cluster, |link| link.unauthorized = !valid);
    }

    pub fn crash(&mut self, process: &Process, restart_ms: Option<i64>) {
        match process {
            Process::Hub => {
                self.hub_up = false;
                if let Some(after) = restart_ms {
                    self.push(self.now_ms + after, Tick::HubBack);
                }
            }
            Process::Agent { cluster } => {
                self.change_link(cluster, |link| link.agent_away = true);
                if let (Some(after), Some(member)) = (restart_ms, self.member_of.get(cluster).copied()) {
                    let count = self.members[member].link.cut;
                    self.push(self.now_ms + after, Tick::AgentBack { member, count });
                }
            }
        }
    }

    pub fn agent_back(&mut self, member: usize, _count: u64) {
        let name = self.members[member].name.to_string();
        self.change_link(&name, |link| link.agent_away = false);
        let link = &self.members[member].link;
        // It reads from the member's own lease that it was past its deadline.
        if !link.reachable() && self.now_ms >= link.renewed_ms + self.times.lapse_ms {
            self.members[member].link.lapsed = true;
            self.fence(member, |_| true);
        }
    }

    fn change_link(&mut self, cluster: &str, change: impl FnOnce(&mut super::member::Link)) {
        let Some(member) = self.member_of.get(cluster).copied() else { return };
        let link = &mut self.members[member].link;
        let before = link.reachable();
        change(link);
        match (before, link.reachable()) {
            (true, false) => self.cut(member),
            (false, true) => self.back(member),
            _ => {}
        }
    }

    fn cut(&mut self, member: usize) {
        let link = &mut self.members[member].link;
        link.cut += 1;
        // Renewals go out at multiples of their period; one at this very moment is lost.
        link.renewed_ms = (self.now_ms - 1).max(0) / self.times.renew_ms * self.times.renew_ms;
        let (cut, renewed_ms) = (link.cut, link.renewed_ms);
        self.push(renewed_ms + self.times.lapse_ms, Tick::Lapse { member, cut });
        if self.hub_up {
            self.count_silence(member, renewed_ms);
        }
    }

    /// The hub's own clocks for a silent cluster, from the last sign of life or from its own start.
    fn count_silence(&mut self, member: usize, from_ms: i64) {
        let (cut, hub) = (self.members[member].link.cut, self.hub_count);
        self.push(from_ms + self.times.not_ready_ms, Tick::NotReady { member, cut, hub });
        self.push(from_ms + self.times.lost_ms, Tick::Lost { member, cut, hub });
    }

    fn counts(&self, member: usize, cut: u64, hub: u64) -> bool {
        let link = &self.members[member].link;
        self.hub_up && link.cut == cut && self.hub_count == hub && !link.reachable()
    }

    /// The agent is cut off for as long as its lease lasts: it stops the jobs that may move.
    pub fn lapse(&mut self, member: usize, cut: u64) {
        let link = &mut self.members[member].link;
        if link.cut != cut || link.reachable() {
            return;
        }
        link.lapsed = true;
        let agent_away = link.agent_away;
        // A dead agent stops nothing; the watchdog beside the job's own containers does.
        self.fence(member, |fencing| !agent_away || fencing == Fencing::Watchdog);
    }

    fn fence(&mut self, member: usize, stops: impl Fn(Fencing) -> bool) {
        let running: Vec<usize> = self.members[member]
            .stays
            .iter()
            .filter(|(_, stay)| matches!(stay.run, Run::Runs { .. } | Run::Broken { .. }))
            .map(|(job, _)| *job)
            .collect();
        for job in running {
            let failover =
                self.jobs[job].spec.failover.as_ref().and_then(|failover| failover.cluster.as_ref());
            let Some(fencing) = failover.map(|failover| failover.fencing()) else { continue };
            if fencing == Fencing::None || !stops(fencing) {
                continue;
            }
            let Some(stay) = self.members[member].stays.get_mut(&job) else { continue };
            stay.run = Run::Stopped;
            let epoch = stay.epoch;
            let cluster = self.members[member].name.clone();
            self.record(job, What::Fenced { cluster, epoch });
        }
    }

    pub fn not_ready(&mut self, member: usize, cut: u64, hub: u64) {
        if !self.counts(member, cut, hub) || self.members[member].link.not_ready {
            return;
        }
        self.members[member].link.not_ready = true;
        self.tell_planner_of(member);
        // Questions that it never answered are withdrawn.
        let asked: Vec<usize> = self.alive.values().copied().collect();
        let mut asked: Vec<usize> =
            asked.into_iter().filter(|job| self.jobs[*job].phase == Phase::Asked { member }).collect();
        asked.sort_unstable();
        for job in asked {
            self.wait_again(job, fleet_policies::reason::Reason::ClusterNotReady);
        }
    }

    pub fn lost(&mut self, member: usize, cut: u64, hub: u64) {
        if !self.counts(member, cut, hub) {
            return;
        }
        let link = &mut self.members[member].link;
        link.lost = true;
        self.judge_all(member);
    }

    /// Hub and agent talk again.
    fn back(&mut self, member: usize) {
        let link = &mut self.members[member].link;
        link.cut += 1;
        link.lapsed = false;
        if self.hub_up {
            self.meet(member);
        }
    }

    /// What was held up between the two goes through.
    fn meet(&mut self, member: usize) {
        let link = &mut self.members[member].link;
        link.lost = false;
        if std::mem::take(&mut link.not_ready) {
            link.ready_since_ms = Some(self.now_ms);
            self.tell_planner_of(member);
        }
        // The agent learns the present epochs first: what runs under another is cleaned up.
        let here: Vec<usize> = self.members[member].stays.keys().copied().collect();
        for job in here {
            let Some(stay) = self.members[member].stays.get(&job) else { continue };
            let wanted =
                self.jobs[job].phase == Phase::Bound { member } && self.jobs[job].epoch == stay.epoch;
            if !wanted && self.left_alone(job, member).is_some() {
                continue;
            } else if !wanted {
                self.members[member].release(job);
            } else if stay.run == Run::Stopped && !self.is_paused(job) {
                self.start(job, member);
            } else {
                self.follow(job, member);
            }
        }
        let mut asked: Vec<usize> = self.alive.values().copied().collect();
        asked.retain(|job| self.jobs[*job].phase == Phase::Asked { member });
        asked.sort_unstable();
        for job in asked {
            self.answer(job, member);
        }
        self.judge_all(member);
        self.start_waiting(member);
    }

    /// A restarted controller lists everything and counts every silence anew.
    pub fn hub_back(&mut self) {
        self.hub_up = true;
        self.hub_count += 1;
        for member in 0..self.members.len() {
            self.members[member].link.lost = false;
            if self.members[member].link.reachable() {
                self.meet(member);
            } else {
                self.count_silence(member, self.now_ms);
            }
        }
        self.catch_up();
    }

    pub fn judge_all(&mut self, member: usize) {
        let here: Vec<usize> = self.members[member].stays.keys().copied().collect();
        for job in here {
            if self.jobs[job].phase == (Phase::Bound { member }) {
                self.judge(job);
            }
        }
    }
}
