//! The text of a call.
//!
//! `NAME(ARG,…,KEY=ARG)`, without a space anywhere; the name is that of a schema. An argument is a tensor, a number,
//! `None`, `True`, `False`, a list in brackets, a text in quotes, or the name of a dtype or memory format.
//!
//! A tensor is `DTYPE[SIZES]`, then perhaps `(LOW,HIGH)` for the range of its elements, then words that begin with a
//! colon: a layout (`:t` transposed, `:s` every second column, `:w` a window of wider rows, `:b` one row that is
//! repeated, `:cl` channels last), a kind of elements (`:perm`, `:sorted`, `:spd`, `:steps`), and `:n` for an operand
//! that gets no gradient.

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
        let range = if self.takes("(") {
            let (low, high) = self.until(|c| c == ')').split_once(',').ok_or("a range has two ends")?;
            self.takes(")");
            Some((number(low)?, number(high)?))
        } else {
            None
        };
        let mut words = Vec::new();
        while self.takes(":") {
            words.push(self.until(|c| ",)]:".contains(c)).into());
        }
        Ok(Operand { dtype, sizes, range, words })
    }
}

fn number(text: &str) -> Parsed<f64> {
    text.parse().map_err(|_| format!("no number {text}"))
}
