//! Small files that ask for much. Each is an error, before memory or time is spent on what it asks for.

use crate::archives::{Member, archive, deflated_zeros, of_packed};
use crate::{Folder, check_error, put};
use opfuse::exported::Program;
use opfuse::formats::{npz, safetensors};
use opfuse::{DType, Result, StateDict, Tensor};

/// The graph of a small program, and where its tensors are.
pub(crate) fn texts() -> (String, String) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/exported_text/1");
    let text = std::fs::read_to_string(path).expect("it is checked in");
    let (model, config) = text.split_once('\0').expect("there are two texts");
    (model.to_owned(), config.to_owned())
}

/// The members of a program besides those of its tensors.
pub(crate) fn program(model: &str, config: &str) -> Vec<Member> {
    let config = Member::stored("m/data/weights/model_weights_config.json", config.as_bytes());
    vec![config, Member::stored("m/models/model.json", model.as_bytes())]
}

#[test]
fn arguments_do_not_nest_without_an_end() {
    let folder = Folder::new("nested");
    let path = folder.file("x.pt2");
    let (model, config) = texts();
    for kind in ["as_optional_tensor", "as_graph", "as_tensors", "as_sym_ints", "as_expr"] {
        let open = format!("{{\"{kind}\":");
        for text in [format!("\"inputs\":[{}", open.repeat(200_000)), format!("\"inputs\":{}", "[".repeat(200_000))] {
            put(&path, &archive(&program(&model.replacen("\"inputs\":[", &text, 1), &config)));
            check_error(Program::load(&path), &["x.pt2", "models/model.json"]);
        }
    }
    let optional = "{\"as_optional_tensors\":[{\"as_optional_tensor\":{\"as_none\":true}}]}";
    put(&path, &archive(&program(&model.replacen("\"as_tensor\":{\"name\":\"w\"}", &optional[1..], 1), &config)));
    check_error(Program::load(&path), &["x.pt2", "a tensor or none is expected"]);
}

/// A few kilobytes are four megabytes when they are unpacked, and many tensors are over them.
#[test]
fn a_member_is_copied_once() -> Result<()> {
    const N_TENSORS: usize = 2000;
    let folder = Folder::new("copies");
    let path = folder.file("x.pt2");
    let (model, _) = texts();
    let (packed, len) = deflated_zeros(16_000);
    let meta = |size: usize| {
        let sizes = format!("\"sizes\":[{{\"as_int\":{size}}}],\"strides\":[{{\"as_int\":1}}]");
        format!("{{\"path_name\":\"w\",\"tensor_meta\":{{\"dtype\":1,{sizes},\"storage_offset\":{{\"as_int\":0}}}}}}")
    };
    let all: Vec<String> = (1..=N_TENSORS).map(|size| format!("\"t{size}\":{}", meta(size))).collect();
    let rest = program(&model, &format!("{{\"config\":{{{}}}}}", all.join(",")));
    let before = most_memory();
    for is_deflated in [true, false] {
        let zeros = Member { name: b"m/data/weights/w".to_vec(), content: vec![0; len], is_deflated };
        let bytes = if is_deflated { packed.clone() } else { zeros.content.clone() };
        let mut members = vec![(bytes, &zeros)];
        members.extend(rest.iter().map(|member| (member.content.clone(), member)));
        let bytes = of_packed(&members);
        put(&path, &bytes);
        check_error(Program::load(&path), &["x.pt2", "\"l.weight\" is missing"]);
        check_error(Program::from_bytes("built in", bytes.leak()), &["built in", "\"l.weight\" is missing"]);
    }
    // A copy for each tensor would be 8 GB, eight times what other tests may take meanwhile.
    let grown = most_memory() - before;
    assert!(grown < 1 << 30, "{grown} bytes more");
    Ok(())
}

/// The most bytes of memory that this process has had, or 0 where the system does not say.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    most.and_then(|most| most.trim().strip_suffix(" kB")).map_or(0, |kb| kb.parse::<u64>().expect("a number") * 1024)
}

/// What is unpacked is as long as the archive says, or it is an error.
#[test]
fn packed_arrays_are_as_long_as_they_say() -> Result<()> {
    let folder = Folder::new("lengths");
    let path = folder.file("x.npz");
    let (packed, len) = deflated_zeros(100);
    for said in [0, 1, len - 1, len + 1, packed.len() * 1032, packed.len() * 1033 + 1032] {
        let member = Member { name: b"a.npy".to_vec(), content: vec![0; said], is_deflated: true };
        put(&path, &of_packed(&[(packed.clone(), &member)]));
        check_error(npz::load(&path), &["x.npz", "\"a", "packed bytes"]);
    }
    Ok(())
}

/// Each of many inputs is written, and found again by its name.
#[test]
fn many_written_inputs_take_no_time() -> Result<()> {
    const N: usize = 50_000;
    let folder = Folder::new("written");
    let path = folder.file("x.pt2");
    let list = |one: &dyn Fn(usize) -> String| (0..N).map(one).collect::<Vec<_>>().join(",");
    let values = list(&|at| format!("{{\"as_tensor\":{{\"name\":\"x{at}\"}}}}"));
    let inputs = list(&|at| format!("{{\"user_input\":{{\"arg\":{{\"as_tensor\":{{\"name\":\"x{at}\"}}}}}}}}"));
    let outputs = list(&|at| format!("{{\"user_input_mutation\":{{\"user_input_name\":\"x{}\"}}}}", N - 1 - at));
    let graph = format!("\"graph\":{{\"inputs\":[{values}],\"outputs\":[{values}],\"nodes\":[]}}");
    let signature = format!("\"signature\":{{\"input_specs\":[{inputs}],\"output_specs\":[{outputs}]}}");
    let model = format!("{{\"graph_module\":{{{graph},{signature}}},\"schema_version\":{{\"major\":8}}}}");
    put(&path, &archive(&program(&model, "{\"config\":{}}")));
    let start = std::time::Instant::now();
    assert_eq!(Program::load(&path)?.inputs().len(), N);
    assert!(start.elapsed().as_secs() < 10, "it took {:?}", start.elapsed());
    Ok(())
}

#[test]
fn no_tensor_has_the_name_of_the_metadata() -> Result<()> {
    let folder = Folder::new("metadata");
    let path = folder.file("x");
    let tensors = StateDict::from([("__metadata__".to_owned(), Tensor::zeros(&[2], DType::F32)?)]);
    let refusal = safetensors::save(&path, &tensors, &Default::default()).expect_err("it is no name").to_string();
    assert!(refusal.contains("__metadata__") && refusal.contains("rename"), "{refusal}");
    assert!(!path.exists(), "a file that cannot be loaded was left");
    npz::save(&path, &tensors)?;
    assert!(npz::load(&path)?.contains_key("__metadata__"));
    Ok(())
}
