//! The fate of each request of one process, drawn from its seed at the present rates.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet_apiserver::faults::{Fate, FrameFate, Link, Script};
use http::Method;
use tokio::{sync::mpsc, time::Instant};

use super::{
    plan::{Process, Rates, Side},
    random::Random,
};

/// Requests of one process in one virtual millisecond above which it runs in circles.
const CIRCLES: u64 = 50_000;

/// How long listings are late after the hub has forgotten its history.
const HISTORY_LOST: Duration = Duration::from_secs(8);

/// Where it is forgotten at a create: how long that takes to arrive, so that those who watch have listed before; how long
/// listings and new watches take; and for how long they do.
const CREATE_AFTER_LISTING: Duration = Duration::from_secs(4);
const LISTING_TAKES: Duration = Duration::from_secs(8);
const LISTINGS_LATE: Duration = Duration::from_secs(14);
/// Watches break this long after the request was sent, and can be opened again so long after that.
const BREAK_AFTER: Duration = Duration::from_millis(1);
const BROKEN_FOR: Duration = Duration::from_millis(5);

/// Faults by kind, over all processes.
#[derive(Debug, Default)]
pub struct Faults(Mutex<BTreeMap<&'static str, u64>>);

impl Faults {
    pub fn count(&self, kind: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(kind).or_default() += 1;
    }

    pub fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Which faults the requests of one running process meet, over all its links.
pub struct FaultScript {
    process: Process,
    /// Which start of the process this is: a death is of one start only.
    life: u64,
    state: Mutex<State>,
    faults: Arc<Faults>,
    requests: Arc<AtomicU64>,
    deaths: mpsc::UnboundedSender<(Process, u64)>,
}

/// The faults on one of the links of a process.
pub struct LinkScript {
    script: Arc<FaultScript>,
    side: Side,
}

/// Rates of faults towards the hub and towards the own member.
#[derive(Clone, Copy, Debug, Default)]
pub struct FaultRates {
    hub: Rates,
    own: Rates,
}

impl FaultRates {
    pub fn set(&mut self, side: Side, rates: Rates) {
        match side {
            Side::Hub => self.hub = rates,
            Side::Own => self.own = rates,
        }
    }

    fn over(&self, side: Side) -> Rates {
        match side {
            Side::Hub => self.hub,
            Side::Own => self.own,
        }
    }
}

struct State {
    random: Random,
    rates: FaultRates,
    /// Writes until the process dies, and whether the last of them takes effect.
    dies_in: Option<(u64, bool)>,
    /// The resource whose history the hub forgets when one of it is created.
    forgets_at: Option<&'static str>,
    /// The only resource whose history is lost, with listings that all take the same time.
    lost_only: Option<&'static str>,
    links: Vec<(Side, Link)>,
    moment: Instant,
    in_moment: u64,
    /// Until then what is watched has to be listed again, and the paths that were told so already.
    lost_until: Option<Instant>,
    lost_told: BTreeSet<String>,
}

/// What all processes of a run report to.
#[derive(Clone)]
pub struct Reports {
    pub faults: Arc<Faults>,
    pub requests: Arc<AtomicU64>,
    pub deaths: mpsc::UnboundedSender<(Process, u64)>,
}

impl FaultScript {
    pub fn new(process: Process, life: u64, seed: u64, rates: FaultRates, reports: &Reports) -> Arc<Self> {
        let random = Random::branch(seed, &format!("{process} {life}"));
        let state = State {
            random,
            rates,
            dies_in: None,
            forgets_at: None,
            lost_only: None,
            links: Vec::new(),
            moment: Instant::now(),
            in_moment: 0,
            lost_until: None,
            lost_told: BTreeSet::new(),
        };
        Arc::new(Self {
            process,
            life,
            state: Mutex::new(state),
            faults: reports.faults.clone(),
            requests: reports.requests.clone(),
            deaths: reports.deaths.clone(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The script of one of its links.
    pub fn link_script(self: &Arc<Self>, link: Link, side: Side) -> Arc<LinkScript> {
        self.state().links.push((side, link));
        Arc::new(LinkScript { script: self.clone(), side })
    }

    /// The hub has forgotten its history: who watches has to list again.
    pub fn lose_history(&self) {
        let mut state = self.state();
        state.lost_until = Some(Instant::now() + HISTORY_LOST);
        state.lost_only = None;
        state.lost_told.clear();
    }

    /// The same of one resource, just before the process next creates one.
    pub fn lose_history_at_create(&self, resource: &'static str) {
        self.state().forgets_at = Some(resource);
    }

    pub fn set_rates(&self, rates: FaultRates) {
        self.state().rates = rates;
    }

    /// The process dies at the `writes`-th write from now.
    pub fn die_in(&self, writes: u64, unheard: bool) {
        self.state().dies_in = Some((writes, unheard));
    }

    /// Nothing leaves the process any more.
    pub fn cut_off(&self) {
        for (_, link) in &self.state().links {
            link.set(|state| state.dead = true);
        }
    }
}

/// Breaks the watches on the hub; a request that is already on its way goes on.
fn break_watches(links: &[(Side, Link)]) {
    for link in links.iter().filter(|(side, _)| *side == Side::Hub).map(|(_, link)| link.clone()) {
        tokio::spawn(async move {
            tokio::time::sleep(BREAK_AFTER).await;
            link.set(|state| state.refused = true);
            tokio::time::sleep(BROKEN_FOR).await;
            link.set(|state| state.refused = false);
        });
    }
}

impl Script for LinkScript {
    fn request(&self, method: &Method, path: &str) -> Fate {
        self.script.request(self.side, method, path)
    }

    fn frame(&self) -> FrameFate {
        self.script.frame(self.side)
    }

    fn died(&self) {
        self.script.died();
    }
}

impl FaultScript {
    fn request(&self, side: Side, method: &Method, path: &str) -> Fate {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut guard = self.state();
        let state = &mut *guard;
        let rates = state.rates.over(side);
        let write = method != Method::GET;
        let mut fate = Fate { delay: state.random.time(0, 2), ..Fate::default() };
        let now = Instant::now();
        if now != state.moment {
            (state.moment, state.in_moment) = (now, 0);
        }
        state.in_moment += 1;
        if state.in_moment > CIRCLES {
            self.faults.count("runs in circles");
            fate.delay = Duration::from_secs(1);
        }
        if write && let Some((left, unheard)) = &mut state.dies_in {
            if *left == 0 {
                (fate.last_words, fate.request_lost) = (true, *unheard);
                state.dies_in = None;
                return fate;
            }
            *left -= 1;
        }
        if side == Side::Hub && self.has_forgotten(state, method, path, &mut fate) {
            return fate;
        }
        let random = &mut state.random;
        // Without faults nothing is drawn.
        if rates == Rates::default() {
            return fate;
        }
        if random.per_mille(rates.unauthorized) {
            fate.refused = Some(401);
            self.faults.count("401");
            return fate;
        }
        if random.per_mille(rates.late) {
            let latest = if random.per_mille(100) { rates.latest_ms } else { rates.latest_ms.min(2_000) };
            fate.delay = random.time(5, latest.max(5));
            self.faults.count("late");
        }
        if random.per_mille(rates.request_lost) {
            fate.request_lost = true;
            self.faults.count("request lost");
        } else if random.per_mille(rates.refused) {
            let codes: &[u16] = if write { &[409, 429, 500, 503] } else { &[410, 429, 500, 503] };
            // A watch asked to go on from where it was is what 410 is for.
            let code = *random.one_of(codes);
            fate.refused = Some(code);
            self.faults.count(match code {
                409 => "409",
                410 => "410",
                429 => "429",
                500 => "500",
                _ => "503",
            });
        } else if random.per_mille(rates.answer_lost) {
            fate.answer_lost = true;
            self.faults.count("answer lost");
        }
        // A request for a token or a review has no second time; nothing here asks for one.
        if write && !path.ends_with("/token") && random.per_mille(rates.twice) {
            fate.again_after = Some(random.time(0, 1_500));
            self.faults.count("twice");
        }
        if random.per_mille(rates.late) {
            fate.answer_delay = random.time(1, 3_000);
            self.faults.count("answer late");
        }
        fate
    }

    /// What the loss of the hub's history makes of a request; whether it makes anything of it.
    fn has_forgotten(&self, state: &mut State, method: &Method, path: &str, fate: &mut Fate) -> bool {
        let now = Instant::now();
        let is_of = |resource: &&'static str| path.rsplit('/').next() == Some(*resource);
        if method == Method::POST && state.forgets_at.as_ref().is_some_and(is_of) {
            state.lost_only = state.forgets_at.take();
            state.lost_until = Some(now + LISTINGS_LATE);
            state.lost_told.clear();
            break_watches(&state.links);
            self.faults.count("history lost");
            fate.delay = CREATE_AFTER_LISTING;
            return true;
        }
        if method != Method::GET || state.lost_until.is_none_or(|until| now >= until) {
            return false;
        }
        let only = state.lost_only;
        if only.is_some_and(|resource| !is_of(&resource)) {
            return false;
        }
        if state.lost_told.insert(path.to_owned()) {
            fate.refused = Some(410);
        } else {
            // What is written meanwhile is answered before the listing is.
            fate.answer_delay = if only.is_some() { LISTING_TAKES } else { state.random.time(0, 3_000) };
        }
        true
    }

    fn frame(&self, side: Side) -> FrameFate {
        let mut state = self.state();
        let rate = state.rates.over(side).frames;
        if !state.random.per_mille(rate) {
            return FrameFate::Arrives;
        }
        match state.random.below(3) {
            0 => {
                self.faults.count("watch line torn");
                FrameFate::Torn
            }
            1 => {
                self.faults.count("watch broken");
                FrameFate::Broken
            }
            _ => {
                self.faults.count("watch late");
                FrameFate::Late(state.random.time(10, 5_000))
            }
        }
    }

    fn died(&self) {
        self.faults.count("crash");
        self.cut_off();
        // The receiver lives as long as the run.
        let _ = self.deaths.send((self.process.clone(), self.life));
    }
}
