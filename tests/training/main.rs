//! The training kit against what PyTorch computed (`recorded`, made by `scripts/record_training.py`), and compiled
//! against eager by bits. Runs that depend on the random numbers of the process are in `tests/resume`.

mod data;
mod derive;
mod guide;
mod losses;
mod modules;
mod optimizers;
#[cfg(feature = "parquet")]
mod parquet;
mod readers;
mod recorded;
mod trajectories;
