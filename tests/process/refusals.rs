//! The system may refuse memory for code, huge pages, and threads. Calls then take another path, with the same bits.
//!
//! Each case runs in a process of its own, in which a filter refuses certain system calls. On other systems than Linux
//! the tests say that they were skipped.

#![allow(unsafe_code, reason = "a filter of system calls is installed")]
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use opfuse::device::{allocator, pool};
use opfuse::internals::codegen::tier::Tier;
use opfuse::{CompileOptions, Reason, Result, Tensor, compile_with};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Names the case in the process of its own.
const CASE: &str = "OPFUSE_TEST_REFUSED";
/// The result that it has to compute.
const EXPECTED: &str = "OPFUSE_TEST_EXPECTED";

/// A refused system call, and a check of its effect.
#[cfg(target_os = "linux")]
struct Case {
    name: &'static str,
    calls: &'static [libc::c_long],
    /// Only calls with one of these bits in the third argument; 0 for all.
    bits: u32,
    error: libc::c_int,
    check: fn() -> Result<()>,
}

#[cfg(target_os = "linux")]
const CASES: [Case; 3] = [
    Case {
        name: "memory for code",
        calls: &[libc::SYS_mprotect, libc::SYS_mmap, libc::SYS_pkey_mprotect],
        bits: libc::PROT_EXEC as u32,
        error: libc::EACCES,
        check: kernels_run_in_the_vm,
    },
    Case {
        name: "huge pages",
        calls: &[libc::SYS_madvise],
        bits: 0,
        error: libc::EINVAL,
        check: large_blocks_are_there,
    },
    Case {
        name: "threads",
        calls: &[libc::SYS_clone, libc::SYS_clone3],
        bits: 0,
        error: libc::EAGAIN,
        check: loops_end,
    },
];

fn kernels_run_in_the_vm() -> Result<()> {
    for tier in [None, Some(Tier::X64), Some(Tier::Cranelift)] {
        let f = compile_with(chain, CompileOptions { tier, ..CompileOptions::default() });
        let x = input()?;
        f.call(&x)?;
        f.call(&x)?;
        let explain = f.explain();
        for group in &explain.groups {
            assert_eq!(group.tier, Some(Tier::Vm), "{tier:?}: {explain}");
            assert!(matches!(group.declined, Some(Reason::TierCannot(_))), "{tier:?}: {explain}");
        }
        assert!(!explain.groups.is_empty(), "{tier:?}: {explain}");
    }
    Ok(())
}

fn large_blocks_are_there() -> Result<()> {
    let block = allocator::allocate(8 << 20)?;
    assert!(block.as_bytes().iter().all(|&byte| byte == 0));
    Ok(())
}

fn loops_end() -> Result<()> {
    pool::set_num_threads(4);
    let sum = AtomicUsize::new(0);
    pool::run(100, 4, &|task| {
        sum.fetch_add(task, Ordering::Relaxed);
    });
    assert_eq!(sum.into_inner(), 4950);
    Ok(())
}

/// Enough elements for machine code and several threads.
fn input() -> Result<Tensor> {
    let values: Vec<f32> = (0..400_000).map(|i| (i as f32 * 0.37).sin()).collect();
    Tensor::from_slice(&values, &[400, 1000])
}

fn chain(x: &Tensor) -> Result<Tensor> {
    ((x * 2.0)?.exp()? + x)?.tanh()?.sum([-1], false)
}

/// The bits of eager and compiled calls, in short.
fn digest() -> Result<String> {
    let x = input()?;
    let f = compile_with(chain, CompileOptions::default());
    let results = [chain(&x)?, f.call(&x)?, f.call(&x)?, x.matmul(&x.t()?)?, (&x + &x)?];
    let mut hasher = DefaultHasher::new();
    for result in results {
        result.to_vec::<f32>()?.iter().for_each(|value| value.to_bits().hash(&mut hasher));
    }
    Ok(format!("{:x}", hasher.finish()))
}

/// From now on the system refuses these calls of this thread, and of threads that it starts.
#[cfg(target_os = "linux")]
fn refuse(case: &Case) -> std::io::Result<()> {
    let op = |code: u32, jt: usize, jf: usize, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jt as u8,
        jf: jf as u8,
        k,
    };
    let load = |offset: u32| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let answer = |value: u32| op(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    // Where the number of the call and its third argument are in `seccomp_data`.
    let (number, third) = (0, 16 + 2 * 8);
    let mut program = vec![load(number)];
    let n = case.calls.len();
    for (index, &call) in case.calls.iter().enumerate() {
        // Jumps to the check of the argument, or to the end, which allows the call.
        let miss = if index + 1 == n { 3 } else { 0 };
        program.push(op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, n - 1 - index, miss, call as u32));
    }
    program.push(load(third));
    let bits = if case.bits == 0 {
        op(libc::BPF_JMP | libc::BPF_JA, 0, 0, 0)
    } else {
        op(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, case.bits)
    };
    program.extend([bits, answer(libc::SECCOMP_RET_ERRNO | case.error as u32), answer(libc::SECCOMP_RET_ALLOW)]);
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter and its program are alive during the calls, which touch no other memory.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(target_os = "linux")]
#[test]
fn refused_system_calls_keep_the_bits() -> Result<()> {
    if let Ok(name) = std::env::var(CASE) {
        let case = CASES.iter().find(|case| case.name == name).expect("the parent names a case");
        if let Err(error) = refuse(case) {
            println!("skipped: this system takes no filters: {error}");
            return Ok(());
        }
        (case.check)()?;
        assert_eq!(Some(digest()?), std::env::var(EXPECTED).ok(), "{name}: other bits");
        return Ok(());
    }
    let expected = digest()?;
    let myself = std::env::current_exe().expect("a test has a path");
    for Case { name, .. } in &CASES {
        let arguments = ["refusals::refused_system_calls_keep_the_bits", "--exact", "--nocapture"];
        let mut command = std::process::Command::new(&myself);
        let output = command.args(arguments).env(CASE, name).env(EXPECTED, &expected).output().expect("it starts");
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("1 passed"), "{name}: {}\n{text}", output.status);
        text.lines().filter(|line| line.contains("skipped")).for_each(|line| println!("{name}: {line}"));
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
#[test]
fn refused_system_calls_keep_the_bits() {
    println!("skipped: the test needs Linux");
}
