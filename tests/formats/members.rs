//! Tensors of an exported program over one member of its file: they share their elements, as they did in PyTorch.

use crate::archives::{Member, archive};
use crate::bombs::{program, texts};
use crate::{Folder, put};
use opfuse::autograd::no_grad;
use opfuse::exported::Program;
use opfuse::{DType, Result, StateDict, Tensor};

/// The type of a tensor, as an archive says it.
fn meta(dtype: u8, sizes: &[usize], strides: &[usize], offset: usize) -> String {
    let list = |all: &[usize]| all.iter().map(|n| format!("{{\"as_int\":{n}}}")).collect::<Vec<_>>().join(",");
    format!(
        "{{\"dtype\":{dtype},\"sizes\":[{}],\"strides\":[{}],\"storage_offset\":{{\"as_int\":{offset}}}}}",
        list(sizes),
        list(strides)
    )
}

/// The file of a linear layer, whose weight and bias have these types and are both over one member of `content`. Its
/// elements begin `padding` bytes later than they would.
fn layer(weight: &str, bias: &str, content: &[u8], is_deflated: bool, padding: usize) -> Vec<u8> {
    let (model, _) = texts();
    let one = |meta: &str| format!("{{\"path_name\":\"both\",\"use_pickle\":false,\"tensor_meta\":{meta}}}");
    let spaces = " ".repeat(padding);
    let config = format!("{{\"config\":{{\"l.weight\":{},\"l.bias\":{}}}}}{spaces}", one(weight), one(bias));
    let mut members = program(&model, &config);
    members.push(Member { name: b"m/data/weights/both".to_vec(), content: content.to_vec(), is_deflated });
    archive(&members)
}

/// Loads a file in both ways.
fn loaded(bytes: Vec<u8>) -> Result<[Program; 2]> {
    let folder = Folder::new("members");
    let path = folder.file("x.pt2");
    put(&path, &bytes);
    Ok([Program::load(path)?, Program::from_bytes("built in", bytes.leak())?])
}

/// `x` times the weight, plus the bias, summed over a row: eagerly and compiled.
fn check(program: &Program, weight: [[f32; 3]; 2], bias: [f32; 2]) -> Result<()> {
    let x = Tensor::try_from([[1.0f32, 2.0, 3.0], [0.0, 0.5, -1.0]])?;
    let state = program.state();
    assert_eq!(state["l.weight"].to_vec2::<f32>()?, weight);
    assert_eq!(state["l.bias"].to_vec::<f32>()?, bias);
    let row = |x: &[f32]| -> f32 {
        let dots = weight.iter().zip(bias).map(|(row, bias)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>() + bias);
        dots.sum()
    };
    let wanted: Vec<Vec<f32>> = x.to_vec2::<f32>()?.iter().map(|x| vec![row(x)]).collect();
    let inputs = [x];
    assert_eq!(program.call_eager(&inputs)?[0].to_vec2::<f32>()?, wanted);
    assert_eq!(program.call(&inputs)?[0].to_vec2::<f32>()?, wanted);
    Ok(())
}

#[test]
fn tensors_over_one_member_share_writes() -> Result<()> {
    let elements: Vec<u8> = (1..=6u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    let _unrecorded = no_grad();
    // Eight places, of which one is aligned.
    for (is_deflated, padding) in (0..8).map(|padding| (false, padding)).chain([(true, 0)]) {
        // The bias is the second column of the weight.
        let (weight, bias) = (meta(7, &[2, 3], &[3, 1], 0), meta(7, &[2], &[3], 1));
        let bytes = layer(&weight, &bias, &elements, is_deflated, padding);
        for program in loaded(bytes)? {
            check(&program, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [2.0, 5.0])?;
            let (weight, bias) = (&program.state()["l.weight"], &program.state()["l.bias"]);
            let version = bias.version();
            weight.mul_(2.0)?;
            assert!(bias.version() > version, "the write is not counted");
            check(&program, [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]], [4.0, 10.0])?;
            bias.fill_(-1.0)?;
            check(&program, [[2.0, -1.0, 6.0], [8.0, -1.0, 12.0]], [-1.0, -1.0])?;
            let other = Tensor::try_from([[0.0f32, 1.0, 0.0], [0.0, 1.0, 0.0]])?;
            let column = other.select(1, 1)?.copy()?;
            program.load_state(&StateDict::from([("l.weight".into(), other), ("l.bias".into(), column)]))?;
            check(&program, [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]], [1.0, 1.0])?;
        }
    }
    Ok(())
}

/// Elements of other types share them as well; truth values do not, because kernels take 0 and 1 alone.
#[test]
fn types_over_one_member() -> Result<()> {
    let _unrecorded = no_grad();
    let bytes = |dtype: u8, size: usize| {
        layer(&meta(dtype, &[size], &[1], 0), &meta(1, &[8], &[1], 0), &[0, 1, 2, 3, 4, 5, 6, 7], false, 0)
    };
    for program in loaded(bytes(5, 1))? {
        let (wide, narrow) = (&program.state()["l.weight"], &program.state()["l.bias"]);
        assert_eq!((wide.dtype(), narrow.dtype()), (DType::I64, DType::U8));
        narrow.fill_(1.0)?;
        assert_eq!(wide.to_vec::<i64>()?, [0x0101_0101_0101_0101]);
    }
    for program in loaded(bytes(12, 8))? {
        let (truths, narrow) = (&program.state()["l.weight"], &program.state()["l.bias"]);
        assert_eq!(truths.to_vec::<bool>()?, [false, true, true, true, true, true, true, true]);
        assert_eq!(narrow.to_vec::<u8>()?, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
    Ok(())
}
