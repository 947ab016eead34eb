//! A what-if view of a member's nodes: some gangs placed, the places of some jobs free.
//!
//! A preemptor must fit beside all other preemptors, and a job that starts must leave their capacity. In a
//! deep queue this is the same question about hundreds of gangs again and again. The view is kept between
//! questions, so that each costs only what has changed.

use std::{collections::BTreeMap, sync::Arc};

use fleet_placement::{GroupedNodes, Places};
use fleet_quota::{JobId, WaitingJob};

use crate::job::JobShape;

/// A gang placed in the view, with its places; no places if it does not fit.
#[derive(Clone, Debug)]
struct Standing {
    /// The waiting job's own number of its shape.
    number: u64,
    shape: Arc<JobShape>,
    places: Option<Places>,
}

/// A job that is absent from the view.
#[derive(Clone, Debug)]
struct Gone {
    /// The places that it leaves; `None` if its nodes are unknown.
    places: Option<Places>,
    /// The last question in which it was absent.
    question: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Supposed {
    nodes: GroupedNodes,
    gone: BTreeMap<JobId, Gone>,
    /// Number of questions so far.
    question: u64,
    standing: BTreeMap<JobId, Standing>,
    /// Whether all placed gangs fit; `None` since something changed.
    fit: Option<bool>,
    /// Some node may be over-committed.
    strained: bool,
}

impl Supposed {
    pub fn new(nodes: &GroupedNodes) -> Self {
        let (gone, standing) = (BTreeMap::new(), BTreeMap::new());
        Self { nodes: nodes.clone(), gone, question: 0, standing, fit: None, strained: false }
    }

    /// These places are taken.
    pub fn taken(&mut self, places: &Places) {
        self.fit = None;
        self.nodes.take(places);
        self.strained |= self.nodes.is_overfull(places);
    }

    /// The job's known places are void: it holds other ones now.
    pub fn forget(&mut self, id: &JobId) {
        if let Some(Gone { places: Some(places), .. }) = self.gone.remove(id) {
            self.taken(&places);
        }
    }

    /// The job's places are free.
    pub fn given_back(&mut self, id: &JobId, places: &Places) {
        self.fit = None;
        // If the view has them free already, they are counted.
        if self.gone.remove(id).is_none_or(|gone| gone.places.is_none()) {
            self.nodes.give_back(places);
        }
    }

    /// Sets exactly these jobs as absent; `places_of` gives the places of each: none, or places if they are
    /// known.
    pub fn set_gone<'j>(
        &mut self,
        gone: impl Iterator<Item = &'j JobId>,
        places_of: impl Fn(&GroupedNodes, &JobId) -> Option<Option<Places>>,
    ) {
        self.question += 1;
        for id in gone {
            if let Some(known) = self.gone.get_mut(id) {
                known.question = self.question;
                continue;
            }
            let Some(places) = places_of(&self.nodes, id) else { continue };
            if let Some(places) = &places {
                self.fit = None;
                self.nodes.give_back(places);
            }
            self.gone.insert(id.clone(), Gone { places, question: self.question });
        }
        let back = self.gone.iter().filter(|(_, gone)| gone.question < self.question);
        let mut back: Vec<JobId> = back.map(|(id, _)| id.clone()).collect();
        back.sort_unstable();
        for id in back {
            self.forget(&id);
        }
    }

    /// Whether the places of some absent job are unknown.
    pub fn is_vague(&self) -> bool {
        self.gone.values().any(|gone| gone.places.is_none())
    }

    /// Places exactly these gangs. False if not all of them fit, or if one has no shape any more.
    pub fn set_standing(
        &mut self,
        jobs: &[&WaitingJob],
        shape_of: impl Fn(&JobId) -> Option<Arc<JobShape>>,
    ) -> bool {
        let wanted: BTreeMap<&JobId, u64> = jobs.iter().map(|job| (&job.id, job.shape)).collect();
        let stays = |id: &JobId, standing: &Standing| wanted.get(id) == Some(&standing.number);
        let left: Vec<JobId> = self
            .standing
            .iter()
            .filter(|(id, standing)| !stays(id, standing))
            .map(|(id, _)| id.clone())
            .collect();
        for id in left {
            self.fit = None;
            if let Some(Standing { places: Some(places), .. }) = self.standing.remove(&id) {
                self.nodes.give_back(&places);
            }
        }
        for job in jobs {
            if self.standing.contains_key(&job.id) {
                continue;
            }
            let Some(shape) = shape_of(&job.id) else { return false };
            self.fit = None;
            let places = self.nodes.try_place(&shape.gang);
            self.standing.insert(job.id.clone(), Standing { number: job.shape, shape, places });
        }
        if let Some(fit) = self.fit {
            return fit;
        }
        let fit = self.all_stand();
        self.fit = Some(fit);
        fit
    }

    fn all_stand(&mut self) -> bool {
        if std::mem::take(&mut self.strained) {
            for standing in self.standing.values_mut() {
                if let Some(places) = standing.places.take_if(|places| self.nodes.is_overfull(places)) {
                    self.nodes.give_back(&places);
                }
            }
        }
        let nodes = &mut self.nodes;
        let mut nowhere = self.standing.values_mut().filter(|standing| standing.places.is_none());
        let fit = nowhere.all(|standing| {
            standing.places = nodes.try_place(&standing.shape.gang);
            standing.places.is_some()
        });
        fit || self.place_anew()
    }

    /// Places all gangs again: places chosen one by one may leave gaps too small for any gang.
    fn place_anew(&mut self) -> bool {
        for standing in self.standing.values_mut() {
            if let Some(places) = standing.places.take() {
                self.nodes.give_back(&places);
            }
        }
        let mut fit = true;
        for standing in self.standing.values_mut() {
            standing.places = self.nodes.try_place(&standing.shape.gang);
            fit &= standing.places.is_some();
        }
        fit
    }

    /// Whether one more gang fits.
    pub fn fits(&self, shape: &JobShape) -> bool {
        self.nodes.fits(&shape.gang)
    }
}
