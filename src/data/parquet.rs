//! Tables in Parquet files.
//!
//! Columns have types, so numbers and words are told apart by the file. What is neither, such as a decimal, a time or a
//! list, is an error that names the column: a wrong number is worse than none.

use crate::Element;
use crate::data::table::other_dtype;
pub use crate::data::table::{Classes, Table};
use crate::error::{Error, Result};
use crate::formats::file::fail;
use crate::ir::DType;
use crate::tensor::Tensor;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescriptor;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Rows that are read at a time.
const CHUNK: usize = 8192;

/// How a Parquet file is read.
#[derive(Debug, Clone, PartialEq)]
pub struct ParquetOptions {
    /// The columns that are read, in this order. Without names, all are.
    pub columns: Vec<String>,
    /// The number of a missing value. Without one, a missing value is an error.
    pub empty: Option<f64>,
    /// The dtype of the numbers: `f32`, `f64` or `i64`. Numbers are converted to it; `i64` takes whole ones alone.
    pub dtype: DType,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        ParquetOptions { columns: Vec::new(), empty: None, dtype: DType::F32 }
    }
}

impl Table {
    /// Reads a Parquet file. Numbers and truth values become numbers, texts become [`Classes`]. Pages may be
    /// uncompressed, or compressed by Snappy, gzip, Brotli or LZ4.
    ///
    /// # Errors
    /// If the file cannot be read, a column is not there or holds something else, or a value is missing that `empty`
    /// does not stand for. The error names the file and the column.
    pub fn read_parquet(path: impl AsRef<Path>, options: &ParquetOptions) -> Result<Table> {
        let path = path.as_ref();
        let read = || match options.dtype {
            DType::F32 => Source::open(path, options)?.table::<f32>(),
            DType::F64 => Source::open(path, options)?.table::<f64>(),
            DType::I64 => Source::open(path, options)?.table::<i64>(),
            other => Err(other_dtype("Table::read_parquet", other)),
        };
        // The decoder panics at some damaged pages.
        let damaged = |_| Err(fail(path, "the file is damaged: its pages are not what its footer says"));
        catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(damaged)
    }
}

/// An element that numbers of a file are converted to.
trait Number: Element {
    fn of_whole(number: i64) -> Self;
    /// `None` if it takes whole numbers alone.
    fn of_float(number: f64) -> Option<Self>;
}

impl Number for f32 {
    fn of_whole(number: i64) -> f32 {
        number as f32
    }
    fn of_float(number: f64) -> Option<f32> {
        Some(number as f32)
    }
}

impl Number for f64 {
    fn of_whole(number: i64) -> f64 {
        number as f64
    }
    fn of_float(number: f64) -> Option<f64> {
        Some(number)
    }
}

impl Number for i64 {
    fn of_whole(number: i64) -> i64 {
        number
    }
    fn of_float(_number: f64) -> Option<i64> {
        None
    }
}

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Whole numbers. Files store those without a sign as numbers with one.
    Whole {
        signed: bool,
    },
    Float,
    Truth,
    Word,
}

/// A column to read.
struct Column {
    /// Its place in the file.
    place: usize,
    name: String,
    kind: Kind,
    /// The level of definition of values that are not missing.
    level: i16,
}

/// A file that is being read.
struct Source<'a> {
    path: &'a Path,
    options: &'a ParquetOptions,
    reader: SerializedFileReader<File>,
}

