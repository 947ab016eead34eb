//! A server of one kind, a client that follows it, and what can come between the two.

use std::collections::{BTreeMap, BTreeSet};

use fleet_mirror::{Change, Epoch, Key, Listing, Metadata, Mirror, Version};

mod broken;
pub use broken::Broken;

/// One object, by value: its version says it all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thing {
    pub name: usize,
    pub uid: String,
    pub version: String,
}

pub struct Meta;

impl Metadata<Thing> for Meta {
    fn key(thing: &Thing) -> Key {
        (String::new(), thing.name.to_string())
    }

    fn uid(thing: &Thing) -> &str {
        &thing.uid
    }

    fn version(thing: &Thing) -> Version {
        Version::parse(&thing.version)
    }
}

/// What is put to the test.
pub trait Cache {
    fn tell(&mut self, change: Change<Thing>);
    fn epoch(&self) -> Epoch;
    fn answer(&mut self, thing: Thing, sent: Epoch);
    fn known(&self) -> Vec<Thing>;
}

impl Cache for Mirror<Thing> {
    fn tell(&mut self, change: Change<Thing>) {
        self.take::<Meta, Thing>(change, |thing, _| thing);
    }

    fn epoch(&self) -> Epoch {
        Mirror::epoch(self)
    }

    fn answer(&mut self, thing: Thing, sent: Epoch) {
        Mirror::answer::<Meta, Thing>(self, thing, sent, |thing, _| thing);
    }

    fn known(&self) -> Vec<Thing> {
        self.values().cloned().collect()
    }
}

pub type Fresh<C> = fn() -> C;

#[derive(Clone, Debug)]
pub enum Op {
    /// Somebody creates or changes an object; with `own`, the client, which gets an answer.
    Put {
        own: bool,
        name: usize,
    },
    Delete {
        name: usize,
    },
    /// One of the answers on their way arrives.
    Answer(usize),
    LoseAnswer(usize),
    /// The feed goes on: a listing is begun, taken, told; then one event after the other.
    Step,
    /// The watch has become too old.
    Relist,
    /// The last event is delivered again.
    TellAgain,
    /// The client starts anew.
    Restart,
    /// The server is backed up.
    Save,
    /// It is put back to the backup. `says`: with a new incarnation; `raises`: with revisions beyond all handed out.
    Restore {
        says: bool,
        raises: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    Numbers,
    /// Versions that cannot be compared.
    Words,
}

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub numbering: Numbering,
    pub listings_have_versions: bool,
}

#[derive(Clone, Debug)]
enum Event {
    Apply(Thing),
    Delete(Thing),
}

#[derive(Clone, Default)]
struct State {
    revision: u64,
    objects: BTreeMap<usize, Thing>,
    log: Vec<(u64, Event)>,
}

struct Server {
    rules: Rules,
    state: State,
    saved: State,
    highest: u64,
    uids: u64,
    incarnation: u64,
}

impl Server {
    fn text(&self, revision: u64) -> String {
        match self.rules.numbering {
            Numbering::Numbers => revision.to_string(),
            // Their order as words is not their order in time.
            Numbering::Words => format!("w{}-{}-{}", revision * 7 % 10, revision, self.incarnation),
        }
    }

    fn write(&mut self, make: impl FnOnce(&mut Self, String) -> Option<Event>) {
        let revision = self.state.revision + 1;
        let version = self.text(revision);
        if let Some(event) = make(self, version) {
            self.state.revision = revision;
            self.highest = self.highest.max(revision);
            self.state.log.push((revision, event));
        }
    }

    fn put(&mut self, name: usize) -> Thing {
        self.write(|server, version| {
            let known = server.state.objects.get(&name).map(|thing| thing.uid.clone());
            let uid = known.unwrap_or_else(|| {
                server.uids += 1;
                format!("u{}", server.uids)
            });
            let thing = Thing { name, uid, version };
            server.state.objects.insert(name, thing.clone());
            Some(Event::Apply(thing))
        });
        self.state.objects[&name].clone()
    }

    fn delete(&mut self, name: usize) {
        self.write(|server, version| {
            let gone = server.state.objects.remove(&name)?;
            Some(Event::Delete(Thing { version, ..gone }))
        });
    }

    fn restore(&mut self, says: bool, raises: bool) {
        self.state = self.saved.clone();
        self.incarnation += u64::from(says);
        if raises {
            self.state.revision = self.highest + 100;
            self.highest = self.state.revision;
        }
    }
}

enum Feed {
    Idle,
    Begun,
    Taken(u64, Vec<Thing>, u64),
    /// Everything up to this revision was told.
    Watching(u64),
}

struct World<C> {
    fresh: Fresh<C>,
    server: Server,
    cache: C,
    feed: Feed,
    answers: Vec<(Thing, Epoch)>,
    last: Option<Event>,
    /// Uids that the cache has known in this life and since the last restore: it may lose none that stands.
    known: BTreeSet<String>,
    /// The server went back and the cache has not been shown it yet.
    is_behind: bool,
    unsaid: bool,
}

/// Runs it all, then lets everything that is on its way arrive. What is wrong, if anything is.
pub fn run<C: Cache>(fresh: Fresh<C>, rules: Rules, ops: &[Op]) -> Result<(), String> {
    let server = Server {
        rules,
        state: State::default(),
        saved: State::default(),
        highest: 0,
        uids: 0,
        incarnation: 0,
    };
    let mut world = World {
        fresh,
        server,
        cache: fresh(),
        feed: Feed::Idle,
        answers: Vec::new(),
        last: None,
        known: BTreeSet::new(),
        is_behind: false,
        unsaid: false,
    };
    for op in ops {
        world.happen(op);
        world.loses_nothing()?;
    }
    world.finish()
}

