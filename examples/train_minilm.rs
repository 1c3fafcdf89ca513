//! LoRA (Hu et al. 2021) on all-MiniLM-L6-v2: sentences shall be near if their tense is the same, not their topic.
//!
//! ```text
//! scripts/fetch_minilm.sh
//! cargo run --release --example train_minilm [-- MODEL_FOLDER]
//! ```
//!
//! The published weights are frozen. Products of two narrow matrices are added to those of queries and values: 36,864
//! numbers beside 23 million. They are trained on sentences of sixteen topics. Of other topics, no sentence has a
//! neighbour of its tense at first, and nearly all have one in the end. Half-way it saves a checkpoint of the
//! additions. The test inside resumes one on a small model of random weights, and ends with the same bits. The losses
//! are drawn to `target/train_minilm.svg`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

#[path = "kit/bits.rs"]
#[cfg(test)]
mod bits;
#[path = "kit/chart.rs"]
mod chart;
#[path = "minilm/model.rs"]
mod model;
#[cfg(test)]
#[path = "kit/resumes.rs"]
mod resumes;
#[path = "minilm/tokenizer.rs"]
mod tokenizer;
#[path = "minilm/unicode.rs"]
mod unicode;
#[path = "minilm/weights.rs"]
mod weights;

use model::Model;
use opfuse::nn::{Checkpoint, Linear, Module, init};
use opfuse::optim::{AdamW, Optimizer};
use opfuse::{Explain, Result, Tensor, compile, manual_seed};
use std::path::Path;
use tokenizer::Tokenizer;

const RANK: usize = 4;
const STEPS: usize = 40;
/// How many topics are trained on. The others are unseen.
const TRAINED: usize = 16;

/// What happens: who, what was done, what will be done, and to what.
const TOPICS: [[&str; 4]; 24] = [
    ["The gardener", "watered", "water", "the roses behind the house"],
    ["My sister", "painted", "paint", "the kitchen in a light blue"],
    ["Our team", "won", "win", "the match against the champions"],
    ["The surgeon", "removed", "remove", "the tumour from his lung"],
    ["A volcano", "destroyed", "destroy", "the harbour of the island"],
    ["The bank", "raised", "raise", "the interest on all loans"],
    ["Two students", "translated", "translate", "the novel from Turkish"],
    ["The orchestra", "played", "play", "a symphony by Brahms"],
    ["The baker", "burned", "burn", "a dozen loaves of bread"],
    ["Astronomers", "found", "find", "a planet with two suns"],
    ["The parliament", "passed", "pass", "a law about clean water"],
    ["Her uncle", "repaired", "repair", "the engine of the old tractor"],
    ["The shepherd", "lost", "lose", "a lamb in the snow"],
    ["Hackers", "stole", "steal", "the passwords of a ministry"],
    ["The tailor", "shortened", "shorten", "the sleeves of the coat"],
    ["A storm", "closed", "close", "the airport for two days"],
    ["The chemist", "heated", "heat", "the acid in a glass tube"],
    ["The children", "built", "build", "a castle of wet sand"],
    ["The judge", "freed", "free", "the man for lack of proof"],
    ["A whale", "followed", "follow", "the ship to the north"],
    ["The museum", "bought", "buy", "a portrait from the seventeenth century"],
    ["The cyclist", "broke", "break", "the record on the last hill"],
    ["The librarian", "sorted", "sort", "the maps of the coast"],
    ["The carpenter", "sold", "sell", "the oak table to a neighbour"],
];

/// What is added to a weight: `B A`, where `A` has few rows.
#[derive(Clone, Module)]
struct Product {
    a: Linear,
    b: Linear,
}

impl Product {
    /// Adds nothing at first, because `B` is zero.
    fn new(features: usize) -> Result<Product> {
        let (a, b) = (Linear::new(features, RANK)?.without_bias(), Linear::new(RANK, features)?.without_bias());
        init::constant(&b.weight, 0.0)?;
        Ok(Product { a, b })
    }

    fn added_to(&self, frozen: &Tensor) -> Result<Tensor> {
        frozen.add(self.b.weight.mm(&self.a.weight)?)
    }
}

/// The additions to queries and values, per layer.
#[derive(Clone, Module)]
struct Additions {
    queries: Vec<Product>,
    values: Vec<Product>,
}

