//! `.npy`: one array of NumPy.
//!
//! A file is a magic number, a header that is a dictionary literal of Python, and the elements. Native elements are
//! used where they are, in row-major or column-major order; elements of the other byte order are copied. Structures,
//! objects and dtypes that opfuse has not are refused with their name. Pickled objects are never read.

use crate::error::Result;
use crate::formats::elements::with_bytes;
use crate::formats::file::{Mapped, Output, replace, shown};
use crate::ir::shape::checked_numel;
use crate::ir::{DType, Layout, Strides};
use crate::tensor::handle::Tensor;
use std::ops::Range;
use std::path::Path;

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header: that of an array with many dims is far shorter.
const MAX_HEADER: usize = 64 << 10;
/// Most dims of an array.
const MAX_DIMS: usize = 64;
/// Where elements begin is a multiple of this.
const ALIGNMENT: usize = 64;

/// What the header of an array says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) dtype: DType,
    /// Whether the bytes of elements are in the other order.
    is_swapped: bool,
    pub(super) layout: Layout,
    /// Where the elements are.
    pub(super) data: Range<usize>,
}

/// Loads an array, which is mapped. The file must not change while the tensor lives; see [`load`](crate::load).
///
/// # Errors
/// If there is no such file, or if it is no array of numbers that opfuse has.
pub fn load(path: impl AsRef<Path>) -> Result<Tensor> {
    tensor(&Mapped::open(path.as_ref())?)
}

/// The array that a file holds.
pub(super) fn tensor(file: &Mapped) -> Result<Tensor> {
    let array = parse(file.bytes()).map_err(|what| file.fail(what))?;
    if array.is_swapped {
        return array.copied(&file.bytes()[array.data.clone()]).map_err(|error| file.fail(error));
    }
    file.tensor(array.data.clone(), array.dtype, &array.layout)
}

/// Saves a tensor. A file that was there is replaced as a whole, or stays as it was.
///
/// # Errors
/// If the tensor cannot be read, its dtype is `bf16`, which the format has not, or the file cannot be written.
pub fn save(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let header = header(tensor).map_err(|what| super::file::fail(path.as_ref(), what))?;
    replace(path.as_ref(), |output| write(output, &header, tensor))
}

pub(super) fn write(output: &mut Output<'_>, header: &[u8], tensor: &Tensor) -> Result<()> {
    output.put(header)?;
    with_bytes("save", tensor, |bytes| output.put(bytes))
}

/// All that comes before the elements of a tensor.
pub(super) fn header(tensor: &Tensor) -> Result<Vec<u8>, String> {
    let Some(descr) = descr_of(tensor.dtype()) else {
        return Err(format!("has no dtype {}; convert the tensor, or save it in safetensors", tensor.dtype()));
    };
    let sizes: String = tensor.sizes().iter().map(|size| format!("{size}, ")).collect();
    let sizes = if tensor.dim() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let start = MAGIC.len() + 4;
    let len = (start + text.len() + 1).next_multiple_of(ALIGNMENT) - start;
    let Ok(short) = u16::try_from(len) else { return Err(format!("has no array with {} dims", tensor.dim())) };
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend(short.to_le_bytes());
    header.extend(text.as_bytes());
    header.resize(start + len - 1, b' ');
    header.push(b'\n');
    Ok(header)
}

impl Array {
    /// Whether the elements can be used as they are.
    pub(super) fn is_native(&self) -> bool {
        !self.is_swapped
    }

    /// The tensor, with a copy of the elements in its own byte order.
    pub(super) fn copied(&self, data: &[u8]) -> Result<Tensor> {
        let mut copy;
        let data = if self.is_swapped {
            copy = crate::device::roomy(data.len())?;
            copy.extend_from_slice(data);
            copy.chunks_exact_mut(self.dtype.part().size()).for_each(<[u8]>::reverse);
            &copy[..]
        } else {
            data
        };
        let row_major = Tensor::from_bytes(data, self.dtype, &[data.len() / self.dtype.size()])?;
        let is_complex = self.dtype.is_complex();
        let layout = if is_complex { self.layout.of_pairs() } else { self.layout.clone() };
        let tensor = Tensor::from_array(row_major.as_real().array().with_layout(layout));
        if is_complex { Tensor::of_pairs(&tensor) } else { Ok(tensor) }
    }
}

