//! What another framework answers, as `scripts/minilm_reference.py` wrote it down.

use opfuse::{Error, Result};
use serde_json::Value;

/// Sentences with their token ids and embeddings, and further texts with token ids alone.
pub(crate) struct Reference {
    /// The framework and its version.
    pub(crate) by: String,
    pub(crate) sentences: Vec<Sentence>,
    #[cfg_attr(not(test), expect(dead_code, reason = "hard cases for the tokenizer's tests"))]
    tokens: Vec<(String, Vec<i64>)>,
}

/// One sentence of the reference batch.
pub(crate) struct Sentence {
    pub(crate) text: String,
    pub(crate) ids: Vec<i64>,
    pub(crate) embedding: Vec<f32>,
}

impl Reference {
    /// Reads the reference's JSON.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let bad = |message: String| Error::File { path: "reference.json".to_owned(), message };
        let json: Value = serde_json::from_str(text).map_err(|error| bad(format!("is not JSON: {error}")))?;
        Self::read(&json).ok_or_else(|| bad("is not what scripts/minilm_reference.py writes".to_owned()))
    }

    fn read(json: &Value) -> Option<Self> {
        let text = |row: &Value| row["text"].as_str().map(str::to_owned);
        let ids = |row: &Value| row["ids"].as_array()?.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>();
        let sentence = |row: &Value| {
            let embedding = row["embedding"].as_array()?.iter().map(|value| value.as_f64().map(|value| value as f32));
            Some(Sentence { text: text(row)?, ids: ids(row)?, embedding: embedding.collect::<Option<_>>()? })
        };
        Some(Self {
            by: json["by"].as_str()?.to_owned(),
            sentences: json["sentences"].as_array()?.iter().map(sentence).collect::<Option<_>>()?,
            tokens: json["tokens"]
                .as_array()?
                .iter()
                .map(|row| Some((text(row)?, ids(row)?)))
                .collect::<Option<_>>()?,
        })
    }

    /// The largest difference between `vectors`, row by row, and the reference; NaN if there is one, infinite if the
    /// sizes differ.
    pub(crate) fn max_abs_error(&self, vectors: &[f32]) -> f64 {
        let expected: Vec<f32> = self.sentences.iter().flat_map(|row| row.embedding.iter().copied()).collect();
        if expected.len() != vectors.len() {
            return f64::INFINITY;
        }
        let errors = expected.iter().zip(vectors).map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs());
        // `f64::max` would drop a NaN.
        errors.fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
    }

    /// Every text with its token ids.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &[i64])> {
        let sentences = self.sentences.iter().map(|row| (row.text.as_str(), row.ids.as_slice()));
        sentences.chain(self.tokens.iter().map(|(text, ids)| (text.as_str(), ids.as_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Reference {
        let text = r#"{"by": "x", "sentences": [{"text": "a", "ids": [1], "embedding": [1.0, -0.5]}], "tokens": []}"#;
        Reference::parse(text).expect("the text is what the script writes")
    }

    #[test]
    fn the_largest_error_counts() {
        assert_eq!(small().max_abs_error(&[1.0, -0.5]), 0.0);
        assert_eq!(small().max_abs_error(&[1.25, 0.0]), 0.5);
        assert!(small().max_abs_error(&[f32::NAN, 0.0]).is_nan());
        assert!(small().max_abs_error(&[0.0, f32::NAN]).is_nan());
        assert_eq!(small().max_abs_error(&[1.0]), f64::INFINITY);
    }

    #[test]
    fn bad_references_are_errors() {
        assert!(Reference::parse("{").is_err());
        assert!(Reference::parse("{}").is_err());
    }

    #[test]
    fn the_checked_in_reference_is_whole() {
        let reference =
            Reference::parse(include_str!("reference.json")).expect("the checked-in reference is well formed");
        assert!(reference.sentences.len() >= 8);
        for row in &reference.sentences {
            let length: f32 = row.embedding.iter().map(|x| x * x).sum();
            assert!(row.embedding.len() == 384 && (length - 1.0).abs() < 1e-5, "{:?}", row.text);
        }
    }
}
