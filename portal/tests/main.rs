//! The portal from outside, as a browser and as a program. One program, because each linked test costs time and disk.

mod administration;
mod api;
mod hub;
mod large;
mod members;
mod rest;
mod survives;
mod time;
mod users;
mod web;
