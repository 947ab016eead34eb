//! Informers on a server that answers oddly. One program, because each linked test costs time and disk.

mod feed;
mod unreadable;
