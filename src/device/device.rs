//! Names of devices: a kind, and optionally an index.
//!
//! The text form is `kind` or `kind:index`. A missing index means the current device and stays missing: `cuda` and
//! `cuda:0` are different names, even where they are the same device. Whether the device exists is not checked here.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// Host memory and host threads.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// Nowhere: shapes and dtypes without data.
    Meta,
    /// A backend outside this crate.
    PrivateUse1,
}

impl DeviceKind {
    /// Every kind, in declaration order.
    pub const ALL: [DeviceKind; 4] = [DeviceKind::Cpu, DeviceKind::Cuda, DeviceKind::Meta, DeviceKind::PrivateUse1];

    /// The name in device strings.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
            DeviceKind::Meta => "meta",
            DeviceKind::PrivateUse1 => "privateuseone",
        }
    }

    /// The kind with that name.
    pub fn from_name(name: &str) -> Option<DeviceKind> {
        DeviceKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A device that tensors can be on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// The kind.
    pub kind: DeviceKind,
    /// The index; `None` for the current device.
    pub index: Option<u16>,
}

impl Device {
    /// The host.
    pub const CPU: Device = Device::of(DeviceKind::Cpu);
    /// The place without data.
    pub const META: Device = Device::of(DeviceKind::Meta);

    /// The current device of a kind.
    pub const fn of(kind: DeviceKind) -> Device {
        Device { kind, index: None }
    }

    /// The NVIDIA GPU with that index.
    ///
    /// Calls on its tensors return before the work is done. So an index out of range, or an integer division by zero,
    /// is reported asynchronously: by a later call on the same stream, by reading a value, or by waiting for the
    /// device. The element is zero, or not written.
    pub const fn cuda(index: u16) -> Device {
        Device { kind: DeviceKind::Cuda, index: Some(index) }
    }
}

impl Default for Device {
    fn default() -> Self {
        Device::CPU
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            None => f.pad(self.kind.name()),
            Some(index) => f.pad(&format!("{}:{index}", self.kind)),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Parses `kind` or `kind:index`. The index is decimal, without sign, spaces or leading zeros.
    fn from_str(text: &str) -> Result<Device> {
        let fail = |message: String, at: usize| Error::Parse { what: "device".into(), message, at, text: text.into() };
        let (name, digits) = text.split_once(':').map_or((text, None), |(name, digits)| (name, Some(digits)));
        // The form is checked before the kind, so that "cuda:" is a malformed string and not an unknown kind.
        let index = match digits {
            None => None,
            Some(digits) => match read_index(digits) {
                Some(index) => Some(index),
                None => return Err(fail(format!("Invalid device string: '{text}'"), name.len() + 1)),
            },
        };
        let Some(kind) = DeviceKind::from_name(name) else {
            let known = DeviceKind::ALL.map(DeviceKind::name).join(", ");
            return Err(fail(format!("expected one of {known} device type at start of device string"), 0));
        };
        if kind == DeviceKind::Cpu && index.is_some_and(|index| index != 0) {
            return Err(fail("there is one cpu device; its index can only be 0".into(), name.len() + 1));
        }
        Ok(Device { kind, index })
    }
}

/// A decimal number as printed: no sign, no leading zero.
fn read_index(digits: &str) -> Option<u16> {
    let canonical = digits == "0" || !digits.starts_with('0');
    let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && decimal).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        for text in ["cpu", "cpu:0", "cuda", "cuda:0", "cuda:7", "cuda:65535", "meta", "meta:0", "privateuseone:3"] {
            let device: Device = text.parse().expect(text);
            assert_eq!(device.to_string(), text);
        }
        assert_eq!("cpu".parse(), Ok(Device::CPU));
        assert_eq!("cuda:3".parse(), Ok(Device::cuda(3)));
        assert_ne!("cuda".parse::<Device>(), "cuda:0".parse());
        assert_eq!(format!("{:>8}|", Device::cuda(1)), "  cuda:1|");
    }

    #[test]
    fn malformed_strings() {
        for text in
            ["cuda:", "cuda:-1", "cuda:01", "cuda:00", "cuda:1a", "cuda:+1", "cuda: 1", "cuda:0:1", "cuda:65536", "x:"]
        {
            let error = text.parse::<Device>().expect_err(text).to_string();
            assert!(error.contains("Invalid device string"), "{text}: {error}");
        }
    }

    #[test]
    fn unknown_kinds_list_the_known_ones() {
        for text in ["", "gpu", "CPU", "cuda1", "xpu:0", " cpu"] {
            let error = text.parse::<Device>().expect_err(text).to_string();
            for kind in DeviceKind::ALL {
                assert!(error.contains(kind.name()), "{text}: {error}");
            }
        }
        assert!("cpu:1".parse::<Device>().is_err());
    }
}
