//! Writes through views and by index in compiled functions. They touch only what they change if the old value has no
//! later reader. If it has one, they still have eager's bits and effects.

use super::check::{look, ramp};
use crate::unplaced::unplaced;
use opfuse::autograd::no_grad;
use opfuse::compile::explain::Explain;
use opfuse::compile::{CompileOptions, Tuning, compile, compile_with};
use opfuse::internals::codegen::tier::Tier;
use opfuse::{DType, Result, Tensor};

const ROWS: usize = 64;
const COLUMNS: usize = 32;
/// Bytes of a row of f32.
const ROW: usize = COLUMNS * 4;

/// The tensor that is written to, with distinct elements.
fn cache() -> Tensor {
    ramp(&[ROWS, COLUMNS], 1).expect("there is memory")
}

type Function = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;

/// A cache, a row, an index.
struct Case {
    name: &'static str,
    function: Function,
    /// The most bytes that all kernels may move.
    most: usize,
}

const fn case(name: &'static str, most: usize, function: Function) -> Case {
    Case { name, function, most }
}

/// A bound that a copy of the whole tensor stays below.
const WHOLE: usize = 40 * ROWS * ROW;

const CASES: &[Case] = &[
    case("a row is replaced", 8 * ROW, |c, k, _| {
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        k.sum_all()
    }),
    case("a row is added to", 12 * ROW, |c, k, _| {
        c.select(0, 3)?.add_(k.squeeze(0)?)?;
        k.sum_all()
    }),
    case("a part of a row is added to", 12 * ROW, |c, k, _| {
        c.i((3, 2..20))?.add_(k.i((0, 2..20))?)?;
        k.sum_all()
    }),
    case("a part of a column of a transposed view", 12 * ROW, |c, k, _| {
        c.t()?.i((2..20, 5))?.copy_(&k.i((0, 0..18))?)?;
        k.sum_all()
    }),
    case("a row of a part of a reshaped view", 8 * ROW, |c, k, _| {
        c.view([4, 16, COLUMNS as i64])?.i((1, 3))?.copy_(&k.squeeze(0)?.mul(2.0)?)?;
        k.sum_all()
    }),
    case("a diagonal", 16 * ROW, |c, k, _| {
        c.diagonal(0, 0, 1)?.copy_(&k.squeeze(0)?)?;
        k.sum_all()
    }),
    case("a number fills a box", 16 * ROW, |c, k, _| {
        c.i((2..4, 5..9))?.fill_(3.0)?;
        k.sum_all()
    }),
    case("a half float becomes one of f32", 12 * ROW, |c, k, _| {
        c.i(7..8)?.copy_(&k.to_dtype(DType::F16)?)?;
        k.sum_all()
    }),
    case("two rows, one after the other", 16 * ROW, |c, k, _| {
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        c.i(7..9)?.copy_(&k.mul(3.0)?.expand([2, COLUMNS as i64])?)?;
        k.sum_all()
    }),
    case("what was written is read", 80 * ROW, |c, k, _| {
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        c.i(4..20)?.matmul(&k.t()?)?.softmax(0)
    }),
    case("a view of what was written is returned", 8 * ROW, |c, k, _| {
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        c.i(6..9)
    }),
    case("a row by index", 24 * ROW, |c, k, at| {
        c.index_copy_(0, at, &k.mul(2.0)?)?;
        k.sum_all()
    }),
    case("a row by index, which is read", 100 * ROW, |c, k, at| {
        c.index_copy_(0, at, &k.mul(2.0)?)?;
        c.i(4..20)?.matmul(&k.t()?)?.softmax(0)
    }),
    case("a row is added by index", 24 * ROW, |c, k, at| {
        c.index_add_(0, at, &k.mul(2.0)?)?;
        k.sum_all()
    }),
    case("index_put", 24 * ROW, |c, k, at| {
        c.index_put_(&[Some(at.clone())], &k.mul(2.0)?, false)?;
        k.sum_all()
    }),
    // A routine gives a copy of the view that it writes to.
    case("a part of a part by index", WHOLE, |c, k, at| {
        c.i(2..40)?.index_copy_(0, at, &k.mul(2.0)?)?;
        k.sum_all()
    }),
    // The old value has a later reader, so there is a copy.
    case("the old value is returned", WHOLE, |c, k, _| {
        let old = c.copy()?;
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        Ok(old)
    }),
    case("a value between two writes is returned", WHOLE, |c, k, _| {
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        let old = c.copy()?;
        c.i(9..10)?.copy_(&k.mul(3.0)?)?;
        Ok(old)
    }),
    case("the new value is returned as a copy", WHOLE, |c, k, _| {
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        c.copy()
    }),
    case("a part of the old value is returned", WHOLE, |c, k, _| {
        let old = c.i(6..9)?.copy()?;
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        Ok(old)
    }),
    case("the old value is read behind the write", WHOLE, |c, k, _| {
        let old = c.mul(0.5)?;
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        old.i(7..8)?.add(k)?.add(c.i(7..8)?)
    }),
    case("rows move to where others lie", WHOLE, |c, k, _| {
        c.i(1..9)?.copy_(&c.i(0..8)?.copy()?)?;
        k.sum_all()
    }),
    case("rows are added to those behind", WHOLE, |c, k, _| {
        c.i(1..9)?.add_(c.i(0..8)?.copy()?)?;
        k.sum_all()
    }),
    case("rows by index of itself", WHOLE, |c, k, at| {
        c.index_copy_(0, at, &c.i(3..4)?.copy()?)?;
        k.sum_all()
    }),
    case("all is used element by element", WHOLE, |c, k, _| {
        c.i(7..8)?.copy_(&k.mul(2.0)?)?;
        c.mul(3.0)
    }),
    case("an intermediate value", WHOLE, |c, k, _| {
        let sums = c.cumsum(0)?;
        sums.i(7..8)?.copy_(k)?;
        sums.i((.., 3))?.fill_(1.0)?;
        Ok(sums)
    }),
];

