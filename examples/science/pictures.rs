//! PNG files, also animated ones, without a library: rows are stored and not packed.
//!
//! Formats: "Portable Network Graphics Specification", third edition (W3C 2025), which has animation, RFC 1950 and
//! RFC 1951. Browsers show an animation as a video; other programs show its first frame.

use crate::run::file_error;
use opfuse::{DType, Error, Result, Tensor};
use std::path::Path;

/// Milliseconds that a frame of an animation is shown.
const DELAY: u16 = 60;

/// A byte that is gray in all palettes, so that it can mark a place.
pub(crate) const GRAY: u8 = 255;

/// The color of a byte below [`GRAY`].
#[derive(Clone, Copy)]
pub(crate) enum Colors {
    /// From black over red and yellow to white.
    Hot,
    /// From blue over white to red.
    Signed,
}

impl Colors {
    fn palette(self) -> Vec<u8> {
        let color = |at: i32| match self {
            Colors::Hot => [3 * at, 3 * at - 255, 3 * at - 510],
            Colors::Signed => [2 * at, 255 - (2 * at - 255).abs(), 510 - 2 * at],
        };
        let bytes = (0..255).flat_map(color).map(|part| part.clamp(0, 255) as u8);
        bytes.chain([100; 3]).collect()
    }
}

/// Numbers from `low` to `high` as bytes of a palette.
pub(crate) fn scaled(x: &Tensor, low: f64, high: f64) -> Result<Tensor> {
    bytes(&x.sub(low)?.div(high - low)?, GRAY - 1)
}

/// Numbers from 0 to 1 as bytes from 0 to `most`.
fn bytes(x: &Tensor, most: u8) -> Result<Tensor> {
    x.mul(f64::from(most))?.round()?.clamp_min(0)?.clamp_max(i64::from(most))?.to_dtype(DType::U8)
}

/// Saves bytes `(frames, height, width)` in colors. Several frames make an animation.
pub(crate) fn save_frames(path: &Path, frames: &Tensor, colors: Colors) -> Result<()> {
    let &[n_frames, height, width] = frames.sizes() else {
        return Err(Error::argument("save_frames", format!("frames are {}, not (frames, height, width)", frames.ty())));
    };
    let mut png = Png::begin(height, width, COLORS_OF_A_PALETTE);
    png.chunk(b"PLTE", &colors.palette());
    if n_frames > 1 {
        // 0: played for ever.
        png.chunk(b"acTL", &[(n_frames as u32).to_be_bytes(), [0; 4]].concat());
    }
    let mut n_chunks = 0u32;
    for at in 0..n_frames {
        let data = stored(&frames.i(at)?.to_vec()?, width);
        if n_frames > 1 {
            let size = [width as u32, height as u32, 0, 0].map(u32::to_be_bytes).concat();
            let time = [DELAY, 1000].map(u16::to_be_bytes).concat();
            png.chunk(b"fcTL", &[&n_chunks.to_be_bytes(), &size[..], &time, &[0, 0]].concat());
            n_chunks += 1;
        }
        if at == 0 {
            png.chunk(b"IDAT", &data);
        } else {
            png.chunk(b"fdAT", &[&n_chunks.to_be_bytes()[..], &data].concat());
            n_chunks += 1;
        }
    }
    png.save(path)
}

/// Saves numbers from 0 to 1, `(height, width, 3)`, as a picture.
pub(crate) fn save_rgb(path: &Path, picture: &Tensor) -> Result<()> {
    let &[height, width, 3] = picture.sizes() else {
        return Err(Error::argument("save_rgb", format!("the picture is {}, not (height, width, 3)", picture.ty())));
    };
    let mut png = Png::begin(height, width, RED_GREEN_BLUE);
    png.chunk(b"IDAT", &stored(&bytes(picture, 255)?.to_vec()?, 3 * width));
    png.save(path)
}

const RED_GREEN_BLUE: u8 = 2;
const COLORS_OF_A_PALETTE: u8 = 3;

/// A file that is being written.
struct Png(Vec<u8>);

impl Png {
    fn begin(height: usize, width: usize, form: u8) -> Png {
        let mut png = Png(b"\x89PNG\r\n\x1a\n".to_vec());
        let size = [width as u32, height as u32].map(u32::to_be_bytes).concat();
        png.chunk(b"IHDR", &[&size[..], &[8, form, 0, 0, 0]].concat());
        png
    }

    fn chunk(&mut self, name: &[u8; 4], data: &[u8]) {
        self.0.extend((data.len() as u32).to_be_bytes());
        let begin = self.0.len();
        self.0.extend(name);
        self.0.extend(data);
        let sum = crc32(&self.0[begin..]);
        self.0.extend(sum.to_be_bytes());
    }

    fn save(mut self, path: &Path) -> Result<()> {
        self.chunk(b"IEND", &[]);
        std::fs::write(path, self.0).map_err(|error| file_error(path, error))
    }
}

/// Rows, each after the number of its filter, which is none, in the form of RFC 1950.
fn stored(pixels: &[u8], row: usize) -> Vec<u8> {
    let rows: Vec<u8> = pixels.chunks(row).flat_map(|row| std::iter::once(&0).chain(row)).copied().collect();
    let mut out = vec![0x78, 0x01];
    let mut blocks = rows.chunks(0xFFFF).peekable();
    while let Some(block) = blocks.next() {
        let length = block.len() as u16;
        out.push(u8::from(blocks.peek().is_none()));
        out.extend([length, !length].map(u16::to_le_bytes).concat());
        out.extend(block);
    }
    out.extend(adler32(&rows).to_be_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let shifted = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), shifted))
}

fn adler32(bytes: &[u8]) -> u32 {
    let next = |(a, b): (u32, u32), &byte: &u8| {
        let a = (a + u32::from(byte)) % 65521;
        (a, (b + a) % 65521)
    };
    let (a, b) = bytes.iter().fold((1, 0), next);
    (b << 16) | a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_their_definitions() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(adler32(b"Wikipedia"), 0x11E6_0398);
    }

    #[test]
    fn rows_are_stored_in_blocks_of_limited_size() {
        let packed = stored(&[7; 70_000], 1000);
        // Two bytes of the header, five before each of two blocks, a filter per row, four of the checksum.
        assert_eq!(packed.len(), 2 + 2 * 5 + 70_000 + 70 + 4);
        assert_eq!((packed[2], packed[2 + 5 + 0xFFFF]), (0, 1));
    }
}
