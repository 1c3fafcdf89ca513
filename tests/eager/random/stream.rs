//! Which number is where: the definition, and that threads, tiers, layouts and `compile` do not change it.

use super::{generator, numbers, turn};
use opfuse::device::pool;
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::ir::philox::{block, n_counters};
use opfuse::{CompileOptions, DType, Device, Error, Generator, Result, Tensor, compile, compile_with};

const SEED: u64 = 0x1234_5678_9abc_def0;

/// Word `i` of a draw of 32-bit words from counter `first`, from the definition.
fn word(first: u64, i: usize) -> u32 {
    block(SEED, first + i as u64 / 4)[i % 4]
}

/// Word `i` of a draw of 64-bit words.
fn wide_word(first: u64, i: usize) -> u64 {
    u64::from(word(first, 2 * i)) | u64::from(word(first, 2 * i + 1)) << 32
}

#[test]
fn numbers_are_those_of_the_definition() -> Result<()> {
    let generator = generator(SEED);
    let uniform = generator.rand(&[3, 7], DType::F32)?.to_vec::<f32>()?;
    for (i, &found) in uniform.iter().enumerate() {
        assert_eq!(found, (word(0, i) & 0xff_ffff) as f32 / (1 << 24) as f32, "element {i}");
    }
    let first = n_counters(21, 4);
    assert_eq!(generator.state().counter, first);
    let uniform = generator.rand(&[5], DType::F64)?.to_vec::<f64>()?;
    for (i, &found) in uniform.iter().enumerate() {
        assert_eq!(found, (wide_word(first, i) & ((1 << 53) - 1)) as f64 / (1u64 << 53) as f64, "element {i}");
    }
    let first = first + n_counters(5, 8);
    let normal = generator.randn(&[9], DType::F64)?.to_vec::<f64>()?;
    for (i, &found) in normal.iter().enumerate() {
        let u = ((wide_word(first, i) & (u64::MAX >> 1)) as f64 + 1.0) / 63f64.exp2();
        let v = (wide_word(first, 9 + i) & ((1 << 53) - 1)) as f64 / 53f64.exp2();
        let expected = (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos();
        assert!((found - expected).abs() < 1e-14, "element {i} is {found}, not {expected}");
    }
    let first = first + n_counters(18, 8);
    let whole = generator.randint(-4, 90, &[10])?.to_vec::<i64>()?;
    for (i, &found) in whole.iter().enumerate() {
        assert_eq!(found, -4 + ((u128::from(wide_word(first, i)) * 94) >> 64) as i64, "element {i}");
    }
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_numbers() -> Result<()> {
    let _turn = turn();
    let draw = || -> Result<Vec<f64>> {
        let mut all = numbers(&Tensor::rand(&[10], DType::F32)?);
        all.extend(numbers(&Tensor::randn(&[10], DType::F16)?));
        all.extend(numbers(&Tensor::randint(0, 100, &[10])?));
        all.extend(numbers(&Tensor::randperm(10)?));
        all.extend(numbers(&Tensor::full(&[10], 0.5, None)?.bernoulli()?));
        Ok(all)
    };
    opfuse::manual_seed(3);
    let first = draw()?;
    assert_ne!(draw()?, first, "later numbers are others");
    opfuse::manual_seed(3);
    assert_eq!(draw()?, first);
    opfuse::manual_seed(4);
    assert_ne!(draw()?, first);
    let default = Generator::default_of(Device::CPU)?;
    let state = default.state();
    let next = draw()?;
    default.set_state(state);
    assert_eq!(draw()?, next);
    Ok(())
}

#[test]
fn numbers_do_not_depend_on_threads() -> Result<()> {
    let n = 1_000_003;
    let draw = |threads: usize| {
        pool::with_threads(threads, || -> Result<_> {
            let generator = generator(1);
            let uniform = generator.rand(&[n], DType::F32)?.to_vec::<f32>()?;
            Ok((
                uniform,
                generator.randn(&[n / 4], DType::F64)?.to_vec::<f64>()?,
                generator.randperm(1000)?.to_vec::<i64>()?,
            ))
        })
    };
    let (one, two) = (draw(1)?, draw(2)?);
    assert!(one == two, "one thread and two draw other numbers");
    Ok(())
}

/// The draws of a training step: two dropouts and some noise around a computation.
fn noisy(x: &Tensor) -> Result<Tensor> {
    let kept = x.dropout(0.25, true)?;
    let noise = Tensor::randn(x.sizes(), DType::F32)?.mul(0.1)?;
    kept.add(&noise)?.relu()?.dropout(0.5, true)?.mul(&x.rand_like()?)
}

#[test]
fn a_compiled_function_draws_what_the_eager_one_would() -> Result<()> {
    let _turn = turn();
    let inputs = [&[4usize, 33][..], &[4, 33], &[8, 5], &[4, 33]].map(|sizes| Tensor::full(sizes, 0.75, None));
    for tier in [None].into_iter().chain(Tier::ALL.map(Some)) {
        opfuse::manual_seed(11);
        let eager: Vec<Tensor> =
            inputs.iter().map(|x| noisy(x.as_ref().map_err(Error::clone)?)).collect::<Result<_>>()?;
        let state = Generator::default_of(Device::CPU)?.state();
        opfuse::manual_seed(11);
        let compiled = compile_with(noisy, CompileOptions { tier, ..CompileOptions::default() });
        // The first call is traced while it runs, the third is traced abstractly, and the others run executables.
        for (x, eager) in inputs.iter().zip(&eager) {
            let x = x.as_ref().map_err(Error::clone)?;
            assert_eq!(compiled.call(x)?.to_vec::<f32>()?, eager.to_vec::<f32>()?);
        }
        assert_eq!(Generator::default_of(Device::CPU)?.state(), state);
        assert!(compiled.explain().eager.is_none(), "{}", compiled.explain());
    }
    Ok(())
}

#[test]
fn unused_draws_advance_the_generator() -> Result<()> {
    let (own, other) = (generator(5), generator(5));
    let function = {
        let own = own.clone();
        move |x: &Tensor| -> Result<Tensor> {
            let _unused = own.rand(&[100], DType::F32)?;
            x.add(&own.rand(x.sizes(), DType::F32)?)
        }
    };
    let compiled = compile(function);
    let x = Tensor::zeros(&[6], DType::F32)?;
    for _ in 0..3 {
        other.draw(25);
        let expected = other.rand(&[6], DType::F32)?.to_vec::<f32>()?;
        assert_eq!(compiled.call(&x)?.to_vec::<f32>()?, expected);
        assert_eq!(own.state(), other.state());
    }
    Ok(())
}

#[test]
fn a_function_that_sets_the_seed_runs_in_each_call() -> Result<()> {
    let own = generator(1);
    let function = {
        let own = own.clone();
        move |x: &Tensor| -> Result<Tensor> {
            own.manual_seed(9);
            x.add(&own.rand(x.sizes(), DType::F32)?)
        }
    };
    let compiled = compile(function);
    let x = Tensor::zeros(&[6], DType::F32)?;
    let first = compiled.call(&x)?.to_vec::<f32>()?;
    own.draw(1000);
    assert_eq!(compiled.call(&x)?.to_vec::<f32>()?, first);
    let breaks = compiled.breaks();
    assert!(breaks[0].reason.to_string().contains("seeded"), "{breaks:?}");
    Ok(())
}

#[test]
fn dropout_fuses_with_its_neighbours() -> Result<()> {
    let _turn = turn();
    let compiled = compile(|x: &Tensor, y: &Tensor| x.add(y)?.dropout(0.1, true)?.relu());
    let x = Tensor::ones(&[64, 64], DType::F32)?;
    compiled.call((&x, &x))?;
    let explain = compiled.explain();
    assert_eq!(explain.kernels_after, 2, "the words, and all the rest: {explain}");
    Ok(())
}

#[test]
fn like_forms_follow_the_layout() -> Result<()> {
    let model = Tensor::zeros(&[3, 4, 5], DType::F32)?.permute([2, 0, 1])?;
    let _turn = turn();
    opfuse::manual_seed(2);
    let drawn = model.rand_like()?;
    assert_eq!((drawn.sizes(), drawn.strides()), (model.sizes(), model.strides()));
    let plain = generator(2).rand(&[3, 4, 5], DType::F32)?;
    assert_eq!(drawn.permute([1, 2, 0])?.to_vec::<f32>()?, plain.to_vec::<f32>()?);
    // Results are dense even if the operand has gaps or repeated elements.
    let sliced = Tensor::zeros(&[6, 8], DType::F32)?.slice(1, None, None, 2)?;
    assert_eq!(sliced.randn_like()?.strides(), [4, 1]);
    assert_eq!(Tensor::zeros(&[3, 1], DType::F32)?.expand([3, 4])?.rand_like()?.strides(), [4, 1]);
    Ok(())
}