/// Calls the function eagerly and compiled, several times each, on equal inputs.
fn check(case: &Case, options: CompileOptions) -> Result<Explain> {
    let name = case.name;
    let (own, other) = (cache(), cache());
    let f = compile_with(case.function, options);
    for call in 0..5usize {
        let k = ramp(&[1, COLUMNS], 10 + call)?;
        let at = Tensor::from_slice(&[5 + call as i64], &[1])?;
        let (versions, counts) = ([own.version(), other.version()], f.counts().eager);
        let (found, expected) = (f.call((&own, &k, &at))?, (case.function)(&other, &k, &at)?);
        assert_eq!(look(&found), look(&expected), "{name}: call {call}");
        assert_eq!(look(&own), look(&other), "{name}: the target after call {call}");
        assert_eq!(own.is_alias_of(&found), other.is_alias_of(&expected), "{name}: aliases");
        assert_eq!(f.counts().eager, counts, "{name}: {}", f.explain());
        // The version shows whether there was a write.
        assert_eq!(own.version() > versions[0], other.version() > versions[1], "{name}: versions");
    }
    Ok(f.explain())
}

#[test]
fn writes_touch_what_they_change() -> Result<()> {
    let _no_grad = no_grad();
    for case in CASES {
        let explain = check(case, CompileOptions::default())?;
        assert!(explain.bytes_after <= case.most, "{}: {explain}", case.name);
        let says = explain.to_string().contains("in place: only what changes is written");
        assert!(says || case.most == WHOLE, "{}: {explain}", case.name);
    }
    Ok(())
}

#[test]
fn every_tier_writes_the_same_bits() -> Result<()> {
    let _no_grad = no_grad();
    for case in CASES {
        for tier in Tier::ALL {
            check(case, CompileOptions { tier: Some(tier), ..CompileOptions::default() })?;
        }
    }
    Ok(())
}

