//! Kernels' source, compiled by g++ with `emulator.h`, and run in a process of its own.
//!
//! It is a process and not a library for two reasons. A kernel that leaves its memory ends that process with a message,
//! and not the tests. And no test needs unsafe code. Many kernels are compiled at once, because the start of a
//! compilation takes most of its time. `OPFUSE_CUDA_TEXTS=folder` leaves the sources there, for `scripts/nvrtc.py`.

use opfuse::internals::codegen::cuda::wgmma::TileMap;
use opfuse::internals::codegen::cuda::{EntryLaunch, PRELUDE, Plan, Source, Target, argument};
use opfuse::internals::codegen::kernel::{Kernel, Source as From};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The orders in which threads run: in turn, and each warp as long as it can, from either end.
pub(crate) const SCHEDULES: [usize; 4] = [0, 1, 2, 3];

/// The site of launches in the fault record.
pub(crate) const SITE: u64 = 0x1234_5678_9abc;

/// Whether there is a compiler; reports that tests were skipped if there is none.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn is_available() -> bool {
    let found = Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: g++ is not there, so generated CUDA was not run on the emulator");
    }
    found
}

/// A change of a source that has to be detected: its name, from, to.
pub(crate) type Bug = (&'static str, &'static str, &'static str);

/// Checks that every bug is detected. `run` runs changed sources, and returns the first difference.
pub(crate) fn assert_seen(bugs: &[Bug], run: impl Fn(&dyn Fn(String) -> String) -> Result<(), String>) {
    for (name, from, to) in bugs {
        let seen = run(&|text| {
            assert!(text.contains(from), "{name}: {from:?} is not there\n{text}");
            text.replace(from, to)
        });
        assert!(seen.is_err(), "{name} is not detected");
    }
}

/// Kernels and their launches.
#[derive(Default)]
pub(crate) struct Batch {
    text: String,
    /// A function per entry, which takes its argument buffer by address.
    calls_of_entries: String,
    table: String,
    n_entries: usize,
    calls: Vec<u64>,
    n_calls: usize,
    /// Per call, the bytes of its buffers.
    sizes: Vec<Vec<usize>>,
}

/// A buffer of a launch, the remainder of its address by 16, and the bytes between its halves.
pub(crate) struct Buffer<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) remainder: usize,
    pub(crate) apart: usize,
}

impl Batch {
    /// The name for the next source.
    pub(crate) fn name(&self) -> String {
        format!("k{}", self.n_entries)
    }

    /// Adds a source written under [`Batch::name`]; returns its number.
    pub(crate) fn add(&mut self, source: &Source) -> usize {
        let first = self.n_entries;
        self.text.push_str(&source.code);
        for entry in &source.entries {
            let (number, n_words) = (self.n_entries, source.n_words);
            let call = match source.target {
                Target::Any => format!("{entry}(*(const Words<{n_words}>*)w);"),
                Target::Sm90a { .. } => {
                    format!("MappedWords<{n_words}> mapped; memcpy(&mapped, w, sizeof mapped); {entry}(mapped);")
                }
            };
            self.calls_of_entries.push_str(&format!("static void call_{number}(const u64* w) {{ {call} }}\n"));
            self.table.push_str(&format!("    {{call_{number}, {n_words}, {}}},\n", source.target.shared_bytes()));
            self.n_entries += 1;
        }
        first
    }

