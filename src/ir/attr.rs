//! Non-tensor arguments of an op.

use super::dtype::DType;
use super::scalar::Scalar;
use smallvec::SmallVec;
use std::fmt;

/// One non-tensor argument. For an optional tensor it says whether the tensor is given.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Attr {
    /// An optional argument that was not given.
    None,
    /// A number or truth value.
    Scalar(Scalar),
    /// A list of whole numbers.
    Ints(SmallVec<[i64; 4]>),
    /// A dtype.
    DType(DType),
    /// A memory format.
    MemoryFormat(MemoryFormat),
    /// A string.
    Str(Box<str>),
}

/// The order of elements in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryFormat {
    /// The order that the tensor has.
    Preserve,
    /// Row-major.
    Contiguous,
    /// Batches of images, `(N, C, H, W)`, with channels innermost.
    ChannelsLast,
    /// Batches of volumes, `(N, C, D, H, W)`, with channels innermost.
    ChannelsLast3d,
}

impl MemoryFormat {
    /// The format of that name. Schemas add the suffix `_format`.
    pub fn from_name(name: &str) -> Option<MemoryFormat> {
        Some(match name.strip_suffix("_format").unwrap_or(name) {
            "preserve" => MemoryFormat::Preserve,
            "contiguous" => MemoryFormat::Contiguous,
            "channels_last" => MemoryFormat::ChannelsLast,
            "channels_last_3d" => MemoryFormat::ChannelsLast3d,
            _ => return None,
        })
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            MemoryFormat::Preserve => "preserve",
            MemoryFormat::Contiguous => "contiguous",
            MemoryFormat::ChannelsLast => "channels_last",
            MemoryFormat::ChannelsLast3d => "channels_last_3d",
        }
    }

    /// The dims from the outermost in memory to the innermost, where the format prescribes them.
    pub const fn order(self) -> Option<&'static [usize]> {
        match self {
            MemoryFormat::Preserve | MemoryFormat::Contiguous => None,
            MemoryFormat::ChannelsLast => Some(&[0, 2, 3, 1]),
            MemoryFormat::ChannelsLast3d => Some(&[0, 2, 3, 4, 1]),
        }
    }
}

/// `Preserve` is the default, so it becomes an absent argument: equal calls have equal arguments.
impl From<MemoryFormat> for Attr {
    fn from(format: MemoryFormat) -> Attr {
        match format {
            MemoryFormat::Preserve => Attr::None,
            MemoryFormat::Contiguous | MemoryFormat::ChannelsLast | MemoryFormat::ChannelsLast3d => {
                Attr::MemoryFormat(format)
            }
        }
    }
}

/// The non-tensor arguments of a call, in schema order.
pub type Attrs = SmallVec<[Attr; 4]>;

impl Attr {
    /// A truth value.
    pub const fn bool(value: bool) -> Attr {
        Attr::Scalar(Scalar::Bool(value))
    }

    /// A whole number.
    pub const fn int(value: i64) -> Attr {
        Attr::Scalar(Scalar::Int(value))
    }

    /// A floating-point number.
    pub const fn float(value: f64) -> Attr {
        Attr::Scalar(Scalar::Float(value))
    }

    /// A list of whole numbers.
    pub fn ints(values: &[i64]) -> Attr {
        Attr::Ints(SmallVec::from_slice(values))
    }

    /// The number, if it is one.
    pub const fn scalar(&self) -> Option<Scalar> {
        match self {
            Attr::Scalar(scalar) => Some(*scalar),
            Attr::None | Attr::Ints(_) | Attr::DType(_) | Attr::MemoryFormat(_) | Attr::Str(_) => None,
        }
    }

    /// The whole number, if it is a number.
    pub fn as_int(&self) -> Option<i64> {
        self.scalar().map(Scalar::as_i64)
    }

    /// Whether it is a true value.
    pub fn is_true(&self) -> bool {
        self.scalar().is_some_and(Scalar::as_bool)
    }

    /// The whole numbers. One number counts as a list of one, anything else as an empty list.
    pub fn list(&self) -> SmallVec<[i64; 4]> {
        match self {
            Attr::Ints(values) => values.clone(),
            Attr::Scalar(scalar) => SmallVec::from_slice(&[scalar.as_i64()]),
            Attr::None | Attr::DType(_) | Attr::MemoryFormat(_) | Attr::Str(_) => SmallVec::new(),
        }
    }

    /// The dtype, if it is one.
    pub const fn dtype(&self) -> Option<DType> {
        match self {
            Attr::DType(dtype) => Some(*dtype),
            Attr::None | Attr::Scalar(_) | Attr::Ints(_) | Attr::MemoryFormat(_) | Attr::Str(_) => None,
        }
    }

    /// The memory format, if it is one.
    pub const fn memory_format(&self) -> Option<MemoryFormat> {
        match self {
            Attr::MemoryFormat(format) => Some(*format),
            Attr::None | Attr::Scalar(_) | Attr::Ints(_) | Attr::DType(_) | Attr::Str(_) => None,
        }
    }

    /// The string, or an empty one.
    pub fn word(&self) -> &str {
        match self {
            Attr::Str(word) => word,
            Attr::None | Attr::Scalar(_) | Attr::Ints(_) | Attr::DType(_) | Attr::MemoryFormat(_) => "",
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::None => f.write_str("none"),
            Attr::Scalar(scalar) => write!(f, "{scalar}"),
            Attr::Ints(values) => write!(f, "{:?}", values.as_slice()),
            Attr::DType(dtype) => write!(f, "{dtype}"),
            Attr::MemoryFormat(format) => write!(f, "{:?}", format.name()),
            Attr::Str(word) => write!(f, "{word:?}"),
        }
    }
}
