//! Parser of schemas and operator names.
//!
//! A recursive-descent parser over the bytes of the text. Every error says what was expected and at which byte.
//! Grammar, with `x,*` for a comma-separated list:
//!
//! ```text
//! schema    = name ["." overload] "(" argument,* ")" "->" returns
//! argument  = "*" | type name ["=" literal]
//! returns   = type | "(" (type [name]),* ")"
//! type      = word [alias] { "?" | "[" [number] "]" }
//! alias     = "(" set ["!"] ["->" set] ")"
//! set       = (word | "*") { "|" (word | "*") }
//! literal   = "None" | "True" | "False" | number | string | word | "[" literal,* "]"
//! ```

use crate::dispatch::schema::{AliasAnalysis, AliasInfo, Literal, OperatorName, Parameter, Schema, Type};
use crate::error::{Error, Result};
use std::str::FromStr;

impl FromStr for Schema {
    type Err = Error;

    fn from_str(text: &str) -> Result<Schema> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let schema = parser.schema()?;
        parser.end()?;
        Ok(schema)
    }
}

impl FromStr for OperatorName {
    type Err = Error;

    fn from_str(text: &str) -> Result<OperatorName> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let name = parser.operator_name()?;
        parser.end()?;
        Ok(name)
    }
}

/// How deep lists may nest. Types and literals are read and dropped by recursion.
const MAX_NESTING: usize = 16;

/// The greatest length of a list of fixed length. Defaults are repeated so often.
const MAX_LENGTH: usize = 1 << 10;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// How many lists of a default are open.
    depth: usize,
}

impl<'a> Parser<'a> {
    fn schema(&mut self) -> Result<Schema> {
        let name = self.operator_name()?;
        self.expect("(")?;
        let arguments = self.arguments()?;
        self.expect("->")?;
        let returns = self.returns()?;
        Ok(Schema { name, arguments, returns, alias_analysis: AliasAnalysis::FromSchema })
    }

    fn operator_name(&mut self) -> Result<OperatorName> {
        let mut name = self.word("an operator name")?.to_string();
        if self.take("::") {
            name.push_str("::");
            name.push_str(self.word("an operator name after the namespace")?);
        }
        if !self.take(".") {
            return Ok(OperatorName::new(name, ""));
        }
        let at = self.at;
        let overload = self.word("an overload name")?;
        if overload == "default" || overload.starts_with("__") {
            return Err(self.error(at, format!("'{overload}' is not a legal overload name")));
        }
        Ok(OperatorName::new(name, overload))
    }

