//! Machine code kept on disk: it has the bits of fresh code, and no file in the folder does harm.
//!
//! The folder is a setting of the process, so each test runs in a process of its own. On machines for which no code is
//! kept, the tests say that they were skipped.

#![allow(unsafe_code, reason = "a program is run on buffers made here")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use crate::alone::has_run_alone;
use crate::case::Checked;
use crate::kernels::listed::{folded, normalized};
use crate::kernels::random::random_case;
use crate::kernels::{Builder, Case, Random, place};
use opfuse::compile::disk;
use opfuse::compile::disk::{Folder, Miss, Stats};
use opfuse::internals::codegen::geometry::{Access, Geometry, Lanes, LoopOrder};
use opfuse::internals::codegen::kernel::{Level, Source};
use opfuse::internals::codegen::tier::Tier;
use opfuse::internals::codegen::tier_up::Code;
use opfuse::internals::codegen::{FOLD_BLOCK, cache, x64};
use opfuse::internals::ir::row::Combine;
use opfuse::internals::ir::scalar::{Lit, Prim};
use opfuse::ir::DType;
use smallvec::smallvec;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A folder for code, removed afterwards.
struct Kept {
    path: PathBuf,
}

impl Kept {
    /// Makes the folder in the test's own process. In the parent process it starts that process and returns `None`.
    fn new(name: &str) -> Option<Kept> {
        if x64::Level::best().is_none() {
            println!("skipped: this machine has neither AVX-512 nor AVX2");
            return None;
        }
        if has_run_alone() {
            return None;
        }
        let path = std::env::temp_dir().join(format!("opfuse-disk-{name}-{}", std::process::id()));
        disk::use_folder(Some(&path)).expect("the folder can be made");
        Some(Kept { path })
    }

    fn folder(&self) -> Arc<Folder> {
        disk::folder().expect("it is in use")
    }

    fn stats(&self) -> Stats {
        self.folder().stats()
    }

    /// All files.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.path).expect("the folder is there");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
        files.sort();
        files
    }

    /// The only file.
    fn file(&self) -> PathBuf {
        let files = self.files();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].clone()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = disk::use_folder(None);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A kernel of one file: rows are too short to be packed.
fn small() -> Case {
    place(&mut Random::new(3), folded(Combine::Sum, DType::F32), &[2], &[12])
}

/// A different kernel for each number; some are longer than others.
fn numbered(n: usize) -> Case {
    let mut b = Builder::default();
    let x = b.load(DType::F32, Source::Memory, Level::Full);
    let scale = |x, k: usize| {
        let scale = b.lit(Lit::f32((n + k) as f32));
        b.prim(Prim::Mul, &[x, scale])
    };
    let scaled = (0..=n % 9).fold(x, scale);
    let sum = b.fold(Combine::Sum, &[scaled]);
    b.output(DType::F32, sum);
    place(&mut Random::new(n as u64), b.kernel, &[2], &[12])
}

/// Compiles for the machine's best instruction set, and compares with the interpreter.
fn check(case: &Case, what: &str) {
    let level = x64::Level::best().expect("looked at before");
    if let Ok(program) = x64::compile(level, &case.kernel, Lanes::Inner, &case.classes()) {
        case.check(&program, what, 1);
    }
}

#[test]
fn stored_code_has_the_same_bits() {
    let Some(kept) = Kept::new("same") else { return };
    let cases = |round: &str| {
        for seed in 0..150 {
            random_case(seed).check_all(&format!("{round}, seed {seed}"), seed as usize);
        }
        // Kernels with block results and row buffers, which a launch allocates.
        for n in [64, 1024, 3 * FOLD_BLOCK + 37] {
            place(&mut Random::new(1), normalized(), &[2, 2], &[n]).check_all(round, 1);
        }
    };
    cases("made");
    let made = kept.stats();
    assert_eq!((made.not_stored, made.removed), (0, 0), "{made:?}");
    // Machines with AVX-512 keep code for two instruction sets.
    assert!(made.stored > 50 && made.misses.iter().sum::<u64>() == made.stored, "{made:?}");
    // Another process would start like this.
    disk::use_folder(Some(&kept.path)).expect("it is there");
    cases("kept");
    let found = kept.stats();
    assert_eq!((found.misses, found.stored), ([0; 5], 0), "{found:?}");
    assert_eq!(found.hits, made.hits + made.stored);
}

