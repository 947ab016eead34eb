//! Tests over small clusters. `play` asks pod by pod as HiveD's extender does, and audits after each step.

mod annotations;
mod beyond;
mod config;
mod demos;
mod design;
mod lab;
mod losses;
mod messages;
mod play;
mod properties;
mod states;
mod within;
