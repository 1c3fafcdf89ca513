//! Tensor maps in an argument buffer, made once its addresses are known.
//!
//! A map contains an address, so it is made again whenever the addresses change. No map is kept.

use crate::codegen::cuda::wgmma::{MAP_WORDS, TileMap};
use crate::device::cuda::map_of;
use crate::error::Result;

/// Makes the tensor maps of an argument buffer whose addresses are known.
///
/// # Errors
/// If the driver refuses.
pub(super) fn make(argument: &mut [u64], maps: &[TileMap]) -> Result<()> {
    for map in maps {
        let made = map_of(&map.tiles, argument[map.address])?;
        argument[map.at..map.at + MAP_WORDS].copy_from_slice(&made);
    }
    Ok(())
}
