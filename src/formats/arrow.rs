#![allow(unsafe_code, reason = "exchanges pointers with other libraries by Arrow's C structures")]
//! Arrow's C Data Interface: columns of numbers as tensors over their memory, and back.
//!
//! The interface is two structures of C, so it is bound to no version of a library. A column of numbers is a tensor of
//! one dim. A column of lists of fixed length is a tensor of two dims, and so on. Arrow's arrays are never changed, so
//! their memory is read-only here, and a tensor cannot be written while a column is over its memory. Columns with nulls
//! are refused. Truth values are bits there and bytes here, so they are copied.

use crate::device::foreign::{Access, Foreign, count_copy};
use crate::device::storage::Borrowed;
use crate::device::{Device, Storage};
use crate::dispatch::key::grad_mode::no_grad;
use crate::error::{Error, Result};
use crate::ir::shape::checked_numel;
use crate::ir::{DType, Layout};
use crate::ops::memory::adopt;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{NonNull, null, null_mut};

/// Most lists in lists.
const MAX_DIMS: usize = 64;

/// The type of a column: `ArrowSchema`. Dropping it releases it.
#[repr(C)]
#[derive(Debug)]
pub struct Schema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut Schema,
    dictionary: *mut Schema,
    release: Option<unsafe extern "C" fn(*mut Schema)>,
    private: *mut c_void,
}

/// The values of a column: `ArrowArray`. Dropping it releases it.
#[repr(C)]
#[derive(Debug)]
pub struct Column {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut Column,
    dictionary: *mut Column,
    release: Option<unsafe extern "C" fn(*mut Column)>,
    private: *mut c_void,
}

// SAFETY: those who give a column promise that any thread may read and release it; ours hold tensors.
unsafe impl Send for Column {}
// SAFETY: as above; ours hold text.
unsafe impl Send for Schema {}

impl Schema {
    /// A structure for another library to fill.
    pub const fn empty() -> Schema {
        Schema {
            format: null(),
            name: null(),
            metadata: null(),
            flags: 0,
            n_children: 0,
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private: null_mut(),
        }
    }
}

impl Column {
    /// A structure for another library to fill.
    pub const fn empty() -> Column {
        Column {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null_mut(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private: null_mut(),
        }
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the structure was not released yet, nor moved elsewhere: then it would have no `release`.
            unsafe { release(self) }
        }
    }
}

impl Drop for Column {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: as for the schema.
            unsafe { release(self) }
        }
    }
}

/// A read-only tensor over a column of numbers, or of lists of fixed length. Truth values are copied, and
/// [`copies`](crate::device::foreign::copies) counts that.
///
/// # Errors
/// If the column has nulls, or values that are no numbers of opfuse.
///
/// # Safety
///
/// Both structures are as Arrow's C Data Interface says, they belong together, and the column's buffers are as long as
/// it says. Nothing changes the buffers before the column is released. Any thread may release it.
pub unsafe fn from_arrow(column: Column, schema: &Schema) -> Result<Tensor> {
    // SAFETY: passed on from the caller; the column is its own owner.
    unsafe { Values::of(&column, schema)?.adopted(column) }
}

/// Like [`from_arrow`], for a column that stays where it is: `owner` keeps it, and is dropped after the last view.
///
/// # Errors
/// As for [`from_arrow`].
///
/// # Safety
///
/// As for [`from_arrow`]; and the column is not released before `owner` is dropped.
pub unsafe fn from_kept_arrow(column: &Column, schema: &Schema, owner: impl Any + Send) -> Result<Tensor> {
    // SAFETY: passed on from the caller.
    unsafe { Values::of(column, schema)?.adopted(owner) }
}

fn refuse(what: impl Into<String>) -> Error {
    Error::argument("from_arrow", what)
}

/// The values of a column and of the lists in it.
struct Values {
    dtype: DType,
    sizes: Vec<usize>,
    buffer: *const u8,
    /// The first value.
    first: usize,
}

impl Values {
    /// A tensor over the values, which keeps `owner`.
    ///
    /// # Safety
    ///
    /// As for [`from_kept_arrow`].
    unsafe fn adopted(self, owner: impl Any + Send) -> Result<Tensor> {
        let Values { dtype, sizes, buffer, first } = self;
        let count = checked_numel("from_arrow", &sizes, dtype.size())?;
        if count == 0 {
            return adopt("from_arrow", Foreign::from(Vec::<u8>::new()), dtype, &Layout::contiguous(&sizes));
        }
        let start = NonNull::new(buffer.cast_mut()).ok_or_else(|| refuse("the column has values, but no buffer"))?;
        if dtype == DType::Bool {
            count_copy();
            let end = first.checked_add(count).ok_or_else(|| refuse("the column is too long"))?;
            // SAFETY: passed on from the caller: a bit per value.
            let bits = unsafe { std::slice::from_raw_parts(start.as_ptr(), end.div_ceil(8)) };
            let bytes: Vec<u8> = (first..end).map(|at| bits[at / 8] >> (at % 8) & 1).collect();
            return Tensor::from_bytes(&bytes, DType::Bool, &sizes);
        }
        let width = dtype.size();
        let before = first.checked_mul(width).ok_or_else(|| refuse("the column is too long"))?;
        let access = Access::ReadOnly("a column of Arrow".into());
        // SAFETY: the caller promises that the buffer holds the values before and in the column, and that nothing
        // changes them before the owner is dropped.
        let memory = unsafe { Foreign::new(start.add(before), count * width, access, owner) };
        adopt("from_arrow", memory, dtype, &Layout::contiguous(&sizes))
    }

