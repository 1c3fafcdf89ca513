//! Text to token ids, as BERT's uncased models were trained on it.
//!
//! Four steps work on characters: drop what is not text, set CJK ideographs apart, strip accents, and lower-case. Then
//! the text is split at white space and punctuation, and each word by greedy longest-match WordPiece. A sequence is
//! `[CLS] … [SEP]`, has at most [`MAX_LENGTH`] ids, and is never empty.
//!
//! Deliberately absent: special tokens written out in the text (`"[SEP]"` in a sentence is three words), pairs of
//! sentences, and offsets back into the text.

use crate::unicode;
use opfuse::{Error, Result};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;

/// The longest sequence the model was trained for, `[CLS]` and `[SEP]` included.
pub(crate) const MAX_LENGTH: usize = 256;

/// A longer word is not looked up piece by piece: it is `[UNK]`.
const MAX_WORD: usize = 100;

/// A WordPiece vocabulary with its special tokens.
pub(crate) struct Tokenizer {
    vocabulary: HashMap<String, i64>,
    unknown: i64,
    start: i64,
    end: i64,
    padding: i64,
}

/// Sequences padded to the longest, row by row.
#[derive(Debug, PartialEq)]
pub(crate) struct Batch {
    /// Number of sequences and their common length.
    pub(crate) sizes: [usize; 2],
    /// Token ids; padding after the end.
    pub(crate) ids: Vec<i64>,
    /// 1 at tokens, 0 at padding.
    pub(crate) mask: Vec<f32>,
}

impl Tokenizer {
    /// Reads a `vocab.txt`: one token a line, its id the line's number.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let file_error = |message: String| Error::File { path: path.display().to_string(), message };
        let text = std::fs::read_to_string(path).map_err(|error| file_error(format!("cannot be read: {error}")))?;
        Self::from_vocabulary(&text).map_err(file_error)
    }

    fn from_vocabulary(text: &str) -> Result<Self, String> {
        let vocabulary: HashMap<String, i64> = text.lines().map(str::to_owned).zip(0..).collect();
        let special = |token: &str| {
            vocabulary.get(token).copied().ok_or_else(|| format!("is not a BERT vocabulary: it has no line {token}"))
        };
        let (unknown, start) = (special("[UNK]")?, special("[CLS]")?);
        let (end, padding) = (special("[SEP]")?, special("[PAD]")?);
        Ok(Self { vocabulary, unknown, start, end, padding })
    }

    /// The ids of one text, cut off at [`MAX_LENGTH`].
    pub(crate) fn encode(&self, text: &str) -> Vec<i64> {
        let mut ids = vec![self.start];
        for word in words(&normalize(text)) {
            self.push_pieces(word, &mut ids);
        }
        ids.truncate(MAX_LENGTH - 1);
        ids.push(self.end);
        ids
    }

    /// Several sequences as one rectangle.
    pub(crate) fn pad(&self, sequences: &[Vec<i64>]) -> Batch {
        let longest = sequences.iter().map(Vec::len).max().unwrap_or(0);
        let mut batch = Batch { sizes: [sequences.len(), longest], ids: Vec::new(), mask: Vec::new() };
        for sequence in sequences {
            let n_padding = longest - sequence.len();
            batch.ids.extend(sequence.iter().copied().chain(std::iter::repeat_n(self.padding, n_padding)));
            batch.mask.extend(sequence.iter().map(|_| 1.0).chain(std::iter::repeat_n(0.0, n_padding)));
        }
        batch
    }

    /// Greedy longest match from the left. A word with a part that no piece matches is unknown as a whole.
    fn push_pieces(&self, word: &str, ids: &mut Vec<i64>) {
        if word.chars().count() > MAX_WORD {
            ids.push(self.unknown);
            return;
        }
        let n_before = ids.len();
        let mut start = 0;
        while start < word.len() {
            let Some((id, end)) = self.longest_piece(word, start) else {
                ids.truncate(n_before);
                ids.push(self.unknown);
                return;
            };
            ids.push(id);
            start = end;
        }
    }

    /// The longest piece of `word` from byte `start`, and where it ends.
    fn longest_piece(&self, word: &str, start: usize) -> Option<(i64, usize)> {
        let prefix = if start == 0 { "" } else { "##" };
        let mut piece = format!("{prefix}{}", &word[start..]);
        while piece.len() > prefix.len() {
            if let Some(&id) = self.vocabulary.get(&piece) {
                return Some((id, start + piece.len() - prefix.len()));
            }
            piece.pop();
        }
        None
    }
}

