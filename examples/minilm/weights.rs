//! A model folder: hyper-parameters from `config.json`, tensors from `model.safetensors`.
//!
//! Every mistake that a folder can have is an `Error::File` that names the file. It may be missing, truncated or not of
//! the format. A tensor may be absent, or have another shape or dtype than the configuration says.

use opfuse::{Error, Result, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The sizes that make a BERT encoder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) n_tokens: usize,
    pub(crate) n_positions: usize,
    pub(crate) n_types: usize,
    pub(crate) n_layers: usize,
    pub(crate) n_heads: usize,
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) eps: f64,
}

impl Config {
    /// Reads `config.json` in `folder`.
    pub(crate) fn load(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        let bytes = read(&path)?;
        let json =
            serde_json::from_slice(&bytes).map_err(|error| file_error(&path, format!("is not JSON: {error}")))?;
        Self::parse(&json).map_err(|message| file_error(&path, message))
    }

    fn parse(json: &Value) -> Result<Self, String> {
        let size = |key: &str| match json[key].as_u64() {
            Some(size) if size > 0 => Ok(size as usize),
            Some(_) | None => Err(format!("\"{key}\" must be a positive whole number, not {}", json[key])),
        };
        let eps = json["layer_norm_eps"].as_f64().ok_or("\"layer_norm_eps\" must be a number")?;
        let config = Self {
            n_tokens: size("vocab_size")?,
            n_positions: size("max_position_embeddings")?,
            n_types: size("type_vocab_size")?,
            n_layers: size("num_hidden_layers")?,
            n_heads: size("num_attention_heads")?,
            hidden: size("hidden_size")?,
            intermediate: size("intermediate_size")?,
            eps,
        };
        if json["hidden_act"] != "gelu" {
            return Err(format!("\"hidden_act\" is {}; only \"gelu\" is implemented", json["hidden_act"]));
        }
        if !config.hidden.is_multiple_of(config.n_heads) {
            return Err(format!("{} heads do not divide a hidden size of {}", config.n_heads, config.hidden));
        }
        Ok(config)
    }
}

/// The bytes of a safetensors file, from which tensors are taken by name.
pub(crate) struct Weights {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Weights {
    /// Reads `model.safetensors` in `folder`.
    pub(crate) fn load(folder: &Path) -> Result<Self> {
        if !folder.is_dir() {
            let message = "is no folder; scripts/fetch_minilm.sh downloads the model, --model DIR names another place";
            return Err(file_error(folder, message));
        }
        let path = folder.join("model.safetensors");
        // Read rather than mapped: a file that shrinks under a mapping ends the process.
        let bytes = read(&path)?;
        Ok(Self { path, bytes })
    }

    /// The file's header, checked against its length.
    pub(crate) fn open(&self) -> Result<OpenWeights<'_>> {
        let tensors = SafeTensors::deserialize(&self.bytes).map_err(|error| {
            let n_bytes = self.bytes.len();
            file_error(&self.path, format!("is truncated or no safetensors file ({n_bytes} bytes): {error}"))
        })?;
        Ok(OpenWeights { path: &self.path, tensors })
    }
}

/// A parsed safetensors file.
pub(crate) struct OpenWeights<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl OpenWeights<'_> {
    /// Copies out the f32 tensor `name`, which must have exactly these sizes.
    pub(crate) fn tensor(&self, name: &str, sizes: &[usize]) -> Result<Tensor> {
        let view = self.tensors.tensor(name).map_err(|_| {
            let n_tensors = self.tensors.len();
            file_error(self.path, format!("has no tensor {name:?} among its {n_tensors}; is it another model?"))
        })?;
        if view.dtype() != Dtype::F32 {
            let message = format!("tensor {name:?} has dtype {:?}, expected F32", view.dtype());
            return Err(file_error(self.path, message));
        }
        if view.shape() != sizes {
            let message = format!("tensor {name:?} has shape {:?}, the configuration wants {sizes:?}", view.shape());
            return Err(file_error(self.path, message));
        }
        // The format is little-endian and does not align its data.
        let (words, _) = view.data().as_chunks::<4>();
        let values: Vec<f32> = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
        Tensor::from_slice(&values, sizes)
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| file_error(path, format!("cannot be read: {error}")))
}

