//! Copies whole arrays between the host and a device.

use crate::device::{Device, DeviceKind, Shared, Storage};
use crate::error::Result;
use crate::ir::Layout;
use crate::runtime::array::Array;

/// The GPU among these devices, if there is one.
pub fn device_of(devices: impl IntoIterator<Item = Device>) -> Option<Device> {
    devices.into_iter().find(|device| device.kind == DeviceKind::Cuda)
}

/// Copies an array of the host to a device, with the same layout.
pub(super) fn uploaded(device: Device, array: &Array) -> Result<Array> {
    let (start, end) = (array.layout.offset * array.dtype.size(), array.layout.extent() * array.dtype.size());
    let storage = array.storage.read(|bytes| Storage::copy_of(device, &bytes[start.min(end)..end]))?;
    let layout = Layout { offset: 0, ..array.layout().clone() };
    Ok(Array { storage: Shared::new(storage), dtype: array.dtype, layout: layout.into() })
}

/// Copies the elements of an array, and what is between them, to the host; `fetch` copies bytes of its storage,
/// starting at an offset.
///
/// # Errors
/// If there is not enough memory, or the device fails.
pub fn fetched(array: &Array, fetch: impl FnOnce(&Storage, usize, &mut [u8]) -> Result<()>) -> Result<Array> {
    let size = array.dtype.size();
    let (start, end) = (array.layout.offset * size, array.layout.extent() * size);
    let mut storage = Storage::new(Device::CPU, end.saturating_sub(start))?;
    fetch(&array.storage, start, storage.bytes_mut())?;
    let layout = Layout { offset: 0, ..array.layout().clone() };
    Ok(Array { storage: Shared::new(storage), dtype: array.dtype, layout: layout.into() })
}
