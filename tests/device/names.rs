//! Names of devices.

use opfuse::device::{Device, DeviceKind, current_device, runtime};

/// 196: a kind, or a kind and a number without sign, spaces or leading zeros.
#[test]
fn device_strings_are_parsed_and_printed() {
    let well_formed = [
        ("cpu", DeviceKind::Cpu, None),
        ("cuda:0", DeviceKind::Cuda, Some(0)),
        ("cuda", DeviceKind::Cuda, None),
        ("cuda:12", DeviceKind::Cuda, Some(12)),
        ("meta:0", DeviceKind::Meta, Some(0)),
        ("privateuseone:1", DeviceKind::PrivateUse1, Some(1)),
    ];
    for (text, kind, index) in well_formed {
        let device: Device = text.parse().expect(text);
        assert_eq!((device.kind, device.index, device.to_string().as_str()), (kind, index, text));
    }
    for text in ["cuda:", "cuda:-1", "cuda:01", "cuda:1a", "cuda:1:", "cuda: 1", "cuda:99999"] {
        let error = text.parse::<Device>().expect_err(text).to_string();
        assert!(error.contains("Invalid device string"), "{text}: {error}");
    }
    for text in ["gpu", "", "CUDA", "cud", "gpu:0"] {
        let error = text.parse::<Device>().expect_err(text).to_string();
        for kind in DeviceKind::ALL {
            assert!(error.contains(kind.name()), "{text}: {error}");
        }
    }
    assert_ne!("cuda".parse::<Device>(), "cuda:0".parse::<Device>());
}

#[test]
fn the_cpu_and_meta_devices_are_there() {
    assert_eq!((runtime::device_count(DeviceKind::Cpu), runtime::device_count(DeviceKind::Meta)), (1, 1));
    assert_eq!(current_device(DeviceKind::Cpu).expect("the cpu is there").to_string(), "cpu:0");
    let built_in = runtime::register(DeviceKind::Cpu, std::sync::Arc::new(super::queues::Queues::new(1)));
    assert!(built_in.is_err_and(|error| error.to_string().contains("built in")));
}
