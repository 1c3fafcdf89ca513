//! The data of a reason: names, counts, times, dtypes and errors.

use super::Error;
use crate::ir::DType;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A datum of a reason, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Datum {
    /// A name, or the text of an error.
    Text(String),
    /// A number of things.
    Count(u64),
    /// A time.
    Time(Duration),
    /// A yes or no.
    Flag(bool),
}

impl fmt::Display for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Datum::Text(text) => f.write_str(text),
            Datum::Count(count) => write!(f, "{count}"),
            Datum::Time(time) => write!(f, "{time:.1?}"),
            Datum::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// A type that a field of a reason may have.
pub(super) trait Field {
    /// The field's value for a report.
    fn datum(&self) -> Datum;

    /// A value for the tests of the table.
    #[cfg(test)]
    fn example() -> Self;
}

impl Field for Box<str> {
    fn datum(&self) -> Datum {
        Datum::Text(self.to_string())
    }

    #[cfg(test)]
    fn example() -> Self {
        "a name".into()
    }
}

impl Field for &'static str {
    fn datum(&self) -> Datum {
        Datum::Text((*self).to_owned())
    }

    #[cfg(test)]
    fn example() -> Self {
        "a word"
    }
}

impl Field for usize {
    fn datum(&self) -> Datum {
        Datum::Count(*self as u64)
    }

    #[cfg(test)]
    fn example() -> Self {
        417
    }
}

impl Field for bool {
    fn datum(&self) -> Datum {
        Datum::Flag(*self)
    }

    #[cfg(test)]
    fn example() -> Self {
        true
    }
}

impl Field for DType {
    fn datum(&self) -> Datum {
        Datum::Text(self.to_string())
    }

    #[cfg(test)]
    fn example() -> Self {
        DType::BF16
    }
}

impl Field for Duration {
    fn datum(&self) -> Datum {
        Datum::Time(*self)
    }

    #[cfg(test)]
    fn example() -> Self {
        Duration::from_nanos(1500)
    }
}

impl Field for Arc<Error> {
    fn datum(&self) -> Datum {
        Datum::Text(self.to_string())
    }

    #[cfg(test)]
    fn example() -> Self {
        Arc::new(Error::shape("add", "the shapes differ", "make them equal"))
    }
}
