//! Rules that were wrong, or that nearly were.

use std::collections::{BTreeMap, BTreeSet};

use fleet_mirror::{Change, Epoch};

use super::{Cache, Thing};

/// A cache with one bug.
pub struct Broken {
    bug: usize,
    things: BTreeMap<usize, Thing>,
    ended: BTreeSet<String>,
}

/// What is known beyond a listing is dropped, and counts as ended.
const LISTING_ENDS_ALL: usize = 0;
/// The newer version wins for ever, also over a store that went back.
const NEWEST_WINS: usize = 1;
/// An answer may revive what has ended.
const NO_ENDS: usize = 2;
/// What is known beyond a listing is dropped, until the watch tells of it.
const LISTING_DROPS: usize = 3;

impl Broken {
    pub const BUGS: [usize; 4] = [LISTING_ENDS_ALL, NEWEST_WINS, NO_ENDS, LISTING_DROPS];

    pub fn new(bug: usize) -> Self {
        Self { bug, things: BTreeMap::new(), ended: BTreeSet::new() }
    }

    pub fn what(bug: usize) -> &'static str {
        [
            "a listing ends all that it does not name",
            "the newest wins",
            "no ends",
            "a listing drops what is ahead",
        ][bug]
    }

    fn put(&mut self, thing: Thing) {
        let number = |thing: &Thing| thing.version.parse::<u64>().unwrap_or(0);
        let older = self.things.get(&thing.name).is_some_and(|known| number(known) > number(&thing));
        if !older && !self.ended.contains(&thing.uid) {
            self.things.insert(thing.name, thing);
        }
    }

    fn end(&mut self, uid: &str) {
        if self.bug != NO_ENDS {
            self.ended.insert(uid.to_owned());
        }
    }

    fn reset(&mut self, things: Vec<Thing>) {
        let number = |thing: &Thing| thing.version.parse::<u64>().unwrap_or(0);
        let mut fresh = BTreeMap::new();
        for thing in things {
            let known = self.things.remove(&thing.name);
            let newer = known.filter(|known| known.uid == thing.uid && number(known) > number(&thing));
            fresh.insert(thing.name, newer.unwrap_or(thing));
        }
        let gone = std::mem::replace(&mut self.things, fresh);
        match self.bug {
            LISTING_ENDS_ALL => gone.values().for_each(|thing| self.end(&thing.uid)),
            NEWEST_WINS | NO_ENDS => {
                for (name, thing) in gone {
                    self.things.entry(name).or_insert(thing);
                }
            }
            _ => {}
        }
    }
}

impl Cache for Broken {
    fn tell(&mut self, change: Change<Thing>) {
        match change {
            Change::Listing => {}
            Change::Reset(listing) => self.reset(listing.objects),
            Change::Apply(thing) | Change::Answer(thing) => self.put(thing),
            Change::Delete(thing) => {
                self.end(&thing.uid);
                if self.things.get(&thing.name).is_some_and(|known| known.uid == thing.uid) {
                    self.things.remove(&thing.name);
                }
            }
        }
    }

    fn epoch(&self) -> Epoch {
        Epoch::default()
    }

    fn answer(&mut self, thing: Thing, _: Epoch) {
        self.put(thing);
    }

    fn known(&self) -> Vec<Thing> {
        self.things.values().cloned().collect()
    }
}
