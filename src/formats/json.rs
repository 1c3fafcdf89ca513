//! JSON as headers use it: a reader that walks, and a writer of strings.
//!
//! The reader builds no tree, so a header cannot make it take memory. Whoever reads says what is expected next. Depth
//! is bounded where values are skipped.

use std::borrow::Cow;
use std::fmt::Write;

/// Deepest nesting that is skipped.
const MAX_DEPTH: usize = 64;

/// What is wrong with a text, and the byte at which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) at: usize,
    pub(crate) what: String,
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.what, self.at)
    }
}

/// A text, and how much of it was read.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Reader<'a> {
        Reader { text, at: 0 }
    }

    /// The error that something else was expected here.
    pub(crate) fn bad(&self, what: impl Into<String>) -> Bad {
        Bad { at: self.at, what: what.into() }
    }

    /// An object. `member` is called after each key, and reads the value.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), Bad>,
    ) -> Result<(), Bad> {
        self.list(b'{', b'}', |reader| {
            let key = reader.string()?;
            reader.need(b':')?;
            member(reader, key)
        })
    }

    /// An array. `element` reads each element.
    pub(crate) fn array(&mut self, element: impl FnMut(&mut Self) -> Result<(), Bad>) -> Result<(), Bad> {
        self.list(b'[', b']', element)
    }

    fn list(&mut self, open: u8, close: u8, mut part: impl FnMut(&mut Self) -> Result<(), Bad>) -> Result<(), Bad> {
        self.need(open)?;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(());
        }
        loop {
            part(self)?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(found) if found == close => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.bad(format!("`,` or `{}` is missing", char::from(close)))),
            }
        }
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&mut self) -> Result<u64, Bad> {
        self.peek();
        let rest = &self.text[self.at..];
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let follows = rest.as_bytes().get(len);
        match rest[..len].parse() {
            Ok(number) if !matches!(follows, Some(b'.' | b'e' | b'E')) => {
                self.at += len;
                Ok(number)
            }
            Ok(_) | Err(_) => Err(self.bad("a whole number below 2^64 is expected")),
        }
    }

    /// A whole number.
    pub(crate) fn integer(&mut self) -> Result<i64, Bad> {
        let word = self.word();
        let number = word.parse().map_err(|_| self.bad("a whole number is expected"))?;
        self.at += word.len();
        Ok(number)
    }

    /// A number.
    pub(crate) fn float(&mut self) -> Result<f64, Bad> {
        let word = self.word();
        let number = word.parse().map_err(|_| self.bad("a number is expected"))?;
        self.at += word.len();
        Ok(number)
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&mut self) -> Result<bool, Bad> {
        let word = self.word();
        let flag = word.parse().map_err(|_| self.bad("`true` or `false` is expected"))?;
        self.at += word.len();
        Ok(flag)
    }

    /// The letters, digits, signs and points that come next.
    fn word(&mut self) -> &'a str {
        self.peek();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let rest = &self.text[self.at..];
        &rest[..rest.bytes().take_while(is_part).count()]
    }

    /// A string, without its escapes.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, Bad> {
        self.need(b'"')?;
        let mut out: Option<String> = None;
        let mut from = self.at;
        loop {
            match self.text.as_bytes().get(self.at) {
                None => return Err(self.bad("a string has no end")),
                Some(b'"') => {
                    let rest = &self.text[from..self.at];
                    self.at += 1;
                    return Ok(match out {
                        None => Cow::Borrowed(rest),
                        Some(out) => Cow::Owned(out + rest),
                    });
                }
                Some(b'\\') => {
                    let out = out.get_or_insert_default();
                    out.push_str(&self.text[from..self.at]);
                    out.push(self.escape()?);
                    from = self.at;
                }
                Some(..0x20) => return Err(self.bad("a control character in a string")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<char, Bad> {
        let code = self.text.as_bytes().get(self.at + 1).copied();
        let plain = match code {
            Some(b'"' | b'\\' | b'/') => code.map(char::from),
            Some(b'b') => Some('\u{8}'),
            Some(b'f') => Some('\u{c}'),
            Some(b'n') => Some('\n'),
            Some(b'r') => Some('\r'),
            Some(b't') => Some('\t'),
            Some(b'u') => None,
            _ => return Err(self.bad("an unknown escape")),
        };
        if let Some(plain) = plain {
            self.at += 2;
            return Ok(plain);
        }
        let high = self.unit()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or_else(|| self.bad("half of a character"));
        }
        let low = if self.text[self.at..].starts_with("\\u") { self.unit()? } else { 0 };
        let is_low = (0xdc00..0xe000).contains(&low);
        let both = is_low.then(|| 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
        both.and_then(char::from_u32).ok_or_else(|| self.bad("half of a character"))
    }

    /// `\u` and four digits.
    fn unit(&mut self) -> Result<u32, Bad> {
        let digits =
            self.text.get(self.at + 2..self.at + 6).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let unit = unit.ok_or_else(|| self.bad("four hexadecimal digits are expected"))?;
        self.at += 6;
        Ok(unit)
    }

    /// Any value, which is not looked at.
    pub(crate) fn skip(&mut self) -> Result<(), Bad> {
        self.skip_below(MAX_DEPTH)
    }

    fn skip_below(&mut self, depth: usize) -> Result<(), Bad> {
        let Some(below) = depth.checked_sub(1) else { return Err(self.bad("values are nested too deeply")) };
        match self.peek() {
            Some(b'{') => self.object(|reader, _| reader.skip_below(below)),
            Some(b'[') => self.array(|reader| reader.skip_below(below)),
            Some(b'"') => self.string().map(|_| ()),
            _ => {
                let word = self.word();
                if !matches!(word, "true" | "false" | "null") && word.parse::<f64>().is_err() {
                    return Err(self.bad("a value is expected"));
                }
                self.at += word.len();
                Ok(())
            }
        }
    }

    /// Checks that nothing but white space is left.
    pub(crate) fn end(&mut self) -> Result<(), Bad> {
        if self.peek().is_none() { Ok(()) } else { Err(self.bad("text after the end")) }
    }

    /// The next byte that is no white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn need(&mut self, byte: u8) -> Result<(), Bad> {
        if self.peek() != Some(byte) {
            return Err(self.bad(format!("`{}` is expected", char::from(byte))));
        }
        self.at += 1;
        Ok(())
    }
}

/// Appends a string with quotes and escapes.
pub(crate) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            // Text never fails to be appended to.
            '\0'..'\u{20}' => drop(write!(out, "\\u{:04x}", u32::from(letter))),
            _ => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_escapes() {
        let read = |text: &str| Reader::new(text).string().map(Cow::into_owned).map_err(|bad| bad.what);
        for text in ["", "a", "\"\\/", "é\u{1f600}\u{1}\n", "x\ty"] {
            let mut out = String::new();
            write_string(&mut out, text);
            assert_eq!(read(&out).as_deref(), Ok(text));
        }
        assert_eq!(read(r#" "\ud83d\ude00\u0041\n" "#).as_deref(), Ok("\u{1f600}A\n"));
        for bad in
            [r#""\ud83d""#, r#""\ude00""#, r#""\u00g0""#, r#""\x""#, "\"a", "\"\u{1}\"", "a", "", r#""\u00e"#, "\"\\"]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_walked() {
        let mut reader =
            Reader::new(r#" {"a": [1, 2,3], "b" : {"c": [true, null, -1.5e3, "x"]}, "d":18446744073709551615} "#);
        let mut seen = Vec::new();
        let walked = reader.object(|reader, key| match &*key {
            "a" => reader.array(|reader| reader.number().map(|number| seen.push(number))),
            "d" => reader.number().map(|number| seen.push(number)),
            _ => reader.skip(),
        });
        assert_eq!((walked, reader.end()), (Ok(()), Ok(())));
        assert_eq!(seen, [1, 2, 3, u64::MAX]);
        let deep = "[".repeat(1_000_000);
        for bad in [&*deep, "[1", "[1,]", "{\"a\"}", "{\"a\":1,}", "nul", "--1", "", "[1 2]", "{1:2}"] {
            assert!(Reader::new(bad).skip().is_err(), "{}", &bad[..bad.len().min(9)]);
        }
        for bad in ["-1", "1.5", "1e3", "18446744073709551616", "x", ""] {
            assert!(Reader::new(bad).number().is_err(), "{bad}");
        }
    }
}
