//! Messages name what is wrong: the dim, the argument, the call, and what to do.

use super::*;

#[test]
fn expand_names_the_dimension() {
    let parts = ["the expanded size (4) must match the existing size (3) at non-singleton dimension 1", "[2, 4, 4]"];
    check_error(counting(&[3, 4]).expand([2, 4, 4]), &parts);
    check_error(counting(&[3, 4]).expand([4]), &["the number of sizes (1) must not be less than that of dims (2)"]);
}

#[test]
fn a_device_mismatch_names_the_argument() {
    let meta = Tensor::meta(&TensorType::contiguous(DType::F32, &[2])).expect("no memory is needed");
    check_error(meta.add(counting(&[2])), &["add", "found one on cpu", "argument 'other'"]);
    check_error(counting(&[2]).sub(&meta), &["sub", "argument 'self'"]);
    check_error(cat(&[&meta, &counting(&[2])], 0), &["cat", "tensor 1"]);
}

#[test]
fn reductions_of_nothing_say_that_there_is_no_identity() {
    let nothing = counting(&[2, 0]);
    for found in [nothing.amax(1, false), nothing.argmax(1, false), nothing.amin((), false)] {
        let message = found.expect_err("there is nothing to choose from").to_string();
        assert!(message.contains("reduced dim 1 of shape [2, 0]") && message.contains("no identity"), "{message}");
        assert!(!message.contains("9223372036854775807"), "{message}");
    }
}

#[test]
fn running_out_of_memory_says_what_to_do_and_no_limit_that_is_none() {
    let error = |call: &str, limit| {
        Error::OutOfMemory { call: call.into(), device: "cpu".into(), wanted: 64, held: 32, limit }.to_string()
    };
    let advice = "drop tensors that are not needed";
    let unlimited = error("", usize::MAX);
    assert!(unlimited.starts_with("out of memory on cpu: wanted 64 bytes; 32 bytes are held;"), "{unlimited}");
    assert!(unlimited.contains(advice) && !unlimited.contains("limit"), "{unlimited}");
    let limited = error("add(f32[2], f32[2])", 48);
    assert!(limited.starts_with("add(f32[2], f32[2]): out of memory on cpu"), "{limited}");
    assert!(limited.contains("of a limit of 48") && limited.contains(advice), "{limited}");
}
