//! Loaders: order, batches, threads, places, errors and panics of data sets. Metrics beside counts by hand.

use opfuse::data::*;
use opfuse::nn::State;
use opfuse::{DType, Error, Result, Tensor, compile};

/// Sample `i` is the number `i`; some are bad.
struct Numbers {
    n: usize,
    error_at: Option<usize>,
    panic_at: Option<usize>,
}

impl Numbers {
    fn new(n: usize) -> Numbers {
        Numbers { n, error_at: None, panic_at: None }
    }
}

impl Dataset for Numbers {
    type Item = (Tensor, u64);

    fn len(&self) -> usize {
        self.n
    }

    fn get(&self, index: usize) -> Result<(Tensor, u64)> {
        assert!(self.panic_at != Some(index), "sample {index} is broken");
        if self.error_at == Some(index) {
            return Err(Error::argument("Numbers", format!("sample {index} is missing")));
        }
        Ok((Tensor::scalar(index as i64)?, 7))
    }
}

fn values<D: Dataset<Item = (Tensor, u64)>>(loader: &Loader<D>) -> Result<Vec<Vec<i64>>> {
    loader.epoch()?.map(|batch| batch?.0.to_vec::<i64>()).collect()
}

#[test]
fn orders_follow_from_the_seed_whatever_the_number_of_threads() -> Result<()> {
    let make = |workers: usize| Loader::new(Numbers::new(11)).batch(3).shuffle(5).map(|loader| loader.workers(workers));
    let (alone, threads) = (make(0)?, make(3)?);
    let mut epochs = Vec::new();
    for epoch in 0..3 {
        assert_eq!(alone.epoch_number()?, epoch);
        let batches = values(&alone)?;
        assert_eq!(values(&threads)?, batches);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 2]);
        let mut all = batches.concat();
        epochs.push(all.clone());
        all.sort_unstable();
        assert_eq!(all, (0..11).collect::<Vec<_>>());
    }
    assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
    assert_ne!(values(&Loader::new(Numbers::new(11)).batch(3).shuffle(6)?)?.concat(), epochs[0]);
    let plain = Loader::new(Numbers::new(5)).batch(2).drop_last();
    assert_eq!((values(&plain)?, plain.n_batches()), (vec![vec![0, 1], vec![2, 3]], 2));
    assert!(values(&Loader::new(Numbers::new(0)).workers(2))?.is_empty());
    Ok(())
}

#[test]
fn a_loaded_place_goes_on_with_the_next_batch() -> Result<()> {
    for workers in [0, 2] {
        let make = || Loader::new(Numbers::new(10)).batch(3).shuffle(1).map(|loader| loader.workers(workers));
        let whole = make()?;
        let (first, second) = (values(&whole)?, values(&whole)?);
        let stopped = make()?;
        let mut seen = Vec::new();
        for batch in stopped.epoch()?.take(2) {
            seen.push(batch?.0.to_vec::<i64>()?);
        }
        let resumed = make()?;
        for (name, tensor) in resumed.state_tensors() {
            tensor.copy_(&stopped.state_tensors()[&name])?;
        }
        seen.extend(values(&resumed)?);
        assert_eq!(seen, first);
        assert_eq!(values(&resumed)?, second);
        let small = Loader::new(Numbers::new(2));
        small.state_tensors()["place"].copy_(&Tensor::try_from([1i64, 0, 3])?)?;
        let error = small.epoch().err().expect("there are two batches").to_string();
        assert!(error.contains("batch 3 of epoch 0"), "{error}");
    }
    Ok(())
}

