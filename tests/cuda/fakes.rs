//! Fakes of the driver, NVRTC and cublasLt, built by g++, and tests that run on them, or on a device.
//!
//! A process finds its libraries once, so each test runs in a process of its own: the test starts its binary again for
//! itself alone, with the folder of the fakes named. Without g++ the tests say that they were skipped.
//!
//! With `OPFUSE_CUDA_TESTS=device` they run on the machine's first GPU instead. Tests that need fakes, such as those of
//! the order of work or of a failing driver, then say that they were skipped.

use opfuse::internals::codegen::cuda::PRELUDE;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Options for kernels; a sanitizer finds misaligned vectors, which a device would refuse. Kernels need no start files
/// and libraries of C++. Without these, compiling a source takes half the time.
const OF_KERNELS: &str = "-O1 -std=c++17 -w -Wno-psabi -fPIC -shared -ffp-contract=off -fno-strict-aliasing -fsanitize=alignment \
                          -fsanitize-undefined-trap-on-error -nostdlib";

/// Options for the fakes. Kernels need the functions that they export.
const OF_FAKES: &str = "-O1 -std=c++17 -fPIC -shared";

/// The subfolder with a cublasLt that lacks a function.
pub(crate) const OLD: &str = "old";

/// Set in the child process: the folder that it was started with.
const CHILD: &str = "OPFUSE_FAKES";

/// The number of processes that share the work of a long test.
pub(crate) const PARTS: usize = 4;

/// A test per part: each calls the function with its number.
macro_rules! in_parts {
    ($part:path) => {
        #[test]
        fn first_part() {
            $part(0);
        }

        #[test]
        fn second_part() {
            $part(1);
        }

        #[test]
        fn third_part() {
            $part(2);
        }

        #[test]
        fn fourth_part() {
            $part(3);
        }
    };
}
pub(crate) use in_parts;

/// Fails with the first failures, if there are any.
pub(crate) fn expect_none(failures: &[String]) {
    let first: Vec<&str> = failures.iter().take(20).map(String::as_str).collect();
    assert!(failures.is_empty(), "{} failed; the first:\n{}", failures.len(), first.join("\n"));
}

/// Whether tests run on a device.
pub(crate) fn on_device() -> bool {
    std::env::var("OPFUSE_CUDA_TESTS").is_ok_and(|place| place == "device")
}

/// Runs `work` as this test on the fakes or a device, in a process of its own with these settings. Settings of the
/// fakes, which make them fail, exclude a device.
pub(crate) fn with(settings: &[(&str, &str)], work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    if !on_device() {
        return only(settings, work);
    }
    match settings.iter().find(|(name, _)| name.starts_with("OPFUSE_FAKE_")) {
        Some((name, _)) => skip(&format!("only fakes have {name}")),
        None => again(settings),
    }
}

/// Runs `work` as this test on the fakes alone.
pub(crate) fn only(settings: &[(&str, &str)], work: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return work();
    }
    if on_device() {
        return skip("only fakes can show it");
    }
    let Some(folder) = folder() else {
        return skip("g++ is not there, so nothing was run on fakes for CUDA");
    };
    let folder = folder.to_str().expect("the folder of targets has a name in letters");
    let all: Vec<(&str, &str)> =
        [("OPFUSE_CUDA_LIB_DIR", folder)].into_iter().chain(settings.iter().copied()).collect();
    again(&all);
}

/// Runs `work` as this test in a process of its own with these settings and without fakes.
pub(crate) fn without(settings: &[(&str, &str)], work: impl FnOnce()) {
    match std::env::var_os(CHILD) {
        Some(_) => work(),
        None => again(settings),
    }
}

#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

/// Prints what a test did, for readers of its output.
#[allow(clippy::print_stdout, reason = "the counts are these tests' output")]
pub(crate) fn report(text: &str) {
    println!("{text}");
}