/// A kernel of little work begins in the vm, unless its code is on disk.
#[test]
fn stored_code_runs_from_the_first_call() {
    let Some(kept) = Kept::new("first") else { return };
    let mut b = Builder::default();
    let x = b.load(DType::F32, Source::Memory, Level::Full);
    let sums = (0..5).fold(x, |sum, _| b.prim(Prim::Add, &[sum, x]));
    b.output(DType::F32, sums);
    let kernel = b.kernel;
    let access = || Access { rows: smallvec![4], ..Access::default() };
    let geometry = Geometry::plan(&kernel, &[1000], &[], vec![access()], vec![access()], LoopOrder::OfMemory);
    assert_eq!(Tier::choose(&kernel, &geometry), Tier::X64, "a chain is for machine code");
    let first = || {
        cache::clear();
        Code::new(None, &kernel, &geometry).expect("it is compiled")
    };
    let code = first();
    assert_eq!((code.now().entry.compiled.tier(), kept.files().len()), (Tier::Vm, 0));
    code.warm(&kernel, &geometry);
    let code = first();
    assert_eq!((code.now().entry.compiled.tier(), code.tier_up()), (Tier::X64, None));
    assert_eq!(kept.stats().hits, 1);
    // An invalid file is detected, and written again.
    fs::write(kept.file(), "nothing").expect("it can be written");
    let code = first();
    assert_eq!((code.now().entry.compiled.tier(), kept.stats().missed(Miss::Damaged)), (Tier::X64, 1));
}

#[test]
fn a_changed_byte_invalidates_a_file() {
    let Some(kept) = Kept::new("flipped") else { return };
    let case = small();
    check(&case, "made");
    let file = kept.file();
    let whole = fs::read(&file).expect("it was written");
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&file, &damaged).expect("it can be written");
        check(&case, &format!("byte {at}"));
        assert_eq!(fs::read(&file).expect("it is there"), whole, "a file of no use is made again: byte {at}");
    }
    let stats = kept.stats();
    assert_eq!(stats.hits, 0, "{stats:?}");
    assert_eq!(stats.missed(Miss::Damaged) + stats.missed(Miss::Other), whole.len() as u64, "{stats:?}");
    assert_eq!(stats.missed(Miss::Other), 8, "only the mark says that it is another form: {stats:?}");
}

#[test]
fn a_truncated_file_is_not_used() {
    let Some(kept) = Kept::new("cut") else { return };
    let case = small();
    check(&case, "made");
    let file = kept.file();
    let whole = fs::read(&file).expect("it was written");
    for n in (0..whole.len()).chain([whole.len() + 1, whole.len() + 4096]) {
        let mut cut = whole.clone();
        cut.resize(n, 0);
        fs::write(&file, &cut).expect("it can be written");
        check(&case, &format!("{n} bytes"));
    }
    let stats = kept.stats();
    assert_eq!((stats.hits, stats.missed(Miss::Damaged)), (0, whole.len() as u64 + 2), "{stats:?}");
    check(&case, "whole again");
    assert_eq!(kept.stats().hits, 1);
}

/// A file holds its whole key, so a matching name is not enough.
#[test]
fn a_file_of_another_kernel_is_not_used() {
    let Some(kept) = Kept::new("other") else { return };
    let (one, other) = (small(), place(&mut Random::new(3), folded(Combine::Max, DType::F32), &[2], &[12]));
    check(&one, "made");
    let first = kept.file();
    check(&other, "made");
    let second = kept.files().into_iter().find(|file| *file != first).expect("there are two");
    fs::copy(&first, &second).expect("it can be written");
    check(&other, "by the name of another");
    let stats = kept.stats();
    assert_eq!((stats.hits, stats.missed(Miss::Other)), (0, 1), "{stats:?}");
}

