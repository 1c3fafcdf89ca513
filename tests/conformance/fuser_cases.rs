//! The fuser's published cases: graphs and the exact groups a dominator-tree partitioner forms on them.
//!
//! The format is described in `SCHEMA.md` beside the cases. Groups are compared in full, with dead nodes and
//! structural ones, in the strict visiting order; so a case with a `quirk` must give its literal result.

use opfuse::internals::fusion::{Options, Order, PatternGraph, Vertex, VertexFacts, VertexKind, partition};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

type Groups = BTreeSet<BTreeSet<String>>;

/// Runs every case of `folder`; returns how many passed and what failed.
pub(crate) fn run(folder: &Path) -> (usize, Vec<String>) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return (0, vec![format!("{}: {error}", folder.display())]),
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let failure = |path: &PathBuf| check(path).err().map(|message| format!("{}: {message}", path.display()));
    let failures: Vec<String> = paths.iter().filter_map(failure).collect();
    (paths.len() - failures.len(), failures)
}

fn check(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let case: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if case["schema"] != "fuser-case/1" {
        return Err(format!("unknown schema {}", case["schema"]));
    }
    let (graph, names) = read_graph(&case)?;
    let options = read_options(&case["options"])?;
    let partition = partition(&graph, &options);
    let groups = partition.groups.iter().map(|group| {
        let members = group.iter().filter(|&&vertex| graph.is_groupable(vertex));
        members.map(|vertex| names[vertex.index()].clone()).collect::<BTreeSet<_>>()
    });
    let found: Groups = groups.filter(|group| !group.is_empty()).collect();
    let expected = read_groups(&case["expected"]["groups"])?;
    if expected == found {
        return Ok(());
    }
    let mut message = String::from("groups differ");
    let only = |left: &Groups, right: &Groups| left.difference(right).cloned().collect::<Vec<_>>();
    write!(message, "\n  expected, not found: {:?}", only(&expected, &found)).expect("strings take text");
    write!(message, "\n  found, not expected: {:?}", only(&found, &expected)).expect("strings take text");
    Err(message)
}

fn read_graph(case: &Value) -> Result<(PatternGraph, Vec<String>), String> {
    let mut graph = PatternGraph::default();
    let mut vertices: HashMap<String, Vertex> = HashMap::new();
    let mut names = Vec::new();
    let find = |vertices: &HashMap<String, Vertex>, id: &Value| {
        let known = id.as_str().and_then(|id| vertices.get(id)).copied();
        known.ok_or_else(|| format!("{id} is used before it is listed"))
    };
    for node in list(&case["nodes"])? {
        let id = node["id"].as_str().ok_or("a node without an id")?;
        let producers = list(&node["inputs"])?;
        let patterns = list(&node["edge_patterns"])?;
        if producers.len() != patterns.len() {
            return Err(format!("{id}: {} inputs but {} edge patterns", producers.len(), patterns.len()));
        }
        let mut inputs = Vec::new();
        for (producer, edge) in producers.iter().zip(patterns) {
            inputs.push((find(&vertices, producer)?, read_pattern(edge)?));
        }
        let vertex = graph.add(read_facts(node)?, &inputs);
        if vertices.insert(id.to_owned(), vertex).is_some() {
            return Err(format!("{id} is listed twice"));
        }
        names.push(id.to_owned());
    }
    for output in list(&case["outputs"])? {
        graph.mark_visible(find(&vertices, output)?);
    }
    Ok((graph, names))
}

fn read_facts(node: &Value) -> Result<VertexFacts, String> {
    let kind = match node["kind"].as_str() {
        Some("param") => VertexKind::Param,
        Some("const") => VertexKind::Constant,
        Some("op" | "alias" | "opaque") => VertexKind::Op,
        Some("tuple") => VertexKind::Tuple,
        Some("tuple_get") => VertexKind::TupleGet,
        Some(_) | None => return Err(format!("unknown kind {}", node["kind"])),
    };
    let shape = node["shape"].as_array().map_or(&[][..], Vec::as_slice);
    let count = |n: usize| u32::try_from(n).map_err(|error| error.to_string());
    Ok(VertexFacts {
        kind,
        pattern: read_pattern(&node["pattern"])?,
        visible: node["extern"].as_bool().unwrap_or(false),
        rank: count(shape.len())?,
        n_unknown: count(shape.iter().filter(|dim| dim.as_str() == Some("?")).count())?,
    })
}

fn read_options(options: &Value) -> Result<Options, String> {
    let number = |name: &str| options[name].as_u64().ok_or_else(|| format!("no option {name}"));
    Ok(Options {
        opt_level: number("opt_level")? as u32,
        max_fuse_depth: number("max_fuse_depth")? as usize,
        max_function_args: number("max_function_args")? as usize,
        order: Order::Strict,
        ..Options::default()
    })
}

fn read_pattern(value: &Value) -> Result<opfuse::internals::fusion::Pattern, String> {
    value.as_str().unwrap_or_default().parse().map_err(|error: opfuse::error::Error| error.to_string())
}

fn read_groups(value: &Value) -> Result<Groups, String> {
    let group = |group| list(group).map(|ids| ids.iter().filter_map(|id| id.as_str().map(str::to_owned)).collect());
    list(value)?.iter().map(group).collect()
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("expected a list, found {value}"))
}