#[allow(clippy::print_stdout, reason = "what the process says is this test's output")]
fn again(settings: &[(&str, &str)]) {
    let thread = std::thread::current();
    let test = thread.name().expect("tests run in threads of their names");
    let binary = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--nocapture"]).env(CHILD, "1").envs(settings.iter().copied());
    let output = command.output().expect("a program that runs can be started");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "the test {test} was not found in its own binary:\n{out}");
    for line in out.lines().filter(|line| line.starts_with("compared")) {
        println!("{line}");
    }
}

/// The folder of the fakes, built if it is not there; `None` without g++, or on a device.
pub(crate) fn folder() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| if on_device() { None } else { build() }).as_deref()
}

fn build() -> Option<PathBuf> {
    let version = Command::new("g++").arg("--version").output().ok().filter(|output| output.status.success())?;
    let sources = [
        ("emulator.h", include_str!("../cuda_emulator/emulator.h")),
        ("groups.h", include_str!("../cuda_emulator/groups.h")),
        ("machine.h", include_str!("../cuda_emulator/machine.h")),
        ("groups_machine.h", include_str!("../cuda_emulator/groups_machine.h")),
        ("tensor_maps.h", include_str!("tensor_maps.h")),
        ("libcuda.cpp", include_str!("libcuda.cpp")),
        ("libnvrtc.cpp", include_str!("libnvrtc.cpp")),
        ("libcublasLt.cpp", include_str!("libcublasLt.cpp")),
        ("prelude.cuh", PRELUDE),
        ("with_prelude.h", "#include \"emulator.h\"\n#include \"groups.h\"\n#include \"prelude.cuh\"\n"),
    ];
    let mut hasher = DefaultHasher::new();
    (sources, OF_KERNELS, OF_FAKES, version.stdout).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cuda-{:016x}", hasher.finish()));
    if folder.is_dir() {
        return Some(folder);
    }
    // Another process that builds them at the same time makes the same files.
    let own = folder.with_extension(std::process::id().to_string());
    fs::create_dir_all(&own).expect("a folder can be made");
    for (name, text) in sources {
        fs::write(own.join(name), text).expect("a file can be written");
    }
    let compile = |options: &str, more: &[&str]| {
        let output = Command::new("g++").current_dir(&own).args(options.split_whitespace()).args(more).output();
        let output = output.expect("g++ was there a moment ago");
        assert!(output.status.success(), "g++ refuses a fake:\n{}", String::from_utf8_lossy(&output.stderr));
    };
    let headers =
        ["emulator.h", "groups.h", "machine.h", "groups_machine.h"].map(|header| ["-include", header]).concat();
    let driver = ["-Wl,-soname,libcuda.so", "-o", "libcuda.so.1", "libcuda.cpp", "-ldl", "-lpthread"];
    compile(OF_FAKES, &[&headers[..], &driver[..]].concat());
    let emulator = format!("-DEMULATOR=\"{}\"", folder.display());
    let options = format!("-DOPTIONS=\"{OF_KERNELS}\"");
    let compiler = ["-Wl,-soname,libnvrtc.so", "-o", "libnvrtc.so.13", "libnvrtc.cpp"];
    compile(OF_FAKES, &[&[&*emulator, &*options], &compiler[..]].concat());
    // An old cublasLt lies in a folder of its own.
    fs::create_dir_all(own.join(OLD)).expect("a folder can be made");
    for (option, file) in [("-DNEW", "libcublasLt.so.13".to_owned()), ("-DOLD", format!("{OLD}/libcublasLt.so.13"))] {
        let products = ["-Wl,-soname,libcublasLt.so", "-o", &file, "libcublasLt.cpp", "-L", ".", "-l:libcuda.so.1"];
        compile(OF_FAKES, &[&[option], &products[..]].concat());
    }
    let of_header: String = OF_KERNELS.replace("-shared ", "");
    compile(&of_header, &["-x", "c++-header", "-o", "with_prelude.h.gch", "with_prelude.h"]);
    if fs::rename(&own, &folder).is_err() {
        fs::remove_dir_all(&own).expect("a folder of ours can be removed");
    }
    Some(folder)
}