impl<'a> Source<'a> {
    fn open(path: &'a Path, options: &'a ParquetOptions) -> Result<Source<'a>> {
        let file = File::open(path).map_err(|error| fail(path, error))?;
        let length = file.metadata().map_err(|error| fail(path, error))?.len();
        let reader = SerializedFileReader::new(file).map_err(|error| fail(path, error))?;
        let mut chunks = reader.metadata().row_groups().iter().flat_map(|group| group.columns());
        if let Some(chunk) = chunks.find(|chunk| !is_inside(chunk, length)) {
            let what = format!("column {:?} lies outside the file", chunk.column_path().string());
            return Err(fail(path, what));
        }
        Ok(Source { path, options, reader })
    }

    fn fail(&self, column: &str, what: impl std::fmt::Display) -> Error {
        fail(self.path, format!("column {column:?} {what}"))
    }

    fn columns(&self) -> Result<Vec<Column>> {
        let schema = self.reader.metadata().file_metadata().schema_descr();
        let all: Vec<String> = schema.columns().iter().map(|column| column.path().string()).collect();
        let names = if self.options.columns.is_empty() { &all } else { &self.options.columns };
        let place = |name: &String| {
            let known = || fail(self.path, format!("there is no column {name:?}; there are {all:?}"));
            let place = all.iter().position(|own| own == name).ok_or_else(known)?;
            let column = schema.column(place);
            let kind = kind(&column).map_err(|what| self.fail(name, what))?;
            Ok(Column { place, name: name.clone(), kind, level: column.max_def_level() })
        };
        names.iter().map(place).collect()
    }

    fn table<T: Number>(&self) -> Result<Table> {
        let (mut names, mut numbers, mut classes) = (Vec::new(), Vec::new(), Vec::new());
        let mut n_rows = None;
        for column in self.columns()? {
            let length = if column.kind == Kind::Word {
                let words = self.words(&column)?;
                classes.push(Classes::of(&column.name, &words)?);
                words.len()
            } else {
                let found = self.numbers::<T>(&column)?;
                let length = found.len();
                names.push(column.name.clone());
                numbers.push(found);
                length
            };
            if *n_rows.get_or_insert(length) != length {
                let what = format!("has {length} rows, and other columns have another number");
                return Err(self.fail(&column.name, what));
            }
        }
        let n_rows = n_rows.unwrap_or(0);
        let by_row: Vec<T> = (0..n_rows).flat_map(|row| numbers.iter().map(move |column| column[row])).collect();
        Ok(Table { numbers: Tensor::from_slice(&by_row, &[n_rows, names.len()])?, names, classes })
    }

    /// The texts of a column.
    fn words(&self, column: &Column) -> Result<Vec<String>> {
        let mut words = Vec::new();
        self.each_group(column, |reader| {
            let ColumnReader::ByteArrayColumnReader(mut reader) = reader else { return Err("holds no text".into()) };
            read(&mut reader, column.level, |word: Option<&ByteArray>| {
                let Some(word) = word else { return Err("misses a text; a class needs one in each row".into()) };
                let text = std::str::from_utf8(word.data()).map_err(|_| "has a text that is not UTF-8".to_owned())?;
                words.push(text.to_owned());
                Ok(())
            })
        })?;
        Ok(words)
    }

    /// The numbers of a column.
    fn numbers<T: Number>(&self, column: &Column) -> Result<Vec<T>> {
        let empty = self.options.empty;
        let missing = || {
            let number = empty.ok_or("misses a value; say in `empty` which number that stands for")?;
            Ok(T::of_float(number).unwrap_or_else(|| T::of_whole(number as i64)))
        };
        let signed = column.kind != Kind::Whole { signed: false };
        let int = |number: i32| if signed { i64::from(number) } else { i64::from(number as u32) };
        let whole = |number: i64| match signed || number >= 0 {
            true => Ok(T::of_whole(number)),
            false => Err("has a number beyond those of i64".to_owned()),
        };
        let float = |number: f64| T::of_float(number).ok_or("has floats, which i64 does not hold; read f64".to_owned());
        let mut numbers: Vec<T> = Vec::new();
        self.each_group(column, |reader| match reader {
            ColumnReader::BoolColumnReader(mut reader) => read(&mut reader, column.level, |value| {
                numbers.push(value.map_or_else(missing, |&truth| whole(i64::from(truth)))?);
                Ok(())
            }),
            ColumnReader::Int32ColumnReader(mut reader) => read(&mut reader, column.level, |value| {
                numbers.push(value.map_or_else(missing, |&number| whole(int(number)))?);
                Ok(())
            }),
            ColumnReader::Int64ColumnReader(mut reader) => read(&mut reader, column.level, |value| {
                numbers.push(value.map_or_else(missing, |&number| whole(number))?);
                Ok(())
            }),
            ColumnReader::FloatColumnReader(mut reader) => read(&mut reader, column.level, |value| {
                numbers.push(value.map_or_else(missing, |&number| float(f64::from(number)))?);
                Ok(())
            }),
            ColumnReader::DoubleColumnReader(mut reader) => read(&mut reader, column.level, |value| {
                numbers.push(value.map_or_else(missing, |&number| float(number))?);
                Ok(())
            }),
            ColumnReader::Int96ColumnReader(_)
            | ColumnReader::ByteArrayColumnReader(_)
            | ColumnReader::FixedLenByteArrayColumnReader(_) => Err("holds no numbers".into()),
        })?;
        Ok(numbers)
    }

    /// Calls `work` with the readers of a column, one per group of rows.
    fn each_group(
        &self,
        column: &Column,
        mut work: impl FnMut(ColumnReader) -> std::result::Result<(), String>,
    ) -> Result<()> {
        for group in 0..self.reader.num_row_groups() {
            let reader = self.reader.get_row_group(group).and_then(|group| group.get_column_reader(column.place));
            let reader = reader.map_err(|error| self.fail(&column.name, error))?;
            work(reader).map_err(|what| self.fail(&column.name, what))?;
        }
        Ok(())
    }
}

