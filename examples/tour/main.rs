//! Follows one function through every floor, and shows each form.
//!
//! `cargo run --release --example tour` prints it, and runs the function. `tour --html FILE` writes it as a page, which
//! is docs/tour.html. The function adds a residual, normalizes each row and applies gelu. That is thirteen loops over
//! memory op by op, and one when compiled. Each chapter of `floors.rs` is one floor, and calls what `compile` calls.

#![allow(clippy::print_stdout, reason = "a tour talks")]

mod floors;
mod page;

use floors::{Chapter, Show};
use opfuse::internals::codegen::cache;
use opfuse::{Error, Result, Tensor, compile};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Columns of a line of prose.
const COLUMNS: usize = 110;

/// The function that the tour follows.
fn block(x: &Tensor, residual: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let sum = (x + residual)?;
    let width = x.sizes()[1] as i64;
    sum.layer_norm(width, Some(weight), Some(bias), 1e-5)?.gelu_tanh()
}

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chapters = floors::chapters(&inputs(4, 1024)?)?;
    match &arguments[..] {
        [] => {
            chapters.iter().for_each(print);
            let is_equal = run()?;
            println!("bits equal: {}", if is_equal { "yes" } else { "no" });
            Ok(if is_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        [option, file] if option == "--html" => {
            std::fs::write(file, page::html(&chapters)).expect("the file can be written");
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            println!("usage: tour [--html FILE]");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Numbers that look arbitrary and are the same in every run.
fn inputs(rows: usize, width: usize) -> Result<[Tensor; 4]> {
    let values = |seed: usize, sizes: &[usize]| {
        let value = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0;
        Tensor::from_slice(&(0..sizes.iter().product()).map(value).collect::<Vec<f32>>(), sizes)
    };
    Ok([values(1, &[rows, width])?, values(2, &[rows, width])?, values(3, &[width])?, values(4, &[width])?])
}

fn print(chapter: &Chapter) {
    println!("\n== {} ==\n{}\n", chapter.title, wrapped(chapter.text));
    for form in &chapter.forms {
        match form.show {
            Show::OnPage => {}
            Show::Whole => println!("-- {}\n{}", form.name, form.text.trim_end()),
            Show::Excerpt(word) => {
                println!("-- {}; the first sum is in here:", form.name);
                let lines: Vec<&str> = form.text.lines().collect();
                let start = lines.iter().position(|line| line.contains(word)).unwrap_or(0).saturating_sub(6);
                lines.iter().skip(start).take(10).for_each(|line| println!("  {line}"));
            }
        }
    }
}

/// The text in lines that a terminal has room for.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is a line");
        if last.is_empty() {
            *last = word.into();
        } else if last.len() + word.len() < COLUMNS {
            *last += &format!(" {word}");
        } else {
            lines.push(word.into());
        }
    }
    lines.join("\n")
}

/// Whether the compiled function gives eager's bits, in the call that captures it and in a later one.
fn equal_bits(inputs: &[Tensor; 4]) -> Result<bool> {
    let bits =
        |tensor: Tensor| Ok::<_, Error>(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect::<Vec<u32>>());
    let [x, residual, weight, bias] = inputs;
    let compiled = compile(block);
    let expected = bits(block(x, residual, weight, bias)?)?;
    let calls = [compiled.call((x, residual, weight, bias))?, compiled.call((x, residual, weight, bias))?];
    Ok(calls.into_iter().map(bits).collect::<Result<Vec<_>>>()?.iter().all(|bits| *bits == expected))
}

/// What the page leaves out, because it differs from run to run: the report with its times, and how fast it is.
fn run() -> Result<bool> {
    let inputs = inputs(2048, 1024)?;
    let [x, residual, weight, bias] = &inputs;
    let equal = equal_bits(&crate::inputs(4, 1024)?)? && equal_bits(&inputs)?;
    let compiled = compile(block);
    compiled.call((x, residual, weight, bias))?;
    print!("-- the report for {:?}\n{}", x.sizes(), compiled.explain());
    let before = cache::stats().compilations;
    let [longer, other, ..] = &crate::inputs(4096, 1024)?;
    compiled.call((longer, other, weight, bias))?;
    println!("kernels compiled for more rows: {}", cache::stats().compilations - before);
    let (mut eager, mut fused) = (Duration::MAX, Duration::MAX);
    for _ in 0..50 {
        eager = eager.min(timed(|| block(x, residual, weight, bias))?);
        fused = fused.min(timed(|| compiled.call((x, residual, weight, bias)))?);
    }
    println!("eager {eager:.1?}, compiled {fused:.1?}: {:.1} times as fast", eager.as_secs_f64() / fused.as_secs_f64());
    Ok(equal)
}

fn timed(work: impl FnOnce() -> Result<Tensor>) -> Result<Duration> {
    let start = Instant::now();
    drop(work()?);
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use floors::{passes, planned, traced};
    use opfuse::internals::compile::pipeline;
    use opfuse::internals::fusion::Options;
    use opfuse::internals::ir::passes::{Target, passes_for};

    #[test]
    fn the_tour_takes_the_way_of_the_pipeline() -> Result<()> {
        let traced = traced(&inputs(4, 1024)?)?;
        let built = pipeline::build(traced.clone(), &Options::default(), None)?;
        let (graph, _) = passes(&traced)?;
        assert_eq!(graph.to_string(), built.graph.to_string());
        assert_eq!(planned(&graph).text(&graph), built.plan.text(&built.graph));
        let taken: Vec<&str> = built.passes.iter().map(|pass| pass.name).collect();
        assert_eq!(taken, passes_for(Target::Cpu).map(|pass| pass.name).collect::<Vec<_>>());
        Ok(())
    }

    /// The checked-in page is that of this tour. Listings name the calling convention of the system.
    #[test]
    #[cfg(all(feature = "cranelift", target_arch = "x86_64", target_os = "linux"))]
    fn the_page_is_checked_in() -> Result<()> {
        let page = page::html(&floors::chapters(&inputs(4, 1024)?)?);
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
        expect_test::expect_file!["../../docs/tour.html"].assert_eq(&page);
        Ok(())
    }
}
