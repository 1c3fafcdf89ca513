#![allow(unsafe_code, reason = "exchanges pointers with other libraries by DLPack's C structures")]
//! DLPack: tensors of other libraries over their memory, and ours for them, on the CPU.
//!
//! A [`Capsule`] owns one of DLPack's managed tensors and frees it once. It comes from another library as a pointer,
//! and goes to one as a pointer. Both forms are known: the versioned one, which says whether memory is read-only, and
//! the older one without a version, which cannot. Python's capsules hold these pointers.

use crate::device::foreign::{Access, Foreign, count_copy};
use crate::device::storage::Borrowed;
use crate::device::{DeviceKind, Storage};
use crate::error::{Error, Result};
use crate::ir::shape::checked_numel;
use crate::ir::{DType, Layout, Sizes, Strides};
use crate::ops::memory::adopt;
use crate::tensor::handle::Tensor;
use crate::tensor::observer;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// The version of the interface, of which other minor versions have the same structures.
const VERSION: [u32; 2] = [1, 0];
const READ_ONLY: u64 = 1;
const CPU: i32 = 1;
/// Memory of the host that a GPU can reach, too.
const CUDA_HOST: i32 = 3;
const MAX_DIMS: usize = 64;

/// What a managed tensor describes: `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Description {
    /// The memory.
    pub data: *mut c_void,
    /// Kind and number of the device.
    pub device: [i32; 2],
    /// The number of dims.
    pub ndim: i32,
    /// The class of numbers, by the codes of DLPack.
    pub code: u8,
    /// Bits of an element.
    pub bits: u8,
    /// Elements of a vector that count as one.
    pub lanes: u16,
    /// `ndim` sizes.
    pub shape: *mut i64,
    /// `ndim` strides in elements, or null for row-major ones.
    pub strides: *mut i64,
    /// Where the first element is in the memory.
    pub byte_offset: u64,
}

/// A managed tensor without a version: `DLManagedTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct Legacy {
    /// The tensor.
    pub tensor: Description,
    /// For the deleter.
    pub context: *mut c_void,
    /// Frees the structure and the memory.
    pub deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

/// A managed tensor with a version: `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct Versioned {
    /// Major and minor version.
    pub version: [u32; 2],
    /// For the deleter.
    pub context: *mut c_void,
    /// Frees the structure and the memory.
    pub deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    /// Bit 0: the memory is read-only.
    pub flags: u64,
    /// The tensor.
    pub tensor: Description,
}

/// A managed tensor that somebody has to free.
#[derive(Debug)]
enum Managed {
    Legacy(NonNull<Legacy>),
    Versioned(NonNull<Versioned>),
}

/// A managed tensor of DLPack, which is freed when this is dropped.
///
/// ```
/// use opfuse::formats::dlpack::Capsule;
/// use opfuse::{Result, Tensor};
///
/// # fn main() -> Result<()> {
/// let x = Tensor::try_from([1.0f32, 2.0])?;
/// // What a Python capsule of the name "dltensor_versioned" holds.
/// let pointer = Capsule::shared(&x)?.into_versioned().expect("it has a version");
/// // SAFETY: the pointer came from a capsule just now, and nothing else has it.
/// let capsule = unsafe { Capsule::from_versioned(pointer) };
/// assert_eq!(Tensor::try_from(capsule)?.to_vec::<f32>()?, [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Capsule(Managed);

// SAFETY: those who give a pointer promise that any thread may use and free it; our own hold tensors, which may be
// sent.
unsafe impl Send for Capsule {}

impl Drop for Capsule {
    fn drop(&mut self) {
        match self.0 {
            Managed::Legacy(managed) => {
                // SAFETY: the pointer is good until its deleter is called, which happens here alone.
                if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: as above.
                    unsafe { deleter(managed.as_ptr()) }
                }
            }
            Managed::Versioned(managed) => {
                // SAFETY: as above. The deleter is in the same place in all versions.
                if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: as above.
                    unsafe { deleter(managed.as_ptr()) }
                }
            }
        }
    }
}

/// Keeps what a capsule of ours describes.
struct Exported {
    legacy: Option<Legacy>,
    versioned: Option<Versioned>,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    _tensor: Tensor,
    /// Keeps writers out, if the other side counts on that.
    _borrowed: Option<Borrowed>,
}

impl Capsule {
    /// Takes over a managed tensor without a version, as a Python capsule of the name `dltensor` holds it.
    ///
    /// # Safety
    ///
    /// The structure is as DLPack says, and nothing else frees it. Its memory is initialised. Until it is freed,
    /// tensors may read and write the memory from any thread, and everything else that uses it takes turns with them.
    /// Any thread may free it.
    pub unsafe fn from_legacy(managed: NonNull<Legacy>) -> Capsule {
        Capsule(Managed::Legacy(managed))
    }

