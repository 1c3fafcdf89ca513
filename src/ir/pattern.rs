//! How an operator's result relates to its operands, as far as fusion cares.
//!
//! The variants are ordered from the easiest to fuse to the hardest. The order is part of the meaning: "at most
//! injective" is a comparison, and "the worst edge of a path" is a maximum. The pattern of an operator follows from its
//! row of the op table.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// The pattern of a node, or of one of its input edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Pattern {
    /// Output element `i` needs input elements `i` only.
    Elemwise = 0,
    /// Output axes map to input axes in order; some input axes are repeated.
    Broadcast = 1,
    /// Each output element needs one input element, at any position.
    Injective = 2,
    /// Many input elements are combined into one output element.
    Reduce = 3,
    /// A heavy loop nest, such as a matrix product, whose results an epilogue can process.
    OutEwise = 4,
    /// A tuple of values; no computation.
    Tuple = 7,
    /// Nothing is known, or nothing may be assumed.
    Opaque = 8,
}

impl Pattern {
    /// Every pattern, in order.
    pub const ALL: [Pattern; 7] = [
        Pattern::Elemwise,
        Pattern::Broadcast,
        Pattern::Injective,
        Pattern::Reduce,
        Pattern::OutEwise,
        Pattern::Tuple,
        Pattern::Opaque,
    ];

    /// The name in text forms; [`Pattern::from_str`] reads it back.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::Elemwise => "elemwise",
            Pattern::Broadcast => "broadcast",
            Pattern::Injective => "injective",
            Pattern::Reduce => "reduce",
            Pattern::OutEwise => "out_ewise",
            Pattern::Tuple => "tuple",
            Pattern::Opaque => "opaque",
        }
    }

    /// Whether a node of this pattern strictly inside a path always blocks fusion along the path.
    ///
    /// Injective and tuple nodes do not, because a node downstream of an easier pattern may absorb them.
    pub const fn always_blocks(self) -> bool {
        match self {
            Pattern::Reduce | Pattern::OutEwise | Pattern::Opaque => true,
            Pattern::Elemwise | Pattern::Broadcast | Pattern::Injective | Pattern::Tuple => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Pattern::ALL.into_iter().find(|pattern| pattern.name() == text).ok_or_else(|| Error::Parse {
            what: "pattern".into(),
            message: format!("expected one of {}", Pattern::ALL.map(Pattern::name).join(", ")),
            at: 0,
            text: text.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_names_and_numbers_agree() {
        assert!(Pattern::ALL.is_sorted());
        assert_eq!(Pattern::ALL.map(|pattern| pattern as u8), [0, 1, 2, 3, 4, 7, 8]);
        for pattern in Pattern::ALL {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        assert!(matches!("elementwise".parse::<Pattern>(), Err(Error::Parse { .. })));
    }
}
