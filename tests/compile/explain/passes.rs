//! The table of passes decides what is run, printed and documented.

use super::functions::softmax;
use crate::values::ramp;
use opfuse::internals::fusion::{MERGES, When};
use opfuse::internals::ir::passes::{PASSES, Target, passes_for};
use opfuse::ir::{Attr, DType, Graph, Op, TensorType, verify};
use opfuse::{Result, Tensor, compile};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the process that compiles and prints.
const CHILD: &str = "OPFUSE_TEST_DUMP_CHILD";

/// What a process that compiles a softmax prints to standard error under `OPFUSE_DUMP=words`; `name` is the test.
fn dumped(name: &str, words: &str) -> String {
    dumped_in(&std::env::current_dir().expect("a test runs somewhere"), name, words)
}

/// The same in a folder.
fn dumped_in(folder: &Path, name: &str, words: &str) -> String {
    let myself = std::env::current_exe().expect("a test has a path");
    let mut command = Command::new(myself);
    command.args([name, "--exact", "--nocapture"]).env(CHILD, "1").env("OPFUSE_DUMP", words).current_dir(folder);
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    text
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

fn compile_softmax() -> Result<()> {
    let f = compile(softmax);
    f.call(&ramp(&[8, 16]))?;
    f.call(&ramp(&[4, 16]))?;
    Ok(())
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = PASSES.iter().map(|pass| pass.name).collect();
    names.extend(MERGES.iter().map(|merge| merge.name));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PASSES.len() + MERGES.len());
}

/// The lists in the pages are compared with the tables.
#[test]
fn pages_list_passes_and_merge_steps_in_order() {
    let path = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let page = std::fs::read_to_string(path("ARCHITECTURE.md")).expect("it is there");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let passes = PASSES.iter().map(|pass| format!("`{}`", pass.name)).collect::<Vec<_>>().join(", ");
    assert!(page.contains(&passes), "ARCHITECTURE.md has to list the passes as {passes}");
    // The first column of the table of merge steps; a step that runs again has no row of its own.
    let table = std::fs::read_to_string(path("docs/fusion.md")).expect("it is there");
    let rows = table.lines().skip_while(|line| !line.starts_with("| step |")).skip(2);
    let rows = rows.map_while(|line| line.strip_prefix("| ")?.split_once(" |").map(|(name, _)| name.to_string()));
    let merges = MERGES.iter().filter(|merge| merge.when == When::Always).map(|merge| merge.name);
    assert_eq!(rows.collect::<Vec<_>>(), merges.collect::<Vec<_>>(), "the merge steps of docs/fusion.md");
}

#[test]
fn a_broken_graph_names_the_pass() -> Result<()> {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::contiguous(DType::F32, &[2, 3]));
    let sum = graph.add(Op::Add, &[x, x], [Attr::int(1)].into_iter().collect())?;
    graph.set_outputs(vec![sum]);
    for pass in PASSES {
        pass.verify(&graph)?;
    }
    graph.set_strides(sum, &[7, 1]);
    let plain = verify(&graph).expect_err("the strides are not those that are inferred").to_string();
    let simplify = PASSES.iter().find(|pass| pass.name == "simplify").expect("there is such a pass");
    let named = simplify.verify(&graph).expect_err("as before").to_string();
    assert!(named.contains("after `simplify`: n1 = add has type"), "{named}");
    assert_eq!(named.replace("after `simplify`: ", ""), plain);
    Ok(())
}

#[test]
fn every_pass_is_a_word_of_the_dump() -> Result<()> {
    if is_child() {
        return compile_softmax();
    }
    let own = "explain::passes::every_pass_is_a_word_of_the_dump";
    let cpu: Vec<&str> = passes_for(Target::Cpu).map(|pass| pass.name).collect();
    let stages = |text: &str| {
        let names = text.lines().filter_map(|line| line.strip_prefix("== ")?.strip_suffix(" =="));
        names.map(str::to_string).collect::<Vec<String>>()
    };
    let all = dumped(own, "trace,passes,graph");
    let per_graph: Vec<&str> = ["trace"].into_iter().chain(cpu.iter().copied()).chain(["graph"]).collect();
    assert_eq!(stages(&all), per_graph.repeat(2), "{all}");
    let one = dumped(own, "decompose");
    assert_eq!(stages(&one), ["decompose"; 2], "{one}");
    assert!(one.contains("amax(n0; [-1], true)") && !one.contains("names no stage"), "{one}");
    Ok(())
}

