//! Symbolic sizes: the expressions that an exported program gives for sizes of its inputs.
//!
//! `Mul(Integer(2), Symbol('s77', positive=True, integer=True))` is `2 * s77`, as SymPy prints it. What is not
//! understood is unknown, and is not checked.

use crate::exported::model::{Size, TensorMeta};
use std::collections::BTreeMap;

/// The values of symbols in a call.
pub(super) type Symbols = BTreeMap<String, i64>;

/// An expression of sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expr {
    Integer(i64),
    Symbol(String),
    Call(String, Vec<Expr>),
}

/// Compares the sizes of an input with those that the program was exported for. Symbols get their values where they
/// first appear.
///
/// # Errors
/// Which dim is wrong, and what it should be.
pub(super) fn check(
    meta: &TensorMeta,
    found: &[usize],
    symbols: &mut Symbols,
    ranges: &BTreeMap<String, (Option<i64>, Option<i64>)>,
) -> Result<(), String> {
    if meta.sizes.len() != found.len() {
        return Err(format!("it has {} dims, and the program takes {}", found.len(), meta.sizes.len()));
    }
    for (dim, (wanted, &found)) in meta.sizes.iter().zip(found).enumerate() {
        let found = i64::try_from(found).map_err(|_| "its sizes are too large".to_owned())?;
        let (wanted, text) = match wanted {
            Size::Is(size) => (Some(*size), size.to_string()),
            Size::Of(text) => match parse(text) {
                Some(expr) => (solve(&expr, found, symbols, ranges, dim)?, shown(&expr)),
                None => (None, String::new()),
            },
        };
        if wanted.is_some_and(|wanted| wanted != found) {
            let given: Vec<String> = symbols.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            let given = if given.is_empty() { String::new() } else { format!(" ({})", given.join(", ")) };
            return Err(format!("dim {dim} has size {found}, and the program takes {text}{given}"));
        }
    }
    Ok(())
}

/// The value of an expression. If one symbol has none yet, it gets the value by which the expression is `found`.
fn solve(
    expr: &Expr,
    found: i64,
    symbols: &mut Symbols,
    ranges: &BTreeMap<String, (Option<i64>, Option<i64>)>,
    dim: usize,
) -> Result<Option<i64>, String> {
    let mut unknown = Vec::new();
    expr.unknown(symbols, &mut unknown);
    unknown.dedup();
    if let [symbol] = &unknown[..] {
        let symbol = symbol.clone();
        let mut at = |value: i64| {
            symbols.insert(symbol.clone(), value);
            expr.value(symbols)
        };
        // Sizes are linear in one symbol, as far as exports have them.
        let (at_0, at_1) = (at(0), at(1));
        symbols.remove(&symbol);
        let (Some(at_0), Some(slope)) = (at_0, at_0.zip(at_1).and_then(|(zero, one)| one.checked_sub(zero))) else {
            return Ok(None);
        };
        let rest = found.saturating_sub(at_0);
        if slope == 0 || rest % slope != 0 {
            return Ok(if slope == 0 { Some(at_0) } else { Some(found.wrapping_sub(rest % slope)) });
        }
        let value = rest / slope;
        if let Some((low, high)) = ranges.get(&symbol)
            && (low.is_some_and(|low| value < low) || high.is_some_and(|high| value > high))
        {
            let low = low.map_or("-inf".to_owned(), |low| low.to_string());
            let high = high.map_or("inf".to_owned(), |high| high.to_string());
            return Err(format!("dim {dim} makes {symbol} = {value}, and the program allows {low} to {high}"));
        }
        symbols.insert(symbol, value);
    }
    Ok(expr.value(symbols))
}

impl Expr {
    fn unknown(&self, symbols: &Symbols, out: &mut Vec<String>) {
        match self {
            Expr::Integer(_) => {}
            Expr::Symbol(name) if symbols.contains_key(name) => {}
            Expr::Symbol(name) => out.push(name.clone()),
            Expr::Call(_, args) => args.iter().for_each(|arg| arg.unknown(symbols, out)),
        }
    }

    fn value(&self, symbols: &Symbols) -> Option<i64> {
        match self {
            Expr::Integer(number) => Some(*number),
            Expr::Symbol(name) => symbols.get(name).copied(),
            Expr::Call(function, args) => {
                let args: Vec<i64> = args.iter().map(|arg| arg.value(symbols)).collect::<Option<_>>()?;
                let fold = |start: i64, f: fn(i64, i64) -> Option<i64>| args.iter().try_fold(start, |a, &b| f(a, b));
                match (&**function, &args[..]) {
                    ("Add", _) => fold(0, i64::checked_add),
                    ("Mul", _) => fold(1, i64::checked_mul),
                    ("Max", [first, ..]) => fold(*first, |a, b| Some(a.max(b))),
                    ("Min", [first, ..]) => fold(*first, |a, b| Some(a.min(b))),
                    ("FloorDiv", [a, b]) if *b > 0 => Some(a.div_euclid(*b)),
                    ("Mod" | "PythonMod", [a, b]) if *b > 0 => Some(a.rem_euclid(*b)),
                    ("Pow", [a, b]) => a.checked_pow(u32::try_from(*b).ok()?),
                    (_, _) => None,
                }
            }
        }
    }
}

