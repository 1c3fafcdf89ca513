//! Tables of comma-separated values.
//!
//! A file is a rectangle of numbers, with columns of words where the caller says so. A cell that is neither is an error
//! with its line, because a wrong number is worse than none.

use crate::data::table::other_dtype;
pub use crate::data::table::{Classes, Table};
use crate::error::{Error, Result};
use crate::formats::file::fail;
use crate::ir::DType;
use crate::tensor::Tensor;
use csv::{ErrorKind, ReaderBuilder, StringRecord};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::str::FromStr;

/// How a file of comma-separated values is read.
#[derive(Debug, Clone, PartialEq)]
pub struct CsvOptions {
    /// Whether the first line has the names of the columns. Without one they are called `0`, `1`, and so on.
    pub header: bool,
    /// The character between cells.
    pub delimiter: u8,
    /// The columns of words.
    pub classes: Vec<String>,
    /// The number of an empty cell. Without one, an empty cell is an error.
    pub empty: Option<f64>,
    /// The dtype of the numbers: `f32`, `f64` or `i64`.
    pub dtype: DType,
}

impl Default for CsvOptions {
    fn default() -> Self {
        CsvOptions { header: true, delimiter: b',', classes: Vec::new(), empty: None, dtype: DType::F32 }
    }
}

impl Table {
    /// Reads a file of comma-separated values.
    ///
    /// # Errors
    /// If the file cannot be read, a row has another number of cells than the first, a cell is no number, or a named
    /// column is not there. The error names the file, the line and the column.
    pub fn read(path: impl AsRef<Path>, options: &CsvOptions) -> Result<Table> {
        let path = path.as_ref();
        match options.dtype {
            DType::F32 => Source::open(path, options)?.table::<f32>(|number| number as f32),
            DType::F64 => Source::open(path, options)?.table::<f64>(|number| number),
            DType::I64 => Source::open(path, options)?.table::<i64>(|number| number as i64),
            other => Err(other_dtype("Table::read", other)),
        }
    }
}

/// A file that is being read.
struct Source<'a> {
    path: &'a Path,
    options: &'a CsvOptions,
    reader: csv::Reader<BufReader<File>>,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path, options: &'a CsvOptions) -> Result<Source<'a>> {
        let file = BufReader::new(File::open(path).map_err(|error| fail(path, error))?);
        let reader = ReaderBuilder::new().has_headers(false).delimiter(options.delimiter).from_reader(file);
        Ok(Source { path, options, reader })
    }

    fn fail(&self, line: u64, what: impl Into<String>) -> Error {
        Error::File { path: format!("{}:{line}", self.path.display()), message: what.into() }
    }

    fn of_reader(&self, error: csv::Error) -> Error {
        let line = error.position().map_or(1, csv::Position::line);
        match error.kind() {
            ErrorKind::UnequalLengths { expected_len, len, .. } => {
                self.fail(line, format!("the row has {len} cells, and the first one has {expected_len}"))
            }
            ErrorKind::Utf8 { .. } => self.fail(line, "the row is not UTF-8; convert the file"),
            _ => fail(self.path, error),
        }
    }

    /// Reads the next row. Returns its line, or `None` at the end.
    fn row(&mut self, row: &mut StringRecord) -> Result<Option<u64>> {
        match self.reader.read_record(row) {
            Ok(true) => Ok(Some(row.position().map_or(1, csv::Position::line))),
            Ok(false) => Ok(None),
            Err(error) => Err(self.of_reader(error)),
        }
    }

    fn table<T: FromStr + crate::Element>(mut self, of_number: fn(f64) -> T) -> Result<Table> {
        let mut row = StringRecord::new();
        let Some(mut line) = self.row(&mut row)? else { return Err(self.fail(1, "the file has no rows")) };
        let names: Vec<String> = match self.options.header {
            // A mark of the byte order is no part of the first name.
            true => row.iter().map(|name| name.trim().trim_start_matches('\u{feff}').to_owned()).collect(),
            false => (0..row.len()).map(|column| column.to_string()).collect(),
        };
        // Sets, because a line can have millions of cells.
        let mut known = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !known.insert(name.as_str())) {
            return Err(self.fail(line, format!("two columns are called {twice:?}; rename one")));
        }
        if let Some(name) = self.options.classes.iter().find(|name| !known.contains(name.as_str())) {
            return Err(self.fail(line, format!("there is no column {name:?}; there are {names:?}")));
        }
        let chosen: BTreeSet<&str> = self.options.classes.iter().map(String::as_str).collect();
        let is_class: Vec<bool> = names.iter().map(|name| chosen.contains(name.as_str())).collect();
        let mut words: Vec<Vec<String>> = vec![Vec::new(); names.len()];
        let mut numbers: Vec<T> = Vec::new();
        let mut n_rows = 0;
        let mut is_row = !self.options.header;
        loop {
            if is_row {
                for (column, cell) in row.iter().map(str::trim).enumerate() {
                    match is_class[column] {
                        true => words[column].push(cell.to_owned()),
                        false => numbers.push(self.number(line, &names[column], cell, of_number)?),
                    }
                }
                n_rows += 1;
            }
            is_row = true;
            match self.row(&mut row)? {
                Some(next) => line = next,
                None => break,
            }
        }
        let columns = names.iter().zip(words).zip(&is_class);
        let classes = columns.filter(|(_, is_class)| **is_class).map(|((name, words), _)| Classes::of(name, &words));
        let classes = classes.collect::<Result<Vec<_>>>()?;
        let names: Vec<String> =
            names.iter().zip(&is_class).filter(|(_, is_class)| !**is_class).map(|(name, _)| name.clone()).collect();
        let numbers = Tensor::from_slice(&numbers, &[n_rows, names.len()])?;
        Ok(Table { names, numbers, classes })
    }

    fn number<T: FromStr>(&self, line: u64, column: &str, cell: &str, of_number: fn(f64) -> T) -> Result<T> {
        if cell.is_empty() {
            let what = format!("column {column:?} is empty; say in `empty` which number that stands for");
            return self.options.empty.map(of_number).ok_or_else(|| self.fail(line, what));
        }
        let what = || {
            let dtype = self.options.dtype;
            format!("column {column:?} has {cell:?}, which is no {dtype}; name columns of words in `classes`")
        };
        cell.parse().map_err(|_| self.fail(line, what()))
    }
}
