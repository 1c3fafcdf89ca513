//! JSON that reports are written as.
//!
//! Written without serde_json: its comparisons between JSON values and plain numbers would change type inference in
//! every program that uses this library.

use std::fmt::{self, Write};

/// The kinds of JSON values that a report needs.
pub(crate) enum Json {
    Null,
    Flag(bool),
    Count(u64),
    /// Written as `null` if it is not finite, which JSON cannot say.
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(&'static str, Json)>),
}

impl Json {
    /// The value as indented text, with a line break at the end.
    pub(crate) fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Some(0)).expect("writing to a string works");
        out + "\n"
    }

    /// The value as text on one line.
    pub(crate) fn to_line(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None).expect("writing to a string works");
        out
    }

    /// Writes the value, indented if a depth is given.
    fn write(&self, out: &mut String, depth: Option<usize>) -> fmt::Result {
        let deeper = depth.map(|depth| depth + 1);
        match self {
            Json::Null => out.write_str("null"),
            Json::Flag(value) => write!(out, "{value}"),
            Json::Count(value) => write!(out, "{value}"),
            Json::Number(value) if value.is_finite() => write!(out, "{value}"),
            Json::Number(_) => out.write_str("null"),
            Json::Text(value) => quoted(out, value),
            Json::List(items) => {
                // A list of plain values fits on one line.
                let flat = items.iter().all(|item| !matches!(item, Json::List(_) | Json::Object(_)));
                bracketed(out, ['[', ']'], items, depth.filter(|_| !flat), |out, item| item.write(out, deeper))
            }
            Json::Object(fields) => bracketed(out, ['{', '}'], fields, depth, |out, (key, value)| {
                quoted(out, key)?;
                out.write_str(": ")?;
                value.write(out, deeper)
            }),
        }
    }
}

/// Items between brackets. If `depth` is given, each has a line with that indentation.
fn bracketed<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: &[T],
    depth: Option<usize>,
    mut item: impl FnMut(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    let depth = depth.filter(|_| !items.is_empty());
    out.push(open);
    for (index, value) in items.iter().enumerate() {
        if index > 0 {
            out.push_str(if depth.is_some() { "," } else { ", " });
        }
        if let Some(depth) = depth {
            write!(out, "\n{:1$}", "", 2 * (depth + 1))?;
        }
        item(out, value)?;
    }
    if let Some(depth) = depth {
        write!(out, "\n{:1$}", "", 2 * depth)?;
    }
    out.push(close);
    Ok(())
}

fn quoted(out: &mut String, value: &str) -> fmt::Result {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => write!(out, "\\u{:04x}", c as u32)?,
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(())
}
