//! Whether two runs ended alike.

use opfuse::nn::Module;
use opfuse::{Result, Tensor};

/// Fails if a tensor of one model has other bits in the other.
pub(crate) fn assert_same_bits(one: &impl Module, other: &impl Module) -> Result<()> {
    let bits =
        |x: &Tensor| -> Result<Vec<u32>> { Ok(x.detach()?.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect()) };
    let (one, other) = (one.named_parameters(), other.named_parameters());
    assert_eq!(one.len(), other.len());
    for ((name, a), (_, b)) in one.iter().zip(&other) {
        assert_eq!(bits(a)?, bits(b)?, "{name} of the resumed run");
    }
    Ok(())
}
