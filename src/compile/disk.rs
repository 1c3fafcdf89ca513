//! Machine code kept on disk between processes.

pub use crate::codegen::disk::{BOUND, Folder, Miss, Stats, folder, refusal, use_folder, use_folder_of};
