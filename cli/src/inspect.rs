//! `opfuse inspect`.

use crate::{Fallible, Outcome};
use opfuse::exported::Program;
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program.
    model: PathBuf,
    /// Also list every parameter and buffer.
    #[arg(long)]
    state: bool,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Fallible<Outcome> {
    let program = Program::load(&arguments.model)?;
    let (state, operators) = (program.state(), program.operators());
    let n_elements = |tensor: &opfuse::Tensor| tensor.numel();
    let parameters: usize = state.values().filter(|tensor| tensor.requires_grad()).map(n_elements).sum();
    let bytes: usize = state.values().map(|tensor| tensor.numel() * tensor.dtype().size()).sum();
    let calls: usize = operators.values().sum();
    if json {
        let inputs: Vec<String> = program.inputs().iter().map(ToString::to_string).collect();
        let tensors: Vec<_> = state
            .iter()
            .map(|(name, x)| json!({"name": name, "dtype": x.dtype().to_string(), "sizes": x.sizes()}))
            .collect();
        let all = json!({
            "torch": program.torch_version(), "inputs": inputs, "parameters": parameters, "bytes": bytes,
            "calls": calls, "operators": operators, "state": tensors,
        });
        println!("{all:#}");
        return Ok(Outcome::Fine);
    }
    println!("exported by torch {}", program.torch_version());
    println!("inputs:");
    program.inputs().iter().for_each(|input| println!("  {input}"));
    println!("state: {} tensors, {parameters} trained elements, {bytes} bytes", state.len());
    if arguments.state {
        state.iter().for_each(|(name, x)| println!("  {name}: {}{:?}", x.dtype(), x.sizes()));
    }
    println!("operators: {} in {calls} calls, none missing", operators.len());
    let mut sorted: Vec<(&String, &usize)> = operators.iter().collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), (*name).clone()));
    sorted.iter().for_each(|(name, count)| println!("  {count:5}  {name}"));
    Ok(Outcome::Fine)
}