    /// Takes over a managed tensor with a version, as a Python capsule of the name `dltensor_versioned` holds it.
    ///
    /// # Safety
    ///
    /// As for [`Capsule::from_legacy`]. If the tensor is marked as read-only, tensors only read the memory.
    pub unsafe fn from_versioned(managed: NonNull<Versioned>) -> Capsule {
        Capsule(Managed::Versioned(managed))
    }

    /// A tensor for another library to read: marked as read-only, with a version. While the capsule is alive, writing
    /// to the tensor's memory is an error.
    ///
    /// # Errors
    /// If the tensor is not on the CPU, requires gradients, or has no elements that could be read, as in a trace.
    pub fn shared(tensor: &Tensor) -> Result<Capsule> {
        let exported = exported(tensor, Some(Storage::borrow(tensor.as_real().array().storage())))?;
        Ok(versioned(exported, READ_ONLY))
    }

    /// A tensor for another library to read and write, with a version. This counts as one write. Whoever uses the
    /// pointer takes turns with the tensor's other users.
    ///
    /// # Errors
    /// As for [`Capsule::shared`], or if the memory is read-only.
    pub fn writable(tensor: &Tensor) -> Result<Capsule> {
        Ok(versioned(exported_for_writing(tensor)?, 0))
    }

    /// Like [`Capsule::writable`], without a version.
    ///
    /// # Errors
    /// As for [`Capsule::writable`].
    pub fn writable_legacy(tensor: &Tensor) -> Result<Capsule> {
        let (tensor, exported) = exported_for_writing(tensor)?;
        let exported = Box::into_raw(exported);
        // SAFETY: the pointer is that of the box just given up, and nothing else has it.
        let legacy = unsafe { &mut (*exported).legacy };
        let managed = legacy.insert(Legacy { tensor, context: exported.cast(), deleter: Some(delete_legacy) });
        Ok(Capsule(Managed::Legacy(managed.into())))
    }

    /// A new tensor of zeros for another library to write, with a version. It has the dtype and the sizes of
    /// `prototype`, whose memory and strides are not looked at.
    ///
    /// # Errors
    /// If the device is not the CPU, the dtype is none of opfuse, the sizes are impossible, or memory is missing.
    ///
    /// # Safety
    ///
    /// `prototype` points to as many sizes as it says.
    pub unsafe fn allocated(prototype: &Description) -> Result<Capsule> {
        let dtype = checked_dtype(prototype)?;
        let row_major = Description { strides: null_mut(), ..*prototype };
        let place = Place::of(&row_major, dtype)?;
        Capsule::writable(&Tensor::zeros(&place.layout.sizes, dtype)?)
    }

    /// The pointer to a managed tensor with a version. Whoever gets it calls its deleter, once.
    ///
    /// # Errors
    /// The capsule, if it has no version.
    pub fn into_versioned(self) -> Result<NonNull<Versioned>, Capsule> {
        match self.0 {
            Managed::Legacy(_) => Err(self),
            Managed::Versioned(managed) => {
                std::mem::forget(self);
                Ok(managed)
            }
        }
    }

    /// The pointer to a managed tensor without a version. Whoever gets it calls its deleter, once.
    ///
    /// # Errors
    /// The capsule, if it has a version.
    pub fn into_legacy(self) -> Result<NonNull<Legacy>, Capsule> {
        match self.0 {
            Managed::Versioned(_) => Err(self),
            Managed::Legacy(managed) => {
                std::mem::forget(self);
                Ok(managed)
            }
        }
    }
}

type Described = (Description, Box<Exported>);

fn exported_for_writing(tensor: &Tensor) -> Result<Described> {
    tensor.check_write().map_err(|error| error.of("to_dlpack"))?;
    // Refuses read-only memory and slices that are alive.
    drop(tensor.as_real().array().storage().exclusive().map_err(|error| error.of("to_dlpack"))?);
    let exported = exported(tensor, None)?;
    tensor.note_write();
    Ok(exported)
}

fn versioned((tensor, exported): Described, flags: u64) -> Capsule {
    let exported = Box::into_raw(exported);
    // SAFETY: the pointer is that of the box just given up, and nothing else has it.
    let place = unsafe { &mut (*exported).versioned };
    let (context, deleter) = (exported.cast(), Some(delete_versioned as unsafe extern "C" fn(*mut Versioned)));
    let managed = place.insert(Versioned { version: VERSION, context, deleter, flags, tensor });
    Capsule(Managed::Versioned(managed.into()))
}

