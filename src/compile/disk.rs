//! The cache of machine code on disk, which processes share.

pub use crate::codegen::disk::{BOUND, Folder, Miss, Stats, folder, refusal, use_folder, use_folder_of};
