//! Products of groups of rows, each with a matrix of its own: the experts of a mixture.
//!
//! The rows of a group follow one another, and end where its entry of `offs` says. No offset is read: each row finds
//! its group by comparing, so that a program is captured as a whole. A row has the bits of its product with its matrix.

use crate::dispatch::library::Library;
use crate::error::{Error, Result};
use crate::ir::DType;
use crate::ops::arguments::need_float;
use crate::ops::factories::range_on;
use crate::tensor::handle::Tensor;

/// From this many rows on, all rows are multiplied with each matrix instead of copying a matrix per row.
const MANY_ROWS: usize = 32;

pub(crate) fn register(library: &mut Library) -> Result<()> {
    library.def_kernel(
        "_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> \
         Tensor",
        |rows: &Tensor, matrices: &Tensor, ends: Option<&Tensor>, bias: Option<&Tensor>, dtype: Option<DType>| {
            let ends =
                ends.ok_or_else(|| Error::argument("_grouped_mm", "offs is missing; use bmm for equal groups"))?;
            let products = grouped("_grouped_mm", rows, matrices, ends)?;
            let sums = bias.map_or_else(|| Ok(products.clone()), |bias| products.add(bias))?;
            sums.to_dtype(dtype.unwrap_or(rows.dtype()))
        },
    )?;
    Ok(())
}

/// Operators that models of the transformers library call.
pub(crate) fn register_outside(libraries: &mut Vec<Library>) -> Result<()> {
    let mut library = Library::fragment("transformers")?;
    library.def_kernel(
        "grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor",
        |rows: &Tensor, matrices: &Tensor, ends: &Tensor| grouped("grouped_mm_fallback", rows, matrices, ends),
    )?;
    libraries.push(library);
    Ok(())
}

fn grouped(op: &str, rows: &Tensor, matrices: &Tensor, ends: &Tensor) -> Result<Tensor> {
    need_float(op, &[rows, matrices])?;
    let fits = match (rows.sizes(), matrices.sizes(), ends.sizes()) {
        (&[_, inner], &[groups, from, _], &[n_ends]) => inner == from && groups == n_ends && groups > 0,
        (_, _, _) => false,
    };
    if !fits {
        let what = format!("rows {:?}, matrices {:?}, ends {:?}", rows.sizes(), matrices.sizes(), ends.sizes());
        return Err(Error::shape(op, what, "they are (S, K), (G, K, N) and (G)"));
    }
    let (n_rows, groups) = (rows.sizes()[0], matrices.sizes()[0]);
    let numbers = range_on(rows.device(), 0, n_rows as i64, Some(ends.dtype()))?.unsqueeze(1)?;
    // How many groups end before the row, and the start of each group.
    let group = numbers.ge(ends)?.to_dtype(DType::I64)?.sum(1, false)?;
    if n_rows < MANY_ROWS {
        let own = matrices.index_select(0, &group.clamp_max(groups as i64 - 1)?)?;
        let products = rows.unsqueeze(1)?.matmul(&own)?.squeeze(1)?;
        // Rows after the last group belong to none.
        return products.masked_fill(&group.ge(groups as i64)?.unsqueeze(1)?, 0.0);
    }
    let mut result: Option<Tensor> = None;
    for at in 0..groups as i64 {
        let products = rows.matmul(&matrices.select(0, at)?)?;
        let is_own = group.eq(at)?.unsqueeze(1)?;
        result = Some(match result {
            None => is_own.where_(&products, 0.0)?,
            Some(others) => is_own.where_(&products, &others)?,
        });
    }
    result.ok_or_else(|| Error::Internal { message: "there is a group".into() })
}
