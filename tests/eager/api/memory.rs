//! Memory that tensors adopt and give back.

use super::*;
use opfuse::autograd::no_grad;
use opfuse::compile;
use opfuse::device::Storage;
use opfuse::device::foreign::{Foreign, copies};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Floats that count how often they are dropped.
struct Lender(Vec<f32>, Arc<AtomicUsize>);

impl AsRef<[f32]> for Lender {
    fn as_ref(&self) -> &[f32] {
        &self.0
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

fn lent(len: usize) -> (Tensor, Arc<AtomicUsize>, *const f32) {
    let drops = Arc::new(AtomicUsize::new(0));
    let lender = Lender((0..len).map(|i| i as f32).collect(), drops.clone());
    let start = lender.0.as_ptr();
    (Tensor::from_shared(lender, &[len]).expect("the length is right"), drops, start)
}

#[test]
fn vectors_are_adopted_and_given_back() -> Result<()> {
    let data: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let start = data.as_ptr();
    let x = Tensor::from_vec(data, &[10, 100])?;
    assert_eq!(x.as_slice::<f32>()?.as_ptr(), start);
    x.add_(1.0)?;
    let view = x.i((.., 3))?;
    drop(x.relu()?);
    let copied = x.clone().into_vec::<f32>()?;
    assert_ne!(copied.as_ptr(), start, "another handle has the memory");
    drop(view);
    let back = x.into_vec::<f32>()?;
    assert_eq!((back.as_ptr(), back[999]), (start, 1000.0));
    assert_eq!(Tensor::try_from(back)?.as_slice::<f32>()?.as_ptr(), start);

    assert_eq!(Tensor::from_vec(vec![true, false], &[2])?.into_vec::<bool>()?, [true, false]);
    assert_eq!(Tensor::from_vec(Vec::<i64>::new(), &[0, 3])?.into_vec::<i64>()?, []);
    check_error(Tensor::from_vec(vec![1u8, 2], &[3]), &["from_vec", "[3]", "2 were given"]);
    check_error(Tensor::from_vec(vec![1u8], &[1])?.into_vec::<i8>(), &["into_vec", "u8", "i8"]);
    Ok(())
}

#[test]
fn owners_are_dropped_once_after_the_last_view() -> Result<()> {
    let (x, drops, start) = lent(100);
    assert_eq!(x.as_slice::<f32>()?.as_ptr(), start);
    let view = x.i((10..20,))?;
    let slice = x.as_slice::<f32>()?;
    drop(x);
    assert_eq!((drops.load(Ordering::SeqCst), slice[99]), (0, 99.0));
    drop(slice);
    let last = std::thread::spawn(move || view.to_vec::<f32>().map(|data| data[0])).join().expect("it does not panic");
    assert_eq!((last?, drops.load(Ordering::SeqCst)), (10.0, 1));
    // Memory of no bytes, and a tensor that is refused.
    let (empty, drops, _) = lent(0);
    assert_eq!((empty.numel(), drops.load(Ordering::SeqCst)), (0, 1));
    let drops = Arc::new(AtomicUsize::new(0));
    assert!(Tensor::from_shared(Lender(vec![1.0], drops.clone()), &[2]).is_err());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    Ok(())
}

#[test]
fn read_only_memory_is_not_written() -> Result<()> {
    let (x, _, _) = lent(20_000);
    let message = "the memory is read-only: it is shared with the program";
    check_error(x.add_(1.0), &[message, "copy()"]);
    check_error(x.copy_(&Tensor::zeros(&[20_000], DType::F32)?), &[message]);
    check_error(x.i((3,))?.fill_(1.0), &[message]);
    check_error(x.set((..,), 0.0), &[message]);
    check_error(x.index_fill_(0, &tensor(&[1i64], &[1]), 2.0), &[message]);
    check_error(x.clone().as_mut_slice::<f32>(), &[message]);
    check_error(x.array().storage().write(|bytes| bytes.fill(0)), &[message]);
    let written = compile(|x: &Tensor| x.mul_(2.0).map(|()| x.clone()));
    for _ in 0..3 {
        check_error(written.call(&x), &[message]);
    }
    assert_eq!(x.as_slice::<f32>()?[7], 7.0);
    // A gradient over such memory is copied before others are added to it.
    let leaf = Tensor::zeros(&[4], DType::F32)?;
    leaf.set_requires_grad(true)?;
    for _ in 0..2 {
        let gradient = Tensor::from_shared([1.0f32; 4], &[4])?;
        leaf.alias()?.backward_with(&gradient)?;
    }
    assert_eq!(leaf.grad().expect("it has one").to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}

#[test]
fn unaligned_bytes_are_copied() -> Result<()> {
    let bytes: Arc<[u8]> = (0..41u8).collect();
    struct Part(Arc<[u8]>, usize);
    impl AsRef<[u8]> for Part {
        fn as_ref(&self) -> &[u8] {
            &self.0[self.1..][..40]
        }
    }
    let first = bytes.as_ptr().addr() % 4;
    let aligned = usize::from(first != 0);
    let part = |at| Foreign::shared(Part(bytes.clone(), at), "part of a message");
    if first == 0 || first == 3 {
        // What is not copied is read-only.
        assert!(Tensor::from_foreign(part(aligned), DType::F32, &[10])?.add_(1.0).is_err());
    }
    let before = copies();
    let x = Tensor::from_foreign(part(1 - aligned), DType::I32, &[2, 5])?;
    assert!(copies() > before);
    let expected = i32::from_ne_bytes(bytes[1 - aligned..][..4].try_into().expect("four bytes"));
    x.add_(1)?;
    assert_eq!(x.i((0, 0))?.item::<i32>()?, expected + 1);

    // The same bytes in a dtype that they are aligned for, seen as one that they are not.
    let odd = (1..3).find(|at| !(bytes.as_ptr().addr() + at).is_multiple_of(4)).expect("two addresses");
    let x = Tensor::from_foreign(Foreign::shared(Part(bytes.clone(), odd), "a part"), DType::U8, &[40])?;
    if !(bytes.as_ptr().addr() + odd).is_multiple_of(4) {
        check_error(x.view_dtype(DType::F32), &["not aligned", "copy()"]);
        assert_eq!(x.copy()?.view_dtype(DType::F32)?.sizes(), [10]);
    }
    let truth = Tensor::from_foreign(Foreign::shared([0u8, 1, 7], "flags"), DType::Bool, &[3])?;
    assert_eq!(truth.to_vec::<bool>()?, [false, true, true]);
    check_error(Tensor::from_foreign(part(0), DType::F64, &[4]), &["from_foreign", "4 elements", "5 were given"]);
    Ok(())
}

#[test]
fn bytes_become_elements() -> Result<()> {
    check(Tensor::from_bytes(&[1, 0, 255, 255], DType::I16, &[2, 1]), &[2, 1], &[1i16, -1]);
    check(Tensor::from_bytes(&[0, 3], DType::Bool, &[2]), &[2], &[false, true]);
    check_error(Tensor::from_bytes(&[0; 5], DType::I16, &[2]), &["from_bytes", "[2]", "4 bytes", "5 were given"]);
    check_error(Tensor::from_bytes(&[], DType::I16, &[usize::MAX, 2]), &["too many"]);
    Ok(())
}

#[test]
fn slices_keep_writers_out_and_count_writes() -> Result<()> {
    let mut x = counting(&[3, 4]);
    let slice = x.as_slice::<f32>()?;
    check_error(x.add_(1.0), &["borrowed"]);
    drop(slice);
    check_error(x.t()?.as_slice::<f32>(), &["as_slice", "[4, 3]", "contiguous()"]);
    check_error(x.as_slice::<f64>(), &["as_slice", "f32", "f64"]);
    assert_eq!(x.i((1,))?.as_slice::<f32>()?[..], [4.0, 5.0, 6.0, 7.0]);

    let version = x.version();
    x.as_mut_slice::<f32>()?[5] = -1.0;
    assert_eq!((x.version(), x.i((1, 1))?.item::<f32>()?), (version + 1, -1.0));
    let view = x.i((0,))?;
    check_error(x.as_mut_slice::<f32>(), &["as_mut_slice", "views", "copy()"]);
    drop(view);
    let mut other = x.clone();
    check_error(other.as_mut_slice::<f32>(), &["as_mut_slice", "clones"]);
    drop(other);
    x.set_requires_grad(true)?;
    check_error(x.as_mut_slice::<f32>(), &["as_mut_slice", "no_grad()"]);
    {
        let _guard = no_grad();
        x.as_mut_slice::<f32>()?.fill(2.0);
    }
    assert_eq!(x.sum((), false)?.item::<f32>()?, 24.0);
    let in_trace = compile(|x: &Tensor| x.add(1.0)?.as_mut_slice::<f32>().map(|all| all[0] = 1.0).map(|()| x.clone()));
    check_error(in_trace.call(&counting(&[2])), &["as_mut_slice", "copy_"]);

    // A write to the storage itself is counted, too: a backward pass sees it.
    let x = counting(&[3]);
    let weight = counting(&[3]);
    weight.set_requires_grad(true)?;
    let loss = (&x * &weight)?.sum((), false)?;
    x.array().storage().write(|bytes| bytes.fill(0))?;
    check_error(loss.backward(), &["version"]);
    let storage: &Storage = x.array().storage();
    let before = x.version();
    storage.store(&[0; 12])?;
    assert_eq!(x.version(), before + 1);
    Ok(())
}
