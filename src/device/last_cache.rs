//! The size of the processor's last-level cache.

use std::path::Path;
use std::sync::OnceLock;

/// Bytes of the largest cache of the first core, as the system reports it; only Linux does, in files.
pub(crate) fn last_cache_bytes() -> Option<usize> {
    static BYTES: OnceLock<Option<usize>> = OnceLock::new();
    *BYTES.get_or_init(|| largest(Path::new("/sys/devices/system/cpu/cpu0/cache")))
}

/// The largest of the caches that a folder describes.
fn largest(folder: &Path) -> Option<usize> {
    let sizes = std::fs::read_dir(folder).ok()?.flatten();
    let sizes = sizes.filter_map(|cache| std::fs::read_to_string(cache.path().join("size")).ok());
    sizes.filter_map(|text| bytes(text.trim())).max()
}

/// Parses a size such as `32768K`.
fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = match text.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |number| (number, 1 << 20)),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let sizes = ["48K", "32M", "512", "", "K", "many", "99999999999999999999K", "9223372036854775807M"].map(bytes);
        assert_eq!(sizes, [Some(48 << 10), Some(32 << 20), Some(512), None, None, None, None, None]);
    }

    #[test]
    fn the_largest_cache_counts_and_what_cannot_be_read_does_not() {
        let folder = std::env::temp_dir().join(format!("opfuse-caches-{}", std::process::id()));
        for (name, size) in [("index0", "48K\n"), ("index2", "1024K\n"), ("index3", "32M\n"), ("index4", "?\n")] {
            std::fs::create_dir_all(folder.join(name)).expect("a temporary folder can be made");
            std::fs::write(folder.join(name).join("size"), size).expect("a file can be written there");
        }
        assert_eq!(largest(&folder), Some(32 << 20));
        std::fs::remove_dir_all(&folder).expect("it can be removed");
        assert_eq!(largest(&folder), None);
    }
}
