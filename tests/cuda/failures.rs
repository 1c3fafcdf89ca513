//! What can go wrong: each is an error that says what and where, and the process goes on.

use crate::stand_ins;
use opfuse::{Device, Tensor};

#[test]
fn no_driver() {
    stand_ins::without(&[("OPFUSE_CUDA_LIB_DIR", "/nowhere")], || {
        let x = Tensor::from_slice(&[1.0f32], &[1]).expect("memory is there");
        for _ in 0..2 {
            let error = x.to_device(Device::cuda(0)).expect_err("there is no driver").to_string();
            for word in ["cuda:0", "libcuda.so.1", "/nowhere (OPFUSE_CUDA_LIB_DIR)", "use the cpu"] {
                assert!(error.contains(word), "{word}: {error}");
            }
        }
        assert_eq!(x.add(&x).and_then(|sum| sum.to_vec::<f32>()), Ok(vec![2.0]));
    });
}
