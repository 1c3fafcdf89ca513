//! Fallbacks, where a device has no code: operands are copied to the host, the CPU computes, and results are copied
//! back.
//!
//! Each is reported with its reason; see [`super::counts`]. The host waits for the device here.

use super::counts;
use super::transfer::{fetched, uploaded};
use crate::device::{Access, Device, DeviceKind, Shared, Storage};
use crate::error::{Reason, Result};
use crate::runtime::Array;
use crate::runtime::action::{Action, SlotValue, Slots};
use crate::runtime::launch::Slot;
use smallvec::{SmallVec, smallvec};

/// The slots that an action reads or writes.
type SlotList = SmallVec<[Slot; 6]>;

/// Runs an action of an executable whose values are on a device. The locks of `access` are held.
pub(super) fn run(
    action: &Action,
    slots: &mut Slots<'_>,
    device: Device,
    reason: &Reason,
    access: &Access<'_>,
) -> Result<()> {
    counts::fell_back(&name(action), reason);
    let (reads, writes) = (reads(action), writes(action));
    let mut host = Slots::empty(slots.len());
    for &slot in &reads {
        if !matches!(host[slot], SlotValue::Empty) {
            continue;
        }
        if slots[slot].array().device().kind == DeviceKind::Cpu {
            host[slot] = SlotValue::Owned(slots[slot].array().clone());
        } else {
            let fetch = |storage: &Storage, at, bytes: &mut [u8]| storage.fetch_under(access, at, bytes);
            host[slot] = SlotValue::Owned(fetched(slots[slot].array(), fetch)?);
        }
    }
    for &slot in &writes {
        // The bytes between the elements of a target are kept.
        match &slots[slot] {
            SlotValue::Owned(array) => host[slot] = SlotValue::Owned(Array::new(Device::CPU, &array.ty())?),
            SlotValue::Given(array) => host[slot] = SlotValue::Owned(fetched_whole(array, access)?),
            SlotValue::Empty | SlotValue::Factors(_) => {}
        }
    }
    action.run(&mut host)?;
    for &slot in &writes {
        let result = host[slot].array();
        match &slots[slot] {
            SlotValue::Given(array) => result.storage().read(|bytes| array.storage().store_under(access, bytes))?,
            SlotValue::Owned(_) | SlotValue::Empty | SlotValue::Factors(_) => {
                slots[slot] = SlotValue::Owned(uploaded(device, result)?)
            }
        }
    }
    Ok(())
}

/// An array of all bytes of a storage, on the host.
fn fetched_whole(array: &Array, access: &Access<'_>) -> Result<Array> {
    let mut storage = Storage::new(Device::CPU, array.storage.len())?;
    array.storage.fetch_under(access, 0, storage.bytes_mut())?;
    Ok(Array { storage: Shared::new(storage), dtype: array.dtype, layout: array.layout.clone() })
}

fn reads(action: &Action) -> SlotList {
    match action {
        Action::Launch(launch) => launch.operands.iter().flatten().copied().collect(),
        Action::Product { left, right, .. } => smallvec![*left, *right],
        Action::Routine { args, .. } => args.iter().copied().collect(),
        Action::Blocks(_) | Action::Allocate(..) | Action::Scratch(..) | Action::Alias { .. } | Action::Release(_) => {
            SlotList::new()
        }
    }
}

fn writes(action: &Action) -> SlotList {
    match action {
        Action::Launch(launch) => launch.outputs.iter().copied().collect(),
        Action::Product { to, .. } | Action::Routine { to, .. } => smallvec![*to],
        Action::Blocks(_) | Action::Allocate(..) | Action::Scratch(..) | Action::Alias { .. } | Action::Release(_) => {
            SlotList::new()
        }
    }
}

/// A name of an action for messages.
fn name(action: &Action) -> String {
    match action {
        Action::Launch(launch) => launch.gathers.map_or_else(|| "a kernel".into(), |op| op.name().to_string()),
        Action::Product { .. } => "a matrix product".into(),
        Action::Routine { op, .. } => op.name().to_string(),
        Action::Blocks(_) | Action::Allocate(..) | Action::Scratch(..) | Action::Alias { .. } | Action::Release(_) => {
            "a step".into()
        }
    }
}
