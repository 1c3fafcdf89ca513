//! Readers of files: tables of comma-separated values and images, and errors that say where.

#[cfg(any(feature = "csv", feature = "images", feature = "parquet"))]
use std::path::{Path, PathBuf};

/// A folder that is removed at the end.
#[cfg(any(feature = "csv", feature = "images", feature = "parquet"))]
pub(crate) struct Scratch(PathBuf);

#[cfg(any(feature = "csv", feature = "images", feature = "parquet"))]
impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let folder = std::env::temp_dir().join(format!("opfuse-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        Scratch(folder)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).expect("the folder can be made");
        std::fs::write(&path, bytes).expect("the file can be written");
        path
    }
}

#[cfg(any(feature = "csv", feature = "images", feature = "parquet"))]
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(feature = "csv")]
mod tables {
    use super::Scratch;
    use opfuse::data::csv::{CsvOptions, Table};
    use opfuse::data::{Loader, TensorDataset};
    use opfuse::{DType, Result};

    #[test]
    fn a_table_becomes_numbers_and_classes() -> Result<()> {
        let scratch = Scratch::new("table");
        let text = "\u{feff}id, width ,species,height\r\n1,0.5,b,-2\r\n2,1e3,\"a, or c\",inf\n\n3, 0.1 ,b,7\n";
        let path = scratch.write("iris.csv", text);
        let options = CsvOptions { classes: vec!["species".into()], ..CsvOptions::default() };
        let table = Table::read(&path, &options)?;
        assert_eq!(table.names, ["id", "width", "height"]);
        let expected = [[1.0, 0.5, -2.0], [2.0, 1e3, f32::INFINITY], [3.0, 0.1, 7.0]];
        assert_eq!(table.numbers.to_vec2::<f32>()?, expected);
        assert_eq!(table.columns(&["height", "id"])?.to_vec2::<f32>()?[0], [-2.0, 1.0]);
        let species = table.class("species")?;
        assert_eq!(species.words, ["a, or c", "b"]);
        assert_eq!(species.numbers.to_vec::<i64>()?, [1, 0, 1]);
        let data = TensorDataset::new(table.columns(&["width"])?, species.numbers.clone())?;
        let batch = Loader::new(data).batch(2).epoch()?.next().expect("there is one")?;
        assert_eq!((batch.0.sizes(), batch.1.to_vec::<i64>()?), (&[2, 1][..], vec![1, 0]));
        assert!(table.class("width").expect_err("it has numbers").to_string().contains("[\"species\"]"));
        assert!(table.columns(&["depth"]).expect_err("it is not there").to_string().contains("\"height\""));
        Ok(())
    }

    #[test]
    fn options_say_what_cells_are() -> Result<()> {
        let scratch = Scratch::new("options");
        let path = scratch.write("plain.csv", "1;;9223372036854775807\n-4;5;6\n");
        let options = CsvOptions { header: false, delimiter: b';', empty: Some(-1.0), ..CsvOptions::default() };
        let whole = Table::read(&path, &CsvOptions { dtype: DType::I64, ..options.clone() })?;
        assert_eq!(whole.numbers.to_vec2::<i64>()?, [[1, -1, i64::MAX], [-4, 5, 6]]);
        assert_eq!(whole.names, ["0", "1", "2"]);
        let double = Table::read(&path, &CsvOptions { dtype: DType::F64, empty: Some(f64::NAN), ..options.clone() })?;
        assert!(double.numbers.to_vec2::<f64>()?[0][1].is_nan());
        let error = Table::read(&path, &CsvOptions { dtype: DType::F16, ..options }).expect_err("it is not read");
        assert!(error.to_string().contains("convert it with to_dtype"), "{error}");
        // A header alone is a table without rows.
        let none = Table::read(scratch.write("none.csv", "a,b\n"), &CsvOptions::default())?;
        assert_eq!(none.numbers.sizes(), [0, 2]);
        let one = CsvOptions { classes: vec!["a".into()], ..CsvOptions::default() };
        let none = Table::read(scratch.write("words.csv", "a\n"), &one)?;
        assert_eq!((none.numbers.sizes(), none.class("a")?.numbers.sizes()), (&[0, 0][..], &[0][..]));
        Ok(())
    }

