//! Hoisting: values that depend on few loops of a kernel are computed once for these loops, with the same bits.

use crate::values::{bits, uniform};
use opfuse::compile::{CompileOptions, compile_with};
use opfuse::error::Result;
use opfuse::internals::codegen::tier::Tier;
use opfuse::{DType, Tensor};

struct Case {
    name: &'static str,
    inputs: fn() -> Result<Vec<Tensor>>,
    function: fn(&[Tensor]) -> Result<Tensor>,
    /// Whether a value is hoisted; the kernel's text then has two loops.
    hoisted: bool,
}

fn inputs(sizes: &[&[usize]]) -> Result<Vec<Tensor>> {
    sizes.iter().zip(1..).map(|(sizes, seed)| uniform(seed, sizes, DType::F32)).collect()
}

const CASES: &[Case] = &[
    Case {
        name: "a root per channel",
        inputs: || inputs(&[&[40, 24], &[24]]),
        function: |x| &x[0] * (&x[1].abs()? + 1e-5)?.rsqrt()?,
        hoisted: true,
    },
    Case {
        name: "two values per channel",
        inputs: || inputs(&[&[40, 24], &[24], &[24]]),
        function: |x| (&x[0] * x[1].exp()?)? + x[2].tanh()?,
        hoisted: true,
    },
    Case {
        name: "a value of the middle and the last loop",
        inputs: || inputs(&[&[9, 5, 24], &[5, 24]]),
        function: |x| &x[0] * x[1].exp()?,
        hoisted: true,
    },
    Case {
        name: "a value of the first and the last loop",
        inputs: || inputs(&[&[5, 9, 24], &[5, 1, 24]]),
        function: |x| &x[0] * x[1].exp()?,
        hoisted: true,
    },
    Case {
        name: "a power of integers",
        inputs: || Ok(vec![uniform(1, &[40, 24], DType::F32)?.mul(9.0)?.to_dtype(DType::I32)?]),
        function: |x| {
            let bits = Tensor::arange(0, 24, 1)?.to_dtype(DType::I32)?;
            &x[0] * bits.full_like(2)?.pow(&bits)?
        },
        hoisted: true,
    },
    Case {
        name: "a transposed value",
        inputs: || inputs(&[&[9, 24, 5], &[5, 24]]),
        function: |x| &x[0] * x[1].exp()?.t()?,
        hoisted: true,
    },
    Case {
        name: "part of a value",
        inputs: || inputs(&[&[40, 12], &[24]]),
        function: |x| &x[0] * x[1].exp()?.slice(0, Some(3), Some(15), 1)?,
        hoisted: true,
    },
    Case {
        name: "a scale of every column before rows are summed",
        inputs: || inputs(&[&[40, 24], &[24]]),
        function: |x| (&x[0] * x[1].exp()?)?.softmax(-1),
        hoisted: true,
    },
    Case {
        name: "a sixteen-bit value is rounded once",
        inputs: || Ok(vec![uniform(1, &[40, 24], DType::F32)?, uniform(2, &[24], DType::BF16)?]),
        function: |x| &x[0] * x[1].exp()?.tanh()?,
        hoisted: true,
    },
    Case {
        name: "picked rows",
        inputs: || {
            let at: Vec<i64> = (0..24).map(|i| i * 7 % 30).collect();
            Ok(vec![
                uniform(1, &[40, 24], DType::F32)?,
                uniform(2, &[30], DType::F32)?,
                Tensor::from_slice(&at, &[24])?,
            ])
        },
        function: |x| &x[0] * x[1].index_select(0, &x[2])?.exp()?,
        hoisted: true,
    },
    Case {
        name: "a value per row",
        inputs: || inputs(&[&[40, 24], &[40, 1]]),
        function: |x| &x[0] * x[1].exp()?,
        hoisted: false,
    },
    Case {
        name: "too few turns",
        inputs: || inputs(&[&[3, 24], &[24]]),
        function: |x| &x[0] * x[1].exp()?,
        hoisted: false,
    },
    Case {
        name: "cheap enough to do again",
        inputs: || inputs(&[&[40, 24], &[24]]),
        function: |x| &x[0] * (-&x[1])?,
        hoisted: false,
    },
    Case { name: "no rows", inputs: || inputs(&[&[0, 24], &[24]]), function: |x| &x[0] * x[1].exp()?, hoisted: false },
];

#[test]
fn bits_are_eagers_whatever_is_hoisted() -> Result<()> {
    for case in CASES {
        let inputs = (case.inputs)()?;
        let eager = (case.function)(&inputs)?;
        for tier in [None].into_iter().chain(Tier::ALL.map(Some)) {
            let options = CompileOptions { tier, ..CompileOptions::default() };
            let (function, n) = (case.function, inputs.len());
            let compiled = compile_with(move |inputs: &[Tensor]| function(&inputs[..n]), options);
            for _ in 0..2 {
                let found = compiled.call(&inputs[..])?;
                assert_eq!(found.sizes(), eager.sizes(), "{}", case.name);
                assert!(bits(&found) == bits(&eager), "{} with {tier:?}: other bits", case.name);
            }
            let explain = compiled.explain();
            let n_kernels = explain.groups.iter().map(|group| group.code.matches("kernel").count()).max();
            if case.hoisted {
                assert_eq!(explain.kernels_after, 1, "{}: {explain}", case.name);
                assert_eq!(n_kernels, Some(2), "{}: {explain}", case.name);
            } else if explain.kernels_after == 1 {
                assert_eq!(n_kernels, Some(1), "{}: {explain}", case.name);
            }
            let (counted, traffic) = compiled.call_counted(&inputs[..])?;
            assert!(bits(&counted) == bits(&eager), "{}: counted bits", case.name);
            let moved: usize = traffic.iter().map(|traffic| traffic.read + traffic.written).sum();
            assert!(moved <= explain.bytes_after, "{}: {moved} of {}", case.name, explain.bytes_after);
        }
    }
    Ok(())
}