/// A measurement runs its kernels many times, on memory of its own.
#[test]
fn a_measurement_writes_to_no_input() -> Result<()> {
    let _no_grad = no_grad();
    for case in CASES {
        check(case, CompileOptions { tuning: Tuning::Measured, ..CompileOptions::default() })?;
    }
    Ok(())
}

/// Counted bytes are the modelled ones, and a counted call writes once.
#[test]
fn counted_runs_write_once() -> Result<()> {
    let _no_grad = no_grad();
    for case in CASES {
        let (own, other) = (cache(), cache());
        let (k, at) = (ramp(&[1, COLUMNS], 10)?, Tensor::from_slice(&[5i64], &[1])?);
        let f = compile(case.function);
        f.call((&own, &k, &at))?;
        (case.function)(&other, &k, &at)?;
        let (found, traffic) = f.call_counted((&own, &k, &at))?;
        let expected = (case.function)(&other, &k, &at)?;
        assert_eq!((look(&found), look(&own)), (look(&expected), look(&other)), "{}", case.name);
        let explain = f.explain();
        for moved in traffic {
            let group = &explain.groups[moved.kernel];
            let foretold = [group.bytes_read, group.bytes_written];
            assert_eq!([moved.read, moved.written], foretold, "{}: {explain}", case.name);
        }
    }
    Ok(())
}

/// Writing rows one by one to a new tensor costs the bytes of the rows.
#[test]
fn rows_of_a_new_tensor_are_not_copied() -> Result<()> {
    let _no_grad = no_grad();
    let bytes = |n: usize| -> Result<usize> {
        let function = move |x: &Tensor| {
            let (out, mut h) = (Tensor::zeros(&[n, COLUMNS], DType::F32)?, x.clone());
            for row in 0..n {
                h = h.tanh()?;
                out.select(0, row as i64)?.copy_(&h)?;
            }
            Ok(out)
        };
        let (f, x) = (compile(function), ramp(&[COLUMNS], 0)?);
        assert_eq!(look(&f.call(&x)?), look(&function(&x)?));
        Ok(f.explain().bytes_after)
    };
    let (few, many) = (bytes(20)?, bytes(80)?);
    assert!(many < 5 * few, "{many} bytes for four times the rows of {few}");
    Ok(())
}

/// The second input takes the value that the first one has between its writes.
#[test]
fn another_input_may_take_a_value_between_writes() -> Result<()> {
    let _no_grad = no_grad();
    let function = |c: &Tensor, d: &Tensor, k: &Tensor| {
        c.i(7..8)?.copy_(k)?;
        d.copy_(c)?;
        c.i(9..10)?.copy_(&k.mul(2.0)?)?;
        d.i(0..1)?.add_(k)
    };
    let ([c, d], [e, g], f) = ([cache(), cache()], [cache(), cache()], compile(function));
    for call in 0..4 {
        let k = ramp(&[1, COLUMNS], call)?;
        f.call((&c, &d, &k))?;
        function(&e, &g, &k)?;
        assert_eq!((look(&c), look(&d)), (look(&e), look(&g)), "call {call}");
    }
    Ok(())
}