fn file_error(path: &Path, message: impl Into<String>) -> Error {
    Error::File { path: path.display().to_string(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that holds one tensor `w` of shape [2, 2].
    fn file(dtype: &str, n_bytes: usize) -> Vec<u8> {
        let header = format!(r#"{{"w":{{"dtype":"{dtype}","shape":[2,2],"data_offsets":[0,{n_bytes}]}}}}"#);
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend([1.5f32, -0.0, 3.0, f32::MIN].iter().flat_map(|value| value.to_le_bytes()).take(n_bytes));
        bytes
    }

    fn take(bytes: Vec<u8>, name: &str, sizes: &[usize]) -> Result<Tensor> {
        Weights { path: PathBuf::from("some/model.safetensors"), bytes }.open()?.tensor(name, sizes)
    }

    #[track_caller]
    fn check_error(result: Result<Tensor>, words: &str) {
        let Err(error) = result else { panic!("accepted; expected {words:?}") };
        let message = error.to_string();
        assert!(message.starts_with("some/model.safetensors: ") && message.contains(words), "{message}");
    }

    #[test]
    fn a_tensor_is_copied_out() {
        let tensor = take(file("F32", 16), "w", &[2, 2]).expect("the file is well formed");
        assert_eq!(tensor.sizes(), [2, 2]);
        assert_eq!(tensor.to_vec::<f32>().expect("it holds f32"), [1.5, -0.0, 3.0, f32::MIN]);
    }

    #[test]
    fn bad_files_are_named() {
        let good = file("F32", 16);
        for end in [0, 4, 8, 20, good.len() - 1] {
            check_error(take(good[..end].to_vec(), "w", &[2, 2]), "truncated");
        }
        check_error(take(b"no tensors, but a text that is longer".to_vec(), "w", &[2, 2]), "no safetensors file");
        check_error(take(good.clone(), "v", &[2, 2]), "no tensor \"v\"");
        check_error(take(good, "w", &[4]), "shape [2, 2], the configuration wants [4]");
        check_error(take(file("F16", 8), "w", &[2, 2]), "dtype F16");
    }

    #[test]
    fn a_missing_folder_or_file_is_named() {
        let Err(error) = Weights::load(Path::new("no/such/folder")) else { panic!("a missing folder was read") };
        assert!(error.to_string().starts_with("no/such/folder: "), "{error}");
        assert!(error.to_string().contains("fetch_minilm.sh"), "{error}");
        let Err(error) = Weights::load(Path::new("src")) else { panic!("a folder without a model was read") };
        assert!(error.to_string().contains("model.safetensors: cannot be read"), "{error}");
    }

    #[test]
    fn a_bad_configuration_says_which_key() {
        let good = serde_json::json!({
            "vocab_size": 10, "max_position_embeddings": 8, "type_vocab_size": 2, "num_hidden_layers": 1,
            "num_attention_heads": 2, "hidden_size": 4, "intermediate_size": 8, "layer_norm_eps": 1e-12,
            "hidden_act": "gelu",
        });
        assert_eq!(Config::parse(&good).map(|config| (config.hidden, config.eps)), Ok((4, 1e-12)));
        let cases = [
            ("vocab_size", Value::from(-1)),
            ("num_hidden_layers", Value::Null),
            ("hidden_size", Value::from(0)),
            ("layer_norm_eps", Value::from("x")),
            ("hidden_act", Value::from("relu")),
        ];
        for (key, value) in cases {
            let mut bad = good.clone();
            bad[key] = value;
            let Err(message) = Config::parse(&bad) else { panic!("accepted a bad {key}") };
            assert!(message.contains(key), "{key}: {message}");
        }
        let mut bad = good;
        bad["num_attention_heads"] = Value::from(3);
        assert!(Config::parse(&bad).is_err_and(|message| message.contains("divide")));
    }
}
