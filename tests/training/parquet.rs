//! Parquet files that PyArrow wrote (`scripts/record_parquet.py`): values, missing ones, every compression, and what is
//! refused.

use crate::readers::Scratch;
use opfuse::data::parquet::{ParquetOptions, Table};
use opfuse::{DType, Result};
use std::path::PathBuf;

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/parquet")).join(format!("{name}.parquet"))
}

/// Options for some columns, as f64.
fn of(columns: &[&str]) -> ParquetOptions {
    ParquetOptions { columns: columns.iter().map(ToString::to_string).collect(), dtype: DType::F64, empty: None }
}

#[test]
fn columns_become_numbers_and_classes_whatever_compresses_them() -> Result<()> {
    let options = ParquetOptions { empty: Some(-9.0), ..of(&[]) };
    for codec in ["none", "snappy", "gzip", "brotli", "lz4"] {
        let table = Table::read_parquet(file(&format!("flowers_{codec}")), &options)?;
        assert_eq!(table.names, ["length", "count", "small", "ratio", "ripe"], "{codec}");
        let rows = [
            [5.1, 1.0, 1.0, 0.5, 1.0],
            [6.2, -2.0, 2.0, -9.0, 0.0],
            [4.7, 3.0, 250.0, -1.5, 1.0],
            [5.9, 1_099_511_627_776.0, 4.0, 2.25, 1.0],
            [6.0, 5.0, 255.0, -9.0, 0.0],
        ];
        assert_eq!(table.numbers.to_vec2::<f64>()?, rows, "{codec}");
        let species = table.class("species")?;
        assert_eq!(species.words, ["setosa", "versicolor", "virginica", "é"], "{codec}");
        assert_eq!(species.numbers.to_vec::<i64>()?, [0, 2, 0, 3, 1], "{codec}");
    }
    let whole = ParquetOptions { dtype: DType::I64, ..of(&["small", "count"]) };
    let table = Table::read_parquet(file("flowers_snappy"), &whole)?;
    assert_eq!(table.numbers.to_vec2::<i64>()?[3], [4, 1 << 40]);
    let unsigned = Table::read_parquet(file("others"), &of(&["u32"]))?;
    assert_eq!(unsigned.numbers.to_vec2::<f64>()?, [[4_294_967_295.0], [7.0]]);
    let empty = Table::read_parquet(file("empty"), &of(&[]))?;
    assert_eq!((empty.numbers.sizes(), empty.class("w")?.words.len()), (&[0, 1][..], 0));
    Ok(())
}

#[test]
fn errors_name_the_file_and_the_column() {
    let refused = |name: &str, options: ParquetOptions, text: &str| {
        let error = Table::read_parquet(file(name), &options).expect_err(text).to_string();
        assert!(error.contains(text) && error.contains(name), "{error}\ndoes not contain\n{text}");
    };
    refused("flowers_none", of(&["ratio"]), "column \"ratio\" misses a value; say in `empty`");
    refused("flowers_none", of(&["width"]), "there is no column \"width\"; there are [\"length\"");
    let whole = ParquetOptions { dtype: DType::I64, ..of(&["length"]) };
    refused("flowers_none", whole, "column \"length\" has floats, which i64 does not hold; read f64");
    refused("flowers_zstd", of(&["length"]), "column \"length\"");
    refused("others", of(&["big"]), "column \"big\" has a number beyond those of i64");
    refused("others", of(&["list.list.element"]), "is a list; store one column per element");
    refused("others", of(&["day"]), "column \"day\" is INT32 as Date, which is no number and no text");
    refused("others", of(&["price"]), "which is no number and no text");
    refused("others", of(&["raw"]), "column \"raw\" is BYTE_ARRAY, which is no number and no text");
    refused("others", of(&["half"]), "which is no number and no text");
    refused("others", of(&["word"]), "column \"word\" misses a text");
    refused("absent", of(&[]), "absent.parquet");
    let other = ParquetOptions { dtype: DType::F16, ..of(&[]) };
    let error = Table::read_parquet(file("flowers_none"), &other).expect_err("it is refused").to_string();
    assert!(error.contains("f32, f64 or i64"), "{error}");
}

#[test]
fn damaged_files_are_errors() -> std::io::Result<()> {
    let scratch = Scratch::new("parquet");
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    let (mut n_read, mut n_refused) = (0, 0);
    for case in 0..2000 {
        let mut bytes = std::fs::read(file(["flowers_none", "flowers_gzip", "others"][case % 3]))?;
        for _ in 0..1 + case % 4 {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        if case % 5 == 0 {
            bytes.truncate(below(bytes.len()));
        }
        match Table::read_parquet(
            scratch.write("damaged.parquet", bytes),
            &ParquetOptions { empty: Some(0.0), ..of(&[]) },
        ) {
            Ok(_) => n_read += 1,
            Err(error) => {
                assert!(error.to_string().contains("damaged.parquet"), "{error}");
                n_refused += 1;
            }
        }
    }
    assert!(n_refused > 500, "{n_read} files were read, and {n_refused} refused");
    Ok(())
}