#[test]
fn an_unknown_word_lists_the_known_ones_once() -> Result<()> {
    if is_child() {
        return compile_softmax();
    }
    let text = dumped("explain::passes::an_unknown_word_lists_the_known_ones_once", "simplfy,graph");
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("names no stage")).collect();
    let &[line] = &lines[..] else { panic!("{text}") };
    assert!(line.contains("`simplfy`"), "{line}");
    let words = ["trace", "graph", "plan", "kernel", "code", "passes", "passes:html"];
    for word in words.into_iter().chain(PASSES.iter().map(|pass| pass.name)) {
        assert!(line.contains(word), "{word} is not in: {line}");
    }
    Ok(())
}

/// An empty folder for a test.
fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder of targets can be written to");
    folder
}

#[test]
fn a_page_shows_every_capture_pass_by_pass() -> Result<()> {
    if is_child() {
        compile_softmax()?;
        let w = ramp(&[16]);
        w.set_requires_grad(true)?;
        return compile(|x: &Tensor, w: &Tensor| x.mul(w)?.tanh()?.sum_all()).call((&ramp(&[8, 16]), &w)).map(drop);
    }
    let own = "explain::passes::a_page_shows_every_capture_pass_by_pass";
    let folder = empty_folder("page");
    let page = folder.join("passes.html");
    let text = dumped_in(&folder, own, &format!("decompose,passes:html={}", page.display()));
    assert!(text.contains("== decompose ==") && !text.contains("OPFUSE_DUMP"), "{text}");
    let page = std::fs::read_to_string(page).expect("the page was written");
    let sections: Vec<&str> = page.split("<section>").skip(1).collect();
    // Two shapes of the one function; the two halves of the other.
    let titles: Vec<&str> = sections.iter().filter_map(|section| section.split(['>', '<']).nth(2)).collect();
    let (softmax, other) =
        ("main::explain::functions::softmax", "a_page_shows_every_capture_pass_by_pass::{{closure}}");
    let expected = [softmax.to_string(), softmax.to_string(), format!("backward pass of {other}"), other.to_string()];
    for (number, (title, expected)) in titles.iter().zip(&expected).enumerate() {
        let (found, name) = title.split_once(". ").expect("a title has a number");
        assert_eq!(found, (number + 1).to_string());
        let name = name.replace("compile::explain::passes::", "").replace("main::explain::passes::", "");
        assert!(name.ends_with(expected.trim_start_matches("main::")), "{title} is not {expected}");
    }
    assert_eq!(titles.len(), expected.len(), "{titles:?}");
    assert!(sections[0].contains("<p>Inputs: n0: f32[8,16].</p>"), "{}", sections[0]);
    assert!(sections[0].contains("<ins>+ n1 = amax(n0; [-1], true): f32[8,1]</ins>"), "{}", sections[0]);
    assert!(sections[1].contains("<p>Inputs: n0: f32[4,16].</p>"), "{}", sections[1]);
    for section in &sections {
        for pass in passes_for(Target::Cpu) {
            assert!(section.contains(&format!("<summary>{} ", pass.name)), "no {} in {section}", pass.name);
        }
        assert!(section.contains("<summary>plan ") && section.contains("plan {"), "{section}");
    }
    for outside in ["http://", "https://", "src=", "href=", "@import", "url(", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    std::fs::remove_dir_all(folder).expect("the folder is there");
    Ok(())
}

#[test]
fn a_page_without_a_name_gets_one_that_is_reported() -> Result<()> {
    if is_child() {
        return compile_softmax();
    }
    let own = "explain::passes::a_page_without_a_name_gets_one_that_is_reported";
    let folder = empty_folder("nameless");
    let text = dumped_in(&folder, own, "passes:html");
    let reports: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("passes are written to ")).map(|x| x.1).collect();
    let &[name] = &reports[..] else { panic!("{text}") };
    let page = std::fs::read_to_string(folder.join(name)).expect("the page was written");
    assert_eq!(page.matches("<section>").count(), 2, "{page}");
    std::fs::remove_dir_all(&folder).expect("the folder is there");
    // A page that cannot be written is reported once, and changes nothing else.
    let text = dumped(own, &format!("passes:html={}/there/is/no/such/folder", folder.display()));
    assert_eq!(text.matches("passes are not written to").count(), 1, "{text}");
    Ok(())
}
