//! opfuse as one of the peers of a comparison: `opfuse-peers --peer opfuse-compile --threads 2 --serve`.
//!
//! The peers are `opfuse-eager` and `opfuse-compile`; they run the very functions that `benches/workloads` holds, the
//! latter through `compile`. `protocol` says how a driver talks to a worker, `session` how a row is set up and timed.
//! The driver is `scripts/peers.sh`.

mod process;
mod protocol;
mod rows;
mod session;
#[path = "../../workloads/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the worker uses a part of the module")]
mod workloads;

use opfuse::device::pool;
use rows::{Mode, Opfuse};
use std::process::ExitCode;

fn main() -> ExitCode {
    let request = match protocol::Request::of_arguments() {
        Ok(request) => request,
        Err(error) => return protocol::refuse(&error),
    };
    let mode = match request.peer.as_str() {
        "opfuse-eager" => Mode::Eager,
        "opfuse-compile" => Mode::Compiled,
        other => return protocol::refuse(&format!("no peer {other}; there are opfuse-eager and opfuse-compile")),
    };
    pool::set_num_threads(request.threads);
    protocol::run(&request, Opfuse::new(mode))
}
