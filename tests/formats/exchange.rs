//! DLPack and Arrow: memory of other libraries, and ours for them.

use crate::check_error;
use opfuse::device::foreign::copies;
use opfuse::formats::arrow::{Column, Schema, from_arrow, from_kept_arrow, to_arrow};
use opfuse::formats::dlpack::{Capsule, Description, Legacy, Versioned};
use opfuse::{DType, Result, Tensor, f16};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

static FREED: AtomicUsize = AtomicUsize::new(0);
/// Tests that count what is freed take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A tensor of another library.
struct Theirs {
    versioned: Versioned,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    _data: Vec<i32>,
}

unsafe extern "C" fn free(managed: *mut Versioned) {
    FREED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the context is the box of `theirs`, and this is called once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Theirs>()) });
}

/// A capsule over 0, 1, 2, …, whose first element is the one at `first`, after a change of its description.
fn theirs(first: usize, sizes: &[i64], strides: &[i64], change: impl FnOnce(&mut Versioned)) -> Capsule {
    let mut data: Vec<i32> = (0..24).collect();
    let tensor = Description {
        data: data.as_mut_ptr().cast(),
        device: [1, 0],
        ndim: sizes.len() as i32,
        code: 0,
        bits: 32,
        lanes: 1,
        shape: null_mut(),
        strides: null_mut(),
        byte_offset: 4 * first as u64,
    };
    let versioned = Versioned { version: [1, 3], context: null_mut(), deleter: Some(free), flags: 0, tensor };
    let theirs = Theirs { versioned, sizes: sizes.to_vec(), strides: strides.to_vec(), _data: data };
    let theirs = Box::into_raw(Box::new(theirs));
    // SAFETY: the pointer is that of the box just given up. `free` drops it, and nothing else has it.
    unsafe {
        (*theirs).versioned.context = theirs.cast();
        (*theirs).versioned.tensor.shape = (*theirs).sizes.as_mut_ptr();
        if !strides.is_empty() {
            (*theirs).versioned.tensor.strides = (*theirs).strides.as_mut_ptr();
        }
        change(&mut (*theirs).versioned);
        Capsule::from_versioned(NonNull::new_unchecked(&raw mut (*theirs).versioned))
    }
}

#[test]
fn tensors_of_dlpack_are_adopted() -> Result<()> {
    let _turn = TURN.lock();
    let before = FREED.load(Ordering::SeqCst);
    let x = Tensor::try_from(theirs(2, &[2, 3], &[12, 4], |_| {}))?;
    assert_eq!((x.strides(), x.to_vec2::<i32>()?), (&[12, 4][..], vec![vec![2, 6, 10], vec![14, 18, 22]]));
    let view = x.i((1,))?;
    x.add_(1)?;
    drop(x);
    assert_eq!((view.to_vec::<i32>()?, FREED.load(Ordering::SeqCst)), (vec![15, 19, 23], before));
    drop(view);
    assert_eq!(FREED.load(Ordering::SeqCst), before + 1);

    // Without strides, without dims, without elements, with a dim of one element whose stride is anything.
    assert_eq!(Tensor::try_from(theirs(1, &[2, 2], &[], |_| {}))?.to_vec::<i32>()?, [1, 2, 3, 4]);
    assert_eq!(Tensor::try_from(theirs(7, &[], &[], |_| {}))?.item::<i32>()?, 7);
    let empty = theirs(0, &[0, 3], &[], |managed| managed.tensor.data = null_mut());
    assert_eq!(Tensor::try_from(empty)?.sizes(), [0, 3]);
    assert_eq!(Tensor::try_from(theirs(3, &[1, 2], &[-99, 1], |_| {}))?.to_vec::<i32>()?, [3, 4]);
    // Negative strides.
    let copied = copies();
    let x = Tensor::try_from(theirs(23, &[2, 3], &[-12, -1], |_| {}))?;
    assert_eq!(x.to_vec2::<i32>()?, [[23, 22, 21], [11, 10, 9]]);
    let x = Tensor::try_from(theirs(4, &[2, 3], &[6, -2], |_| {}))?;
    assert_eq!(x.to_vec2::<i32>()?, [[4, 2, 0], [10, 8, 6]]);
    assert!(copies() >= copied + 2);
    // Addresses that are not aligned: the upper halves of numbers below 2^16, and the lower halves of the next ones.
    let x = Tensor::try_from(theirs(0, &[2], &[], |managed| managed.tensor.byte_offset = 2))?;
    assert_eq!(x.to_vec::<i32>()?, [1 << 16, 2 << 16]);
    let x = Tensor::try_from(theirs(0, &[2], &[], |managed| managed.flags = 1))?;
    check_error(x.add_(1), &["read-only", "DLPack"]);
    drop(x);
    assert_eq!(FREED.load(Ordering::SeqCst), before + 9);
    Ok(())
}

