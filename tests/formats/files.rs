//! Whole files: what is saved is loaded, and is mapped.

use crate::{Folder, check_error, put};
use opfuse::formats::safetensors::{SafeTensors, save_sharded};
use opfuse::formats::{npy, npz, safetensors};
use opfuse::{DType, Result, StateDict, Tensor, bf16, f16, load};
use std::collections::BTreeMap;

/// Tensors of every dtype, with and without dims and elements, and one that is not row-major.
fn all_kinds() -> Result<StateDict> {
    let counting = Tensor::arange(0, 24, 1)?.reshape([2, 3, 4])?;
    let mut all = StateDict::new();
    for dtype in DType::ALL {
        all.insert(format!("kinds.{dtype}"), counting.to_dtype(dtype)?);
    }
    all.insert("no dims, \"quoted\" ü".into(), Tensor::scalar(2.5f32)?);
    all.insert("empty".into(), Tensor::zeros(&[3, 0, 2], DType::I16)?);
    all.insert("transposed".into(), counting.to_dtype(DType::F64)?.permute([2, 0, 1])?);
    all.insert("part".into(), counting.i((1, .., 1..3))?);
    Ok(all)
}

#[track_caller]
fn same(found: &StateDict, expected: &StateDict) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, tensor) in expected {
        let found = &found[name];
        assert_eq!((found.dtype(), found.sizes()), (tensor.dtype(), tensor.sizes()), "{name}");
        let text = |tensor: &Tensor| tensor.to_dtype(DType::F64).and_then(|x| x.to_vec::<f64>()).expect("it has data");
        assert_eq!(text(found), text(tensor), "{name}");
    }
}

#[test]
fn safetensors_are_saved_and_mapped() -> Result<()> {
    let folder = Folder::new("safetensors");
    let path = folder.file("all");
    let tensors = all_kinds()?;
    let metadata = BTreeMap::from([("format".to_owned(), "opfuse".to_owned())]);
    safetensors::save(&path, &tensors, &metadata)?;
    same(&load(&path)?, &tensors);
    let file = SafeTensors::open(&path)?;
    assert_eq!((file.metadata(), file.names().count()), (&metadata, tensors.len()));
    let x = file.tensor("kinds.f32")?;
    check_error(x.add_(1.0), &["read-only", "mapped from", "safetensors", "copy()"]);
    check_error(file.tensor("other"), &["all", "\"other\"", "names()"]);

    // The file of another library, which knows ours.
    let bytes = std::fs::read(&path).expect("it was written just now");
    let theirs = ::safetensors::SafeTensors::deserialize(&bytes).expect("the file is one of safetensors");
    assert_eq!(theirs.len(), tensors.len());
    assert_eq!(theirs.tensor("kinds.i64").expect("it is there").shape(), [2, 3, 4]);
    let data = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
    let view = ::safetensors::tensor::TensorView::new(::safetensors::Dtype::F32, vec![2], &data).expect("it has two");
    let bytes = ::safetensors::serialize([("w", view)], None).expect("it is legal");
    put(&path, &bytes);
    assert_eq!(load(&path)?["w"].to_vec::<f32>()?, [1.0, 2.0]);
    safetensors::save(&path, &StateDict::new(), &BTreeMap::new())?;
    assert!(load(&path)?.is_empty());
    Ok(())
}

