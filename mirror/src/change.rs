//! What an informer receives about the objects of one kind.

use crate::{Key, Version};

/// What the cache reads of an object. Implemented by the crate that knows the objects, on a type of its own.
pub trait Metadata<K> {
    fn key(object: &K) -> Key;
    fn uid(object: &K) -> &str;
    fn version(object: &K) -> Version;
}

/// A whole list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<K> {
    pub objects: Vec<K>,
    /// The list's own version: it shows everything up to there.
    pub version: Version,
    /// The incarnation of the server's state, if known; a new value means that the store was restored.
    pub incarnation: Option<String>,
}

impl<K> From<Vec<K>> for Listing<K> {
    /// A list without version and incarnation.
    fn from(objects: Vec<K>) -> Self {
        Self { objects, version: Version::Unknown, incarnation: None }
    }
}

/// A change of objects of one kind.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// A list is about to be requested: it names every object that exists then.
    Listing,
    /// The list.
    Reset(Listing<K>),
    /// A watch reports the object.
    Apply(K),
    /// A watch reports its deletion.
    Delete(K),
    /// The answer to an own request. It may come before the watch reports the same, or long after.
    Answer(K),
}

impl<K> Change<K> {
    /// A list of which only the objects are known.
    pub fn reset(objects: Vec<K>) -> Self {
        Self::Reset(objects.into())
    }

    /// Whether it is a whole list.
    pub fn is_listing(&self) -> bool {
        matches!(self, Self::Reset(_))
    }

    /// The objects in it.
    pub fn objects(&self) -> &[K] {
        match self {
            Self::Listing => &[],
            Self::Reset(listing) => &listing.objects,
            Self::Apply(object) | Self::Delete(object) | Self::Answer(object) => std::slice::from_ref(object),
        }
    }

    /// The same change with other objects.
    pub fn map<T>(self, map: impl FnMut(K) -> T) -> Change<T> {
        let mut map = map;
        match self {
            Self::Listing => Change::Listing,
            Self::Reset(Listing { objects, version, incarnation }) => {
                let objects = objects.into_iter().map(map).collect();
                Change::Reset(Listing { objects, version, incarnation })
            }
            Self::Apply(object) => Change::Apply(map(object)),
            Self::Delete(object) => Change::Delete(map(object)),
            Self::Answer(object) => Change::Answer(map(object)),
        }
    }
}