/// Functions of random reads and writes of two inputs and a computed value.
#[test]
fn random_writes_are_those_of_eager() -> Result<()> {
    let _no_grad = no_grad();
    let mut n_in_place = 0;
    for seed in 0..200u64 {
        let mut state = seed;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % n) as i64
        };
        let steps: Vec<[i64; 6]> =
            (0..2 + below(7)).map(|_| [below(9), below(3), below(3), below(4), below(4), 1 + below(4)]).collect();
        let function = |c: &Tensor, d: &Tensor, k: &Tensor, at: &Tensor| -> Result<Vec<Tensor>> {
            let (mut tensors, mut out) = ([c.clone(), d.clone(), c.add(d)?], vec![k.sum_all()?]);
            for (number, &[what, one, other, from, to, n]) in steps.iter().enumerate() {
                let (x, y) = (tensors[one as usize].clone(), tensors[other as usize].clone());
                match what {
                    0 => x.i(to..to + n)?.copy_(&k.mul(number as f64)?)?,
                    1 => x.select(1, from)?.add_(y.select(1, to)?)?,
                    2 => x.i(to..to + n)?.copy_(&y.i(from..from + n)?)?,
                    3 => x.i((to..to + n, 1..3))?.add_(y.i((from..from + n, 2..4))?.copy()?)?,
                    4 => x.index_copy_(0, at, &k.mul(number as f64)?)?,
                    5 => x.index_add_(0, at, &y.i(from..from + 1)?)?,
                    6 => out.push(x.copy()?),
                    7 => out.push(x.i(from..from + n)?.mul(k)?.sum_all()?),
                    _ => tensors[2] = x.mul(&y)?,
                }
            }
            out.push(tensors[2].clone());
            Ok(out)
        };
        let inputs = || Ok::<_, opfuse::Error>([ramp(&[8, 6], 1)?, ramp(&[8, 6], 2)?]);
        let ([c, d], [e, g], f) = (inputs()?, inputs()?, compile(function));
        for call in 0..3usize {
            let (k, at) = (ramp(&[1, 6], call)?, Tensor::from_slice(&[call as i64 * 2], &[1])?);
            let (found, expected) = (f.call((&c, &d, &k, &at))?, function(&e, &g, &k, &at)?);
            let all = |results: &[Tensor], inputs: [&Tensor; 2]| -> Vec<String> {
                results.iter().chain(inputs).map(look).collect()
            };
            let (found, expected) = (all(&found, [&c, &d]), all(&expected, [&e, &g]));
            assert_eq!(found, expected, "seed {seed}, call {call}: {steps:?}\n{}", f.explain());
        }
        n_in_place += usize::from(f.explain().groups.iter().any(|group| group.in_place.is_some()));
    }
    assert!(n_in_place > 60, "{n_in_place} of 200 functions write in place");
    Ok(())
}

/// A captured tensor is written to like an input; handles and views of it see the write.
#[test]
fn a_captured_tensor_is_written_in_place() -> Result<()> {
    let _no_grad = no_grad();
    let state = cache();
    let view = state.i((7, 0..4))?;
    let captured = state.clone();
    let f = compile(move |k: &Tensor| {
        captured.i(7..8)?.add_(k)?;
        k.sum_all()
    });
    let expected = cache();
    for call in 0..4 {
        let k = ramp(&[1, COLUMNS], call)?;
        f.call(&k)?;
        expected.i(7..8)?.add_(&k)?;
        assert_eq!(look(&state), look(&expected));
        assert_eq!(look(&view), look(&expected.i((7, 0..4))?));
    }
    assert!(f.explain().bytes_after < 16 * ROW, "{}", f.explain());
    Ok(())
}

/// Inputs that share memory, or are parts of a storage, are written as in an eager call.
#[test]
fn inputs_that_share_memory_are_written_as_eagerly() -> Result<()> {
    let _no_grad = no_grad();
    let function = |c: &Tensor, k: &Tensor| {
        c.i(1..2)?.add_(k)?;
        c.i(0..4)?.mul(k)
    };
    let f = compile(function);
    let check = |own: [Tensor; 2], other: [Tensor; 2], roots: [&Tensor; 2]| -> Result<()> {
        for _ in 0..3 {
            let found = f.call((&own[0], &own[1]))?;
            assert_eq!(look(&found), look(&function(&other[0], &other[1])?));
            assert_eq!(look(roots[0]), look(roots[1]));
        }
        Ok(())
    };
    let (own, other) = (cache(), cache());
    let parts = |root: &Tensor| Ok::<_, opfuse::Error>([root.i((0..8, 4..8))?, root.i((9..10, 4..8))?]);
    check(parts(&own)?, parts(&other)?, [&own, &other])?;
    let k = ramp(&[1, 8], 3)?;
    let strided = |root: &Tensor| Ok::<_, opfuse::Error>([root.i((.., 4..12))?, k.clone()]);
    check(strided(&own)?, strided(&other)?, [&own, &other])?;
    let behind = |root: &Tensor| Ok::<_, opfuse::Error>([root.i(5..20)?, ramp(&[1, COLUMNS], 3)?]);
    check(behind(&own)?, behind(&other)?, [&own, &other])?;
    Ok(())
}

