//! Images: files as tensors, and folders of them as data sets.

use super::dataset::Dataset;
use crate::error::{Error, Result};
use crate::formats::file::fail;
use crate::tensor::Tensor;
use image::imageops::FilterType;
use image::{DynamicImage, ImageReader};
use std::path::{Path, PathBuf};

/// What is kept of the colors of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channels {
    /// Brightness alone.
    Gray,
    /// Red, green and blue.
    #[default]
    Rgb,
    /// Red, green, blue, and opacity.
    Rgba,
}

/// How images are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageOptions {
    /// What is kept of the colors.
    pub channels: Channels,
    /// Height and width to resize to, by triangles. Without them sizes are those of the file.
    pub size: Option<[u32; 2]>,
}

/// Reads a PNG or JPEG file: `(C, H, W)` in f32, from 0 to 1. The bytes say which of the two it is.
///
/// # Errors
/// If the file cannot be read, is damaged, or is larger than 512 MiB when decoded. The error names the file.
pub fn read_image(path: impl AsRef<Path>, options: &ImageOptions) -> Result<Tensor> {
    let path = path.as_ref();
    let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
    let image = reader.map_err(|error| fail(path, error))?.decode();
    let image = image.map_err(|error| fail(path, format!("it is no readable PNG or JPEG file: {error}")))?;
    let image = match options.size {
        Some([0, _] | [_, 0]) => return Err(fail(path, "the size to resize to has a 0; ask for at least 1 by 1")),
        Some([height, width]) => image.resize_exact(width, height, FilterType::Triangle),
        None => image,
    };
    tensor(&image, options.channels)
}

fn tensor(image: &DynamicImage, channels: Channels) -> Result<Tensor> {
    let (height, width) = (image.height() as usize, image.width() as usize);
    // Values of 16 bits per channel hold those of 8 bits: 65535 = 257 * 255.
    let (pixels, n) = match channels {
        Channels::Gray => (image.to_luma16().into_raw(), 1),
        Channels::Rgb => (image.to_rgb16().into_raw(), 3),
        Channels::Rgba => (image.to_rgba16().into_raw(), 4),
    };
    let pixels: Vec<f32> = pixels.into_iter().map(|value| f32::from(value) / 65535.0).collect();
    Tensor::from_vec(pixels, &[height, width, n])?.permute([2, 0, 1])?.contiguous()
}

/// Images in folders: the name of a folder is the class of its images, as in PyTorch's `ImageFolder`. A sample is an
/// image and the number of its class.
///
/// Classes and files are sorted by name. Samples of a batch need one size, so set [`ImageOptions::size`] unless the
/// files have it.
#[derive(Debug, Clone)]
pub struct ImageFolder {
    /// The names of the classes, sorted.
    pub classes: Vec<String>,
    files: Vec<(PathBuf, i64)>,
    options: ImageOptions,
}

impl ImageFolder {
    /// The PNG and JPEG files in the folders in `root`. Other files are left out.
    ///
    /// # Errors
    /// If a folder cannot be listed, or if there is no such file.
    pub fn new(root: impl AsRef<Path>, options: ImageOptions) -> Result<ImageFolder> {
        let root = root.as_ref();
        let mut classes = Vec::new();
        let mut files = Vec::new();
        for folder in entries(root)?.into_iter().filter(|entry| entry.is_dir()) {
            let class = classes.len() as i64;
            classes.push(folder.file_name().unwrap_or_default().to_string_lossy().into_owned());
            files.extend(entries(&folder)?.into_iter().filter(|file| is_image(file)).map(|file| (file, class)));
        }
        if files.is_empty() {
            return Err(fail(root, "there are no PNG or JPEG files in its folders; it needs a folder for each class"));
        }
        Ok(ImageFolder { classes, files, options })
    }

    /// The file of a sample.
    pub fn file(&self, index: usize) -> Option<&Path> {
        self.files.get(index).map(|(file, _)| file.as_path())
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail = |error| fail(folder, error);
    let all = std::fs::read_dir(folder).map_err(fail)?.map(|entry| entry.map(|entry| entry.path()));
    let mut all = all.collect::<std::io::Result<Vec<_>>>().map_err(fail)?;
    all.sort();
    Ok(all)
}

fn is_image(file: &Path) -> bool {
    let ending = file.extension().unwrap_or_default().to_ascii_lowercase();
    ["png", "jpg", "jpeg"].iter().any(|known| ending == *known) && file.is_file()
}

impl Dataset for ImageFolder {
    type Item = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, Tensor)> {
        let Some((file, class)) = self.files.get(index) else {
            let what = format!("there are {} images, and no number {index}", self.files.len());
            return Err(Error::argument("ImageFolder", what));
        };
        Ok((read_image(file, &self.options)?, Tensor::from_slice(&[*class], &[])?))
    }
}
