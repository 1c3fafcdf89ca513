//! `opfuse run`.

use crate::{Fallible, Outcome, data};
use opfuse::StateDict;
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use opfuse::formats::{npz, safetensors};
use serde_json::json;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program.
    model: PathBuf,
    /// A file of an input, or of several by name: .npy, .npz or safetensors.
    #[arg(long = "input", short, required = true)]
    inputs: Vec<PathBuf>,
    /// Where the outputs go, as `0`, `1` and so on: .npz, or else safetensors. They are printed if it is left out.
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Run call by call, without compiling.
    #[arg(long)]
    eager: bool,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Fallible<Outcome> {
    let program = Program::load(&arguments.model)?;
    let inputs = data::inputs(&program, &arguments.inputs)?;
    let outputs = {
        let _unrecorded = no_grad();
        if arguments.eager { program.call_eager(&inputs)? } else { program.call(&inputs)? }
    };
    if let Some(path) = &arguments.output {
        let all: StateDict = outputs.iter().enumerate().map(|(at, output)| (at.to_string(), output.clone())).collect();
        match path.extension().is_some_and(|extension| extension == "npz") {
            true => npz::save(path, &all)?,
            false => safetensors::save(path, &all, &Default::default())?,
        }
    }
    let ty = |output: &opfuse::Tensor| format!("{}{:?}", output.dtype(), output.sizes());
    if json {
        let all: Vec<_> = outputs.iter().map(|x| json!({"dtype": x.dtype().to_string(), "sizes": x.sizes()})).collect();
        println!("{:#}", json!({"outputs": all}));
    } else {
        for (at, output) in outputs.iter().enumerate() {
            println!("output {at}: {}", ty(output));
            if arguments.output.is_none() {
                println!("{output}");
            }
        }
    }
    Ok(Outcome::Fine)
}
