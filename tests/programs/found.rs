//! Programs that failed once, as they were printed.
//!
//! A printed program goes here when what it found is mended.

#![allow(unused_imports, reason = "a printed program needs some of these")]

use super::calls::{
    call, counting, first, first_of, gradient, gradients, inference, item, leaf, lower, not_lower, over, quiet,
    recording,
};
use super::compare::check;
use super::given::{Before, Made};
use super::methods::Tensors;
use super::program::Guard::{Autocast, EnableGrad, Inference, Mode, NoAutocast, NoGrad};
use super::program::{After, Feed, Settings};
use opfuse::dispatch::Value;
use opfuse::{DType, Ellipsis, Index, MemoryFormat, NewAxis, Result, Scalar, Tensor, bf16, compile, f16, vmap};