    /// A line of many cells takes time in proportion to their number: comparing each name with each would take minutes.
    #[test]
    fn a_table_has_many_columns() -> Result<()> {
        const N: usize = 300_000;
        let scratch = Scratch::new("columns");
        let line = |cell: &dyn Fn(usize) -> String| (0..N).map(cell).collect::<Vec<_>>().join(",");
        let names: Vec<String> = (0..N).map(|column| format!("c{column}")).collect();
        let text = format!("{}\n{}\n", names.join(","), line(&|column| (column % 7).to_string()));
        let start = std::time::Instant::now();
        let (options, classes) = (CsvOptions::default(), names[N / 2..].to_vec());
        let path = scratch.write("wide.csv", &text);
        assert_eq!(Table::read(&path, &options)?.numbers.sizes(), [1, N]);
        let halves = Table::read(&path, &CsvOptions { classes, ..options.clone() })?;
        assert_eq!((halves.numbers.sizes(), halves.classes.len()), (&[1, N / 2][..], N / 2));
        let twice = scratch.write("twice.csv", text.replacen("c299999", "c299998", 1));
        let error = Table::read(twice, &options).expect_err("a name is there twice").to_string();
        assert!(error.contains("twice.csv:1: two columns are called \"c299998\""), "{error}");
        assert!(start.elapsed().as_secs() < 20, "it took {:?}", start.elapsed());
        Ok(())
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let scratch = Scratch::new("errors");
        let refused = |name: &str, bytes: &[u8], options: CsvOptions, text: &str| {
            let error = Table::read(scratch.write(name, bytes), &options).expect_err(text).to_string();
            assert!(error.contains(text) && error.contains(name), "{error}\ndoes not contain\n{text}");
        };
        let plain = CsvOptions::default;
        refused("word.csv", b"a,b\n1,2\n3,x7\n", plain(), "word.csv:3: column \"b\" has \"x7\", which is no f32");
        refused("quoted.csv", b"a,b\n1,\"\n2\"\n3,x\n", plain(), "quoted.csv:4: ");
        refused("empty.csv", b"a,b\n1,2\n3,\n", plain(), "empty.csv:3: column \"b\" is empty");
        refused("ragged.csv", b"a,b\n1,2\n3\n", plain(), "ragged.csv:3: the row has 1 cells, and the first one has 2");
        refused("latin.csv", b"a\n1\n\xe9\n", plain(), "latin.csv:3: the row is not UTF-8");
        refused("nothing.csv", b"", plain(), "nothing.csv:1: the file has no rows");
        refused("twice.csv", b"a,a\n1,2\n", plain(), "twice.csv:1: two columns are called \"a\"");
        let named = CsvOptions { classes: vec!["c".into()], ..plain() };
        refused("other.csv", b"a,b\n1,2\n", named, "other.csv:1: there is no column \"c\"");
        let whole = CsvOptions { dtype: DType::I64, ..plain() };
        refused("whole.csv", b"a\n9223372036854775808\n", whole, "whole.csv:2: column \"a\"");
        let error = Table::read(scratch.0.join("absent.csv"), &plain()).expect_err("it is not there").to_string();
        assert!(error.contains("absent.csv"), "{error}");
    }
}

#[cfg(feature = "images")]
mod pictures {
    use super::Scratch;
    use crate::recorded::{Recorded, close};
    use opfuse::Result;
    use opfuse::data::images::{Channels, ImageFolder, ImageOptions, read_image};
    use opfuse::data::{Dataset, Loader};
    use std::path::{Path, PathBuf};

    fn file(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/training/recorded").join(name)
    }

    fn of(channels: Channels) -> ImageOptions {
        ImageOptions { channels, size: None }
    }

