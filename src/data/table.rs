//! Tables that files hold: numbers and words by column.

use crate::error::{Error, Result};
use crate::ir::DType;
use crate::tensor::Tensor;
use std::collections::BTreeSet;

/// A table: numbers by row and column, and columns of words.
///
/// ```
/// # #[cfg(feature = "csv")]
/// # fn main() -> opfuse::Result<()> {
/// use opfuse::data::csv::{CsvOptions, Table};
///
/// let path = std::env::temp_dir().join(format!("opfuse-{}.csv", std::process::id()));
/// # std::fs::write(&path, "length,width,species\n5.1,3.5,setosa\n6.2,2.9,virginica\n").expect("it is writable");
/// let table = Table::read(&path, &CsvOptions { classes: vec!["species".into()], ..CsvOptions::default() })?;
/// assert_eq!(table.columns(&["width"])?.to_vec2::<f32>()?, [[3.5], [2.9]]);
/// assert_eq!(table.class("species")?.words, ["setosa", "virginica"]);
/// assert_eq!(table.class("species")?.numbers.to_vec::<i64>()?, [0, 1]);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "csv"))]
/// # fn main() {}
/// ```
#[derive(Debug, Clone)]
pub struct Table {
    /// The names of the columns of numbers.
    pub names: Vec<String>,
    /// The numbers, `(rows, columns)`.
    pub numbers: Tensor,
    /// The columns of words.
    pub classes: Vec<Classes>,
}

/// A column of words, as numbers.
#[derive(Debug, Clone)]
pub struct Classes {
    /// The name of the column.
    pub name: String,
    /// Each word once, sorted.
    pub words: Vec<String>,
    /// The place of each row's word in `words`.
    pub numbers: Tensor,
}

impl Table {
    /// Some columns of numbers in this order, `(rows, names.len())`.
    ///
    /// # Errors
    /// If a column is not there.
    pub fn columns(&self, names: &[&str]) -> Result<Tensor> {
        let place = |name: &&str| {
            let found = self.names.iter().position(|own| own == name);
            found.map(|at| at as i64).ok_or_else(|| missing(name, self.names.iter()))
        };
        let places = names.iter().map(place).collect::<Result<Vec<i64>>>()?;
        self.numbers.index_select(1, &Tensor::from_slice(&places, &[places.len()])?)
    }

    /// A column of words.
    ///
    /// # Errors
    /// If it is not there.
    pub fn class(&self, name: &str) -> Result<&Classes> {
        let found = self.classes.iter().find(|column| column.name == name);
        found.ok_or_else(|| missing(name, self.classes.iter().map(|column| &column.name)))
    }
}

fn missing<'a>(name: &str, names: impl Iterator<Item = &'a String>) -> Error {
    let names: Vec<&str> = names.map(String::as_str).collect();
    Error::argument("Table", format!("there is no column {name:?} of this kind; there are {names:?}"))
}

/// The error of a reader for a dtype that its numbers cannot have.
pub(super) fn other_dtype(reader: &str, dtype: DType) -> Error {
    Error::dtype(reader, dtype, "f32, f64 or i64", "read one of these, and convert it with to_dtype")
}

impl Classes {
    pub(super) fn of(name: &str, cells: &[String]) -> Result<Classes> {
        let words: Vec<String> = cells.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let place = |cell: &String| words.binary_search(cell).map_or(0, |at| at as i64);
        let numbers: Vec<i64> = cells.iter().map(place).collect();
        let numbers = Tensor::from_slice(&numbers, &[numbers.len()])?;
        Ok(Classes { name: name.to_owned(), words, numbers })
    }
}
