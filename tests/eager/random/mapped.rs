//! Random operators inside `vmap` (136): an error unless a mode is chosen.

use super::{numbers, turn};
use opfuse::{DType, Randomness, Result, Tensor, vmap};

#[test]
fn random_operators_are_errors_unless_a_mode_is_chosen() -> Result<()> {
    let _turn = turn();
    let x = Tensor::ones(&[3, 4], DType::F32)?;
    let functions: [fn(&Tensor) -> Result<Tensor>; 4] =
        [Tensor::rand_like, Tensor::bernoulli, |x| x.dropout(0.5, true), |x| x.add(&Tensor::randperm(4)?)];
    for function in functions {
        let error = vmap(function).call(&x).expect_err("no mode was chosen").to_string();
        assert!(error.contains("inside vmap") && error.contains("Randomness::Different"), "{error}");
    }
    Ok(())
}

#[test]
fn slices_get_numbers_of_their_own() -> Result<()> {
    let _turn = turn();
    let x = Tensor::zeros(&[3, 4], DType::F32)?;
    opfuse::manual_seed(1);
    let mapped = vmap(|x: &Tensor| x.add(&x.rand_like()?)).randomness(Randomness::Different).call(&x)?;
    opfuse::manual_seed(1);
    assert_eq!(numbers(&mapped), numbers(&Tensor::rand(&[3, 4], DType::F32)?));

    let permutations = vmap(|x: &Tensor| x.add(&Tensor::randperm(4)?)).randomness(Randomness::Different);
    for row in numbers(&permutations.call(&x)?).chunks(4) {
        let mut row = row.to_vec();
        row.sort_by(f64::total_cmp);
        assert_eq!(row, [0.0, 1.0, 2.0, 3.0]);
    }

    let large = Tensor::ones(&[2, 1000], DType::F32)?;
    let dropped = vmap(|x: &Tensor| x.dropout(0.5, true)).randomness(Randomness::Different).call(&large)?;
    let dropped = numbers(&dropped);
    assert_ne!(dropped[..1000], dropped[1000..]);
    assert!(dropped.iter().all(|&x| x == 0.0 || x == 2.0));
    Ok(())
}

#[test]
fn slices_get_the_same_numbers() -> Result<()> {
    let _turn = turn();
    let x = Tensor::zeros(&[3, 4], DType::F32)?;
    opfuse::manual_seed(2);
    let mapped = vmap(|x: &Tensor| x.add(&Tensor::randn(&[4], DType::F32)?)).randomness(Randomness::Same).call(&x)?;
    opfuse::manual_seed(2);
    let row = numbers(&Tensor::randn(&[4], DType::F32)?);
    assert_eq!(numbers(&mapped), [&row[..], &row, &row].concat());
    Ok(())
}

#[test]
fn nested_modes_are_each_for_their_level() -> Result<()> {
    let _turn = turn();
    let x = Tensor::zeros(&[2, 3, 5], DType::F32)?;
    let noisy = |x: &Tensor| x.add(&Tensor::rand(&[5], DType::F32)?);
    let inner = move |mode: Randomness| move |x: &Tensor| vmap(noisy).randomness(mode).call(x);
    let call = |outer: Randomness, mode: Randomness| vmap(inner(mode)).randomness(outer).call(&x);
    opfuse::manual_seed(3);
    let all = numbers(&call(Randomness::Different, Randomness::Different)?);
    opfuse::manual_seed(3);
    assert_eq!(all, numbers(&Tensor::rand(&[2, 3, 5], DType::F32)?));
    let rows = numbers(&call(Randomness::Same, Randomness::Different)?);
    assert!(rows[..15] == rows[15..] && rows[..5] != rows[5..10]);
    let blocks = numbers(&call(Randomness::Different, Randomness::Same)?);
    assert!(blocks[..15] != blocks[15..] && blocks[..5] == blocks[5..10]);
    assert!(call(Randomness::Error, Randomness::Same).is_err());
    Ok(())
}