#[test]
fn tensors_of_dlpack_that_do_not_fit_are_refused_and_freed() {
    let _turn = TURN.lock();
    let before = FREED.load(Ordering::SeqCst);
    type Change = fn(&mut Versioned);
    let cases: [(&[i64], &[i64], Change, &str); 11] = [
        (&[2], &[], |managed| managed.version = [2, 0], "version 2.0"),
        (&[2], &[], |managed| managed.tensor.device = [2, 0], "not the cpu"),
        (&[2], &[], |managed| managed.tensor.code = 1, "class 1 with 32 bits"),
        (&[2], &[], |managed| managed.tensor.lanes = 4, "4 lanes"),
        (&[2], &[], |managed| managed.tensor.ndim = -1, "-1 dims"),
        (&[2], &[], |managed| managed.tensor.ndim = 1000, "1000 dims"),
        (&[2], &[], |managed| managed.tensor.data = null_mut(), "no memory"),
        (&[2], &[], |managed| managed.tensor.shape = null_mut(), "no sizes"),
        (&[-2], &[], |_| {}, "negative"),
        (&[i64::MAX, 8], &[], |_| {}, "too many"),
        (&[2, 2], &[i64::MAX, i64::MAX], |_| {}, "further than memory"),
    ];
    let count = cases.len();
    for (sizes, strides, change, part) in cases {
        check_error(Tensor::try_from(theirs(0, sizes, strides, change)), &["from_dlpack", part]);
    }
    assert_eq!(FREED.load(Ordering::SeqCst), before + count);
}

#[test]
fn tensors_are_given_by_dlpack() -> Result<()> {
    let x = Tensor::arange(0, 6, 1)?.reshape([2, 3])?;
    let column = x.i((.., 1))?;
    let pointer = Capsule::shared(&column)?.into_versioned().expect("it has a version");
    // SAFETY: the pointer is good until its deleter is called.
    let managed = unsafe { pointer.as_ref() };
    let Description { device, ndim, code, bits, lanes, byte_offset, .. } = managed.tensor;
    assert_eq!((managed.version[0], managed.flags), (1, 1));
    assert_eq!((device, ndim, code, bits, lanes, byte_offset), ([1, 0], 1, 0, 64, 1, 0));
    // SAFETY: as above; there is one dim, and its elements are those of the tensor.
    unsafe {
        assert_eq!((*managed.tensor.shape, *managed.tensor.strides), (2, 3));
        assert_eq!(*managed.tensor.data.cast::<i64>().add(3), 4);
    }
    check_error(x.add_(1), &["borrowed"]);
    // SAFETY: nothing else has the pointer.
    let back = Tensor::try_from(unsafe { Capsule::from_versioned(pointer) })?;
    assert_eq!(back.to_vec::<i64>()?, [1, 4]);
    check_error(back.add_(1), &["read-only"]);
    drop(back);
    x.add_(1)?;

    let version = x.version();
    let pointer = Capsule::writable_legacy(&x)?.into_legacy().expect("it has no version");
    assert_eq!(x.version(), version + 1);
    // SAFETY: as above; nothing uses the tensor meanwhile.
    unsafe {
        let legacy: &Legacy = pointer.as_ref();
        *legacy.tensor.data.cast::<i64>() = 40;
        drop(Capsule::from_legacy(pointer));
    }
    assert_eq!(x.i((0, 0))?.item::<i64>()?, 40);
    assert!(Capsule::writable(&x)?.into_legacy().is_err());
    for dtype in DType::ALL {
        let x = x.to_dtype(dtype)?;
        assert_eq!(Tensor::try_from(Capsule::writable(&x)?)?.dtype(), dtype);
    }
    let read_only = Tensor::from_shared([1.0f32], &[1])?;
    check_error(Capsule::writable(&read_only), &["to_dlpack", "read-only"]);
    let weight = Tensor::zeros(&[2], DType::F32)?;
    weight.set_requires_grad(true)?;
    check_error(Capsule::shared(&weight), &["to_dlpack", "detach()"]);
    check_error(Capsule::shared(&Tensor::meta(&weight.ty())?), &["meta"]);
    Ok(())
}