/// Reads the header of an array that the bytes hold.
///
/// # Errors
/// What is wrong with them.
pub(super) fn parse(bytes: &[u8]) -> Result<Array, String> {
    let array = parse_header(bytes, bytes.len())?;
    match bytes.len().checked_sub(array.data.end) {
        Some(0) => Ok(array),
        Some(more) => Err(format!("{more} bytes follow the elements")),
        None => {
            Err(format!("the elements need {} bytes, but {} follow the header; it is truncated", array.data.len(), {
                bytes.len().saturating_sub(array.data.start)
            }))
        }
    }
}

/// Reads a header from the first bytes of `len`. The elements may be missing.
pub(super) fn parse_header(bytes: &[u8], len: usize) -> Result<Array, String> {
    let short = || format!("the header is truncated after {} of {len} bytes", bytes.len());
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin like an array of NumPy")?;
    let (&[major, _], rest) = rest.split_first_chunk::<2>().ok_or_else(short)?;
    let (n_text, rest) = match major {
        1 => rest.split_first_chunk().map(|(len, rest)| (usize::from(u16::from_le_bytes(*len)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len) as usize, rest)),
        _ => return Err(format!("version {major} of the format is not known; 1 to 3 are")),
    }
    .ok_or_else(short)?;
    if n_text > MAX_HEADER {
        return Err(format!("a header of {n_text} bytes is too long"));
    }
    let start = bytes.len() - rest.len() + n_text;
    let text = rest.get(..n_text).ok_or_else(short)?;
    let text = std::str::from_utf8(text).map_err(|error| format!("the header is no text: {error}"))?;
    let header = Literal { rest: text }.header()?;
    let (dtype, is_swapped) = dtype_of(&header.descr)?;
    let count = checked_numel("load", &header.sizes, dtype.size()).map_err(|error| error.to_string())?;
    let end = start.checked_add(count * dtype.size()).ok_or("there are too many elements")?;
    let mut layout = Layout::contiguous(&header.sizes);
    if header.is_column_major && count > 0 {
        let backward: Vec<usize> = header.sizes.iter().rev().copied().collect();
        let strides = Layout::contiguous(&backward).strides;
        layout.strides = strides.iter().rev().copied().collect::<Strides>();
    }
    Ok(Array { dtype, is_swapped, layout, data: start..end })
}

/// The dtype of a code such as `<f4`, and whether its bytes are swapped.
fn dtype_of(descr: &str) -> Result<(DType, bool), String> {
    let (order, code) = descr.split_at_checked(1).unwrap_or_default();
    let dtype = DType::real_and_complex().find(|&dtype| descr_of(dtype).is_some_and(|known| &known[1..] == code));
    let Some(dtype) = dtype.filter(|_| matches!(order, "<" | ">" | "=" | "|")) else {
        let what =
            if code.starts_with('O') { "holds pickled objects, which are not read" } else { "is none of opfuse" };
        return Err(format!("the dtype {} {what}; save it as another one", shown(descr)));
    };
    Ok((dtype, order == ">" && dtype.size() > 1))
}

/// The code of a dtype; `bf16` has none.
fn descr_of(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::Bool => Some("|b1"),
        DType::U8 => Some("|u1"),
        DType::I8 => Some("|i1"),
        DType::I16 => Some("<i2"),
        DType::I32 => Some("<i4"),
        DType::I64 => Some("<i8"),
        DType::F16 => Some("<f2"),
        DType::BF16 => None,
        DType::F32 => Some("<f4"),
        DType::F64 => Some("<f8"),
        DType::Complex64 => Some("<c8"),
        DType::Complex128 => Some("<c16"),
    }
}

struct Header {
    descr: String,
    is_column_major: bool,
    sizes: Vec<usize>,
}

