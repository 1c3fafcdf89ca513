//! What the system says about this process: its memory. Zero where the system does not tell.

const MIB: f64 = 1024.0;

/// MiB in memory now.
pub(crate) fn resident() -> f64 {
    status("VmRSS:")
}

/// The most MiB in memory since [`reset_peak`].
pub(crate) fn peak() -> f64 {
    status("VmHWM:")
}

/// Starts measuring [`peak`] anew.
pub(crate) fn reset_peak() {
    // Where it fails, the peak is that of the whole process, which is an upper bound.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// A line of the process's status, which counts in KiB.
fn status(key: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0) / MIB
}