/// The description of a tensor, and what keeps it.
fn exported(tensor: &Tensor, borrowed: Option<Borrowed>) -> Result<Described> {
    const NAME: &str = "to_dlpack";
    observer::on_read(tensor, NAME)?;
    let refuse = |what: String| Err(Error::argument(NAME, what));
    if tensor.requires_grad() {
        return refuse("the tensor requires gradients, which another library cannot record; detach() it first".into());
    }
    if tensor.device().kind != DeviceKind::Cpu {
        return refuse(format!("a tensor on {} cannot be given away; copy it to the cpu first", tensor.device()));
    }
    let signed = |numbers: &[usize]| numbers.iter().map(|&number| number as i64).collect::<Vec<i64>>();
    let (code, bits) = code_of(tensor.dtype());
    let array = tensor.as_real().array();
    let mut exported = Box::new(Exported {
        legacy: None,
        versioned: None,
        sizes: signed(tensor.sizes()),
        strides: signed(tensor.strides()),
        _tensor: tensor.clone(),
        _borrowed: borrowed,
    });
    let description = Description {
        data: if tensor.numel() == 0 { null_mut() } else { array.ptr().cast() },
        device: [CPU, 0],
        ndim: tensor.dim() as i32,
        code,
        bits,
        lanes: 1,
        shape: exported.sizes.as_mut_ptr(),
        strides: exported.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    Ok((description, exported))
}

unsafe extern "C" fn delete_legacy(managed: *mut Legacy) {
    // SAFETY: a capsule of ours has the box as its context. Its owner calls the deleter once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Exported>()) });
}

unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: as above.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Exported>()) });
}

/// A tensor over the memory of another library. Memory that is marked as read-only cannot be written. Negative strides,
/// and elements that are not aligned, are copied, and [`copies`](crate::device::foreign::copies) counts that.
///
/// # Errors
/// If the memory is not on the CPU, the dtype is none of opfuse, the version is not known, or the sizes are impossible.
impl TryFrom<Capsule> for Tensor {
    type Error = Error;

    fn try_from(capsule: Capsule) -> Result<Tensor> {
        let refuse = |what: String| Error::argument("from_dlpack", what);
        let mut access = Access::Writable;
        let tensor = match &capsule.0 {
            // SAFETY: the makers of the capsule promise that the structure is good.
            Managed::Legacy(managed) => unsafe { &managed.as_ref().tensor },
            Managed::Versioned(managed) => {
                // SAFETY: as above; what comes before the tensor is the same in all versions.
                let managed = unsafe { managed.as_ref() };
                if managed.version[0] != VERSION[0] {
                    let [major, minor] = managed.version;
                    return Err(refuse(format!("version {major}.{minor} of DLPack is not known; 1.x is")));
                }
                if managed.flags & READ_ONLY != 0 {
                    access = Access::ReadOnly("read-only memory of the library that gave it by DLPack".into());
                }
                &managed.tensor
            }
        };
        let dtype = checked_dtype(tensor)?;
        let place = Place::of(tensor, dtype)?;
        if place.layout.sizes.contains(&0) {
            return adopt(
                "from_dlpack",
                Foreign::from(Vec::<u8>::new()),
                dtype,
                &Layout::contiguous(&place.layout.sizes),
            );
        }
        let start = place.start(tensor).ok_or_else(|| refuse("the tensor has elements, but no memory".into()))?;
        // SAFETY: the makers of the capsule promise that the elements that it describes are initialised, and stay until
        // it is dropped. `Place::of` found the first and last byte of them.
        let memory = unsafe { Foreign::new(start, place.len, access, capsule) };
        match place.backward {
            None => adopt("from_dlpack", memory, dtype, &place.layout),
            Some(strides) => forward(&memory, dtype, &place.layout, &strides),
        }
    }
}

/// Where the elements of a tensor are.
struct Place {
    /// The lowest element, counted from the first one.
    lowest: isize,
    /// Bytes from the lowest element to the end of the highest one.
    len: usize,
    /// The layout from the lowest element on.
    layout: Layout,
    /// The strides, if some are negative.
    backward: Option<Vec<isize>>,
}

