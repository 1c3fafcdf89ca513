//! Order of work: streams that share tensors, memory that is reused, and code that is cached.

use crate::fakes;
use opfuse::device::{Event, Stream, StreamGuard};
use opfuse::internals::runtime::cuda::{counts, reset_counts};
use opfuse::{DType, Device, Result, Tensor};
use std::fs;

const GPU: Device = Device::cuda(0);

/// The fake runs nothing until the host waits, so a read that comes too early sees old bytes.
#[test]
fn streams_that_share_a_tensor_wait_for_each_other() {
    fakes::with(&[], || turns().expect("nothing fails"));
}

fn turns() -> Result<()> {
    let n = 1000;
    let x = Tensor::arange_of(0, n, 1, DType::F32)?.to_device(GPU)?;
    let (one, other) = (Stream::new(GPU)?, Stream::new(GPU)?);
    let on = |stream: &Stream, work: &dyn Fn() -> Result<Tensor>| {
        let _guard = StreamGuard::new(stream)?;
        work()
    };
    let doubled = on(&one, &|| x.mul(2.0))?;
    let more = on(&other, &|| doubled.add(1.0))?;
    // A write after two readers on different streams.
    on(&one, &|| x.mul_(0.0).map(|()| x.clone()))?;
    let sum = on(&other, &|| more.add(&x))?;
    let expected: Vec<f32> = (0..n).map(|at| at as f32 * 2.0 + 1.0).collect();
    assert_eq!(sum.to_vec::<f32>()?, expected);
    assert_eq!(on(&other, &|| Ok(sum.clone()))?.to_vec::<f32>()?, expected);

    // A block freed on one stream is reused by another only after the work on it is done.
    for round in 0..20 {
        let (stream, next) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        let value = on(stream, &|| x.add(round as f32))?;
        let kept = on(next, &|| value.add(0.5))?;
        drop(value);
        let fresh = on(next, &|| x.sub(round as f32))?;
        assert_eq!(kept.to_vec::<f32>()?, vec![round as f32 + 0.5; n as usize]);
        assert_eq!(fresh.to_vec::<f32>()?, vec![-(round as f32); n as usize]);
    }

    let (start, end) = (Event::new(), Event::new());
    start.record(&one)?;
    let late = on(&one, &|| x.exp())?;
    end.record(&one)?;
    if !fakes::on_device() {
        assert!(!end.is_complete()?);
        assert!(start.elapsed(&end).is_err());
    }
    end.synchronize()?;
    assert!(end.is_complete()? && start.elapsed(&end).is_ok());
    drop(late);
    Ok(())
}

#[test]
fn threads_share_a_device() {
    fakes::with(&[], || {
        let x = Tensor::full(&[257], 1.0f32, None).and_then(|x| x.to_device(GPU)).expect("it is there");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        x.add_(1.0).expect("writers take turns");
                    }
                });
            }
        });
        assert_eq!(x.to_vec::<f32>().expect("it can be read"), vec![101.0; 257]);
    });
}

#[test]
fn cubins_are_kept_on_disk() {
    let folder = std::env::temp_dir().join(format!("opfuse-cubins-{}", std::process::id()));
    let compute = || {
        reset_counts();
        let x = Tensor::full(&[3], 2.0f32, None)?.to_device(GPU)?;
        let [a, b] = [x.square()?, x.square()?].map(|y| y.to_vec::<f32>());
        assert_eq!((a?, b?), (vec![4.0; 3], vec![4.0; 3]));
        Ok::<u64, opfuse::Error>(counts().compilations)
    };
    let name = folder.to_str().expect("it has a name in letters");
    for (phase, expected) in [("first", 1), ("second", 0), ("damaged", 1)] {
        if phase == "damaged" && folder.is_dir() {
            for file in fs::read_dir(&folder).expect("it can be read").flatten() {
                let bytes = fs::read(file.path()).expect("it can be read");
                fs::write(file.path(), &bytes[..bytes.len() - 1]).expect("it can be written");
            }
        }
        fakes::with(&[("OPFUSE_CACHE_DIR", name), ("OPFUSE_PHASE", phase)], || {
            if std::env::var("OPFUSE_PHASE").is_ok_and(|now| now == phase) {
                assert_eq!(compute(), Ok(expected), "{phase}");
            }
        });
    }
    if std::env::var_os("OPFUSE_PHASE").is_none() {
        let _ = fs::remove_dir_all(folder);
    }
}
