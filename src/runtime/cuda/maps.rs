//! Maps among the words of an argument: made when the addresses around them are known.
//!
//! A map holds an address, so whoever changes addresses has maps made anew; no map is kept.

use crate::codegen::cuda::wgmma::{MAP_WORDS, TileMap};
use crate::device::cuda::map_of;
use crate::error::Result;

/// Makes the maps of an argument whose addresses are known.
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