    #[test]
    fn files_are_read_as_pillow_reads_them() -> Result<()> {
        let recorded = Recorded::open("images.safetensors");
        let color = recorded.get("color.png", "pixels");
        close("color.png", &read_image(file("color.png"), &of(Channels::Rgba))?, &color, 1e-7);
        close("without opacity", &read_image(file("color.png"), &of(Channels::Rgb))?, &color.narrow(0, 0, 3)?, 1e-7);
        let gray = recorded.get("gray.png", "pixels");
        close("gray.png", &read_image(file("gray.png"), &of(Channels::Gray))?, &gray, 1e-7);
        let expanded = gray.expand([3, 3, 2])?;
        close("gray as colors", &read_image(file("gray.png"), &of(Channels::Rgb))?, &expanded, 1e-7);
        // Decoders of JPEG may round a pixel differently.
        let smooth = recorded.get("smooth.jpg", "pixels");
        close("smooth.jpg", &read_image(file("smooth.jpg"), &of(Channels::Rgb))?, &smooth, 3.0 / 255.0);
        let small = ImageOptions { channels: Channels::Rgb, size: Some([4, 8]) };
        let mean = smooth.unflatten(2, [8, 2])?.unflatten(1, [4, 2])?.mean([2, 4], false)?;
        close("half the size", &read_image(file("smooth.jpg"), &small)?, &mean, 0.03);
        Ok(())
    }

    #[test]
    fn folders_are_classes() -> Result<()> {
        let scratch = Scratch::new("folders");
        let color = std::fs::read(file("color.png")).expect("it is checked in");
        for name in ["cat/2.png", "cat/1.PNG", "dog/0.png"] {
            scratch.write(name, &color);
        }
        scratch.write("cat/notes.txt", "none");
        std::fs::create_dir_all(scratch.0.join("empty")).expect("the folder can be made");
        let data = ImageFolder::new(&scratch.0, of(Channels::Rgb))?;
        assert_eq!((data.classes.clone(), data.len()), (vec!["cat".into(), "dog".into(), "empty".into()], 3));
        assert!(data.file(0).is_some_and(|file| file.ends_with("cat/1.PNG")) && data.file(3).is_none());
        assert!(data.get(3).is_err());
        let loader = Loader::new(data).batch(3).workers(2);
        let (images, classes) = loader.epoch()?.next().expect("there is one")?;
        assert_eq!((images.sizes(), classes.to_vec::<i64>()?), (&[3, 3, 4, 5][..], vec![0, 0, 1]));
        Ok(())
    }

    #[test]
    fn errors_name_the_file() -> Result<()> {
        let scratch = Scratch::new("pictures");
        let refused = |path: &Path, options: ImageOptions, text: &str| {
            let error = read_image(path, &options).expect_err(text).to_string();
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            assert!(error.contains(text) && error.contains(&name), "{error}\ndoes not contain\n{text}");
        };
        refused(&scratch.0.join("absent.png"), of(Channels::Rgb), "absent.png");
        refused(&scratch.write("text.png", "no image"), of(Channels::Rgb), "no readable PNG or JPEG");
        let whole = std::fs::read(file("color.png")).expect("it is checked in");
        for length in 0..whole.len() - 12 {
            refused(&scratch.write("cut.png", &whole[..length]), of(Channels::Rgb), "cut.png");
        }
        let jpeg = std::fs::read(file("smooth.jpg")).expect("it is checked in");
        for length in (0..jpeg.len() / 2).step_by(7) {
            refused(&scratch.write("cut.jpg", &jpeg[..length]), of(Channels::Rgb), "cut.jpg");
        }
        refused(&file("color.png"), ImageOptions { size: Some([0, 4]), ..of(Channels::Rgb) }, "has a 0");
        assert!(ImageFolder::new(&scratch.0, of(Channels::Rgb)).is_err(), "there are no folders");
        assert!(ImageFolder::new(scratch.0.join("absent"), of(Channels::Rgb)).is_err());
        Ok(())
    }
}