/// Whether the pages of a column lie inside a file of this length.
fn is_inside(chunk: &ColumnChunkMetaData, length: u64) -> bool {
    let start = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
    let [start, size] = [start, chunk.compressed_size()].map(|number| u64::try_from(number).ok());
    let end = start.zip(size).and_then(|(start, size)| start.checked_add(size));
    chunk.num_values() >= 0 && end.is_some_and(|end| end <= length)
}

/// What a column holds, or why it is not read.
fn kind(column: &ColumnDescriptor) -> std::result::Result<Kind, String> {
    use parquet::basic::Type;
    if column.max_rep_level() > 0 {
        return Err("is a list; store one column per element".into());
    }
    let is_text = matches!(column.converted_type(), ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON);
    match (column.physical_type(), column.logical_type_ref()) {
        (Type::BOOLEAN, _) => Ok(Kind::Truth),
        (Type::FLOAT | Type::DOUBLE, _) => Ok(Kind::Float),
        (Type::INT32 | Type::INT64, Some(LogicalType::Integer(int))) => Ok(Kind::Whole { signed: int.is_signed }),
        (Type::INT32 | Type::INT64, None) if column.converted_type() == ConvertedType::NONE => {
            Ok(Kind::Whole { signed: true })
        }
        (Type::BYTE_ARRAY, _) if is_text => Ok(Kind::Word),
        (physical, Some(logical)) => Err(format!("is {physical} as {logical:?}, which is no number and no text")),
        (physical, None) => Err(format!("is {physical}, which is no number and no text")),
    }
}

/// Calls `each` with the values of a column in order; `None` where one is missing. `level` is that of the others.
fn read<D: DataType>(
    reader: &mut ColumnReaderImpl<D>,
    level: i16,
    mut each: impl FnMut(Option<&D::T>) -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    let (mut levels, mut values) = (Vec::with_capacity(CHUNK), Vec::with_capacity(CHUNK));
    loop {
        levels.clear();
        values.clear();
        let found = reader.read_records(CHUNK, Some(&mut levels), None, &mut values);
        let (n_rows, _, _) = found.map_err(|error| error.to_string())?;
        if n_rows == 0 {
            return Ok(());
        }
        let mut present = values.iter();
        for row in 0..n_rows {
            // A column whose values cannot be missing has no levels.
            match levels.get(row).is_none_or(|&own| own == level) {
                true => each(Some(present.next().ok_or("ends early")?))?,
                false => each(None)?,
            }
        }
    }
}