#[test]
fn shards_have_an_index() -> Result<()> {
    let folder = Folder::new("shards");
    let tensors = all_kinds()?;
    save_sharded(&folder.0, &tensors, 300)?;
    let index = folder.file("model.safetensors.index.json");
    same(&load(&index)?, &tensors);
    assert!(std::fs::read_dir(&folder.0).expect("it is there").count() > 4);
    for (text, parts) in [
        (r#"{"weight_map": {"a": "../model-00001-of-00002.safetensors"}}"#, &["index", "not in the folder"][..]),
        (r#"{"weight_map": {"a": "/etc/passwd"}}"#, &["not in the folder"]),
        (r#"{"weight_map": {"a": "missing.safetensors"}}"#, &["missing.safetensors", "cannot be opened"]),
        (r#"{"weight_map": {"a": ".."}}"#, &["not in the folder"]),
        (r#"{"weights": {}}"#, &["weight_map"]),
        (r#"{"weight_map": {"a": 1}}"#, &["index", "at byte 21"]),
    ] {
        put(&index, text.as_bytes());
        check_error(load(&index), parts);
    }
    Ok(())
}

#[test]
fn arrays_of_numpy_are_saved_and_mapped() -> Result<()> {
    let folder = Folder::new("npy");
    let mut tensors = all_kinds()?;
    let path = folder.file("x.npy");
    check_error(npy::save(&path, &tensors["kinds.bf16"]), &["x.npy", "bf16", "safetensors"]);
    assert!(!path.exists());
    check_error(npz::save(&path, &tensors), &["x.npy", "kinds.bf16", "bf16"]);
    tensors.remove("kinds.bf16");
    for (name, tensor) in &tensors {
        npy::save(&path, tensor)?;
        same(&load(&path)?, &StateDict::from([("arr_0".to_owned(), tensor.clone())]));
        assert_eq!(npy::load(&path)?.sizes(), tensor.sizes(), "{name}");
    }
    let path = folder.file("all.npz");
    npz::save(&path, &tensors)?;
    same(&load(&path)?, &tensors);
    assert!(npz::load(&path)?["kinds.f64"].add_(1.0).is_err(), "stored members are mapped");
    npz::save(&path, &StateDict::new())?;
    assert!(load(&path)?.is_empty());
    Ok(())
}

/// Files of NumPy 2: an array of the other byte order, a column-major one and one of 16 bits, by `savez` and
/// `savez_compressed`; and a column-major one by `save`.
#[test]
fn archives_of_numpy_are_read() -> Result<()> {
    let folder = Folder::new("numpy");
    for name in ["stored.npz", "deflated.npz"] {
        let all = load(golden(name))?;
        assert_eq!(all["a"].to_vec2::<i32>()?, [[0, 1, 2], [3, 4, 5]], "{name}");
        assert_eq!(all["b"].to_vec2::<f64>()?, [[1.5, 2.0], [3.0, 4.0]], "{name}");
        assert_eq!(all["half"].to_vec::<f16>()?, [f16::from_f32(0.5); 40], "{name}");
        // What is copied may be written.
        all["a"].add_(1)?;
    }
    let x = npy::load(golden("column_major.npy"))?;
    assert_eq!((x.sizes(), x.strides(), x.i((1, 2))?.item::<i16>()?), (&[2, 3][..], &[1, 2][..], 5));
    // One byte of the packed elements is another one.
    let mut bytes = std::fs::read(golden("deflated.npz")).expect("it is checked in");
    let at = 60;
    bytes[at] ^= 4;
    let path = folder.file("wrong");
    put(&path, &bytes);
    check_error(load(&path), &["wrong", "array \"a\""]);
    Ok(())
}

fn golden(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/numpy").join(name)
}

#[test]
fn saving_replaces_files_as_a_whole() -> Result<()> {
    let folder = Folder::new("replaced");
    let path = folder.file("weights");
    let save = |value: f32| {
        let tensors = StateDict::from([("w".to_owned(), Tensor::full(&[5000], value, DType::F32)?)]);
        safetensors::save(&path, &tensors, &BTreeMap::new())
    };
    save(1.0)?;
    let old = load(&path)?.remove("w").expect("it was saved");
    // The mapping is of the old file, which lives on without a name.
    save(2.0)?;
    assert_eq!((old.i((4999,))?.item::<f32>()?, load(&path)?["w"].i((4999,))?.item::<f32>()?), (1.0, 2.0));
    // What is mapped may be saved in place of itself.
    let loaded = load(&path)?;
    safetensors::save(&path, &loaded, &BTreeMap::new())?;
    assert_eq!(load(&path)?["w"].i((0,))?.item::<f32>()?, 2.0);
    // An error leaves the file, and nothing else.
    let no_data = StateDict::from([
        ("a".to_owned(), Tensor::zeros(&[9000], DType::F64)?),
        ("w".to_owned(), Tensor::meta(&Tensor::zeros(&[3], DType::F32)?.ty())?),
    ]);
    check_error(safetensors::save(&path, &no_data, &BTreeMap::new()), &["meta"]);
    assert_eq!(load(&path)?["w"].i((0,))?.item::<f32>()?, 2.0);
    assert_eq!(std::fs::read_dir(&folder.0).expect("it is there").count(), 1);
    check_error(safetensors::save(folder.file("no/such"), &loaded, &BTreeMap::new()), &["such", "cannot be written"]);
    #[cfg(unix)]
    {
        let link = folder.file("link");
        std::os::unix::fs::symlink(&path, &link).expect("links can be made");
        safetensors::save(&link, &StateDict::new(), &BTreeMap::new())?;
        assert!(link.is_symlink() && load(&path)?.is_empty());
    }
    Ok(())
}

#[test]
fn large_numbers_of_elements_of_16_bits_are_mapped() -> Result<()> {
    let folder = Folder::new("halves");
    let path = folder.file("halves");
    let x = Tensor::from_vec((0..10_001).map(|i| bf16::from_f32(i as f32)).collect(), &[10_001])?;
    safetensors::save(&path, &StateDict::from([("x".to_owned(), x.clone())]), &BTreeMap::new())?;
    let y = load(&path)?.remove("x").expect("it was saved");
    assert_eq!(y.add(&x)?.to_vec::<bf16>()?, x.add(&x)?.to_vec::<bf16>()?);
    Ok(())
}

#[test]
fn files_hold_complex_numbers() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("opfuse-complex-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let elements: Vec<num_complex::Complex64> =
        (0..12).map(|at| num_complex::Complex64::new(at.into(), -0.5)).collect();
    let z = Tensor::from_slice(&elements, &[3, 4])?;
    let (array, tensors) = (folder.join("z.npy"), folder.join("z.safetensors"));
    opfuse::formats::npy::save(&array, &z.transpose(0, 1)?)?;
    let loaded = opfuse::formats::npy::load(&array)?;
    assert_eq!(loaded.to_vec::<num_complex::Complex64>()?, z.transpose(0, 1)?.to_vec::<num_complex::Complex64>()?);
    let narrow = z.to_dtype(DType::Complex64)?;
    opfuse::formats::safetensors::save(&tensors, &[("z".to_owned(), narrow.clone())].into(), &Default::default())?;
    assert_eq!(
        opfuse::load(&tensors)?["z"].to_vec::<num_complex::Complex32>()?,
        narrow.to_vec::<num_complex::Complex32>()?
    );
    assert!(opfuse::formats::safetensors::save(&tensors, &[("z".to_owned(), z)].into(), &Default::default()).is_err());
    std::fs::remove_dir_all(&folder).expect("it was made");
    Ok(())
}