    /// Reads up to and including the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Parameter>> {
        let mut arguments: Vec<Parameter> = Vec::new();
        let mut kwarg_only = false;
        if self.take(")") {
            return Ok(arguments);
        }
        loop {
            let at = self.skip_blanks();
            if self.take("*") {
                if kwarg_only {
                    return Err(self.error(at, "there is a second '*'".into()));
                }
                kwarg_only = true;
            } else {
                let argument = self.argument(kwarg_only)?;
                if arguments.iter().any(|other| other.name == argument.name) {
                    return Err(self.error(at, format!("argument '{}' is declared twice", argument.name)));
                }
                let gap = arguments.last().is_some_and(|last| last.default.is_some() && !last.kwarg_only);
                if gap && argument.default.is_none() && !kwarg_only {
                    let name = &argument.name;
                    return Err(
                        self.error(at, format!("positional argument '{name}' without a default follows one with"))
                    );
                }
                arguments.push(argument);
            }
            if self.take(")") {
                return Ok(arguments);
            }
            self.expect(",")?;
        }
    }

    fn argument(&mut self, kwarg_only: bool) -> Result<Parameter> {
        let (ty, alias) = self.ty()?;
        let name = self.word("an argument name")?.to_string();
        let default = if self.take("=") { Some(self.default_of(&ty)?) } else { None };
        Ok(Parameter { name, ty, alias, default, kwarg_only })
    }

    fn default_of(&mut self, ty: &Type) -> Result<Literal> {
        let at = self.skip_blanks();
        let literal = self.literal()?;
        if ty.literal_value(&literal).is_none() {
            return Err(self.error(at, format!("default {literal} does not fit type {ty}")));
        }
        Ok(literal)
    }

    fn returns(&mut self) -> Result<Vec<Parameter>> {
        if !self.take("(") {
            let (ty, alias) = self.ty()?;
            return Ok(vec![Parameter { name: String::new(), ty, alias, default: None, kwarg_only: false }]);
        }
        let mut returns = Vec::new();
        if self.take(")") {
            return Ok(returns);
        }
        loop {
            let (ty, alias) = self.ty()?;
            self.skip_blanks();
            let name = self.scan_word().to_string();
            returns.push(Parameter { name, ty, alias, default: None, kwarg_only: false });
            if self.take(")") {
                return Ok(returns);
            }
            self.expect(",")?;
        }
    }

    fn ty(&mut self) -> Result<(Type, Option<AliasInfo>)> {
        let at = self.skip_blanks();
        let word = self.word("a type")?;
        let mut ty = match word {
            "Tensor" => Type::Tensor,
            "int" => Type::Int,
            "SymInt" => Type::SymInt,
            "float" => Type::Float,
            "bool" => Type::Bool,
            "str" => Type::Str,
            "Scalar" => Type::Scalar,
            "ScalarType" => Type::ScalarType,
            "Device" => Type::Device,
            "Layout" => Type::Layout,
            "MemoryFormat" => Type::MemoryFormat,
            "Generator" => Type::Generator,
            unknown => return Err(self.error(at, format!("unknown type specifier '{unknown}'"))),
        };
        let mut alias = self.alias()?;
        for depth in 0.. {
            if self.take("?") {
                ty = ty.optional();
            } else if self.take("[") {
                ty = Type::List(Box::new(ty), self.length()?);
            } else {
                break;
            }
            if depth >= MAX_NESTING {
                return Err(self.error(at, format!("a type nests at most {MAX_NESTING} lists and options")));
            }
            // Alias marks may also follow the brackets, with the same meaning.
            if alias.is_none() {
                alias = self.alias()?;
            }
        }
        Ok((ty, alias))
    }

    /// Reads the rest of `[n]` or `[]`.
    fn length(&mut self) -> Result<Option<usize>> {
        if self.take("]") {
            return Ok(None);
        }
        let at = self.skip_blanks();
        let digits = self.scan(|byte| byte.is_ascii_digit());
        let n = digits.parse().ok().filter(|&n| n <= MAX_LENGTH);
        let n =
            n.ok_or_else(|| self.error(at, format!("expected ']' or the length of the list, up to {MAX_LENGTH}")))?;
        self.expect("]")?;
        Ok(Some(n))
    }

    fn alias(&mut self) -> Result<Option<AliasInfo>> {
        if !self.take("(") {
            return Ok(None);
        }
        let before = self.alias_sets()?;
        let is_write = self.take("!");
        let after = if self.take("->") { self.alias_sets()? } else { Vec::new() };
        self.expect(")")?;
        Ok(Some(AliasInfo { before, is_write, after }))
    }

    fn alias_sets(&mut self) -> Result<Vec<String>> {
        let mut sets = Vec::new();
        loop {
            sets.push(if self.take("*") { "*".to_string() } else { self.word("an alias set")?.to_string() });
            if !self.take("|") {
                return Ok(sets);
            }
        }
    }

    fn literal(&mut self) -> Result<Literal> {
        let at = self.skip_blanks();
        match self.text[self.at..].bytes().next() {
            Some(b'[') => self.list(),
            Some(quote @ (b'"' | b'\'')) => self.string(quote),
            Some(b'-' | b'+' | b'.' | b'0'..=b'9') => self.number(),
            _ => Ok(match self.word("a default value")? {
                "None" => Literal::None,
                "True" | "true" => Literal::Bool(true),
                "False" | "false" => Literal::Bool(false),
                "inf" => Literal::Float(f64::INFINITY),
                "nan" | "NaN" => return Err(self.error(at, "a default cannot be NaN".into())),
                word => Literal::Symbol(word.to_string()),
            }),
        }
    }

    fn list(&mut self) -> Result<Literal> {
        self.expect("[")?;
        let mut items = Vec::new();
        if self.take("]") {
            return Ok(Literal::List(items));
        }
        self.depth += 1;
        if self.depth > MAX_NESTING {
            return Err(self.error(self.at, format!("a default nests at most {MAX_NESTING} lists")));
        }
        loop {
            items.push(self.literal()?);
            if self.take("]") {
                self.depth -= 1;
                return Ok(Literal::List(items));
            }
            self.expect(",")?;
        }
    }

    fn string(&mut self, quote: u8) -> Result<Literal> {
        let start = self.at;
        self.at += 1;
        let mut text = String::new();
        let mut chars = self.text[self.at..].char_indices();
        while let Some((offset, char)) = chars.next() {
            if char == char::from(quote) {
                self.at += offset + 1;
                return Ok(Literal::Str(text));
            }
            match (char, char == '\\') {
                (_, true) => text.extend(chars.next().map(|(_, escaped)| escaped)),
                (plain, false) => text.push(plain),
            }
        }
        Err(self.error(start, "the string does not end".into()))
    }

    fn number(&mut self) -> Result<Literal> {
        let start = self.at;
        if self.text[start..].starts_with("-inf") {
            self.at += 4;
            return Ok(Literal::Float(f64::NEG_INFINITY));
        }
        let mut last = b' ';
        let token = self.scan(|byte| {
            let sign = matches!(byte, b'+' | b'-') && matches!(last, b' ' | b'e' | b'E');
            last = byte;
            sign || byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E')
        });
        let parsed = if token.contains(['.', 'e', 'E']) {
            token.parse().ok().filter(|number: &f64| number.is_finite()).map(Literal::Float)
        } else {
            token.parse().ok().map(Literal::Int)
        };
        parsed.ok_or_else(|| self.error(start, format!("'{token}' is not a number")))
    }

    fn end(&mut self) -> Result<()> {
        let at = self.skip_blanks();
        if at == self.text.len() { Ok(()) } else { Err(self.error(at, "expected the end of the text".into())) }
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.take(token) {
            return Ok(());
        }
        let found = match self.text[self.at..].chars().next() {
            Some(char) => format!("'{char}'"),
            None => "the end".to_string(),
        };
        Err(self.error(self.at, format!("expected '{token}' but found {found}")))
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = self.text[self.at..].starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn word(&mut self, what: &str) -> Result<&'a str> {
        let at = self.skip_blanks();
        match self.scan_word() {
            "" => Err(self.error(at, format!("expected {what}"))),
            word => Ok(word),
        }
    }

    /// Reads a word, which may be empty and does not start with a digit.
    fn scan_word(&mut self) -> &'a str {
        if self.text[self.at..].starts_with(|char: char| char.is_ascii_digit()) {
            return "";
        }
        self.scan(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    /// Reads the longest run of accepted bytes. `accept` must only accept ASCII.
    fn scan(&mut self, mut accept: impl FnMut(u8) -> bool) -> &'a str {
        let start = self.at;
        let bytes = self.text.as_bytes();
        while self.at < bytes.len() && accept(bytes[self.at]) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    fn skip_blanks(&mut self) -> usize {
        self.scan(|byte| byte.is_ascii_whitespace());
        self.at
    }

    fn error(&self, at: usize, message: String) -> Error {
        Error::Parse { what: "schema".into(), message, at, text: self.text.into() }
    }
}
