//! Models of `device::shared` and `device::readers`: loom runs every interleaving that their memory orders allow.
//!
//! A model has two or three threads and a few calls, so that all interleavings can be run. What it checks is that no
//! value is used while another thread drops or writes it: values are cells of loom, which notice that.

#![cfg(test)]

mod readers;
mod shared;
