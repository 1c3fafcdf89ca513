//! Recorded cases: tensors by `case/kind.name`, and how close a result must be.

use opfuse::nn::Module;
use opfuse::{Result, StateDict, Tensor};
use std::path::Path;

/// All cases of a file.
pub(crate) struct Recorded {
    tensors: StateDict,
}

impl Recorded {
    pub(crate) fn open(file: &str) -> Recorded {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/training/recorded").join(file);
        Recorded { tensors: opfuse::load(path).expect("the record is checked in") }
    }

    /// All cases of modules.
    pub(crate) fn of_modules() -> Recorded {
        let mut all = Recorded::open("modules.safetensors");
        all.tensors.extend(Recorded::open("layers.safetensors").tensors);
        all
    }

    /// A tensor of a case, as one that may be written to.
    pub(crate) fn get(&self, case: &str, name: &str) -> Tensor {
        let tensor = self.tensors.get(&format!("{case}/{name}"));
        let tensor = tensor.unwrap_or_else(|| panic!("{case} has no {name}"));
        tensor.copy().expect("there is memory")
    }

    /// The tensors `kind.0`, `kind.1`, … of a case.
    pub(crate) fn numbered(&self, case: &str, kind: &str) -> Vec<Tensor> {
        let names = (0..).map(|at| format!("{kind}.{at}"));
        names
            .take_while(|name| self.tensors.contains_key(&format!("{case}/{name}")))
            .map(|name| self.get(case, &name))
            .collect()
    }

    /// The tensors of a kind by name.
    pub(crate) fn named(&self, case: &str, kind: &str) -> StateDict {
        let prefix = format!("{case}/{kind}.");
        let of = |(name, tensor): (&String, &Tensor)| Some((name.strip_prefix(&prefix)?.to_owned(), tensor.clone()));
        self.tensors.iter().filter_map(of).collect()
    }

    /// The inputs of a case; floats require gradients.
    pub(crate) fn inputs(&self, case: &str) -> Vec<Tensor> {
        let inputs = self.numbered(case, "input");
        inputs.iter().filter(|x| x.dtype().is_float()).for_each(|x| x.set_requires_grad(true).expect("it is a leaf"));
        inputs
    }

    /// Compares results and the gradients of inputs and parameters.
    pub(crate) fn check(
        &self,
        case: &str,
        inputs: &[Tensor],
        outputs: &[Tensor],
        module: Option<&dyn Module>,
    ) -> Result<()> {
        let expected = self.numbered(case, "output");
        assert_eq!(outputs.len(), expected.len(), "{case}: number of results");
        let mut sum = Tensor::scalar(0.0f32)?;
        for (at, ((output, expected), cotangent)) in
            outputs.iter().zip(&expected).zip(self.numbered(case, "cotangent")).enumerate()
        {
            close(&format!("{case}: result {at}"), output, expected, 2e-6);
            sum = sum.add(output.mul(&cotangent)?.sum_all()?)?;
        }
        sum.backward()?;
        for (at, input) in inputs.iter().enumerate().filter(|(_, input)| input.dtype().is_float()) {
            let found = input.grad().unwrap_or_else(|| panic!("{case}: input {at} has no gradient"));
            close(
                &format!("{case}: gradient of input {at}"),
                &found,
                &self.get(case, &format!("input_grad.{at}")),
                1e-5,
            );
        }
        let Some(module) = module else { return Ok(()) };
        for (name, parameter) in module.named_parameters() {
            let found = parameter.grad().unwrap_or_else(|| panic!("{case}: {name} has no gradient"));
            close(
                &format!("{case}: gradient of {name}"),
                &found,
                &self.get(case, &format!("weight_grad.{name}")),
                1e-5,
            );
        }
        for (name, expected) in self.named(case, "buffer") {
            let buffers = module.named_buffers();
            let (_, found) = buffers.iter().find(|(own, _)| *own == name).expect("it has the buffer");
            close(&format!("{case}: {name}"), found, &expected, 2e-6);
        }
        Ok(())
    }
}

/// Sizes are equal, and no element is further away than `bound` times the largest one.
pub(crate) fn close(what: &str, found: &Tensor, expected: &Tensor, bound: f64) {
    assert_eq!(found.sizes(), expected.sizes(), "{what}: sizes");
    let values = |x: &Tensor| {
        let x = x.detach().and_then(|x| x.to_dtype(opfuse::DType::F64)).expect("it converts");
        x.to_vec::<f64>().expect("it has values")
    };
    let (found, expected) = (values(found), values(expected));
    let finite = expected.iter().filter(|value| value.is_finite());
    let largest = finite.fold(0.0f64, |largest, value| largest.max(value.abs()));
    for (at, (a, b)) in found.iter().zip(&expected).enumerate() {
        let is_close = a == b || (a - b).abs() <= bound * largest.max(1e-3);
        assert!(is_close, "{what}: element {at} is {a} instead of {b}, where the largest is {largest}");
    }
}

/// Equal bits, sizes and dtypes.
pub(crate) fn same(what: &str, found: &Tensor, expected: &Tensor) {
    assert_eq!((found.dtype(), found.sizes()), (expected.dtype(), expected.sizes()), "{what}");
    let bits = |x: &Tensor| {
        let x = x.detach().and_then(|x| x.to_dtype(opfuse::DType::F64)).expect("it converts");
        x.to_vec::<f64>().expect("it has values").into_iter().map(f64::to_bits).collect::<Vec<_>>()
    };
    assert_eq!(bits(found), bits(expected), "{what}");
}