    /// Adds the launches of a plan of `source`. Buffers are those of the operands, then of the outputs.
    pub(crate) fn call(&mut self, source: usize, kernel: &Kernel, plan: &Plan, buffers: &[Buffer<'_>]) {
        let layout = plan.variant.layout;
        let is_iota = |slot: usize| kernel.operands.get(slot).is_some_and(|operand| operand.source == From::Iota);
        let accesses = (0..buffers.len()).filter(|&slot| !is_iota(slot)).map(|slot| (layout.address(slot), slot));
        let pointers: Vec<(usize, usize)> =
            accesses.chain([(argument::FAULTS, buffers.len()), (argument::SCRATCH, buffers.len() + 1)]).collect();
        let (faults, scratch) = ([0; 8 * argument::FAULT_WORDS], vec![0xff; plan.scratch_bytes]);
        let extra =
            [Buffer { bytes: &faults, remainder: 0, apart: 0 }, Buffer { bytes: &scratch, remainder: 0, apart: 0 }];
        let all: Vec<&Buffer<'_>> = buffers.iter().chain(&extra).collect();
        let mut argument = plan.argument.clone();
        argument[argument::SITE] = SITE;
        self.launch(source, &argument, &plan.steps, &pointers, &all);
    }

    /// Adds launches of `source`. The address of a buffer is added to each word that is paired with it.
    pub(crate) fn launch(
        &mut self,
        source: usize,
        argument: &[u64],
        steps: &[EntryLaunch],
        pointers: &[(usize, usize)],
        buffers: &[&Buffer<'_>],
    ) {
        self.launch_mapped(source, argument, steps, pointers, &[], buffers);
    }

    /// The same of a source whose argument buffer holds tensor maps, which are made once addresses are added.
    pub(crate) fn launch_mapped(
        &mut self,
        source: usize,
        argument: &[u64],
        steps: &[EntryLaunch],
        pointers: &[(usize, usize)],
        maps: &[TileMap],
        buffers: &[&Buffer<'_>],
    ) {
        self.calls.push(buffers.len() as u64);
        for buffer in buffers {
            self.calls.extend([buffer.bytes.len(), buffer.remainder, buffer.apart].map(|word| word as u64));
            let chunk = |chunk: &[u8]| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            };
            self.calls.extend(buffer.bytes.chunks(8).map(chunk));
        }
        self.sizes.push(buffers.iter().map(|buffer| buffer.bytes.len()).collect());
        self.calls.push(argument.len() as u64);
        self.calls.extend(argument);
        self.calls.push(pointers.len() as u64);
        pointers.iter().for_each(|&(word, buffer)| self.calls.extend([word as u64, buffer as u64]));
        self.calls.push(maps.len() as u64);
        for TileMap { address, at, tiles } in maps {
            self.calls.extend([*address as u64, *at as u64]);
            self.calls.extend(tiles.sizes.iter().chain(&tiles.strides));
            self.calls.extend(tiles.tile.map(u64::from));
            self.calls.push(tiles.dtype.size() as u64);
        }
        self.calls.push(steps.len() as u64);
        for step in steps {
            let [x, y] = step.block.map(u64::from);
            self.calls.extend([(source + step.entry) as u64, step.grid as u64, x, y, step.items]);
        }
        self.n_calls += 1;
    }

    /// Compiles all sources, after `mutate` has changed them.
    pub(crate) fn compile(&self, mutate: impl Fn(String) -> String) -> Program {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("opfuse-cuda-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder can be made");
        let program = Program { folder, sizes: self.sizes.clone() };
        let text = mutate(format!("{PRELUDE}{}", self.text));
        if let Some(folder) = std::env::var_os("OPFUSE_CUDA_TEXTS") {
            fs::write(Path::new(&folder).join(format!("{number}.cu")), &text).expect("the folder for texts is there");
        }
        let parts = [
            include_str!("emulator.h").to_owned(),
            include_str!("groups.h").to_owned(),
            text,
            self.calls_of_entries.clone(),
            format!("enum {{ ITEMS_WORD = {} }};\n", argument::ITEMS),
            "struct Emulated { void (*call)(const u64*); unsigned n_words, launched_bytes; };\n".to_owned(),
            format!("static const Emulated EMULATED[] = {{\n{}}};\n", self.table),
            include_str!("machine.h").to_owned(),
            include_str!("groups_machine.h").to_owned(),
            include_str!("driver.cpp").to_owned(),
        ];
        fs::write(program.file("kernels.cpp"), parts.join("\n")).expect("a temporary file can be written");
        let calls: Vec<u8> =
            [self.n_calls as u64].iter().chain(&self.calls).flat_map(|word| word.to_le_bytes()).collect();
        fs::write(program.file("launches"), calls).expect("a temporary file can be written");
        // A sanitizer finds misaligned vectors, which a device would refuse.
        let options = "-O1 -std=c++17 -w -Wno-psabi -ffp-contract=off -fno-strict-aliasing -fsanitize=alignment \
                       -fsanitize-undefined-trap-on-error -o";
        let output = Command::new("g++")
            .args(options.split_whitespace())
            .args([program.file("program"), program.file("kernels.cpp")])
            .output()
            .expect("g++ was there a moment ago");
        assert!(output.status.success(), "g++ refuses a text:\n{}", String::from_utf8_lossy(&output.stderr));
        program
    }
}

/// Compiled kernels and their launches; the files go with it.
pub(crate) struct Program {
    folder: PathBuf,
    sizes: Vec<Vec<usize>>,
}

impl Program {
    fn file(&self, name: &str) -> PathBuf {
        Path::new(&self.folder).join(name)
    }

    /// Runs all launches under a schedule, and returns the contents of the buffers of each. The last two are the fault
    /// record and the scratch memory.
    ///
    /// # Errors
    /// What the process said when it ended early.
    pub(crate) fn run(&self, schedule: usize) -> Result<Vec<Vec<Vec<u8>>>, String> {
        let mut command = Command::new(self.file("program"));
        command.args([self.file("launches"), self.file("answers")]).arg(schedule.to_string());
        let output = command.output().expect("a program that was just linked can be started");
        if !output.status.success() {
            return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        let answers = fs::read(self.file("answers")).expect("the process has written its answer");
        let mut rest = &answers[..];
        let mut take = |bytes: usize| {
            let (buffer, others) = rest.split_at(bytes);
            rest = others;
            buffer.to_vec()
        };
        Ok(self.sizes.iter().map(|sizes| sizes.iter().map(|&bytes| take(bytes)).collect()).collect())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