/// Cleaned, unaccented, lower-case text in which ideographs stand between spaces.
fn normalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars().filter(|&char| is_text(char)) {
        if char.is_whitespace() {
            out.push(' ');
        } else if is_ideograph(char) {
            out.push(' ');
            unaccent(char, &mut out);
            out.push(' ');
        } else {
            unaccent(char, &mut out);
        }
    }
    out
}

/// Words and single punctuation characters, in order.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for run in text.split(' ') {
        let mut start = 0;
        for (at, mark) in run.char_indices().filter(|&(_, char)| is_punctuation(char)) {
            words.push(&run[start..at]);
            start = at + mark.len_utf8();
            words.push(&run[at..start]);
        }
        words.push(&run[start..]);
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Appends the canonical decomposition of `char` without its nonspacing marks, in lower case.
fn unaccent(char: char, out: &mut String) {
    let mut push = |char: char| {
        if !contains(unicode::NONSPACING_MARK, char) {
            out.extend(char.to_lowercase());
        }
    };
    if let Some(letters) = hangul_letters(char) {
        letters.into_iter().flatten().for_each(push);
    } else if let Ok(at) = unicode::UNACCENTED_LONG.binary_search_by_key(&u32::from(char), |&(point, _)| point) {
        unicode::UNACCENTED_LONG[at].1.chars().for_each(push);
    } else {
        push(unaccented(char).unwrap_or(char));
    }
}

/// The one character that `char` is without accents, where that is another one.
fn unaccented(char: char) -> Option<char> {
    let point = u32::from(char);
    let after = unicode::UNACCENTED.partition_point(|&(first, _)| first <= point);
    let (first, images) = unicode::UNACCENTED[after.checked_sub(1)?];
    images.chars().nth((point - first) as usize)
}

/// The two or three letters of a Hangul syllable block: 19 initials, 21 vowels, 27 finals or none, in that order.
fn hangul_letters(char: char) -> Option<[Option<char>; 3]> {
    const N_VOWELS: u32 = 21;
    const N_FINALS: u32 = 28;
    let index = u32::from(char).checked_sub(0xac00).filter(|&index| index < 19 * N_VOWELS * N_FINALS)?;
    let (block, tail) = (index / N_FINALS, index % N_FINALS);
    let tail = if tail == 0 { None } else { char::from_u32(0x11a7 + tail) };
    Some([char::from_u32(0x1100 + block / N_VOWELS), char::from_u32(0x1161 + block % N_VOWELS), tail])
}

/// White space counts as text although tabs and line ends are control characters.
fn is_text(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r') || char != '\u{fffd}' && !contains(unicode::OTHER, char)
}

/// The blocks that BERT splits into single characters. Kana and Hangul are written in words and stay together.
fn is_ideograph(char: char) -> bool {
    matches!(u32::from(char),
        0x4e00..=0x9fff | 0x3400..=0x4dbf | 0x20000..=0x2a6df | 0x2a700..=0x2b73f | 0x2b740..=0x2b81f
        | 0x2b820..=0x2ceaf | 0xf900..=0xfaff | 0x2f800..=0x2fa1f)
}

/// BERT calls every ASCII symbol punctuation, `$` and `+` included.
fn is_punctuation(char: char) -> bool {
    char.is_ascii_punctuation() || contains(unicode::PUNCTUATION, char)
}

