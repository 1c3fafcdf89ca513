//! opfuse as one of the peers of a comparison: `opfuse-peers --peer opfuse-compile --threads 2 --serve`.
//!
//! The peers are `opfuse-eager`, `opfuse-compile`, `opfuse-fast`, `opfuse-own`, `opfuse-wgmma` and `opfuse-cublaslt`.
//! They run the very functions of `benches/workloads`, and those of `large`. All but the first run them through
//! `compile`, and the last four with `Numerics::Fast`. For the last three, the driver sets `OPFUSE_CUDA_PRODUCTS`,
//! which says who computes products.
//!
//! `sweep-eager` and `sweep-compile` run single operators instead of rows (`sweep`), and `sweep-schemas` lists them.
//!
//! `protocol` says how a driver talks to a worker, `session` how a row is set up and timed, and `scale` how it gets
//! larger or smaller. The drivers are `scripts/peers.sh` and, for GPUs, `scripts/gpu`.

mod large;
mod process;
mod protocol;
mod rows;
mod scale;
mod session;
mod sweep;
#[path = "../../workloads/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the worker uses a part of the module")]
mod workloads;

use opfuse::Numerics;
use opfuse::device::{Device, pool};
use rows::{Mode, Opfuse};
use std::process::ExitCode;

fn main() -> ExitCode {
    let request = match protocol::Request::of_arguments() {
        Ok(request) => request,
        Err(error) => return protocol::refuse(&error),
    };
    match request.peer.as_str() {
        "sweep-schemas" => return protocol::exit_code(sweep::list()),
        "sweep-eager" | "sweep-compile" => {
            pool::set_num_threads(request.threads);
            return match sweep::Sweep::new(request.peer == "sweep-compile") {
                Ok(sweep) => protocol::run(&request, sweep),
                Err(error) => protocol::refuse(&error),
            };
        }
        _ => {}
    }
    let mode = match request.peer.as_str() {
        "opfuse-eager" => Mode::Eager,
        "opfuse-compile" => Mode::Compiled(Numerics::Strict),
        "opfuse-fast" | "opfuse-own" | "opfuse-wgmma" | "opfuse-cublaslt" => Mode::Compiled(Numerics::Fast),
        other => {
            let known = "opfuse-eager, opfuse-compile, opfuse-fast, opfuse-own, opfuse-wgmma and opfuse-cublaslt";
            return protocol::refuse(&format!("no peer {other}; there are {known}"));
        }
    };
    let device = match request.device.as_str() {
        "cpu" => Device::CPU,
        "cuda" => Device::cuda(0),
        other => return protocol::refuse(&format!("no device {other}; there are cpu and cuda")),
    };
    pool::set_num_threads(request.threads);
    match Opfuse::new(mode, device) {
        Ok(opfuse) => protocol::run(&request, opfuse),
        Err(error) => protocol::refuse(&error),
    }
}