#[test]
fn columns_of_arrow_go_out_and_come_in() -> Result<()> {
    let x = Tensor::arange(0, 12, 1)?.reshape([2, 3, 2])?;
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::BF16) {
        let x = x.to_dtype(dtype)?;
        let (column, schema) = to_arrow(&x)?;
        // SAFETY: both are ours.
        let back = unsafe { from_arrow(column, &schema) }?;
        assert_eq!((back.dtype(), back.sizes()), (dtype, x.sizes()));
        let numbers = |x: &Tensor| x.to_dtype(DType::F64)?.to_vec::<f64>();
        assert_eq!(numbers(&back)?, numbers(&x)?, "{dtype}");
        if dtype != DType::Bool {
            check_error(back.add_(1), &["read-only", "Arrow"]);
            check_error(x.add_(1), &["borrowed"]);
        }
        drop(back);
        x.fill_(1)?;
    }
    for x in [x.permute([2, 0, 1])?, Tensor::zeros(&[0], DType::F16)?, Tensor::zeros(&[3, 0], DType::I8)?] {
        let (column, schema) = to_arrow(&x)?;
        // SAFETY: as above.
        assert_eq!(unsafe { from_arrow(column, &schema) }?.sizes(), x.sizes());
    }
    assert_eq!(Tensor::full(&[1], f16::ONE.to_f64(), DType::F16)?.item::<f16>()?, f16::ONE);
    check_error(to_arrow(&Tensor::scalar(1.0f32)?), &["to_arrow", "dims"]);
    check_error(to_arrow(&x.to_dtype(DType::BF16)?), &["to_arrow", "bf16"]);
    // SAFETY: nothing is in them, which is checked first.
    check_error(unsafe { from_arrow(Column::empty(), &Schema::empty()) }, &["from_arrow", "released"]);
    Ok(())
}

/// A column of another library, by the layout that the interface prescribes.
#[repr(C)]
struct RawColumn {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut c_void,
    dictionary: *mut c_void,
    release: Option<unsafe extern "C" fn(*mut RawColumn)>,
    private: *mut c_void,
}

#[repr(C)]
struct RawSchema {
    texts: [*const std::ffi::c_char; 3],
    numbers: [i64; 2],
    pointers: [*mut c_void; 2],
    release: Option<unsafe extern "C" fn(*mut RawSchema)>,
    private: *mut c_void,
}

unsafe extern "C" fn release_column(column: *mut RawColumn) {
    FREED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the column is one of `column`, whose buffers are a box.
    unsafe {
        drop(Box::from_raw((*column).buffers.cast::<[*const c_void; 2]>()));
        (*column).release = None;
    }
}

unsafe extern "C" fn release_schema(schema: *mut RawSchema) {
    // SAFETY: the schema is live while it is released.
    unsafe { (*schema).release = None }
}

fn raw_column(length: i64, offset: i64, null_count: i64, valid: &'static [u8], values: &'static [u8]) -> Column {
    let valid = if valid.is_empty() { std::ptr::null() } else { valid.as_ptr().cast() };
    let buffers: *mut [*const c_void; 2] = Box::into_raw(Box::new([valid, values.as_ptr().cast()]));
    let column = RawColumn {
        length,
        null_count,
        offset,
        n_buffers: 2,
        n_children: 0,
        buffers: buffers.cast(),
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(release_column),
        private: null_mut(),
    };
    assert_eq!(size_of::<RawColumn>(), size_of::<Column>());
    // SAFETY: both have the layout of the interface.
    unsafe { std::mem::transmute(column) }
}

fn raw_schema(format: &'static std::ffi::CStr) -> Schema {
    let schema = RawSchema {
        texts: [format.as_ptr(), c"".as_ptr(), std::ptr::null()],
        numbers: [0; 2],
        pointers: [null_mut(); 2],
        release: Some(release_schema),
        private: null_mut(),
    };
    assert_eq!(size_of::<RawSchema>(), size_of::<Schema>());
    // SAFETY: both have the layout of the interface.
    unsafe { std::mem::transmute(schema) }
}

#[test]
fn columns_of_others_have_offsets_and_nulls() -> Result<()> {
    let _turn = TURN.lock();
    let before = FREED.load(Ordering::SeqCst);
    static BYTES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    let take = |column: Column, format| {
        // SAFETY: the columns are as long as they say, but for those that are refused for their length.
        unsafe { from_arrow(column, &raw_schema(format)) }
    };
    assert_eq!(take(raw_column(3, 2, 0, &[], &BYTES), c"C")?.to_vec::<u8>()?, [3, 4, 5]);
    let bits = take(raw_column(5, 6, -1, &[0xff; 2], &[0b0100_0000, 0b101]), c"b")?;
    assert_eq!(bits.to_vec::<bool>()?, [true, false, true, false, true]);
    check_error(take(raw_column(5, 2, -1, &[0b1101_1111], &BYTES), c"C"), &["from_arrow", "1 nulls"]);
    assert_eq!(take(raw_column(3, 2, -1, &[0b1101_1111], &BYTES), c"C")?.numel(), 3);
    check_error(take(raw_column(1, 0, 0, &[], &BYTES), c"I"), &["\"I\"", "cast"]);
    check_error(take(raw_column(1, 0, 0, &[], &BYTES), c"+w:2"), &["one child"]);
    check_error(take(raw_column(-1, 0, 0, &[], &BYTES), c"C"), &["negative"]);
    check_error(take(raw_column(i64::MAX, 0, 0, &[], &BYTES), c"l"), &["too many"]);
    assert_eq!(FREED.load(Ordering::SeqCst), before + 8);
    Ok(())
}

