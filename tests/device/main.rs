//! The device floor from outside: names of devices, the allocator, streams, events, guards, generators.
//!
//! A comment `196` names a line of the conformance list.

mod allocator;
mod generator;
mod names;
mod queues;
mod streams;