/// An out-of-range index is found before any later write of the function. A write to a borrowed target is an error.
#[test]
fn errors_leave_what_eager_leaves() -> Result<()> {
    let _no_grad = no_grad();
    let functions: [Function; 3] = [
        |c, k, at| {
            let picked = k.t()?.index_select(0, at)?;
            c.i(7..8)?.copy_(&k.mul(2.0)?)?;
            picked.sum_all()
        },
        |c, k, at| {
            c.i(7..8)?.copy_(&k.t()?.index_select(0, at)?.expand([1, COLUMNS as i64])?)?;
            k.sum_all()
        },
        |c, k, at| {
            c.index_copy_(0, at, k)?;
            k.sum_all()
        },
    ];
    for (number, function) in functions.into_iter().enumerate() {
        let (own, other, f) = (cache(), cache(), compile(function));
        let k = ramp(&[1, COLUMNS], 3)?;
        for at in [3i64, 1000, 4, -1] {
            let at = Tensor::from_slice(&[at], &[1])?;
            let (found, expected) = (f.call((&own, &k, &at)), function(&other, &k, &at));
            assert_eq!(found.is_err(), expected.is_err(), "function {number}, {found:?}");
            assert_eq!(look(&own), look(&other), "function {number}");
        }
    }
    Ok(())
}

/// The step of an optimizer writes new values straight into its tensors: one kernel, and no copies.
#[test]
fn new_values_are_written_into_inputs() -> Result<()> {
    let _no_grad = no_grad();
    let step = |p: &Tensor, m: &Tensor, v: &Tensor, g: &Tensor| {
        m.mul_(0.9)?;
        m.add_(g.mul(0.1)?)?;
        v.mul_(0.999)?;
        v.add_(g.square()?.mul(0.001)?)?;
        p.sub_(m.div(v.sqrt()?.add(1e-8)?)?.mul(0.01)?)
    };
    let tensors = || Ok::<_, opfuse::Error>([ramp(&[64, 32], 1)?, ramp(&[64, 32], 2)?, ramp(&[64, 32], 3)?.abs()?]);
    let ([p, m, v], [q, n, w], g) = (tensors()?, tensors()?, ramp(&[64, 32], 4)?);
    let f = compile(step);
    for call in 0..4 {
        f.call((&p, &m, &v, &g))?;
        step(&q, &n, &w, &g)?;
        let same = |found: &Tensor, expected: &Tensor| assert_eq!(look(found), look(expected), "call {call}");
        same(&p, &q);
        same(&m, &n);
        same(&v, &w);
    }
    let explain = f.explain();
    assert_eq!(explain.groups.len(), 1, "{explain}");
    // Four tensors are read and three written.
    assert_eq!((explain.groups[0].bytes_read, explain.groups[0].bytes_written), (4 * 8192, 3 * 8192), "{explain}");
    assert!(explain.groups[0].in_place.is_some(), "{explain}");
    Ok(())
}