#[test]
fn errors_and_panics_are_those_of_their_batch() -> Result<()> {
    for workers in [0, 2] {
        let bad = Numbers { n: 8, error_at: Some(2), panic_at: Some(5) };
        let loader = Loader::new(bad).batch(2).workers(workers);
        let batches: Vec<Result<(Tensor, u64)>> = loader.epoch()?.collect();
        assert_eq!(batches.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
        let text = |at: usize| batches[at].as_ref().expect_err("it failed").to_string();
        assert!(text(1).contains("sample 2 is missing"), "{}", text(1));
        assert!(text(2).contains("panicked") && text(2).contains("sample 5 is broken"), "{}", text(2));
        // An epoch that is dropped half-way ends its threads.
        drop(loader.epoch()?.next());
    }
    Ok(())
}

#[test]
fn metrics_count_what_is_counted_by_hand() -> Result<()> {
    let scores = Tensor::try_from([[0.9f32, 0.1, 0.0], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1]])?;
    let targets = Tensor::try_from([0i64, 1, 1, 2])?;
    let (accuracy, matrix) = (Accuracy::new()?, ConfusionMatrix::new(3)?);
    let update = compile(|scores: &Tensor, targets: &Tensor| {
        accuracy.update(scores, targets)?;
        matrix.update(scores, targets)
    });
    for _ in 0..2 {
        update.call((&scores, &targets))?;
    }
    assert_eq!(accuracy.value()?, 0.5);
    assert_eq!(matrix.counts().to_vec2::<i64>()?, [[2, 0, 0], [0, 2, 2], [2, 0, 0]]);
    assert!(accuracy.update(&scores, &scores).is_err());
    assert!(ConfusionMatrix::new(2)?.update(&scores, &targets).is_err());
    let mut auc = Auc::new();
    auc.update(&Tensor::try_from([0.1f32, 0.4, 0.35, 0.8])?, &Tensor::try_from([0i64, 0, 1, 1])?)?;
    assert_eq!(auc.value()?, 0.75);
    auc.update(&Tensor::try_from([0.4f32])?, &Tensor::try_from([true])?)?;
    assert_eq!(auc.value()?, 4.5 / 6.0);
    assert!(auc.update(&Tensor::try_from([f32::NAN])?, &Tensor::try_from([[true]])?).is_err());
    // A compiled function takes it and gives it back. What the caller writes later does not count.
    let update = compile(|auc: &Auc, scores: &Tensor, positive: &Tensor| {
        let mut auc = auc.clone();
        auc.update(scores, positive)?;
        Ok(auc)
    });
    let (scores, positive) = (Tensor::try_from([[0.9f32, 0.2]])?, Tensor::try_from([[0i64, 1]])?);
    let more = update.call((&auc, &scores, &positive))?;
    scores.fill_(7.0)?;
    assert_eq!(more.value()?, 5.5 / 12.0);
    assert_eq!(auc.value()?, 4.5 / 6.0);
    auc.update(&Tensor::try_from([f32::NAN])?, &Tensor::try_from([true])?)?;
    assert!(auc.value().expect_err("it has no rank").to_string().contains("NaN"));
    assert!(Auc::new().value()?.is_nan());
    let perplexity = Perplexity::new()?;
    assert!(perplexity.value()?.is_nan());
    perplexity.update(&Tensor::scalar(2.0f32)?, 3)?;
    perplexity.update(&Tensor::scalar(6.0f32)?, 1)?;
    assert!((perplexity.value()? - 3f64.exp()).abs() < 1e-12);
    Ok(())
}

#[test]
fn rows_of_tensors_are_samples() -> Result<()> {
    let inputs = Tensor::arange(0, 6, 1)?.reshape([3, 2])?;
    let data = TensorDataset::new(inputs, Tensor::try_from([5i64, 6, 7])?)?;
    let batches = Loader::new(data).batch(2).epoch()?.collect::<Result<Vec<_>>>()?;
    assert_eq!(batches[0].0.to_vec2::<i64>()?, [[0, 1], [2, 3]]);
    assert_eq!(batches[1].1.to_vec::<i64>()?, [7]);
    let rows = |n: usize| Tensor::zeros(&[n], DType::F32);
    assert!(TensorDataset::new(rows(2)?, rows(3)?).is_err());
    Ok(())
}
