//! Where do batches come from, and how good are the answers? Data sets, loaders, metrics.
//!
//! A loader's order follows from a seed and the number of the epoch alone. So a run that is resumed sees the batches
//! that it would have seen. Files of arrays are read by [`load`](crate::load). Comma-separated values, Parquet files
//! and images are read here, with the features `csv`, `parquet` and `images`. Progress bars and downloads are
//! deliberately absent.

#[cfg(feature = "csv")]
pub mod csv;
mod dataset;
#[cfg(feature = "images")]
pub mod images;
mod loader;
mod metrics;
#[cfg(feature = "parquet")]
pub mod parquet;
#[cfg(any(feature = "csv", feature = "parquet"))]
mod table;
mod workers;

pub use dataset::{Dataset, TensorDataset};
pub use loader::{Epoch, Loader};
pub use metrics::{Accuracy, Auc, ConfusionMatrix, Perplexity};
