//! Executable memory: pages of a shared reserve, which are writable until code is in them, and executable from then on.
//!
//! A program has whole pages, so no page is writable and executable at once. Pages of dropped programs are reused. A
//! reserve whose pages are all free is unmapped.

#![allow(unsafe_code, reason = "maps memory and makes it executable")]

use crate::codegen::native::code::{Code, Memory};
use crate::error::{Reason, TierLimit};
use std::sync::{Mutex, PoisonError};

/// The granularity of page protection.
const PAGE: usize = 4096;
/// Pages of a reserve. A program that needs more gets a mapping of its own.
const RESERVE_PAGES: usize = 64;

/// Memory mapped from the system.
#[derive(Debug)]
struct Reserve {
    address: usize,
    n_pages: usize,
    /// A bit per page in use; for a mapping of one program, the first bit.
    used: u64,
}

static RESERVES: Mutex<Vec<Reserve>> = Mutex::new(Vec::new());

/// The pages of one program.
struct Pages {
    address: usize,
    n_pages: usize,
}

impl Memory for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        let mut reserves = RESERVES.lock().unwrap_or_else(PoisonError::into_inner);
        let inside =
            |reserve: &Reserve| (reserve.address..reserve.address + reserve.n_pages * PAGE).contains(&self.address);
        let at = reserves.iter().position(inside).expect("pages belong to a reserve");
        let reserve = &mut reserves[at];
        reserve.used &= !mask((self.address - reserve.address) / PAGE, self.n_pages);
        if reserve.used == 0 && (reserves.len() > 1 || reserves[at].n_pages > RESERVE_PAGES) {
            let reserve = reserves.swap_remove(at);
            unmap(reserve.address, reserve.n_pages * PAGE);
        }
    }
}

/// The bits of `n` pages starting at `first`. A count beyond a reserve gives all bits.
fn mask(first: usize, n: usize) -> u64 {
    if n >= RESERVE_PAGES { u64::MAX } else { ((1 << n) - 1) << first }
}

/// Makes position-independent code executable. Its entry is its first byte.
///
/// # Errors
/// If the system gives no memory for code.
pub(super) fn load(bytes: &[u8]) -> Result<Code, Reason> {
    let n_pages = bytes.len().div_ceil(PAGE).max(1);
    let address = take(n_pages)?;
    let pages = Pages { address, n_pages };
    protect(address, n_pages * PAGE, false)?;
    // SAFETY: the pages were taken just now, so nothing else reads, writes or runs them, and they are writable.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    protect(address, n_pages * PAGE, true)?;
    // SAFETY: `bytes` are a function that starts at the first byte and follows the System V convention, which is that
    // of C on the systems this is built for. `pages` keeps them until it is dropped.
    Ok(unsafe { Code::new(address as *const u8, bytes.len(), Box::new(pages)) })
}

/// Takes free pages and returns their address.
fn take(n_pages: usize) -> Result<usize, Reason> {
    let mut reserves = RESERVES.lock().unwrap_or_else(PoisonError::into_inner);
    if n_pages <= RESERVE_PAGES {
        for reserve in reserves.iter_mut().filter(|reserve| reserve.n_pages == RESERVE_PAGES) {
            let fits = |&first: &usize| reserve.used & mask(first, n_pages) == 0;
            if let Some(first) = (0..=RESERVE_PAGES - n_pages).find(fits) {
                reserve.used |= mask(first, n_pages);
                return Ok(reserve.address + first * PAGE);
            }
        }
    }
    let size = n_pages.max(RESERVE_PAGES);
    let address = map(size * PAGE)?;
    reserves.push(Reserve { address, n_pages: size, used: mask(0, n_pages) });
    Ok(address)
}

#[cfg(unix)]
fn map(bytes: usize) -> Result<usize, Reason> {
    // SAFETY: a new mapping touches no memory that exists.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if address == libc::MAP_FAILED { Err(refused()) } else { Ok(address as usize) }
}

#[cfg(unix)]
fn protect(address: usize, bytes: usize, runs: bool) -> Result<(), Reason> {
    let access = if runs { libc::PROT_READ | libc::PROT_EXEC } else { libc::PROT_READ | libc::PROT_WRITE };
    // SAFETY: the pages belong to the program that is being loaded, and nothing runs in them yet.
    let result = unsafe { libc::mprotect(address as *mut libc::c_void, bytes, access) };
    if result == 0 { Ok(()) } else { Err(refused()) }
}

#[cfg(unix)]
fn unmap(address: usize, bytes: usize) {
    // SAFETY: the mapping came from `map`, and no program has pages in it.
    unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
}

fn refused() -> Reason {
    TierLimit::NoCodeMemory { error: std::io::Error::last_os_error().to_string().into() }.into()
}

#[cfg(not(unix))]
fn map(_: usize) -> Result<usize, Reason> {
    Err(refused())
}

#[cfg(not(unix))]
fn protect(_: usize, _: usize, _: bool) -> Result<(), Reason> {
    Err(refused())
}

#[cfg(not(unix))]
fn unmap(_: usize, _: usize) {}
