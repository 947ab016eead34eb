//! What can be told of the objects of one kind.

use crate::{Key, Version};

/// What the cache reads of an object. Implemented by whoever knows the objects, on a type of its own.
pub trait Metadata<K> {
    fn key(object: &K) -> Key;
    fn uid(object: &K) -> &str;
    fn version(object: &K) -> Version;
}

/// A whole listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<K> {
    pub objects: Vec<K>,
    /// The listing's own: it shows everything up to there.
    pub version: Version,
    /// Of the server's state, where it is known; another one than before means that the store went back in time.
    pub incarnation: Option<String>,
}

impl<K> From<Vec<K>> for Listing<K> {
    /// A listing of which nothing else is known.
    fn from(objects: Vec<K>) -> Self {
        Self { objects, version: Version::Unknown, incarnation: None }
    }
}

/// What happened to objects of one kind.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// A listing is about to be asked for: what stood by then is named in it, or gone.
    Listing,
    /// Everything there is.
    Reset(Listing<K>),
    /// A watch shows the object.
    Apply(K),
    /// A watch shows its end.
    Delete(K),
    /// The answer to a request of our own. It may come before the watch tells the same, or long after.
    Answer(K),
}

impl<K> Change<K> {
    /// A listing of which only the objects are known.
    pub fn reset(objects: Vec<K>) -> Self {
        Self::Reset(objects.into())
    }

    /// Whether everything there is has been told.
    pub fn is_listing(&self) -> bool {
        matches!(self, Self::Reset(_))
    }

    /// The objects that it names.
    pub fn objects(&self) -> &[K] {
        match self {
            Self::Listing => &[],
            Self::Reset(listing) => &listing.objects,
            Self::Apply(object) | Self::Delete(object) | Self::Answer(object) => std::slice::from_ref(object),
        }
    }

    /// The same of other objects.
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
