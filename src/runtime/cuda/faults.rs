//! Errors for faults of kernels: those of the CPU, with the device.
//!
//! A launch has a number that identifies its op. It comes back with the fault, see `device::cuda`.

use crate::device::Device;
use crate::device::cuda::{DIVISION, Found};
use crate::error::Error;
use crate::ir::Op;

/// The op that a fault of a launch belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// A kernel, and the op that gathers.
    Kernel(Option<Op>),
    /// A write by index along a dim.
    Write(Op, usize),
    /// Index tensors joined to one index; whether negative ones count from the end.
    FlatIndex(Op, bool),
}

impl Blame {
    /// As a number: the kind, the op, and a further value, in 8, 16 and 8 bits.
    pub(super) fn site(self) -> u64 {
        let (kind, op, more) = match self {
            Blame::Kernel(None) => (1, 0, 0),
            Blame::Kernel(Some(op)) => (2, op as u64, 0),
            Blame::Write(op, dim) => (3, op as u64, dim as u64),
            Blame::FlatIndex(op, wraps) => (4, op as u64, u64::from(wraps)),
        };
        kind | op << 8 | more << 24
    }

    fn of(site: u64) -> Option<Blame> {
        let (op, more) = (Op::ALL.get((site >> 8 & 0xffff) as usize).copied(), site >> 24);
        match site & 0xff {
            1 => Some(Blame::Kernel(None)),
            2 => op.map(|op| Blame::Kernel(Some(op))),
            3 => op.map(|op| Blame::Write(op, more as usize)),
            4 => op.map(|op| Blame::FlatIndex(op, more != 0)),
            _ => None,
        }
    }
}

/// The error of a fault.
pub(super) fn error(found: &Found) -> Error {
    let &Found { index: got, size, position, .. } = found;
    let size = size as i64;
    // The call that returns the error may be another one.
    let origin = format!("reported asynchronously by {}", Device::cuda(found.device));
    if position == DIVISION {
        let hint = "convert to floats, or keep zeros out of the divisor";
        return Error::argument(
            "division",
            format!("ZeroDivisionError: an integer is divided by zero ({origin}); {hint}"),
        );
    }
    let outside =
        |op: &str, what: String, low: i64| Error::out_of_range(op, format!("{what} ({origin})"), [low, size - 1], got);
    match Blame::of(found.site) {
        // ATen raises another class of error for `gather` than for related ops.
        Some(Blame::Kernel(Some(Op::Gather))) => Error::argument(
            "gather",
            format!("index {got} is out of bounds: it must be in 0..={} ({origin})", size - 1),
        ),
        Some(Blame::Kernel(op)) => outside(op.map_or("index", Op::name), "index".into(), 0),
        Some(Blame::Write(op, dim)) => {
            let what = format!("index {got} is out of bounds for dimension {dim} with size {size} ({origin})");
            Error::argument(op.name(), what)
        }
        Some(Blame::FlatIndex(op, wraps)) => outside(
            op.name(),
            format!("index of dimension {position} with size {size} is"),
            if wraps { -size } else { 0 },
        ),
        None => Error::invalid("fault record", format!("a kernel on {} found {found:?}", Device::cuda(found.device))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_read_back() {
        for &op in Op::ALL {
            for blame in [
                Blame::Kernel(None),
                Blame::Kernel(Some(op)),
                Blame::Write(op, 7),
                Blame::FlatIndex(op, false),
                Blame::FlatIndex(op, true),
            ] {
                assert_eq!(Blame::of(blame.site()), Some(blame));
                assert!((1..1 << 56).contains(&blame.site()));
            }
        }
    }
}
