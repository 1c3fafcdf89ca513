//! What can go wrong: each failure is an error that says what and where. Live tensors stay valid, and the process goes
//! on.

use crate::fakes;
use opfuse::device::{DeviceGuard, DeviceKind, Storage, Stream, current_device, runtime};
use opfuse::{Device, Error, Result, Tensor};

fn numbers() -> Tensor {
    Tensor::from_slice(&[1.0f32, -2.0, 3.0], &[3]).expect("memory is there")
}

/// Checks that the error has all these words, and that the CPU works as before.
fn check<T: std::fmt::Debug>(result: Result<T>, words: &[&str]) {
    let error = result.expect_err("it fails").to_string();
    for word in words {
        assert!(error.contains(word), "{word} is missing: {error}");
    }
    let x = numbers();
    assert_eq!(x.add(&x).and_then(|sum| sum.to_vec::<f32>()), Ok(vec![2.0, -4.0, 6.0]));
}

#[test]
fn a_missing_driver_is_an_error() {
    fakes::without(&[("OPFUSE_CUDA_LIB_DIR", "/nowhere")], || {
        if runtime::device_count(DeviceKind::Cuda) > 0 {
            return;
        }
        let words = ["cuda:0", "libcuda.so.1", "/nowhere (OPFUSE_CUDA_LIB_DIR)", "use the cpu"];
        (0..2).for_each(|_| check(numbers().to_device(Device::cuda(0)), &words));
        check(Storage::new(Device::cuda(0), 4), &["no memory is available on cuda:0"]);
        check(Stream::new(Device::cuda(0)), &["libcuda.so.1"]);
        check(DeviceGuard::new(Device::cuda(0)).map(|_| ()), &["libcuda.so.1"]);
        check(current_device(DeviceKind::Cuda), &["libcuda.so.1"]);
    });
}

#[test]
fn a_missing_device_is_an_error() {
    fakes::with(&[("OPFUSE_FAKE_DEVICES", "0")], || {
        check(numbers().to_device(Device::cuda(0)), &["CUDA_ERROR_NO_DEVICE", "use the cpu"]);
    });
}

#[test]
fn a_missing_compiler_is_an_error() {
    let Some(folder) = fakes::folder() else { return };
    let alone = folder.join("driver_alone");
    std::fs::create_dir_all(&alone).expect("a folder can be made");
    let _ = std::fs::copy(folder.join("libcuda.so.1"), alone.join("libcuda.so.1"));
    fakes::without(&[("OPFUSE_CUDA_LIB_DIR", alone.to_str().expect("it has a name in letters"))], || {
        let there = numbers().to_device(Device::cuda(0)).expect("there is a device");
        for _ in 0..2 {
            let result = there.add(&there);
            if result.is_ok() {
                return;
            }
            check(result, &["NVRTC was not found", "libnvrtc.so.13", "driver_alone"]);
        }
        assert_eq!(there.to_vec::<f32>(), Ok(vec![1.0, -2.0, 3.0]));
    });
}

#[test]
fn unknown_device_numbers_are_errors() {
    fakes::only(&[], || {
        let x = numbers();
        assert_eq!(runtime::device_count(DeviceKind::Cuda), 2);
        check(x.to_device(Device::cuda(2)), &["cuda:2 does not exist; there are 2"]);
        let there = x.to_device(Device::of(DeviceKind::Cuda)).expect("the current device is there");
        assert_eq!(there.device(), Device::cuda(0));
        let _second = DeviceGuard::new(Device::cuda(1)).expect("there is a second device");
        let there = x.to_device(Device::of(DeviceKind::Cuda)).expect("the current device is there");
        assert_eq!(there.device(), Device::cuda(1));
        assert_eq!(there.add(&there).and_then(|sum| sum.to_vec::<f32>()), Ok(vec![2.0, -4.0, 6.0]));
    });
}

#[test]
fn operands_on_several_devices_are_refused() {
    fakes::only(&[], || {
        let x = numbers();
        let [a, b] = [0, 1].map(|index| x.to_device(Device::cuda(index)).expect("there are two devices"));
        check(a.add(&b), &["add", "cuda:0", "cuda:1", "to_device"]);
        check(a.add(&x), &["add", "cuda:0", "cpu"]);
        check(x.matmul(&a), &["expected all tensors on cuda:0", "cpu"]);
        // A single element of the CPU is a number.
        let two = Tensor::scalar(2.0f32).expect("memory is there");
        assert_eq!(a.mul(&two).and_then(|y| y.to_vec::<f32>()), Ok(vec![2.0, -4.0, 6.0]));
        // Copies may go from device to device.
        b.copy_(&a.mul(3).expect("it is computed")).expect("copies cross devices");
        x.copy_(&b).expect("copies come home");
        assert_eq!(x.to_vec::<f32>(), Ok(vec![3.0, -6.0, 9.0]));
    });
}

