//! candle as a peer of the comparison: `candle-peers --peer candle --threads 2 --serve`.
//!
//! Threads are those of `RAYON_NUM_THREADS`, which candle reads by itself and the driver sets.

#[path = "../../src/operands.rs"]
mod operands;
#[path = "../../src/process.rs"]
mod process;
#[path = "../../src/protocol.rs"]
mod protocol;
mod rows;
#[path = "../../src/session.rs"]
mod session;
#[path = "../../../workloads/values.rs"]
mod values;

use std::process::ExitCode;

fn main() -> ExitCode {
    match protocol::Request::of_arguments() {
        Ok(request) => protocol::run(&request, rows::Candle),
        Err(error) => protocol::refuse(&error),
    }
}
