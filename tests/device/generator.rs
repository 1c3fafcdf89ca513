//! Generators: seeds, counters, state.

use opfuse::device::{Device, Generator, GeneratorState};
use opfuse::internals::device::generator::DEFAULT_SEED;
use std::collections::BTreeSet;
use std::thread;

#[test]
fn setting_a_seed_restarts_the_numbers() {
    let generator = Generator::new(Device::CPU);
    assert_eq!(generator.state(), GeneratorState { seed: DEFAULT_SEED, counter: 0 });
    assert_eq!(generator.draw(5), GeneratorState { seed: DEFAULT_SEED, counter: 0 });
    assert_eq!(generator.draw(0), GeneratorState { seed: DEFAULT_SEED, counter: 5 });
    assert_eq!(generator.draw(2), GeneratorState { seed: DEFAULT_SEED, counter: 5 });
    generator.manual_seed(42);
    assert_eq!((generator.initial_seed(), generator.state().counter), (42, 0));
    assert_ne!(generator.seed(), generator.seed());
    assert_eq!(format!("{:?}", Generator::new(Device::CPU)), format!("Generator(seed {DEFAULT_SEED} at 0 on cpu)"));
}

#[test]
fn state_is_restored_and_forked() {
    let generator = Generator::new(Device::CPU);
    generator.manual_seed(7);
    generator.draw(3);
    let state = generator.state();
    let fork = generator.fork();
    let drawn = generator.draw(10);
    assert_eq!(fork.draw(10), drawn);
    generator.set_state(state);
    assert_eq!(generator.draw(10), drawn);
    let same = generator.clone();
    same.manual_seed(1);
    assert_eq!(generator.initial_seed(), 1, "clones are the same generator");
    assert_eq!(fork.initial_seed(), 7, "a fork is another");
}

#[test]
fn every_device_has_a_default_generator() {
    let cpu = Generator::default_of(Device::CPU).expect("the cpu is there");
    let again = Generator::default_of("cpu:0".parse().expect("it is well-formed")).expect("the cpu is there");
    let before = cpu.state();
    again.draw(1);
    assert_ne!(cpu.state(), before, "cpu and cpu:0 have one generator");
    assert!(Generator::default_of(Device::cuda(200)).is_err());
}

#[test]
fn draws_of_many_threads_do_not_overlap() {
    let generator = Generator::new(Device::CPU);
    let starts: Vec<u64> = thread::scope(|scope| {
        let draw = || (0..1000).map(|_| generator.draw(3).counter).collect::<Vec<u64>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it only draws")).collect()
    });
    let distinct: BTreeSet<u64> = starts.iter().copied().collect();
    assert_eq!(distinct, (0..4000).map(|draw| 3 * draw).collect());
    assert_eq!(generator.state().counter, 12_000);
}
