//! The folder of golden data, for tests that run its calls in their own way. A file that cannot be read is a panic.
//!
//! `OPFUSE_GOLDEN` names another folder of that format, `OPFUSE_GOLDEN_OPS=add,mul` some of its operators.

use serde_json::Value as Json;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("golden");
    std::env::var_os("OPFUSE_GOLDEN").map_or_else(own, PathBuf::from)
}

fn json(path: &Path) -> Json {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Names of operators, with their numbers among all of the folder.
pub(crate) fn operators() -> Vec<(usize, String)> {
    let wanted = std::env::var("OPFUSE_GOLDEN_OPS").ok();
    let wanted: Option<Vec<&str>> = wanted.as_ref().map(|names| names.split(',').map(str::trim).collect());
    let manifest = json(&folder().join("manifest.json"));
    let names = manifest["ops"].as_object().expect("the manifest names operators").keys().cloned().enumerate();
    names.filter(|(_, name)| wanted.as_ref().is_none_or(|wanted| wanted.contains(&name.as_str()))).collect()
}

/// The cases of an operator, and the bytes of their tensors.
pub(crate) fn cases(operator: &str) -> (Vec<Json>, Vec<u8>) {
    let Json::Array(cases) = json(&folder().join(format!("{operator}.json"))) else {
        panic!("the file of {operator} holds no list of cases");
    };
    let tensors = folder().join(format!("{operator}.safetensors"));
    (cases, std::fs::read(tensors).expect("the tensors stand beside the cases"))
}