impl<C: Cache> World<C> {
    fn happen(&mut self, op: &Op) {
        match *op {
            Op::Put { own, name } => {
                let thing = self.server.put(name);
                // Nothing is written before the first listing.
                if own && matches!(self.feed, Feed::Watching(_)) {
                    self.answers.push((thing, self.cache.epoch()));
                }
            }
            Op::Delete { name } => self.server.delete(name),
            Op::Answer(index) => {
                if let Some((thing, sent)) = self.next_answer(index) {
                    self.cache.answer(thing, sent);
                }
            }
            Op::LoseAnswer(index) => drop(self.next_answer(index)),
            Op::Step => drop(self.step()),
            Op::Relist => self.feed = Feed::Idle,
            Op::TellAgain => {
                if let (Some(event), Feed::Watching(_)) = (self.last.clone(), &self.feed) {
                    self.tell(event);
                }
            }
            Op::Restart => self.restart(),
            Op::Save => self.server.saved = self.server.state.clone(),
            Op::Restore { says, raises } => self.restore(says, raises),
        }
    }

    fn restart(&mut self) {
        self.cache = (self.fresh)();
        self.feed = Feed::Idle;
        self.answers.clear();
        self.known.clear();
        self.last = None;
        self.is_behind = false;
    }

    fn restore(&mut self, says: bool, raises: bool) {
        // A server whose versions say nothing says at least that it went back.
        let says = says || self.server.rules.numbering == Numbering::Words;
        let has_versions = self.server.rules.listings_have_versions;
        let (says, raises) = (says || !has_versions, raises);
        self.server.restore(says, raises);
        self.feed = Feed::Idle;
        self.known.clear();
        self.last = None;
        self.is_behind = true;
        if !says && !raises {
            self.unsaid = true;
            // Answers come over the connections that broke.
            self.answers.clear();
        }
    }

    fn next_answer(&mut self, index: usize) -> Option<(Thing, Epoch)> {
        (!self.answers.is_empty()).then(|| self.answers.remove(index % self.answers.len()))
    }

    fn tell(&mut self, event: Event) {
        self.cache.tell(match event {
            Event::Apply(thing) => Change::Apply(thing),
            Event::Delete(thing) => Change::Delete(thing),
        });
    }

    /// Whether anything was told.
    fn step(&mut self) -> bool {
        match std::mem::replace(&mut self.feed, Feed::Idle) {
            Feed::Idle => {
                self.cache.tell(Change::Listing);
                self.feed = Feed::Begun;
            }
            Feed::Begun => {
                let state = &self.server.state;
                let objects = state.objects.values().cloned().collect();
                self.feed = Feed::Taken(state.revision, objects, self.server.incarnation);
            }
            Feed::Taken(revision, objects, incarnation) => {
                let version = match self.server.rules.listings_have_versions {
                    true => Version::parse(&self.server.text(revision)),
                    false => Version::Unknown,
                };
                let incarnation = Some(incarnation.to_string());
                self.cache.tell(Change::Reset(Listing { objects, version, incarnation }));
                self.is_behind = false;
                self.feed = Feed::Watching(revision);
            }
            Feed::Watching(at) => {
                let next = self.server.state.log.iter().find(|(revision, _)| *revision > at).cloned();
                self.feed = Feed::Watching(next.as_ref().map_or(at, |(revision, _)| *revision));
                let Some((_, event)) = next else { return false };
                self.last = Some(event.clone());
                self.tell(event);
            }
        }
        true
    }

    /// What has been known and stands is known.
    fn loses_nothing(&mut self) -> Result<(), String> {
        // Where versions cannot be compared, an older event may show for a moment what stood before.
        let compares = self.server.rules.numbering == Numbering::Numbers;
        if self.is_behind || self.unsaid || !compares {
            return Ok(());
        }
        let known: BTreeSet<String> = self.cache.known().into_iter().map(|thing| thing.uid).collect();
        let mut stands = self.server.state.objects.values();
        if let Some(lost) =
            stands.find(|thing| self.known.contains(&thing.uid) && !known.contains(&thing.uid))
        {
            return Err(format!("{lost:?} stands, was known, and is no more"));
        }
        self.known.extend(known);
        Ok(())
    }

    fn finish(mut self) -> Result<(), String> {
        if self.is_behind {
            self.feed = Feed::Idle;
        }
        while self.step() {}
        while let Some((thing, sent)) = self.next_answer(0) {
            self.cache.answer(thing, sent);
            self.loses_nothing()?;
        }
        if self.unsaid {
            // It has overtaken what it had handed out before, and is listed again.
            self.server.state.revision = self.server.highest;
            self.server.put(0);
            self.feed = Feed::Idle;
            while self.step() {}
        }
        let Rules { numbering, listings_have_versions } = self.server.rules;
        if numbering == Numbering::Words || !listings_have_versions {
            // What a listing left open the next one says.
            self.feed = Feed::Idle;
            while self.step() {}
        }
        let has: Vec<Thing> = self.server.state.objects.into_values().collect();
        let known = self.cache.known();
        if known == has { Ok(()) } else { Err(format!("the server has {has:?}, known is {known:?}")) }
    }
}
