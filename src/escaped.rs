//! Text inside HTML.

use std::fmt::{self, Write};

/// Text without HTML's special characters.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            c => f.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Escaped;

    #[test]
    fn special_characters_are_named() {
        let cases = [
            ("", ""),
            ("n1 = add(n0, 1): f32[2]", "n1 = add(n0, 1): f32[2]"),
            ("a < b && \"c\" > d</pre>", "a &lt; b &amp;&amp; &quot;c&quot; &gt; d&lt;/pre&gt;"),
            ("&lt;", "&amp;lt;"),
            ("main::{{closure}}, µs", "main::{{closure}}, µs"),
        ];
        for (text, expected) in cases {
            assert_eq!(Escaped(text).to_string(), expected);
        }
    }
}