/// A size as a person writes it.
pub(super) fn text(size: &Size) -> String {
    match size {
        Size::Is(size) => size.to_string(),
        Size::Of(text) => parse(text).map_or_else(|| "?".to_owned(), |expr| shown(&expr)),
    }
}

/// The expression as a person writes it.
fn shown(expr: &Expr) -> String {
    match expr {
        Expr::Integer(number) => number.to_string(),
        Expr::Symbol(name) => name.clone(),
        Expr::Call(function, args) => {
            let args: Vec<String> = args.iter().map(shown).collect();
            match &**function {
                "Add" => args.join(" + "),
                "Mul" => args.join("*"),
                "FloorDiv" => args.join(" // "),
                _ => format!("{function}({})", args.join(", ")),
            }
        }
    }
}

/// Deepest nesting of calls.
const MAX_DEPTH: usize = 64;

fn parse(text: &str) -> Option<Expr> {
    let mut rest = text.trim();
    let expr = parse_at(&mut rest, MAX_DEPTH)?;
    rest.trim().is_empty().then_some(expr)
}

fn parse_at(rest: &mut &str, depth: usize) -> Option<Expr> {
    let below = depth.checked_sub(1)?;
    let word_len = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(byte)).count();
    let (word, after) = rest.split_at(word_len);
    *rest = after.trim_start();
    if let Ok(number) = word.parse() {
        return Some(Expr::Integer(number));
    }
    // Older exports print `s0` alone.
    let Some(after) = rest.strip_prefix('(') else {
        return (!word.is_empty()).then(|| Expr::Symbol(word.to_owned()));
    };
    *rest = after.trim_start();
    if word == "Symbol" {
        let (name, after) = rest.strip_prefix('\'')?.split_once('\'')?;
        *rest = after.split_once(')')?.1.trim_start();
        return Some(Expr::Symbol(name.to_owned()));
    }
    let mut args = Vec::new();
    while !rest.starts_with(')') {
        args.push(parse_at(rest, below)?);
        *rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    *rest = rest[1..].trim_start();
    if word == "Integer" {
        return if let [Expr::Integer(number)] = args[..] { Some(Expr::Integer(number)) } else { None };
    }
    Some(Expr::Call(word.rsplit('.').next().unwrap_or(word).to_owned(), args))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(sizes: &[&str]) -> TensorMeta {
        let size = |text: &&str| text.parse().map_or_else(|_| Size::Of((*text).to_owned()), Size::Is);
        TensorMeta { sizes: sizes.iter().map(size).collect(), ..TensorMeta::default() }
    }

    fn checked(sizes: &[&str], found: &[usize]) -> Result<Symbols, String> {
        let ranges = BTreeMap::from([("s77".to_owned(), (Some(2), Some(64)))]);
        let mut symbols = Symbols::new();
        check(&meta(sizes), found, &mut symbols, &ranges).map(|()| symbols)
    }

    const S: &str = "Symbol('s77', positive=True, integer=True)";

    #[test]
    fn symbols_get_their_values_from_sizes() {
        let twice = format!("Mul(Integer(2), {S})");
        let more = format!("Add(Integer(-1), Mul(Integer(3), {S}))");
        assert_eq!(checked(&[S, "8"], &[4, 8]), Ok(Symbols::from([("s77".to_owned(), 4)])));
        assert_eq!(checked(&[&twice, S], &[8, 4]).map(|symbols| symbols["s77"]), Ok(4));
        assert_eq!(checked(&[&more], &[11]).map(|symbols| symbols["s77"]), Ok(4));
        assert_eq!(checked(&["s77", "FloorDiv(s77, 2)"], &[5, 2]).map(|symbols| symbols["s77"]), Ok(5));
    }

    #[test]
    fn wrong_sizes_are_named() {
        let twice = format!("Mul(Integer(2), {S})");
        let message = |sizes: &[&str], found: &[usize]| checked(sizes, found).expect_err("the sizes are wrong");
        assert_eq!(message(&[S], &[1, 2]), "it has 2 dims, and the program takes 1");
        assert_eq!(message(&["8"], &[7]), "dim 0 has size 7, and the program takes 8");
        assert_eq!(message(&[S], &[65]), "dim 0 makes s77 = 65, and the program allows 2 to 64");
        assert_eq!(message(&[S, &twice], &[4, 7]), "dim 1 has size 7, and the program takes 2*s77 (s77 = 4)");
        assert!(message(&[&twice], &[7]).starts_with("dim 0 has size 7, and the program takes 2*s77"));
    }

    #[test]
    fn what_is_not_understood_is_not_checked() {
        for text in ["", "Sin(s77)", "Mul(Integer(2)", "((((", &"Mul(".repeat(1000)] {
            assert!(checked(&[text], &[3]).is_ok(), "{text}");
        }
    }
}