impl Additions {
    fn new(model: &Model) -> Result<Additions> {
        let (layers, features) = model.sizes();
        let products = || (0..layers).map(|_| Product::new(features)).collect::<Result<_>>();
        Ok(Additions { queries: products()?, values: products()? })
    }

    fn forward(&self, model: &Model, [ids, positions, mask]: [&Tensor; 3]) -> Result<Tensor> {
        let change = |at: usize, [query, value]: [&Tensor; 2]| {
            Ok([self.queries[at].added_to(query)?, self.values[at].added_to(value)?])
        };
        model.with_queries_and_values(change)?.forward(ids, positions, mask)
    }
}

/// Sentences in turns of the past and of the future, as tensors.
struct Inputs {
    ids: Tensor,
    positions: Tensor,
    mask: Tensor,
}

impl Inputs {
    fn of(topics: &[[&str; 4]], tokenizer: &Tokenizer) -> Result<Inputs> {
        let both = |[who, did, does, what]: &[&str; 4]| {
            [format!("{who} {did} {what} yesterday."), format!("{who} will {does} {what} tomorrow.")]
        };
        let sentences: Vec<Vec<i64>> = topics.iter().flat_map(both).map(|text| tokenizer.encode(&text)).collect();
        let batch = tokenizer.pad(&sentences);
        let positions: Vec<i64> = (0..batch.sizes[0]).flat_map(|_| 0..batch.sizes[1] as i64).collect();
        Ok(Inputs {
            ids: Tensor::from_slice(&batch.ids, &batch.sizes)?,
            positions: Tensor::from_slice(&positions, &batch.sizes)?,
            mask: Tensor::from_slice(&batch.mask, &batch.sizes)?,
        })
    }

    fn count(&self) -> usize {
        self.ids.sizes()[0]
    }
}