    /// # Safety
    ///
    /// As for [`from_arrow`].
    unsafe fn of(column: &Column, schema: &Schema) -> Result<Values> {
        // SAFETY: passed on from the caller.
        unsafe { Values::found(column, schema) }.map_err(refuse)
    }

    /// # Safety
    ///
    /// As for [`from_arrow`].
    unsafe fn found(column: &Column, schema: &Schema) -> Result<Values, String> {
        let (mut column, mut schema) = (column, schema);
        let number = |number: i64| usize::try_from(number).map_err(|_| "a length of the column is negative".to_owned());
        let (mut first, length) = (number(column.offset)?, number(column.length)?);
        let (mut sizes, mut count) = (vec![length], length);
        loop {
            if column.release.is_none() || schema.release.is_none() || schema.format.is_null() {
                return Err("the column or its schema was released".into());
            }
            // SAFETY: passed on from the caller: the format is a text that ends with a null byte.
            let format = unsafe { CStr::from_ptr(schema.format) }.to_string_lossy();
            // SAFETY: passed on from the caller.
            unsafe { no_nulls(column, first, count) }?;
            if !schema.dictionary.is_null() {
                return Err(format!("a column of format {format:?} has a dictionary; decode it first"));
            }
            let Some(len) = format.strip_prefix("+w:") else {
                let dtype = dtype_of(&format).ok_or_else(|| {
                    format!("values of format {format:?} are no numbers of opfuse; cast the column first")
                })?;
                if column.n_buffers != 2 || column.buffers.is_null() {
                    return Err(format!("a column of {dtype} has {} buffers instead of 2", column.n_buffers));
                }
                // SAFETY: there are two pointers, as just checked.
                let buffer = unsafe { *column.buffers.add(1) }.cast();
                return Ok(Values { dtype, sizes, buffer, first });
            };
            let len: usize = len.parse().map_err(|_| format!("format {format:?} has no length"))?;
            if column.n_children != 1
                || schema.n_children != 1
                || column.children.is_null()
                || schema.children.is_null()
            {
                return Err("a column of lists has one child".into());
            }
            if sizes.len() == MAX_DIMS {
                return Err(format!("there are more than {MAX_DIMS} lists in lists"));
            }
            // SAFETY: passed on from the caller: there is one child of each, as just checked.
            (column, schema) = unsafe { (&**column.children, &**schema.children) };
            let far = || "the lists have too many values".to_owned();
            count = count.checked_mul(len).ok_or_else(far)?;
            let before = first.checked_mul(len).ok_or_else(far)?;
            first = before.checked_add(number(column.offset)?).ok_or_else(far)?;
            let own = number(column.length)?;
            if before.checked_add(count).is_none_or(|end| end > own) {
                return Err(format!("lists of {len} values reach past the {own} values of the column"));
            }
            sizes.push(len);
        }
    }
}

/// Checks that `count` values from `first` on are no nulls.
///
/// # Safety
///
/// As for [`from_arrow`].
unsafe fn no_nulls(column: &Column, first: usize, count: usize) -> Result<(), String> {
    if column.null_count == 0 || column.n_buffers < 1 || column.buffers.is_null() {
        return Ok(());
    }
    // SAFETY: there is at least one pointer.
    let validity: *const u8 = unsafe { *column.buffers }.cast();
    if validity.is_null() {
        return Ok(());
    }
    let end = first.checked_add(count).ok_or("the column is too long")?;
    // SAFETY: passed on from the caller: the first buffer has a bit per value.
    let bits = unsafe { std::slice::from_raw_parts(validity, end.div_ceil(8)) };
    let nulls = (first..end).filter(|at| bits[at / 8] >> (at % 8) & 1 == 0).count();
    if nulls == 0 { Ok(()) } else { Err(format!("the column has {nulls} nulls; fill them first")) }
}

fn dtype_of(format: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|&dtype| format_of(dtype) == Some(format))
}

/// The format of a dtype; `bf16` and complex numbers have none.
fn format_of(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::Bool => Some("b"),
        DType::U8 => Some("C"),
        DType::I8 => Some("c"),
        DType::I16 => Some("s"),
        DType::I32 => Some("i"),
        DType::I64 => Some("l"),
        DType::F16 => Some("e"),
        DType::BF16 => None,
        DType::F32 => Some("f"),
        DType::F64 => Some("g"),
        DType::Complex64 | DType::Complex128 => None,
    }
}