#[test]
fn files_that_others_may_write_are_not_run() {
    let Some(kept) = Kept::new("others") else { return };
    let case = small();
    check(&case, "made");
    let file = kept.file();
    let allow = |path: &PathBuf, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    for (mode, trusted) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false), (0o666, false)] {
        allow(&file, mode);
        let before = kept.stats();
        check(&case, &format!("{mode:o}"));
        let now = kept.stats();
        let seen = (now.hits - before.hits, now.missed(Miss::Untrusted) - before.missed(Miss::Untrusted));
        assert_eq!(seen, if trusted { (1, 0) } else { (0, 1) }, "{mode:o}");
    }
    // Links may point anywhere, and are not followed.
    let elsewhere = kept.path.join("elsewhere");
    fs::rename(&file, &elsewhere).expect("it is ours");
    symlink(&elsewhere, &file).expect("it can be made");
    check(&case, "a link");
    assert_eq!(kept.stats().missed(Miss::Unreadable), 1);
    fs::remove_file(&file).expect("it is ours");
    fs::create_dir(&file).expect("it can be made");
    check(&case, "a folder");
    assert_eq!(kept.stats().missed(Miss::Untrusted), 4);
    for mode in [0o770, 0o702, 0o777] {
        allow(&kept.path, mode);
        let error = disk::use_folder(Some(&kept.path)).expect_err("others may write it").to_string();
        assert!(error.contains("chmod 700") && error.contains(&kept.path.display().to_string()), "{error}");
    }
    allow(&kept.path, 0o700);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let Some(kept) = Kept::new("not") else { return };
    let file = kept.path.join("file");
    fs::write(&file, "a file").expect("it can be written");
    for path in [file.clone(), file.join("below")] {
        let error = disk::use_folder(Some(&path)).expect_err("a file is no folder").to_string();
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
}

#[test]
fn a_folder_that_was_removed_is_not_needed() {
    let Some(kept) = Kept::new("gone") else { return };
    fs::remove_dir_all(&kept.path).expect("it is ours");
    fs::write(&kept.path, "a file in its place").expect("it can be written");
    for round in 1..=3 {
        check(&small(), "no folder");
        assert_eq!(kept.stats().not_stored, round);
    }
    fs::remove_file(&kept.path).expect("it is ours");
}

#[test]
fn the_least_recently_used_files_are_removed() {
    let Some(kept) = Kept::new("room") else { return };
    let foreign = kept.path.join("notes.txt");
    fs::write(&foreign, vec![0; 1 << 20]).expect("it can be written");
    fs::File::options()
        .write(true)
        .open(&foreign)
        .expect("it is there")
        .set_modified(SystemTime::UNIX_EPOCH)
        .expect("ours");
    let case = numbered;
    let n_files = |kept: &Kept| kept.files().len() - 1;
    let n_bytes = |kept: &Kept| -> u64 {
        let own = kept.files().into_iter().filter(|file| *file != foreign);
        own.map(|file| fs::metadata(file).expect("it is there").len()).sum()
    };
    // Older files, each a minute older than the next, and one that a process left unfinished.
    let long_ago = SystemTime::now() - Duration::from_secs(86_400);
    for n in 0..120 {
        let before = kept.files();
        check(&case(n), "made");
        for file in kept.files().into_iter().filter(|file| !before.contains(file)) {
            let file = fs::File::options().write(true).open(file).expect("it is there");
            file.set_modified(long_ago + Duration::from_secs(60 * n as u64)).expect("it is ours");
        }
    }
    let part = kept.path.join("1-2-3-4.opfuse-part");
    fs::write(&part, "unfinished").expect("it can be written");
    fs::File::options().write(true).open(&part).expect("it is there").set_modified(long_ago).expect("it is ours");
    // One of the oldest is used again.
    disk::use_folder(Some(&kept.path)).expect("it is there");
    check(&case(0), "used again");
    assert_eq!(kept.stats().hits, 1);
    let (files, bytes) = (n_files(&kept) - 1, n_bytes(&kept));
    let bound = bytes * 3 / 4;
    disk::use_folder_of(&kept.path, bound).expect("it is there");
    check(&case(2000), "one more");
    let stats = kept.stats();
    assert!(stats.removed > 0 && stats.stored == 1, "{stats:?}");
    assert!(n_bytes(&kept) <= bound && n_bytes(&kept) > bound * 3 / 4, "{} of {bound}", n_bytes(&kept));
    assert_eq!(n_files(&kept) as u64, files as u64 + 1 - stats.removed);
    assert!(foreign.exists() && !part.exists());
    let hits = |n: usize| {
        let before = kept.stats().hits;
        check(&case(n), "looked for");
        kept.stats().hits - before
    };
    assert_eq!((hits(0), hits(119)), (1, 1), "used lately");
    assert_eq!(hits(1), 0, "not used for long");
    // The limit holds however much is written.
    for n in 3000..3400 {
        check(&case(n), "written");
        assert!(n_bytes(&kept) <= bound, "{} of {bound}", n_bytes(&kept));
    }
}

