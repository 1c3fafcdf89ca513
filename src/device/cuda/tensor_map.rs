#![allow(unsafe_code, reason = "calls the CUDA driver")]
//! Tensor maps: descriptions of arrays with which a device of compute capability 9.0 copies boxes to shared memory.
//!
//! The driver makes a map from addresses and sizes alone. No device is involved, and nothing has to be freed.

use super::loader::DRIVER;
use super::tiles::{MAP_WORDS, Tiles};
use crate::error::{Error, Result};
use crate::ir::DType;
use cudarc::driver::sys::{self, CUresult};
use std::ffi::c_void;
use std::sync::OnceLock;

/// Whether the driver, which was found, makes tensor maps.
pub(crate) fn has_maps() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| DRIVER.has(&["cuTensorMapEncodeTiled"]))
}

/// The words of a map of the array at an address. The lines of its boxes are swizzled, and what is outside is zero.
///
/// # Errors
/// If the driver refuses.
pub(crate) fn map_of(tiles: &Tiles, address: u64) -> Result<[u64; MAP_WORDS]> {
    use sys::CUtensorMapDataType_enum::{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16};
    let dtype = match tiles.dtype {
        DType::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::BF16 => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::Bool | DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => {
            return Err(Error::argument("cuTensorMapEncodeTiled", "maps are of f16 and bf16 here"));
        }
        DType::Complex64 | DType::Complex128 => DType::not_in_kernels(),
    };
    if !has_maps() {
        return Err(refused("it lacks the function".into()));
    }
    let Tiles { sizes, strides, tile, .. } = tiles;
    let (mut map, steps) = (sys::CUtensorMap { opaque: [0; MAP_WORDS] }, [1; 3]);
    let array = std::ptr::without_provenance_mut::<c_void>(address as usize);
    // SAFETY: the driver has the function. It reads as many sizes, strides and sides as there are dimensions, and
    // writes the map. It does not access the memory at the address.
    let code = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            dtype,
            sizes.len() as u32,
            array,
            sizes.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    if code == CUresult::CUDA_SUCCESS { Ok(map.opaque) } else { Err(refused(format!("error {}", code as u32))) }
}

fn refused(what: String) -> Error {
    let hint = "OPFUSE_CUDA_PRODUCTS=own computes products without tensor maps";
    Error::Device { op: "cuTensorMapEncodeTiled".into(), what, hint: hint.into() }
}