/// What a column of ours keeps.
struct ColumnParts {
    /// No bits for nulls, and the values.
    buffers: [*const c_void; 2],
    /// A box, or null.
    child: *mut Column,
    _values: Option<Kept>,
}

enum Kept {
    Tensor(#[allow(dead_code, reason = "held, not used")] Borrowed),
    Bits(#[allow(dead_code, reason = "held, not used")] Vec<u8>),
}

/// What a schema of ours keeps.
struct SchemaParts {
    format: CString,
    /// A box, or null.
    child: *mut Schema,
}

/// A tensor as a column and its type. Its dims after the first are lists of fixed length. The column is over the
/// tensor's memory, if that is row-major; then the tensor cannot be written while the column is alive.
///
/// # Errors
/// If the tensor has no dims, its dtype is `bf16`, or it has no elements that could be read, as in a trace.
pub fn to_arrow(tensor: &Tensor) -> Result<(Column, Schema)> {
    const NAME: &str = "to_arrow";
    observer::on_read(tensor, NAME)?;
    let refuse = |what: &str| Error::argument(NAME, what);
    let Some(format) = format_of(tensor.dtype()) else {
        let what = format!("Arrow has no numbers of dtype {}; convert the tensor, or take its parts", tensor.dtype());
        return Err(refuse(&what));
    };
    if tensor.dim() == 0 {
        return Err(refuse("a tensor without dims is no column; reshape it to one dim"));
    }
    let _unrecorded = no_grad();
    let dense = tensor.to_device(Device::CPU)?.contiguous()?;
    let array = dense.array();
    let borrowed = Storage::borrow(array.storage());
    let (values, kept) = if tensor.dtype() == DType::Bool {
        count_copy();
        let truth = dense.to_vec::<bool>()?;
        let bits: Vec<u8> =
            truth.chunks(8).map(|part| part.iter().rev().fold(0, |all, &bit| all << 1 | u8::from(bit))).collect();
        (bits.as_ptr(), Kept::Bits(bits))
    } else {
        (array.ptr().cast_const(), Kept::Tensor(borrowed))
    };
    let mut column = column(dense.numel(), Some(values.cast()), None, Some(kept));
    let mut schema = schema(format, None);
    for dim in (1..dense.dim()).rev() {
        column = self::column(dense.sizes()[..dim].iter().product(), None, Some(column), None);
        schema = self::schema(&format!("+w:{}", dense.sizes()[dim]), Some(schema));
    }
    Ok((column, schema))
}

fn column(length: usize, values: Option<*const c_void>, child: Option<Column>, kept: Option<Kept>) -> Column {
    let (n_buffers, n_children) = (if values.is_some() { 2 } else { 1 }, i64::from(child.is_some()));
    let child = child.map_or(null_mut(), |child| Box::into_raw(Box::new(child)));
    let parts =
        Box::into_raw(Box::new(ColumnParts { buffers: [null(), values.unwrap_or(null())], child, _values: kept }));
    // SAFETY: the pointer is that of the box just given up. The parts do not move before they are released.
    let (buffers, children) = unsafe { ((&raw mut (*parts).buffers).cast(), &raw mut (*parts).child) };
    let mut column = Column::empty();
    (column.length, column.n_buffers, column.n_children) = (length as i64, n_buffers, n_children);
    (column.buffers, column.children) = (buffers, if n_children == 0 { null_mut() } else { children });
    column.release = Some(release_column);
    column.private = parts.cast();
    column
}

unsafe extern "C" fn release_column(column: *mut Column) {
    // SAFETY: only columns of ours have this function, once. Their private pointer is the box of their parts, and the
    // child is a box that was given up. A child that was moved elsewhere has no `release` any more.
    unsafe {
        let parts = Box::from_raw((*column).private.cast::<ColumnParts>());
        if !parts.child.is_null() {
            drop(Box::from_raw(parts.child));
        }
        (*column).release = None;
    }
}

fn schema(format: &str, child: Option<Schema>) -> Schema {
    let n_children = i64::from(child.is_some());
    let child = child.map_or(null_mut(), |child| Box::into_raw(Box::new(child)));
    let format = CString::new(format).expect("formats have no null bytes");
    let parts = Box::into_raw(Box::new(SchemaParts { format, child }));
    // SAFETY: as for columns.
    let (format, children) = unsafe { ((*parts).format.as_ptr(), &raw mut (*parts).child) };
    let mut schema = Schema::empty();
    (schema.format, schema.name, schema.n_children) = (format, c"".as_ptr(), n_children);
    schema.children = if n_children == 0 { null_mut() } else { children };
    schema.release = Some(release_schema);
    schema.private = parts.cast();
    schema
}

unsafe extern "C" fn release_schema(schema: *mut Schema) {
    // SAFETY: as for columns.
    unsafe {
        let parts = Box::from_raw((*schema).private.cast::<SchemaParts>());
        if !parts.child.is_null() {
            drop(Box::from_raw(parts.child));
        }
        (*schema).release = None;
    }
}