/// Threads with separate folder objects act like processes.
#[test]
fn threads_write_and_read_at_once() {
    let Some(kept) = Kept::new("many") else { return };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let path = kept.path.clone();
            scope.spawn(move || {
                for n in 0..120 {
                    let seed = (n * (thread + 1)) % 30;
                    disk::use_folder(Some(&path)).expect("it is there");
                    random_case(seed).check_all(&format!("thread {thread}, seed {seed}"), seed as usize);
                }
            });
        }
    });
    let files = kept.files();
    assert!(
        !files.is_empty() && files.iter().all(|file| file.extension().is_some_and(|end| end == "opfuse")),
        "{files:?}"
    );
    disk::use_folder(Some(&kept.path)).expect("it is there");
    (0..30).for_each(|seed| random_case(seed).check_all("afterwards", 0));
    let stats = kept.stats();
    assert_eq!((stats.misses, stats.stored), ([0; 5], 0), "all were whole: {stats:?}");
}

/// Names the case that runs in a process of its own.
const CASE: &str = "OPFUSE_TEST_DISK";

/// `OPFUSE_CACHE_DIR` unset, set, and set to an unusable folder.
#[test]
fn the_environment_names_the_folder() {
    if let Ok(expected) = std::env::var(CASE) {
        for seed in 0..40 {
            check(&random_case(seed), "in a process of its own");
        }
        let hits = disk::folder().map(|folder| (folder.stats().hits, folder.stats().stored));
        let found = match (hits, disk::refusal()) {
            (None, None) => "off".to_string(),
            // Two ways to stage a kernel may need the same code, which is found the second time.
            (Some((hits, stored)), None) if stored > 10 * hits.max(1) => "written".to_string(),
            (Some((hits, 0)), None) if hits > 10 => "read".to_string(),
            (None, Some(why)) if why.contains("must be the user's own") => "refused".to_string(),
            (hits, why) => format!("{hits:?} {why:?}"),
        };
        assert_eq!(found, expected);
        return;
    }
    let Some(kept) = Kept::new("environment") else { return };
    let folder = kept.path.join("made").join("when asked for");
    let open = kept.path.join("open");
    fs::create_dir(&open).expect("it can be made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let myself = std::env::current_exe().expect("a test has a path");
    let cases = [(None, "off"), (Some(&folder), "written"), (Some(&folder), "read"), (Some(&open), "refused")];
    for (path, expected) in cases {
        let mut command = std::process::Command::new(&myself);
        command
            .args(["disk_cache::the_environment_names_the_folder", "--exact"])
            .env(CASE, expected)
            .current_dir(&kept.path);
        match path {
            Some(path) => command.env("OPFUSE_CACHE_DIR", path),
            None => command.env_remove("OPFUSE_CACHE_DIR"),
        };
        let output = command.output().expect("it starts");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("1 passed"), "{expected}: {}\n{text}", output.status);
        assert_eq!(folder.exists(), expected != "off", "nothing is written unless somebody asks for it");
    }
    assert_eq!(fs::read_dir(&open).expect("it is there").count(), 0);
    let mode = fs::metadata(&folder).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
