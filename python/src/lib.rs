//! The compiled half of the Python package `opfuse`: tensors, operators, and what runs them.
//!
//! Files by subject:
//! - what things are called: `names`; exceptions: `errors`;
//! - tensors: `tensor`, `arithmetic`, `conversions`, `indexing`; made of numbers and arrays: `creation`, `exchange`,
//!   `exchange_api`, `arrow`;
//! - operators: `operators`, `values` for their arguments, `entry` by which Python calls them, and `places` of calls;
//! - functions of tensors: `tree`, `key`, `state`, `compiled`, `differentiated`, `gradients`; files: `files`;
//! - where time goes: `profiles`.
//!
//! No operator is named twice: functions, methods and stubs are made of the schemas that the crate has registered.
//!
//! A thread of Python keeps the GIL in calls on few elements, and releases it in all others.

mod arithmetic;
mod arrow;
mod compiled;
mod conversions;
mod creation;
mod differentiated;
mod entry;
mod errors;
mod exchange;
mod exchange_api;
mod files;
mod gradients;
mod graph_tensors;
mod indexing;
mod key;
mod names;
mod operators;
mod places;
mod profiles;
mod random;
mod state;
mod tensor;
mod tree;
mod values;

use pyo3::prelude::*;

#[pymodule]
fn _opfuse(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    errors::register(module)?;
    names::register(module)?;
    module.add_class::<tensor::PyTensor>()?;
    module.add_class::<random::PyGenerator>()?;
    module.add_class::<compiled::PyCompiled>()?;
    module.add_class::<compiled::PyExplain>()?;
    module.add_class::<files::PyExported>()?;
    module.add_class::<profiles::PyProfile>()?;
    module.add_class::<conversions::Hook>()?;
    module.add_class::<differentiated::PyPullback>()?;
    module.add_class::<gradients::Setting>()?;
    module.add_class::<operators::PyOperator>()?;
    module.add_class::<graph_tensors::Inputs>()?;
    let operators = PyModule::new(py, "opfuse.ops")?;
    entry::register(&operators, &py.get_type::<tensor::PyTensor>())?;
    exchange_api::register(&py.get_type::<tensor::PyTensor>())?;
    module.add("ops", operators)?;
    for function in [
        wrap_pyfunction!(creation::tensor, module)?,
        wrap_pyfunction!(creation::asarray, module)?,
        wrap_pyfunction!(arrow::from_arrow, module)?,
        wrap_pyfunction!(exchange::from_dlpack, module)?,
        wrap_pyfunction!(exchange::_from_capsule, module)?,
        wrap_pyfunction!(exchange_api::_from_exchange, module)?,
        wrap_pyfunction!(graph_tensors::_to_exchanges, module)?,
        wrap_pyfunction!(random::manual_seed, module)?,
        wrap_pyfunction!(random::default_generator, module)?,
        wrap_pyfunction!(gradients::is_grad_enabled, module)?,
        wrap_pyfunction!(gradients::_gradients, module)?,
        wrap_pyfunction!(gradients::get_num_threads, module)?,
        wrap_pyfunction!(gradients::set_num_threads, module)?,
        wrap_pyfunction!(compiled::_vmap, module)?,
        wrap_pyfunction!(differentiated::_value_and_grad, module)?,
        wrap_pyfunction!(differentiated::_jvp, module)?,
        wrap_pyfunction!(differentiated::_vjp, module)?,
        wrap_pyfunction!(differentiated::_jacobian, module)?,
        wrap_pyfunction!(tree::_flatten, module)?,
        wrap_pyfunction!(tree::_unflatten, module)?,
        wrap_pyfunction!(profiles::profile, module)?,
        wrap_pyfunction!(files::save, module)?,
        wrap_pyfunction!(files::load, module)?,
        wrap_pyfunction!(tensor::_rebuild, module)?,
        wrap_pyfunction!(operators::_operator, module)?,
        wrap_pyfunction!(operators::_schemas, module)?,
    ] {
        module.add_function(function)?;
    }
    Ok(())
}