/// The rest of a dictionary literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    fn header(mut self) -> Result<Header, String> {
        let (mut descr, mut is_column_major, mut sizes) = (None, None, None);
        self.need("{")?;
        while !self.takes("}") {
            let key = self.string()?;
            self.need(":")?;
            match key {
                "descr" => descr = Some(self.descr()?),
                "fortran_order" if self.takes("True") => is_column_major = Some(true),
                "fortran_order" => {
                    self.need("False")?;
                    is_column_major = Some(false);
                }
                "shape" => sizes = Some(self.sizes()?),
                _ => return Err(format!("the header has an unknown key {}", shown(key))),
            }
            if !self.takes(",") {
                self.need("}")?;
                break;
            }
        }
        if !self.rest.trim().is_empty() {
            return Err("the header goes on after its end".into());
        }
        match (descr, is_column_major, sizes) {
            (Some(descr), Some(is_column_major), Some(sizes)) => Ok(Header { descr, is_column_major, sizes }),
            _ => Err("the header needs descr, fortran_order and shape".into()),
        }
    }

    fn descr(&mut self) -> Result<String, String> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with('[') {
            return Err("the elements are structures; save each field as an array".into());
        }
        self.string().map(str::to_owned)
    }

    fn sizes(&mut self) -> Result<Vec<usize>, String> {
        let mut sizes = Vec::new();
        self.need("(")?;
        while !self.takes(")") {
            self.rest = self.rest.trim_start();
            let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let size = self.rest[..digits].parse();
            sizes.push(size.map_err(|_| "a size in the shape is no number below 2^64".to_owned())?);
            if sizes.len() > MAX_DIMS {
                return Err(format!("the shape has more than {MAX_DIMS} dims"));
            }
            self.rest = &self.rest[digits..];
            // Python 2 wrote long numbers this way.
            self.rest = self.rest.strip_prefix('L').unwrap_or(self.rest);
            if !self.takes(",") {
                self.need(")")?;
                break;
            }
        }
        Ok(sizes)
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.takes("'") { '\'' } else { self.need("\"").map(|()| '"')? };
        let (text, rest) = self.rest.split_once(quote).ok_or("a string in the header has no end")?;
        self.rest = rest;
        Ok(text)
    }

    fn takes(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn need(&mut self, word: &str) -> Result<(), String> {
        if self.takes(word) { Ok(()) } else { Err(format!("`{word}` is missing in the header")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Array, String> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        parse_header(&bytes, bytes.len())
    }

    #[test]
    fn headers_of_numpy_are_read() {
        let array =
            parsed("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n").expect("NumPy writes so");
        assert_eq!((array.dtype, array.data.len(), &array.layout.strides[..]), (DType::F32, 24, &[3, 1][..]));
        let array = parsed("{\"shape\":(2L,3L,),'fortran_order':True,'descr':'>i8'}").expect("this is a literal, too");
        assert_eq!((array.dtype, array.is_swapped, &array.layout.strides[..]), (DType::I64, true, &[1, 2][..]));
        let array = parsed("{'descr': '|b1', 'fortran_order': False, 'shape': ()}").expect("it has no dims");
        assert_eq!((array.dtype, array.data.len()), (DType::Bool, 1));
    }

    #[test]
    fn other_headers_are_refused() {
        for (text, word) in [
            ("{'descr': '<f4', 'fortran_order': False}", "needs"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", "pickled"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "structures"),
            ("{'descr': '<u4', 'fortran_order': False, 'shape': (1,)}", "<u4"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "size"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999, 9999999999)}", "too many"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "after"),
            ("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}", "False"),
            ("{'descr': 'é', 'fortran_order': False, 'shape': (1,)}", "none"),
            ("{'descr': '', 'fortran_order': False, 'shape': (1,)}", "none"),
            ("{'descr", "end"),
            ("", "`{`"),
        ] {
            let what = parsed(text).expect_err(text);
            assert!(what.contains(word), "{text}: {what}");
        }
    }
}