impl Place {
    fn of(tensor: &Description, dtype: DType) -> Result<Place> {
        let refuse = |what: String| Error::argument("from_dlpack", what);
        let n = usize::try_from(tensor.ndim).ok().filter(|&n| n <= MAX_DIMS);
        let n = n.ok_or_else(|| refuse(format!("{} dims are none, or more than {MAX_DIMS}", tensor.ndim)))?;
        if n > 0 && tensor.shape.is_null() {
            return Err(refuse("there are no sizes".into()));
        }
        let numbers = |from: *mut i64| match n {
            0 => &[][..],
            // SAFETY: the makers of the capsule promise `ndim` sizes, and as many strides if there are any.
            _ => unsafe { std::slice::from_raw_parts(from.cast_const(), n) },
        };
        let sizes = numbers(tensor.shape);
        let sizes: Option<Sizes> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
        let sizes = sizes.ok_or_else(|| refuse(format!("sizes {:?} are negative", numbers(tensor.shape))))?;
        checked_numel("from_dlpack", &sizes, dtype.size())?;
        let row_major = Layout::contiguous(&sizes);
        let far = || refuse(format!("sizes {sizes:?} and their strides reach further than memory does"));
        let mut strides = Vec::with_capacity(n);
        for dim in 0..n {
            let given =
                if tensor.strides.is_null() { row_major.strides[dim] as i64 } else { numbers(tensor.strides)[dim] };
            // The stride of a dim of one element is not used, and may be any number.
            strides.push(if sizes[dim] == 1 { 1 } else { isize::try_from(given).map_err(|_| far())? });
        }
        if sizes.contains(&0) {
            return Ok(Place { lowest: 0, len: 0, layout: row_major, backward: None });
        }
        let (mut lowest, mut highest) = (0isize, 0isize);
        for (&size, &stride) in sizes.iter().zip(&strides) {
            let reach = isize::try_from(size - 1).ok().and_then(|last| last.checked_mul(stride)).ok_or_else(far)?;
            let end = if reach < 0 { &mut lowest } else { &mut highest };
            *end = end.checked_add(reach).ok_or_else(far)?;
        }
        let count = highest.checked_sub(lowest).and_then(|span| span.checked_add(1));
        let len = count.and_then(|count| count.checked_mul(dtype.size() as isize)).ok_or_else(far)? as usize;
        let backward = strides.iter().any(|&stride| stride < 0).then(|| strides.clone());
        let layout = match backward {
            Some(_) => row_major,
            None => Layout { strides: strides.iter().map(|&stride| stride as usize).collect::<Strides>(), ..row_major },
        };
        Ok(Place { lowest, len, layout, backward })
    }

    /// The address of the lowest element.
    fn start(&self, tensor: &Description) -> Option<NonNull<u8>> {
        let first = tensor.data.cast::<u8>().wrapping_add(usize::try_from(tensor.byte_offset).ok()?);
        let width = usize::from(tensor.bits) / 8;
        let lowest = first.wrapping_offset(self.lowest.wrapping_mul(width as isize));
        NonNull::new(tensor.data).and_then(|_| NonNull::new(lowest))
    }
}

/// A row-major copy of elements, of which some are stored backward.
fn forward(memory: &Foreign, dtype: DType, layout: &Layout, strides: &[isize]) -> Result<Tensor> {
    count_copy();
    let (bytes, width) = (memory.bytes(), dtype.size());
    let mut out: Vec<u8> = crate::device::roomy(layout.numel() * width)?;
    let back = |(&size, &stride): (&usize, &isize)| if stride < 0 { (size as isize - 1) * -stride } else { 0 };
    let first: isize = layout.sizes.iter().zip(strides).map(back).sum();
    for number in 0..layout.numel() {
        let index = layout.strides.iter().zip(&layout.sizes).map(|(&stride, &size)| (number / stride % size) as isize);
        let at = (first + index.zip(strides).map(|(index, &stride)| index * stride).sum::<isize>()) as usize * width;
        out.extend_from_slice(&bytes[at..at + width]);
    }
    Tensor::from_bytes(&out, dtype, &layout.sizes)
}

/// The dtype of a tensor on the CPU.
fn checked_dtype(tensor: &Description) -> Result<DType> {
    let refuse = |what: String| Error::argument("from_dlpack", what);
    if ![CPU, CUDA_HOST].contains(&tensor.device[0]) {
        let what = format!("device kind {} of DLPack is not the cpu", tensor.device[0]);
        return Err(refuse(format!("{what}; copy the tensor to the cpu before it is given")));
    }
    dtype_of(tensor).map_err(refuse)
}

/// Code and bits of a dtype.
fn code_of(dtype: DType) -> (u8, u8) {
    let code = match dtype {
        DType::Bool => 6,
        DType::U8 => 1,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 0,
        DType::F16 | DType::F32 | DType::F64 => 2,
        DType::BF16 => 4,
        DType::Complex64 | DType::Complex128 => 5,
    };
    (code, 8 * dtype.size() as u8)
}

fn dtype_of(tensor: &Description) -> Result<DType, String> {
    let found = DType::real_and_complex().find(|&dtype| code_of(dtype) == (tensor.code, tensor.bits));
    found.filter(|_| tensor.lanes == 1).ok_or_else(|| {
        let (code, bits, lanes) = (tensor.code, tensor.bits, tensor.lanes);
        format!("numbers of class {code} with {bits} bits and {lanes} lanes are none of opfuse; convert them first")
    })
}
