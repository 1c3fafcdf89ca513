//! Key sets, priorities, names, aliases (lines 001 to 031).

use crate::{assert_error, assert_slots, operator, set};
use opfuse::dispatch::{Backend, DispatchKey as K, Dispatcher, KeySet, expand, includes};
use opfuse::internals::dispatch::key::{N_SLOTS, RUNTIME_KEYS};
use opfuse::internals::dispatch::table::Source;

#[test]
fn n001_empty_set() {
    assert!(KeySet::EMPTY.is_empty());
    assert_eq!(KeySet::EMPTY.highest(), K::Undefined);
    assert_eq!(KeySet::EMPTY.iter().next(), None);
    assert!(K::ALL.iter().all(|&key| !KeySet::EMPTY.has(key)));
}

#[test]
fn n003_dense_and_backend_bit_make_the_runtime_key() {
    assert_eq!(KeySet::of(K::Dense) | KeySet::of_backend(Backend::CPU), KeySet::of(K::CPU));
}

#[test]
fn n004_sets_are_cross_products() {
    let a = set(&[K::AutogradCUDA, K::CPU]);
    assert_eq!(a, set(&[K::AutogradCPU, K::CUDA]));
    assert_eq!(a, set(&[K::AutogradCUDA, K::AutogradCPU, K::CUDA, K::CPU]));
    assert_eq!(a.iter().count(), 4);
}

#[test]
fn n006_difference_keeps_backends() {
    let difference = set(&[K::CUDA, K::AutogradCPU]) - KeySet::of(K::AutogradCPU);
    assert_eq!(difference, set(&[K::CPU, K::CUDA]));
    assert_eq!(difference.highest(), K::CUDA);
}

#[test]
fn n007_remove_backend_keeps_functionalities() {
    let removed = set(&[K::CUDA, K::AutogradCPU]).remove_backend(Backend::CUDA);
    assert_eq!(removed, set(&[K::CPU, K::AutogradCPU]));
}

#[test]
fn n009_adding_twice_is_adding_once() {
    for &key in RUNTIME_KEYS.iter() {
        let once = KeySet::of(K::Tracer).add(key);
        assert_eq!(once.add(key), once);
        assert_eq!(once | once, once);
    }
}

#[test]
fn n010_full_has_every_functionality() {
    assert!(K::FUNCTIONALITIES.iter().all(|&key| KeySet::FULL.has(key)));
    let used = Backend::ALL.len() + K::FUNCTIONALITIES.len();
    assert_eq!(KeySet::FULL.bits().count_ones() as usize, used);
    assert_eq!(KeySet::from_bits(u64::MAX), KeySet::FULL);
}

#[test]
fn n012_keys_fit_into_64_bits() {
    assert!(Backend::ALL.len() <= 16);
    assert!(Backend::ALL.len() + K::FUNCTIONALITIES.len() <= 64);
}

#[test]
fn n013_iteration_order() {
    let keys = set(&[K::CPU, K::CUDA, K::FPGA, K::AutogradFunctionality]);
    let order = [K::CPU, K::CUDA, K::FPGA, K::AutogradCPU, K::AutogradCUDA];
    assert!(keys.iter().eq(order));
}

#[test]
fn n015_union_of_two_runtime_keys() {
    let per_backend: Vec<K> = RUNTIME_KEYS.iter().copied().filter(|key| key.backend().is_some()).collect();
    for &a in &per_backend {
        for &b in per_backend.iter().filter(|&&b| b != a) {
            let shared = a.functionality() == b.functionality() || a.backend() == b.backend();
            assert_eq!(set(&[a, b]).iter().count(), if shared { 2 } else { 4 }, "{a} and {b}");
        }
    }
}

#[test]
fn n016_full_iterates_every_runtime_key() {
    assert_eq!(KeySet::FULL.iter().count(), N_SLOTS - 1);
    assert!(KeySet::FULL.iter().eq(RUNTIME_KEYS[1..].iter().copied()));
}

#[test]
fn n018_iterator_positions() {
    let end = K::FUNCTIONALITIES.len();
    assert_eq!(KeySet::FULL.iter_from(end, 0).expect("the end").next(), None);
    assert!(KeySet::FULL.iter_from(end + 1, 0).is_err());
    assert_eq!(KeySet::FULL.iter_from(0, 1).expect("inside").next(), Some(K::CUDA));
}

#[test]
fn n019_highest_key() {
    assert_eq!(set(&[K::AutogradCUDA, K::CPU]).highest(), K::AutogradCUDA);
}

