//! The words of the private dialect, each with the term to say instead.
//!
//! A row holds patterns of whole words, without regard to case. `a|b` is either word, `*` is any word. A pattern does
//! not reach over punctuation, and code in backticks is not searched.

use std::collections::HashMap;

/// Patterns that are not said, and what to say.
pub(crate) struct Word {
    pub(crate) patterns: &'static [&'static str],
    pub(crate) say: &'static str,
    /// Beginnings of the paths that the row is about; none for all.
    pub(crate) within: &'static [&'static str],
}

/// A row for all files.
const fn word(patterns: &'static [&'static str], say: &'static str) -> Word {
    Word { patterns, say, within: &[] }
}

const CUDA: &[&str] = &[
    "src/codegen/cuda",
    "src/device/cuda",
    "src/runtime/cuda",
    "src/error/libraries.rs",
    "tests/cuda",
    "docs/cuda.md",
    "scripts/gpu",
];

pub(crate) const WORDS: &[Word] = &[
    word(&["way|ways back"], "backward pass"),
    word(&["way|ways there"], "forward pass"),
    word(&["put|puts|putting aside", "put|puts|putting * aside"], "clear"),
    word(&["told|tell|tells|telling late|later"], "reported asynchronously"),
    word(&["circle|circles"], "cycle"),
    word(&["ask|asks|asked|asking ahead", "ask|asks|asked|asking for lines"], "prefetch"),
    word(&["ask|asks|asked|asking memory", "memory for much"], "keep more loads in flight"),
    word(&["past the cache|caches"], "non-temporal (streaming) stores"),
    word(&["stand-in|stand-ins|standins"], "fake, mock"),
    word(&["take|takes|taken|took|taking apart", "take|takes|took|taking * apart"], "split"),
    word(&["take|takes|taken|took|taking for granted"], "guards, what a program requires"),
    word(&["patience|patient"], "recompile back-off"),
    word(&["the|of|its|all|different|most|allow|allows breaks"], "graph breaks"),
    Word { patterns: &["home|homes|home's"], say: "spill slot", within: &["src/codegen"] },
    word(
        &["lined|crossed|spaced operand|operands|access|accesses|element|elements|row|rows"],
        "gathered, transposed, deinterleaved",
    ),
    word(&["what|that|which suits", "suit|suits it|them|all|the|another"], "applicable"),
    word(&["behind a|the|its|any|matrix product|products", "behind products"], "epilogue"),
    word(&["a|the|no|vm's machine of|for tiles|vm", "vm's machine", "the vm is a machine"], "interpreter"),
    Word { patterns: &["text|texts"], say: "source", within: CUDA },
    Word {
        patterns: &[
            "word|words of a|the|its|each|every launch|launches|call|kernel|product|node|program",
            "product's|kernel's|launch's words",
        ],
        say: "argument buffer",
        within: CUDA,
    },
    word(&["without a word"], "says nothing, records nothing"),
    word(&["behind"], "after, follows, beyond, of: say which"),
    word(&["nobody|nobody's"], "no other tensor, no kernel, nothing: say who"),
];

/// A pattern and its row.
struct Pattern {
    parts: Vec<Vec<&'static str>>,
    word: &'static Word,
}

/// The patterns of [`WORDS`], found by their first words.
pub(crate) struct Dialect {
    by_first: HashMap<&'static str, Vec<Pattern>>,
}

impl Dialect {
    pub(crate) fn new() -> Self {
        let mut by_first: HashMap<&str, Vec<Pattern>> = HashMap::new();
        for word in WORDS {
            for pattern in word.patterns {
                let parts: Vec<Vec<&str>> = pattern.split(' ').map(|part| part.split('|').collect()).collect();
                for first in parts[0].clone() {
                    by_first.entry(first).or_default().push(Pattern { parts: parts.clone(), word });
                }
            }
        }
        Self { by_first }
    }

    /// What is said among the tokens of a file, which are words with their lines: line, words, what to say instead.
    pub(crate) fn find(&self, path: &str, tokens: &[(usize, String)]) -> Vec<(usize, String, &'static str)> {
        let mut found = Vec::new();
        for (at, (line, first)) in tokens.iter().enumerate() {
            for pattern in self.by_first.get(first.as_str()).into_iter().flatten() {
                let Some(window) = tokens.get(at..at + pattern.parts.len()) else { continue };
                let fits = |((_, token), part): (&(usize, String), &Vec<&str>)| {
                    part.contains(&token.as_str()) || part[..] == ["*"] && token.len() > 1
                };
                if pattern.word.is_about(path) && window.iter().zip(&pattern.parts).all(fits) {
                    let said: Vec<&str> = window.iter().map(|(_, token)| token.as_str()).collect();
                    found.push((*line, said.join(" "), pattern.word.say));
                }
            }
        }
        found
    }
}

impl Word {
    fn is_about(&self, path: &str) -> bool {
        self.within.is_empty() || self.within.iter().any(|start| path.starts_with(start))
    }
}
