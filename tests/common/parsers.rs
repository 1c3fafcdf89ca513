//! What reads texts and files from outside, as functions of bytes. They panic if a promise is broken.
//!
//! No bytes make a parser panic. What it accepts has a text that leads to the same value again. Work is bounded by the
//! number of bytes. `tests/ir/parsers.rs` calls these functions on mutated seeds, and the crate in `fuzz` calls them
//! under libFuzzer. Readers of files of tensors are in `readers`.

#![allow(dead_code, reason = "a fuzzer calls one of them")]

#[path = "archives.rs"]
pub(crate) mod archives;
#[path = "bits.rs"]
pub(crate) mod bits_of;
#[path = "readers.rs"]
pub(crate) mod readers;

use opfuse::dispatch::{OperatorName, Schema};
use opfuse::internals::codegen::disk::{packed, unpacked};
use opfuse::internals::compile::calibration;
use opfuse::internals::ir::passes::PASSES;
use opfuse::ir::Graph;
use opfuse::{DType, Device, Error, Result, Tensor, compile, nn};
use std::fmt::{Debug, Display};
use std::str::{FromStr, from_utf8};

/// A function of bytes, with its name, which is that of the folder of its seeds.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const TARGETS: [Target; 13] = [
    ("graph_text", graph_text),
    ("schema_text", schema_text),
    ("cache_file", cache_file),
    ("rates_text", rates_text),
    ("device_text", device_text),
    ("einsum_text", einsum_text),
    ("report_json", report_json),
    ("safetensors_file", readers::safetensors_file),
    ("safetensors_index", readers::safetensors_index),
    ("npy_file", readers::npy_file),
    ("npz_file", readers::npz_file),
    ("exported_file", readers::exported_file),
    ("exported_text", readers::exported_text),
];

/// The most elements of a value of a graph that goes through the passes, which compute constants.
const MAX_ELEMENTS: usize = 1 << 16;

/// Graphs as text. A graph that is accepted goes through all passes, each of which leaves a graph that verifies.
pub(crate) fn graph_text(bytes: &[u8]) {
    let Some(mut graph) = parsed::<Graph>(bytes) else { return };
    let is_small = graph.nodes().all(|(_, node)| node.ty.numel() <= MAX_ELEMENTS);
    if !is_small || graph.len() > 100 {
        return;
    }
    for pass in PASSES {
        // A pass may refuse: what is decomposed may be too large for this machine.
        let Ok(next) = (pass.run)(&graph) else { return };
        pass.verify(&next).unwrap_or_else(|error| panic!("{error}\n{graph}\n{next}"));
        if next.nodes().any(|(_, node)| node.ty.numel() > MAX_ELEMENTS) {
            return;
        }
        graph = next;
    }
}

/// Schemas and names of operators.
pub(crate) fn schema_text(bytes: &[u8]) {
    parsed::<Schema>(bytes);
    parsed::<OperatorName>(bytes);
}

/// Files of machine code: the bytes as a file, and edits of a file that is intact.
pub(crate) fn cache_file(bytes: &[u8]) {
    let subject = b"a kernel";
    if let Ok(content) = unpacked(subject, bytes) {
        assert_eq!(packed(subject, content), bytes, "a file that is accepted is the one that is written");
    }
    let (content, edits) = bytes.split_at(bytes.len() / 2);
    let file = packed(subject, content);
    assert_eq!(unpacked(subject, &file), Ok(content));
    let mut edited = file.clone();
    for edit in edits.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (edited.len() + 1);
        match edit[2] {
            0 => edited.truncate(at),
            1 => edited.insert(at, 0),
            byte => {
                if let Some(old) = edited.get_mut(at) {
                    *old ^= byte;
                }
            }
        }
    }
    assert_eq!(unpacked(subject, &edited).is_ok(), edited == file, "{edited:?}");
}

/// Rates of a machine.
pub(crate) fn rates_text(bytes: &[u8]) {
    let Ok(text) = from_utf8(bytes) else { return };
    let Ok(rates) = calibration::parse(text) else { return };
    assert_eq!(calibration::parse(&calibration::text(&rates)).ok(), Some(rates), "{text:?}");
}

/// Names of devices.
pub(crate) fn device_text(bytes: &[u8]) {
    parsed::<Device>(bytes);
}

/// Equations of `einsum`, for two matrices.
pub(crate) fn einsum_text(bytes: &[u8]) {
    let Ok(equation) = from_utf8(bytes) else { return };
    let x = Tensor::ones(&[2, 3], DType::F32).expect("there is memory");
    for operands in [&[&x][..], &[&x, &x], &[]] {
        let _ = nn::einsum(equation, operands);
    }
}

/// Reports as JSON: whatever text an error holds, it parses as JSON, and holds that text.
pub(crate) fn report_json(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let refused = text.clone();
    let function = compile(move |x: &Tensor| -> Result<Tensor> {
        drop(x.neg()?);
        Err(Error::argument("custom", refused.clone()))
    });
    let x = Tensor::ones(&[2], DType::F32).expect("there is memory");
    assert!(function.call(&x).is_err());
    let json = function.explain().to_json();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}\n{json}"));
    assert!(value.is_object(), "{json}");
}

/// The value of a text, if it is accepted. Its own text then leads to the same value, and is not much longer.
fn parsed<T: FromStr<Err = Error> + Display + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let text = from_utf8(bytes).ok()?;
    let value: T = match text.parse() {
        Ok(value) => value,
        Err(error) => {
            let message = error.to_string();
            assert!(message.len() < 1000 + 8 * text.len(), "a message of {} bytes", message.len());
            return None;
        }
    };
    let printed = value.to_string();
    assert!(printed.len() < 1000 + 100 * text.len(), "{} bytes", printed.len());
    let again: T = printed.parse().unwrap_or_else(|error| panic!("{printed:?} does not parse: {error}"));
    assert_eq!(again.to_string(), printed, "it is printed as another text");
    assert!(again == value, "{printed:?} leads to another value than {text:?}");
    Some(value)
}