/// A step of gradient descent by products writes parameters in place. A kernel with a sum does not, so it comes first:
/// no memory is needed after the first write.
#[test]
fn parameters_are_written_after_all_sums() -> Result<()> {
    let _no_grad = no_grad();
    let step = |w: &Tensor, b: &Tensor, x: &Tensor, g: &Tensor| {
        w.sub_(g.t()?.mm(x)?.mul(0.1)?)?;
        b.sub_(g.sum([0], false)?.mul(0.1)?)
    };
    let tensors = || Ok::<_, opfuse::Error>([ramp(&[96, 64], 1)?, ramp(&[96], 2)?]);
    let ([w, b], [v, c]) = (tensors()?, tensors()?);
    let (x, g) = (ramp(&[32, 64], 3)?, ramp(&[32, 96], 4)?);
    let f = compile(step);
    for call in 0..4 {
        f.call((&w, &b, &x, &g))?;
        step(&v, &c, &x, &g)?;
        assert_eq!((look(&w), look(&b)), (look(&v), look(&c)), "call {call}");
    }
    let explain = f.explain();
    let last = explain.groups.last().expect("there are kernels");
    assert!(last.in_place.is_some() && last.bytes_written == 96 * 64 * 4, "{explain}");
    Ok(())
}

/// An input that is overwritten whole and returned is written once, also if its new value had to be laid out.
#[test]
fn an_overwritten_input_that_is_a_result_is_written_once() -> Result<()> {
    let functions: [fn(&Tensor) -> Result<()>; 3] =
        [|x| x.fill_(1.5), |x| x.zero_(), |x| x.copy_(&Tensor::full(&[COLUMNS], 0.25, DType::F32)?)];
    for (number, write) in functions.into_iter().enumerate() {
        let f = compile(move |x: &Tensor| {
            write(x)?;
            Ok(x.clone())
        });
        let (own, other) = (cache(), cache());
        f.call(&own)?;
        let (found, traffic) = f.call_counted(&own)?;
        write(&other)?;
        assert_eq!((look(&found), look(&own)), (look(&other), look(&other)), "function {number}");
        let written: usize = traffic.iter().map(|moved| moved.written).sum();
        assert!(written <= (ROWS + 1) * ROW, "function {number} writes {written} bytes: {}", f.explain());
        assert!(f.explain().groups.iter().any(|group| group.in_place.is_some()), "function {number}: {}", f.explain());
    }
    Ok(())
}

/// What still needs the old value, or may fail after a write, gets a copy; the effects are eager's.
#[test]
fn old_values_that_are_needed_are_kept() -> Result<()> {
    let _no_grad = no_grad();
    type Step = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    let steps: [(&str, Step); 6] = [
        ("returned before the write", |x, y, _| {
            let old = x.mul(1.0)?;
            x.add_(y)?;
            Ok(old)
        }),
        ("read transposed", |x, y, _| {
            x.add_(&y.add(&x.t()?)?)?;
            x.sum_all()
        }),
        ("two tensors swap", |x, y, _| {
            let old = x.copy()?;
            x.copy_(y)?;
            y.copy_(&old)?;
            x.sum_all()
        }),
        ("an old value in the result of a later call", |x, y, _| {
            let old = x.div(-0.5)?;
            x.selu_()?;
            x.mul(&old)?.add(y)
        }),
        ("one new value for both", |x, y, _| {
            let new = x.mul(y)?;
            x.copy_(&new)?;
            y.copy_(&new)?;
            Ok(new)
        }),
        ("an index before the write", |x, y, at| {
            let row = y.index_select(0, at)?;
            x.add_(&row)?;
            row.sum_all()
        }),
    ];
    for (name, step) in steps {
        let f = compile(step);
        let tensors = || Ok::<_, opfuse::Error>([ramp(&[16, 16], 1)?, ramp(&[16, 16], 2)?]);
        let ([x, y], [v, w]) = (tensors()?, tensors()?);
        for place in [3i64, 0, 16, 5] {
            let at = Tensor::from_slice(&[place], &[1])?;
            let (found, expected) = (f.call((&x, &y, &at)), step(&v, &w, &at));
            let text = |result: Result<Tensor>| result.map_or_else(|error| unplaced(&error), |tensor| look(&tensor));
            assert_eq!(text(found), text(expected), "{name}, index {place}");
            assert_eq!([look(&x), look(&y)], [look(&v), look(&w)], "{name}, index {place}");
        }
    }
    Ok(())
}