/// The mean negative log-likelihood of choosing a sentence of the same tense by similarity (Khosla et al. 2020).
fn loss(rows: &Tensor) -> Result<Tensor> {
    let n = rows.sizes()[0];
    let pairs = || (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
    let itself: Vec<f32> = pairs().map(|(a, b)| if a == b { -1e9 } else { 0.0 }).collect();
    let share = 1.0 / (n * (n / 2 - 1)) as f32;
    let wanted: Vec<f32> = pairs().map(|(a, b)| if a != b && a % 2 == b % 2 { share } else { 0.0 }).collect();
    let scores = rows.mm(&rows.transpose(0, 1)?)?.mul(10.0)?.add(Tensor::from_slice(&itself, &[n, n])?)?;
    scores.log_softmax(1)?.mul(Tensor::from_slice(&wanted, &[n, n])?)?.sum_all()?.neg()
}

/// The share of sentences whose nearest other one has the same tense.
fn nearest(rows: &Tensor) -> Result<f32> {
    let n = rows.sizes()[0];
    let scores = rows.detach()?.mm(&rows.detach()?.transpose(0, 1)?)?.sub(Tensor::eye(n, rows.dtype())?.mul(9.0)?)?;
    let found = scores.argmax(1, false)?.to_vec::<i64>()?;
    Ok(found.iter().enumerate().filter(|&(at, &other)| at % 2 == other as usize % 2).count() as f32 / n as f32)
}

type Adapted = (Additions, Vec<(usize, f32)>, Explain);

/// Trains additions for so many steps in all, from the checkpoint on if there is one.
fn adapt(model: &Model, inputs: &Inputs, path: &Path, (steps, saves_at): (usize, usize)) -> Result<Adapted> {
    manual_seed(1);
    let additions = Additions::new(model)?;
    let rule = AdamW { lr: 2e-3, weight_decay: 0.0, ..AdamW::default() };
    let optimizer = Optimizer::new(rule, additions.parameters())?;
    let checkpoint = Checkpoint::new(path).with("model", &additions).with("optimizer", &optimizer);
    checkpoint.resume()?;
    let step = compile(|ids: &Tensor, positions: &Tensor, mask: &Tensor| {
        optimizer.minimize(&loss(&additions.forward(model, [ids, positions, mask])?)?)
    });
    let done = optimizer.state_dict()["0.step"].item::<f64>()? as usize;
    let mut losses = Vec::new();
    for at in done..steps {
        losses.push((at, step.call((&inputs.ids, &inputs.positions, &inputs.mask))?.item::<f32>()?));
        if at + 1 == saves_at {
            checkpoint.save()?;
        }
    }
    let report = step.explain();
    drop((step, checkpoint));
    Ok((additions, losses, report))
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "models/all-MiniLM-L6-v2".into());
    let folder = Path::new(&folder);
    let (model, tokenizer) = (Model::load(folder)?, Tokenizer::load(&folder.join("vocab.txt"))?);
    let (seen, unseen) = TOPICS.split_at(TRAINED);
    let (seen, unseen) = (Inputs::of(seen, &tokenizer)?, Inputs::of(unseen, &tokenizer)?);
    let before = nearest(&model.forward(&unseen.ids, &unseen.positions, &unseen.mask)?)?;

    let path = std::env::temp_dir().join(format!("opfuse-minilm-{}.safetensors", std::process::id()));
    let adapted = adapt(&model, &seen, &path, (STEPS, STEPS / 2));
    std::fs::remove_file(&path).ok();
    let (additions, losses, report) = adapted?;
    println!("{report}");
    let count: usize = additions.parameters().iter().map(Tensor::numel).sum();
    println!("{count} numbers were trained, by {} sentences", seen.count());

    let after = nearest(&additions.forward(&model, [&unseen.ids, &unseen.positions, &unseen.mask])?)?;
    let (first, last) = (losses[0].1, losses[losses.len() - 1].1);
    let path = chart::chart("train_minilm", "Nats per sentence", &[("additions", losses)])?;
    println!("{first:.3} nats per sentence at first, {last:.3} in the end; the losses are in {}", path.display());
    println!("nearest unseen sentence has the same tense: {:.0} %, then {:.0} %", before * 100.0, after * 100.0);
    assert!(before < 0.2 && after > 0.9, "the additions should learn the tense, and not the topic");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use opfuse::{DType, StateDict, formats::safetensors};

    /// A model of one layer with random weights, by the files of a folder.
    fn small() -> Result<(Model, Tokenizer)> {
        let folder = std::env::temp_dir().join(format!("opfuse-minilm-model-{}", std::process::id()));
        let text = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("the folder is writable");
        std::fs::create_dir_all(&folder).expect("there is a folder for such files");
        text(
            "config.json",
            r#"{"vocab_size": 8, "max_position_embeddings": 16, "type_vocab_size": 2, "num_hidden_layers": 1,
                "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 12, "layer_norm_eps": 1e-12,
                "hidden_act": "gelu"}"#,
        );
        text("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nwill\nthe\nyesterday\ntomorrow\n");
        manual_seed(3);
        let layer = |name: &str| format!("encoder.layer.0.{name}");
        let mut sizes: Vec<(String, Vec<usize>)> = [("word", 8), ("position", 16), ("token_type", 2)]
            .map(|(name, rows)| (format!("embeddings.{name}_embeddings.weight"), vec![rows, 8]))
            .into();
        for (name, outputs, inputs) in [
            ("attention.self.query", 8, 8),
            ("attention.self.key", 8, 8),
            ("attention.self.value", 8, 8),
            ("attention.output.dense", 8, 8),
            ("intermediate.dense", 12, 8),
            ("output.dense", 8, 12),
        ] {
            sizes.push((layer(&format!("{name}.weight")), vec![outputs, inputs]));
            sizes.push((layer(&format!("{name}.bias")), vec![outputs]));
        }
        for name in ["embeddings.LayerNorm".to_owned(), layer("attention.output.LayerNorm"), layer("output.LayerNorm")]
        {
            sizes.extend(["weight", "bias"].map(|part| (format!("{name}.{part}"), vec![8])));
        }
        let tensors: Result<StateDict> =
            sizes.into_iter().map(|(name, sizes)| Ok((name, Tensor::randn(&sizes, DType::F32)?))).collect();
        safetensors::save(folder.join("model.safetensors"), &tensors?, &Default::default())?;
        let loaded = Model::load(&folder).and_then(|model| Ok((model, Tokenizer::load(&folder.join("vocab.txt"))?)));
        std::fs::remove_dir_all(&folder).ok();
        loaded
    }

    #[test]
    fn a_resumed_run_has_the_same_bits() -> Result<()> {
        let (model, tokenizer) = small()?;
        let inputs = Inputs::of(&TOPICS[..3], &tokenizer)?;
        resumes::assert_resumes("minilm", 3, |path, saved| adapt(&model, &inputs, path, (6, saved)))
    }
}