#[test]
fn n021_priority_ladder() {
    let ladder = [
        K::CPU,
        K::FPGA,
        K::QuantizedCPU,
        K::SparseCPU,
        K::SparseCsrCPU,
        K::NestedTensorCPU,
        K::BackendSelect,
        K::Python,
        K::Functionalize,
        K::Conjugate,
        K::Negative,
        K::ZeroTensor,
        K::ADInplaceOrView,
        K::AutogradOther,
        K::AutogradCPU,
        K::AutogradNestedTensor,
        K::Tracer,
        K::AutocastCPU,
        K::FuncTorchBatched,
        K::FuncTorchGradWrapper,
        K::PythonTLSSnapshot,
        K::FuncTorchDynamicLayerFrontMode,
        K::PreDispatch,
        K::PythonDispatcher,
    ];
    for (i, &low) in ladder.iter().enumerate() {
        for &high in &ladder[i + 1..] {
            assert_eq!(set(&[low, high]).highest(), high, "{low} < {high}");
        }
    }
}

#[test]
fn n022_highest_backend_key() {
    assert_eq!(set(&[K::AutogradCPU, K::CPU]).highest_backend_key(), K::CPU);
    assert_eq!(set(&[K::Functionalize, K::SparseCUDA]).highest_backend_key(), K::SparseCUDA);
    assert_eq!(set(&[K::CUDA, K::QuantizedCUDA]).highest_backend_key(), K::QuantizedCUDA);
}

#[test]
fn n024_slot_is_that_of_the_highest_key() {
    // A linear congruential generator: every bit pattern is as likely as any other.
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..10_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let keys = KeySet::from_bits(bits >> (bits >> 58));
        assert_eq!(keys.highest().slot(), Some(keys.slot()), "{keys}");
        let top = keys.highest_functionality();
        if keys.highest_backend().is_some() || !top.is_per_backend() {
            assert_eq!(keys.iter().last().unwrap_or(K::Undefined), keys.highest(), "{keys}");
        }
    }
    assert!(RUNTIME_KEYS.iter().enumerate().all(|(slot, key)| key.slot() == Some(slot)));
}

#[test]
fn n025_names_parse_back() {
    for &key in K::ALL {
        assert_eq!(key.to_string().parse::<K>(), Ok(key));
    }
    assert_error("NoSuchKey".parse::<K>(), &["could not parse dispatch key: NoSuchKey"]);
}

#[test]
fn n027_composite_implicit_keys() {
    for key in RUNTIME_KEYS {
        let expected = match key.functionality() {
            K::Dense | K::Quantized | K::Sparse | K::SparseCsr | K::NestedTensor | K::AutogradFunctionality => true,
            K::FPGA | K::Vulkan | K::Metal | K::CustomRNGKeyId | K::MkldnnCPU => true,
            other => matches!(other, K::AutogradOther | K::AutogradNestedTensor),
        };
        assert_eq!(includes(K::CompositeImplicitAutograd, key), expected, "{key}");
    }
}

#[test]
fn n028_composite_explicit_keys() {
    let keys = expand(K::CompositeExplicitAutograd);
    assert!(keys.has(K::CPU) && keys.has(K::SparseMeta) && keys.has(K::FPGA));
    assert!(!keys.has(K::AutogradCPU) && !keys.has(K::AutogradOther) && !keys.has(K::NestedTensorCPU));
}

#[test]
fn n030_nested_decomposition() {
    let dispatcher = Dispatcher::new();
    let (_library, op) =
        operator(&dispatcher, &[K::CompositeImplicitAutogradNestedTensor, K::CompositeImplicitAutograd]);
    let (nested, math) = ("CompositeImplicitAutogradNestedTensor", "CompositeImplicitAutograd");
    assert_slots(
        &op,
        &[(K::NestedTensorCPU, nested), (K::NestedTensorCUDA, nested), (K::AutogradNestedTensor, nested)],
    );
    assert_slots(&op, &[(K::CPU, math), (K::AutogradCPU, math), (K::Undefined, math)]);
}

#[test]
fn n031_batched_decomposition() {
    let dispatcher = Dispatcher::new();
    let (_library, op) = operator(&dispatcher, &[K::FuncTorchBatchedDecomposition]);
    for key in RUNTIME_KEYS {
        let expected = if key == K::FuncTorchBatched { Source::Batched } else { Source::Missing };
        assert_eq!(op.slot(key).source, expected, "{key}");
    }
}
