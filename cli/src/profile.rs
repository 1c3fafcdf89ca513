//! `opfuse profile`.

use crate::{Fallible, Outcome, data};
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The program.
    model: PathBuf,
    /// Files of inputs, as for `run`. They are made up if none is given.
    #[arg(long = "input", short)]
    inputs: Vec<PathBuf>,
    /// The value of symbolic sizes of inputs that are made up.
    #[arg(long, default_value_t = 4)]
    size: usize,
    /// How many calls are profiled, after one that is not.
    #[arg(long, default_value_t = 10)]
    calls: usize,
    /// Profile eager calls: a row per operator and line of the Python source.
    #[arg(long)]
    eager: bool,
    /// A file for a page of HTML.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A file for a trace that Chrome and Perfetto open.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Fallible<Outcome> {
    let _unrecorded = no_grad();
    let program = Program::load(&arguments.model)?;
    let inputs = match arguments.inputs.is_empty() {
        true => data::made(&program, arguments.size)?,
        false => data::inputs(&program, &arguments.inputs)?,
    };
    let call = || if arguments.eager { program.call_eager(&inputs) } else { program.call(&inputs) };
    call()?;
    let (called, profile) = opfuse::profile(|| (0..arguments.calls).try_for_each(|_| call().map(drop)))?;
    called?;
    if let Some(path) = &arguments.trace {
        write(path, profile.to_chrome_trace())?;
    }
    if let Some(path) = &arguments.html {
        write(path, profile.to_html())?;
    }
    match json {
        true => println!("{}", profile.to_json()),
        false => println!("{profile}"),
    }
    Ok(Outcome::Fine)
}

fn write(path: &Path, text: String) -> Fallible<()> {
    Ok(std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?)
}