#[test]
fn running_out_of_memory_is_an_error() {
    fakes::with(&[("OPFUSE_FAKE_MEMORY", "3000000")], || {
        let large = |index| Tensor::full(&[250_000], 1.0f32, None)?.to_device(Device::cuda(index));
        let [a, b] = [large(0).expect("a third fits"), large(0).expect("so does another")];
        let error = large(0).expect_err("the third does not");
        assert!(matches!(&error, Error::OutOfMemory { device, .. } if device == "cuda:0"), "{error}");
        check(a.add(&b), &["out of memory on cuda:0", "1000000 bytes"]);
        assert_eq!(b.to_vec::<f32>().map(|all| all.len()), Ok(250_000));
        // Cached blocks of all sizes are released before a request fails.
        drop(a);
        let other = Tensor::full(&[330_000], 1.0f32, None).and_then(|x| x.to_device(Device::cuda(0)));
        assert_eq!(other.map(|x| x.numel()), Ok(330_000));
        large(1).expect("the other device has memory of its own");
    });
}

#[test]
fn an_integer_division_by_zero_is_an_error() {
    fakes::with(&[], || {
        let x =
            Tensor::from_slice(&[1i64, 2, 0], &[3]).and_then(|x| x.to_device(Device::cuda(0))).expect("it is there");
        check(x.remainder(&x).and_then(|y| y.to_vec::<i64>()), &["ZeroDivisionError", "cuda:0"]);
        assert_eq!(x.remainder(2).and_then(|y| y.to_vec::<i64>()), Ok(vec![1, 0, 0]));
    });
}

#[test]
fn source_that_does_not_compile_is_an_error() {
    fakes::with(&[("OPFUSE_FAKE_SYNTAX", "not_a_type x;")], || {
        let there = numbers().to_device(Device::cuda(0)).expect("there is a device");
        for _ in 0..2 {
            check(there.neg(), &["NVRTC_ERROR_COMPILATION", "not_a_type"]);
        }
        assert_eq!(there.to_vec::<f32>(), Ok(vec![1.0, -2.0, 3.0]));
    });
}

#[test]
fn a_failed_kernel_is_reported_asynchronously() {
    fakes::with(&[("OPFUSE_FAKE_FAIL", "1")], || {
        let x = numbers();
        let [there, other] = [0, 1].map(|index| x.to_device(Device::cuda(index)).expect("there are two devices"));
        let result = there.neg().expect("a launch does not wait for its kernel");
        check(result.to_vec::<f32>(), &["CUDA_ERROR_LAUNCH_FAILED on cuda:0", "reported asynchronously"]);
        check(there.add(&there).and_then(|sum| sum.to_vec::<f32>()), &["cuda:0"]);
        check(x.to_device(Device::cuda(0)), &["cuda:0"]);
        assert_eq!(other.add(&other).and_then(|sum| sum.to_vec::<f32>()), Ok(vec![2.0, -4.0, 6.0]));
        drop((there, result));
    });
}

#[test]
fn out_of_range_indices_are_errors() {
    fakes::with(&[], || {
        let table = Tensor::arange(0, 20, 1).and_then(|x| x.reshape([5, 4])).expect("memory is there");
        let there = table.to_device(Device::cuda(0)).expect("there is a device");
        let at = |indices: &[i64]| {
            let index = Tensor::from_slice(indices, &[indices.len()]).expect("memory is there");
            let on_cpu = table.index_select(0, &index).and_then(|rows| rows.to_vec::<i64>());
            let index = index.to_device(Device::cuda(0)).expect("there is a device");
            (there.index_select(0, &index).and_then(|rows| rows.to_vec::<i64>()), on_cpu)
        };
        for indices in [&[0, 4, 2][..], &[3], &[], &[1; 33]] {
            let (found, expected) = at(indices);
            assert_eq!(found, expected, "{indices:?}");
        }
        for indices in [&[0, 5, 2][..], &[i64::MAX], &[1, 2, -6]] {
            let (found, expected) = at(indices);
            let expected = expected.expect_err("the cpu says so").to_string();
            let (before, behind) = expected.split_once("index ").expect("it names the op first");
            check(found, &[before, behind, "index (reported asynchronously by cuda:0)"]);
        }
    });
}

/// The bounds check in the kernel is what finds such indices: without it there is no error, and nothing outside is
/// read.
#[test]
fn a_missing_bounds_check_is_detected() {
    let change = [("OPFUSE_FAKE_FROM", "fault_index(w"), ("OPFUSE_FAKE_TO", "if (w.at[0] > 9) fault_index(w")];
    fakes::with(&change, || {
        let index = Tensor::from_slice(&[1i64, 7], &[2]).expect("memory is there");
        let [there, index] = [numbers(), index].map(|x| x.to_device(Device::cuda(0)).expect("there is a device"));
        assert_eq!(there.index_select(0, &index).and_then(|rows| rows.to_vec::<f32>()), Ok(vec![-2.0, 0.0]));
    });
}
