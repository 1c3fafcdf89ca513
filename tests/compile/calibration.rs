//! Rates of the machine: measured, kept in a file, and replaced by the built-in ones where the file cannot be used.

use opfuse::error::Result;
use opfuse::internals::compile::calibration::{Source, calibrate, from_file};
use opfuse::internals::fusion::Rates;
use opfuse::internals::fusion::rates::LEVELS;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A folder of its own, removed afterwards.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("opfuse-calibration-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder can be written to");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn rates_are_measured_in_bounded_time() -> Result<()> {
    let start = Instant::now();
    let rates = calibrate()?;
    let took = start.elapsed();
    // A debug build on a loaded machine; an idle one takes a tenth of a second.
    assert!(took < Duration::from_secs(20), "{took:?} for {rates:?}");
    let Rates { launch, bandwidth, jump, plain, functions, multiply_adds } = rates;
    assert!((1..1_000_000).contains(&launch) && (1..1000).contains(&jump));
    assert!(bandwidth.iter().chain([&plain, &functions, &multiply_adds]).all(|&rate| rate > 1), "{rates:?}");
    assert_eq!(bandwidth.len(), LEVELS.len() + 1);
    Ok(())
}

#[test]
fn a_missing_file_is_written_once_and_read_later() {
    let folder = Folder::new("once");
    let path = folder.0.join("rates");
    let made = from_file(&path);
    assert_eq!(made.source, Source::Measured(path.clone()));
    let read = from_file(&path);
    assert_eq!(read.source, Source::File(path));
    assert_eq!(read.rates, made.rates);
    assert_eq!(std::fs::read_dir(&folder.0).expect("it is there").count(), 1, "nothing unfinished is left");
}

#[test]
fn an_unusable_file_leaves_the_built_in_rates() {
    let folder = Folder::new("bad");
    let good = from_file(folder.0.join("good"));
    assert!(matches!(good.source, Source::Measured(_)), "{}", good.source);
    let text = std::fs::read_to_string(folder.0.join("good")).expect("it was made");
    let cases: [(&str, String); 7] = [
        ("empty", String::new()),
        ("another version", text.replace("rates 1", "rates 2")),
        ("cut off", text[..text.len() / 2].into()),
        ("a zero", text.replace("plain ", "plain 0\nx ")),
        ("a word", text.replace("plain ", "plain fast")),
        ("too large", text.replace("launch ", "launch 99999999999")),
        (
            "one level less",
            text.lines()
                .map(|line| {
                    line.strip_suffix(|_| line.starts_with("bandwidth"))
                        .map_or(line, |line| line.rsplit_once(' ').map_or("", |(line, _)| line))
                        .to_string()
                        + "\n"
                })
                .collect(),
        ),
    ];
    for (name, text) in cases {
        let path = folder.0.join("bad");
        std::fs::write(&path, &text).expect("it can be written");
        let found = from_file(&path);
        let Source::Failed(why) = &found.source else { panic!("{name}: {}", found.source) };
        assert!(why.contains("is of no use") && why.contains("bad"), "{name}: {why}");
        assert_eq!(found.rates, Rates::BUILT_IN, "{name}");
    }
    std::fs::write(folder.0.join("bad"), [0xff, 0xfe, 0]).expect("it can be written");
    assert!(matches!(from_file(folder.0.join("bad")).source, Source::Failed(why) if why.contains("cannot be read")));
    let nowhere = from_file(folder.0.join("no folder").join("rates"));
    assert!(matches!(&nowhere.source, Source::Failed(why) if why.contains("cannot be written")), "{}", nowhere.source);
}

#[test]
#[cfg(unix)]
fn a_file_that_never_ends_leaves_the_built_in_rates() {
    let calibration = from_file("/dev/zero");
    assert_eq!(calibration.rates, Rates::BUILT_IN);
    assert!(matches!(calibration.source, Source::Failed(_)), "{:?}", calibration.source);
}
