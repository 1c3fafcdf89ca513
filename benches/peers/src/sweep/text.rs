//! The text of a call.
//!
//! `NAME(ARG,…,KEY=ARG)`, without a space anywhere; the name is that of a schema. An argument is a tensor, a number,
//! `None`, `True`, `False`, a list in brackets, a text in quotes, or the name of a dtype or memory format.
//!
//! A tensor is `DTYPE[SIZES]` and words that begin with a colon:
//!
//! - `:LOW..HIGH` is the range of its elements.
//! - `:perm` and `:sorted` are other kinds of elements: a permutation, and sorted rows.
//! - `:t` is transposed, `:s` every second column, `:w` a window of wider rows, `:b` one row that is repeated, `:cl`
//!   channels last.
//! - `:n` is an operand that gets no gradient.

use opfuse::DType;

/// A call: an operator and its arguments.
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) positional: Vec<Arg>,
    pub(crate) named: Vec<(String, Arg)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Arg {
    Tensor(Operand),
    List(Vec<Arg>),
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    /// The name of a dtype or a memory format.
    Word(String),
}

/// A tensor to be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Operand {
    pub(crate) dtype: DType,
    pub(crate) sizes: Vec<usize>,
    pub(crate) range: Option<(f64, f64)>,
    pub(crate) words: Vec<String>,
}

impl Operand {
    pub(crate) fn is(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// Whether gradients are computed for it.
    pub(crate) fn is_differentiated(&self) -> bool {
        self.dtype.is_float() && !self.is("n")
    }
}

type Parsed<T> = Result<T, String>;

/// Reads a call.
///
/// # Errors
/// If the text is not of the form above.
pub(crate) fn call(text: &str) -> Parsed<Call> {
    let (name, rest) = text.split_once('(').ok_or(format!("no call: {text}"))?;
    let mut reader = Reader { rest };
    let (mut positional, mut named) = (Vec::new(), Vec::new());
    while !reader.takes(")") {
        match reader.key() {
            Some(key) => named.push((key, reader.arg()?)),
            None => positional.push(reader.arg()?),
        }
        reader.takes(",");
    }
    match reader.rest {
        "" => Ok(Call { name: name.into(), positional, named }),
        rest => Err(format!("nothing is expected after the call, found {rest}")),
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, what: &str) -> bool {
        let stripped = self.rest.strip_prefix(what);
        self.rest = stripped.unwrap_or(self.rest);
        stripped.is_some()
    }

    fn until(&mut self, is_end: impl Fn(char) -> bool) -> &'a str {
        let (word, rest) = self.rest.split_at(self.rest.find(is_end).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// The key of a named argument, if one comes next.
    fn key(&mut self) -> Option<String> {
        let (key, rest) = self.rest.split_once('=')?;
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return None;
        }
        self.rest = rest;
        Some(key.into())
    }

    fn arg(&mut self) -> Parsed<Arg> {
        if self.takes("[") {
            return self.items().map(Arg::List);
        }
        if self.takes("\"") {
            let text = self.until(|c| c == '"').to_owned();
            return if self.takes("\"") { Ok(Arg::Str(text)) } else { Err("a text has no end".into()) };
        }
        let word = self.until(|c| ",)][(:".contains(c));
        if self.takes("[") {
            return self.operand(word).map(Arg::Tensor);
        }
        Ok(match word {
            "None" => Arg::None,
            "True" => Arg::Bool(true),
            "False" => Arg::Bool(false),
            "" => return Err(format!("an argument is missing before {}", self.rest)),
            _ if word.starts_with(|c: char| c.is_ascii_alphabetic()) => Arg::Word(word.into()),
            _ => match word.parse() {
                Ok(number) => Arg::Int(number),
                Err(_) => Arg::Float(number(word)?),
            },
        })
    }

    fn items(&mut self) -> Parsed<Vec<Arg>> {
        let mut items = Vec::new();
        while !self.takes("]") {
            items.push(self.arg()?);
            self.takes(",");
        }
        Ok(items)
    }

    /// A tensor after its dtype and the opening bracket.
    fn operand(&mut self, dtype: &str) -> Parsed<Operand> {
        let dtype = DType::from_name(dtype).ok_or(format!("no dtype {dtype}"))?;
        let sizes = self.until(|c| c == ']').split(',').filter(|size| !size.is_empty());
        let sizes = sizes.map(|size| size.parse().map_err(|_| format!("no size {size}"))).collect::<Parsed<_>>()?;
        self.takes("]");
        let (mut range, mut words) = (None, Vec::new());
        while self.takes(":") {
            let word = self.until(|c| ",)]:".contains(c));
            match word.split_once("..") {
                Some((low, high)) => range = Some((number(low)?, number(high)?)),
                None => words.push(word.into()),
            }
        }
        Ok(Operand { dtype, sizes, range, words })
    }
}

fn number(text: &str) -> Parsed<f64> {
    text.parse().map_err(|_| format!("no number {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read() {
        let call = call("aten::cat([f32[2,3]:-1..1:t,bf16[3,2]],-1,key=True)").expect("it is a call");
        let first = Operand { dtype: DType::F32, sizes: vec![2, 3], range: Some((-1.0, 1.0)), words: vec!["t".into()] };
        let second = Operand { dtype: DType::BF16, sizes: vec![3, 2], range: None, words: Vec::new() };
        assert_eq!(call.name, "aten::cat");
        assert_eq!(call.positional, [Arg::List(vec![Arg::Tensor(first), Arg::Tensor(second)]), Arg::Int(-1)]);
        assert_eq!(call.named, [("key".into(), Arg::Bool(true))]);
    }

    #[test]
    fn texts_that_are_no_calls_are_refused() {
        for text in ["aten::relu", "aten::relu(f32[a])", "aten::relu(f31[2])", "aten::add(1x)", "aten::relu(f32[2])!"] {
            assert!(super::call(text).is_err(), "{text}");
        }
    }
}
