//! Functions that are captured once and run many times: guards, caches, capture, reports, rates of the machine.

#[path = "../common/bits.rs"]
mod bits;
mod calibration;
mod capture;
mod control_flow;
mod error_places;
mod explain;
mod functions;
mod minimize;
mod own_lines;
mod places;
mod profile;
#[path = "../common/unplaced.rs"]
mod unplaced;
#[path = "../common/values.rs"]
mod values;