/// The boxes that a column of lists points to.
struct Lists {
    child: *mut Column,
    schema: *mut Schema,
    validity: [*const c_void; 1],
}

unsafe extern "C" fn release_lists(column: *mut RawColumn) {
    FREED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the column is one of `lists`, which gave both boxes up, and this is called once.
    unsafe {
        let lists = Box::from_raw((*column).private.cast::<Lists>());
        drop(Box::from_raw(lists.child));
        (*column).release = None;
    }
}

unsafe extern "C" fn release_schema_of_lists(schema: *mut RawSchema) {
    // SAFETY: as for the column.
    unsafe {
        drop(Box::from_raw((*schema).private.cast::<Lists>().read().schema));
        drop(Box::from_raw((*schema).private.cast::<Lists>()));
        (*schema).release = None;
    }
}

/// A column of lists of two of the child's values, and its type.
fn lists(length: i64, offset: i64, child: Column, schema: Schema) -> (Column, Schema) {
    let [of_column, of_schema] = [(); 2].map(|()| {
        Box::into_raw(Box::new(Lists { child: null_mut(), schema: null_mut(), validity: [std::ptr::null()] }))
    });
    // SAFETY: the boxes were just given up, and live until both structures are released. Both have the layout of the
    // interface.
    unsafe {
        (*of_column).child = Box::into_raw(Box::new(child));
        (*of_schema).schema = Box::into_raw(Box::new(schema));
        let column = RawColumn {
            length,
            null_count: 0,
            offset,
            n_buffers: 1,
            n_children: 1,
            buffers: (&raw mut (*of_column).validity).cast(),
            children: (&raw mut (*of_column).child).cast(),
            dictionary: null_mut(),
            release: Some(release_lists),
            private: of_column.cast(),
        };
        let schema = RawSchema {
            texts: [c"+w:2".as_ptr(), c"".as_ptr(), std::ptr::null()],
            numbers: [0, 1],
            pointers: [(&raw mut (*of_schema).schema).cast(), null_mut()],
            release: Some(release_schema_of_lists),
            private: of_schema.cast(),
        };
        (std::mem::transmute::<RawColumn, Column>(column), std::mem::transmute::<RawSchema, Schema>(schema))
    }
}

#[test]
fn a_column_of_lists_goes_back_once_after_the_last_view_from_any_thread() -> Result<()> {
    let _turn = TURN.lock();
    let before = FREED.load(Ordering::SeqCst);
    static BYTES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
    let copied = copies();
    let (column, schema) = lists(2, 1, raw_column(7, 1, 0, &[], &BYTES), raw_schema(c"C"));
    // SAFETY: the column is as long as it says.
    let x = unsafe { from_arrow(column, &schema) }?;
    drop(schema);
    assert_eq!((x.to_vec2::<u8>()?, copies()), (vec![vec![4, 5], vec![6, 7]], copied));
    let view = x.i((.., 1))?;
    drop(x);
    assert_eq!(FREED.load(Ordering::SeqCst), before);
    std::thread::spawn(move || view.to_vec::<u8>().map(|found| assert_eq!(found, [5, 7]))).join().expect("no panic")?;
    assert_eq!(FREED.load(Ordering::SeqCst), before + 2, "the lists and their values");
    let (column, schema) = lists(3, 2, raw_column(8, 0, 0, &[], &BYTES), raw_schema(c"C"));
    // SAFETY: too long columns are refused.
    check_error(unsafe { from_arrow(column, &schema) }, &["lists of 2 values", "past the 8 values"]);
    assert_eq!(FREED.load(Ordering::SeqCst), before + 4);

    let owner = Arc::new(Mutex::new(raw_column(3, 2, 0, &[], &BYTES)));
    let kept = owner.clone();
    let column = owner.lock().expect("no panic");
    // SAFETY: the column is as long as it says, and released with its last owner.
    let x = unsafe { from_kept_arrow(&column, &raw_schema(c"c"), kept) }?;
    drop(column);
    drop(owner);
    assert_eq!((x.to_vec::<i8>()?, FREED.load(Ordering::SeqCst)), (vec![3, 4, 5], before + 4));
    drop(x);
    assert_eq!(FREED.load(Ordering::SeqCst), before + 5);
    Ok(())
}