fn contains(ranges: &[(u32, u32)], char: char) -> bool {
    let point = u32::from(char);
    let position = |&(first, last): &(u32, u32)| match (point < first, point > last) {
        (true, _) => Ordering::Greater,
        (false, true) => Ordering::Less,
        (false, false) => Ordering::Equal,
    };
    ranges.binary_search_by(position).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOY: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\nwant\n##ed\n,\nrun\n##ning\ncafe\n京\n";

    fn toy() -> Tokenizer {
        Tokenizer::from_vocabulary(TOY).expect("the toy vocabulary has the special tokens")
    }

    #[track_caller]
    fn check_words(text: &str, expected: &[&str]) {
        assert_eq!(words(&normalize(text)), expected, "{text:?}");
    }

    #[test]
    fn text_splits_into_words() {
        check_words("", &[]);
        check_words("  \t\r\n\u{a0}\u{3000} ", &[]);
        check_words("Hello, World!", &["hello", ",", "world", "!"]);
        check_words("don't--stop", &["don", "'", "t", "-", "-", "stop"]);
        check_words("a$b+c`d", &["a", "$", "b", "+", "c", "`", "d"]);
        check_words("«¿qué?»", &["«", "¿", "que", "?", "»"]);
        check_words("10€ ±½", &["10€", "±½"]);
    }

    #[test]
    fn what_is_not_text_is_dropped() {
        check_words("a\0b\u{7}c\u{200b}d\u{fffd}e\u{ad}f\u{feff}g\u{e000}h", &["abcdefgh"]);
        check_words("a\tb\nc\rd", &["a", "b", "c", "d"]);
    }

    #[test]
    fn accents_go_and_letters_stay() {
        check_words("ÀÉÎÕÜñçÅ", &["aeiounca"]);
        check_words("øłđßæ", &["øłđßæ"]);
        check_words("e\u{301}te\u{301}", &["ete"]);
        check_words("Việt ёЙ", &["viet", "еи"]);
        check_words("İstanbul Σ\u{301}", &["istanbul", "σ"]);
        check_words("ΐ\u{344}ᾳ", &["ια"]);
        check_words("ガギ", &["カキ"]);
    }

    #[test]
    fn ideographs_stand_alone() {
        check_words("東京is漢字", &["東", "京", "is", "漢", "字"]);
        check_words("\u{20000}x\u{f900}", &["\u{20000}", "x", "\u{8c48}"]);
    }

    #[test]
    fn hangul_becomes_letters() {
        check_words("한가힣", &["\u{1112}\u{1161}\u{11ab}\u{1100}\u{1161}\u{1112}\u{1175}\u{11c2}"]);
        assert_eq!(hangul_letters('\u{d7a4}'), None);
        assert_eq!(hangul_letters('\u{abff}'), None);
    }

    #[test]
    fn the_longest_piece_wins() {
        let tokenizer = toy();
        assert_eq!(tokenizer.encode("unaffable, wanted RUNNING"), [2, 4, 5, 6, 9, 7, 8, 10, 11, 3]);
        assert_eq!(tokenizer.encode("Café 京"), [2, 12, 13, 3]);
        assert_eq!(tokenizer.encode(""), [2, 3]);
    }

    #[test]
    fn a_word_is_unknown_as_a_whole() {
        let tokenizer = toy();
        assert_eq!(tokenizer.encode("unaffablex want"), [2, 1, 7, 3]);
        assert_eq!(tokenizer.encode("aff"), [2, 1, 3]);
        let at_limit = "un".to_owned() + &"able".repeat(24) + "ed";
        assert_eq!(tokenizer.encode(&at_limit).len(), 2 + 26);
        assert_eq!(tokenizer.encode(&format!("{at_limit}ed")), [2, 1, 3]);
    }

    #[test]
    fn long_text_is_cut_and_still_ends() {
        let ids = toy().encode(&"want ".repeat(400));
        assert_eq!(ids.len(), MAX_LENGTH);
        assert_eq!((ids[0], ids[1], ids[MAX_LENGTH - 2], ids[MAX_LENGTH - 1]), (2, 7, 7, 3));
    }

    #[test]
    fn a_batch_is_padded_to_the_longest() {
        let tokenizer = toy();
        let batch = tokenizer.pad(&[tokenizer.encode("want"), tokenizer.encode("")]);
        let expected = Batch { sizes: [2, 3], ids: vec![2, 7, 3, 2, 3, 0], mask: vec![1.0, 1.0, 1.0, 1.0, 1.0, 0.0] };
        assert_eq!(batch, expected);
        assert_eq!(tokenizer.pad(&[]), Batch { sizes: [0, 0], ids: vec![], mask: vec![] });
    }

    #[test]
    fn a_bad_vocabulary_says_what_it_lacks() {
        let Err(message) = Tokenizer::from_vocabulary("[PAD]\n[UNK]\n[CLS]\n") else {
            panic!("a vocabulary without [SEP] was accepted");
        };
        assert!(message.contains("[SEP]"), "{message}");
        let Err(error) = Tokenizer::load(Path::new("no/such/vocab.txt")) else {
            panic!("a missing file was read");
        };
        assert!(error.to_string().starts_with("no/such/vocab.txt: "), "{error}");
    }

    /// The tables must be sorted and disjoint for the searches above.
    #[test]
    fn tables_are_in_order() {
        for ranges in [unicode::NONSPACING_MARK, unicode::PUNCTUATION, unicode::OTHER] {
            assert!(ranges.iter().all(|&(first, last)| first <= last));
            assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
        let end = |(first, images): (u32, &str)| first as usize + images.chars().count();
        assert!(unicode::UNACCENTED.windows(2).all(|pair| end(pair[0]) <= pair[1].0 as usize));
        assert!(unicode::UNACCENTED_LONG.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
