//! `opfuse explain`.

use crate::{Fallible, Outcome, data};
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use std::path::PathBuf;

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
    /// How the report is written. `--json` is the same as `--format json`.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// A file for the report.
    #[arg(long, short)]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Text,
    Json,
    Html,
    Dot,
}

pub(crate) fn run(arguments: &Arguments, json: bool) -> Fallible<Outcome> {
    let program = Program::load(&arguments.model)?;
    let inputs = match arguments.inputs.is_empty() {
        true => data::made(&program, arguments.size)?,
        false => data::inputs(&program, &arguments.inputs)?,
    };
    {
        let _unrecorded = no_grad();
        program.call(&inputs)?;
    }
    let explain = program.explain();
    let text = match if json { Format::Json } else { arguments.format } {
        Format::Text => explain.to_string(),
        Format::Json => explain.to_json(),
        Format::Html => explain.to_html(),
        Format::Dot => explain.to_dot(),
    };
    match &arguments.output {
        Some(path) => std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?,
        None => println!("{text}"),
    }
    Ok(Outcome::Fine)
}
