//! Streams, events, guards, and memory that waits for streams.

use super::queues::{Queues, address};
use opfuse::device::{Device, DeviceGuard, DeviceKind, Event, Runtime, Storage, Stream, StreamGuard};
use opfuse::device::{current_device, runtime};
use opfuse::error::{Error, Result};
use std::sync::Arc;

const KIND: DeviceKind = DeviceKind::PrivateUse1;

fn device(index: u16) -> Device {
    Device { kind: KIND, index: Some(index) }
}

/// This thread's current device, and its stream on each of two devices.
fn current() -> Result<(Device, u64, u64)> {
    Ok((current_device(KIND)?, Stream::current(device(0))?.id(), Stream::current(device(1))?.id()))
}

/// 198: entering switches device and stream, leaving restores both.
#[test]
fn a_stream_guard_switches_device_and_stream() -> Result<()> {
    let (queues, _registered) = Queues::registered(2);
    let (a, b, c) = (Stream::new(device(0))?, Stream::new(device(1))?, Stream::new(device(1))?);
    assert_eq!(current()?, (device(0), 0, 0));
    {
        let _on_a = StreamGuard::new(&a)?;
        assert_eq!(current()?, (device(0), a.id(), 0));
        {
            let mut on_b = StreamGuard::new(&b)?;
            assert_eq!(current()?, (device(1), a.id(), b.id()));
            assert_eq!((on_b.current_stream(), on_b.original_device()), (&b, device(0)));
            on_b.set_stream(&c)?;
            assert_eq!(current()?, (device(1), a.id(), c.id()));
        }
        assert_eq!(current()?, (device(0), a.id(), 0));
    }
    assert_eq!(current()?, (device(0), 0, 0));
    assert_eq!(queues.switches(), [1, 0]);
    Ok(())
}

/// 198: switching on to a stream of another device gives the first device its stream back.
#[test]
fn a_stream_guard_that_changes_device_restores_the_first() -> Result<()> {
    let (_queues, _registered) = Queues::registered(2);
    let (outer, a, b) = (Stream::new(device(0))?, Stream::new(device(0))?, Stream::new(device(1))?);
    let _outer = StreamGuard::new(&outer)?;
    {
        let mut guard = StreamGuard::new(&a)?;
        guard.set_stream(&b)?;
        assert_eq!(current()?, (device(1), outer.id(), b.id()));
        guard.set_stream(&a)?;
        assert_eq!(current()?, (device(0), a.id(), 0));
        guard.set_stream(&b)?;
    }
    assert_eq!(current()?, (device(0), outer.id(), 0));
    Ok(())
}

#[test]
fn device_guards_nest_and_belong_to_their_thread() -> Result<()> {
    let (_queues, _registered) = Queues::registered(3);
    let mut outer = DeviceGuard::new(device(1))?;
    assert_eq!((outer.original_device(), outer.current_device()), (device(0), device(1)));
    {
        let _inner = DeviceGuard::new(device(2))?;
        // Without a number a device is the current one.
        assert_eq!(Stream::default_of(Device::of(KIND))?.device(), device(2));
    }
    assert_eq!(current_device(KIND)?, device(1));
    outer.set_device(device(2))?;
    let elsewhere = std::thread::spawn(|| current_device(KIND)).join().expect("it only asks")?;
    assert_eq!((current_device(KIND)?, elsewhere), (device(2), device(0)));
    assert!(outer.set_device(Device::CPU).is_err(), "another kind needs a guard of its own");
    assert!(DeviceGuard::new(device(3)).is_err_and(|error| error.to_string().contains("there are 3")));
    drop(outer);
    assert_eq!(current_device(KIND)?, device(0));
    Ok(())
}

/// 199: work on `b` after the wait runs after work on `a` before the record, and nothing else is held back.
#[test]
fn an_event_orders_two_streams() -> Result<()> {
    let (queues, _registered) = Queues::registered(2);
    for (first, second) in [(0, 0), (0, 1)] {
        let (a, b) = (Stream::new(device(first))?, Stream::new(device(second))?);
        queues.submit(&a, "a1");
        let event = a.record()?;
        queues.submit(&a, "a2");
        queues.submit(&b, "b1");
        b.wait(&event)?;
        queues.submit(&b, "b2");
        // Dropping or moving the event does not undo the wait.
        event.record(&b)?;
        drop(event);
        assert_eq!(queues.run(&b), ["b1"]);
        assert_eq!(queues.run(&a), ["a1", "a2"]);
        assert_eq!(queues.run(&b), ["b2"]);
    }
    Ok(())
}

/// 199: an event that was never recorded is complete, and waiting for it does nothing.
#[test]
fn events_complete_when_their_work_is_done() -> Result<()> {
    let (queues, _registered) = Queues::registered(1);
    let stream = Stream::new(device(0))?;
    let never = Event::new();
    assert!(never.is_complete()? && never.device().is_none());
    never.synchronize()?;
    stream.wait(&never)?;
    queues.submit(&stream, "first");
    let start = stream.record()?;
    assert!(!start.is_complete()? && !stream.is_idle()?);
    start.synchronize()?;
    assert!(start.is_complete()? && stream.is_idle()?);
    queues.submit(&stream, "second");
    queues.submit(&stream, "third");
    let end = stream.record()?;
    assert!(start.elapsed(&end).is_err_and(|error| error.to_string().contains("must be complete")));
    assert!(start.elapsed(&never).is_err_and(|error| error.to_string().contains("must have been recorded")));
    stream.synchronize()?;
    assert_eq!(start.elapsed(&end)?.as_millis(), 2);
    drop((start, end));
    assert_eq!(queues.n_points(), 0, "points are forgotten with their events");
    drop(stream);
    assert_eq!(queues.n_streams(), 0);
    Ok(())
}

#[test]
fn streams_of_the_cpu_are_synchronous() -> Result<()> {
    let (stream, other) = (Stream::new(Device::CPU)?, Stream::default_of(Device::CPU)?);
    assert_ne!(stream, other);
    let _guard = StreamGuard::new(&stream)?;
    assert_eq!(Stream::current(Device::CPU)?, stream);
    let start = stream.record()?;
    std::thread::sleep(std::time::Duration::from_millis(2));
    let end = other.record()?;
    assert!(start.is_complete()? && end.is_complete()? && stream.is_idle()?);
    other.wait(&start)?;
    assert!(start.elapsed(&end)?.as_micros() >= 2000);
    let (_queues, _registered) = Queues::registered(1);
    let error = Stream::new(device(0))?.wait(&start).expect_err("kinds do not wait for each other");
    assert!(error.to_string().contains("synchronize"), "{error}");
    Ok(())
}

#[test]
fn runtimes_come_and_go() -> Result<()> {
    let stream = {
        let (queues, _registered) = Queues::registered(1);
        let second = runtime::register(KIND, Arc::new(Queues::new(1)));
        assert!(second.is_err_and(|error| error.to_string().contains("already")));
        assert_eq!((runtime::device_count(KIND), queues.device_count()), (1, 1));
        Stream::new(device(0))?
    };
    // Nothing new can be made, but existing streams and blocks go on working.
    stream.synchronize()?;
    Ok(())
}

/// 201: a request for no bytes always succeeds; a freed block waits for its stream.
#[test]
fn freed_blocks_wait_for_their_streams() -> Result<()> {
    let (queues, _registered) = Queues::registered(1);
    let memory = queues.allocator(0);
    memory.set_limit(0);
    assert_eq!(memory.allocate(0)?.capacity(), 0);
    memory.set_limit(usize::MAX);
    let (a, b) = (Stream::new(device(0))?, Stream::new(device(0))?);
    let on_a = StreamGuard::new(&a)?;
    let block = memory.allocate(1000)?;
    let first = address(&block);
    queues.submit(&a, "reads the block");
    drop(block);
    // Work on the same stream comes later anyway.
    let block = memory.allocate(1000)?;
    assert_eq!(address(&block), first);
    queues.submit(&a, "reads it again");
    drop(block);
    drop(on_a);
    let _on_b = StreamGuard::new(&b)?;
    let other = memory.allocate(1000)?;
    assert_ne!(address(&other), first, "work on another stream may come before");
    queues.run(&a);
    assert_eq!(address(&memory.allocate(1000)?), first, "the stream has reached the point");
    Ok(())
}

/// 201: so does one that another stream has used meanwhile, even for its own stream.
#[test]
fn blocks_wait_for_all_streams_that_used_them() -> Result<()> {
    let (queues, _registered) = Queues::registered(1);
    let (a, b) = (Stream::new(device(0))?, Stream::new(device(0))?);
    let _on_a = StreamGuard::new(&a)?;
    let mut storage = Storage::new(device(0), 500)?;
    assert_eq!((storage.len(), storage.bytes_mut().len()), (500, 0), "the host cannot reach it");
    assert!(Storage::zeroed(device(0), 500).is_err() && Storage::copy_of(device(0), &[1]).is_err());
    let first = storage.ptr().addr();
    queues.submit(&b, "reads the storage");
    storage.used_on(&b);
    drop(storage);
    let second = Storage::new(device(0), 500)?;
    assert_ne!(second.ptr().addr(), first);
    queues.run(&b);
    assert_eq!(Storage::new(device(0), 500)?.ptr().addr(), first);
    Ok(())
}

#[test]
fn stream_pools_count_limit_and_trim() -> Result<()> {
    let (queues, _registered) = Queues::registered(1);
    let memory = queues.allocator(0);
    let stream = Stream::default_of(device(0))?;
    let blocks = (memory.allocate(1024)?, memory.allocate(2048)?);
    queues.submit(&stream, "reads them");
    let stats = memory.stats();
    assert_eq!((stats.live_bytes, stats.live_blocks, stats.cached_bytes, stats.fresh), (3072, 2, 0, 2));
    drop(blocks.0);
    let stats = memory.stats();
    assert_eq!((stats.live_bytes, stats.cached_bytes, stats.held_bytes), (2048, 1024, 3072));
    memory.trim();
    assert_eq!(memory.stats().cached_bytes, 1024, "what is waited for stays");
    // A request that only fits without the cached block waits for it and gives it back.
    memory.set_limit(2048 + 2048);
    let third = memory.allocate(2048)?;
    assert!(stream.is_idle()?);
    assert_eq!((memory.stats().held_bytes, memory.stats().peak_bytes, memory.stats().allocations), (4096, 4096, 3));
    let error = memory.allocate(64).expect_err("the limit is reached");
    let held = 4096;
    assert_eq!(
        error,
        Error::OutOfMemory { call: String::new(), device: device(0).to_string(), wanted: 64, held, limit: 4096 }
    );
    drop((blocks.1, third));
    memory.trim();
    assert_eq!((memory.stats().held_bytes, memory.stats().live_blocks), (0, 0));
    assert!(matches!(memory.allocate(usize::MAX), Err(Error::OutOfMemory { .. })));
    Ok(())
}

#[test]
fn a_device_that_fails_keeps_what_it_may_still_use() -> Result<()> {
    let (queues, _registered) = Queues::registered(1);
    let memory = queues.allocator(0);
    let other = Stream::new(device(0))?;
    let (alone, shared) = (memory.allocate(64)?, memory.allocate(128)?);
    let (first, second) = (address(&alone), address(&shared));
    shared.used_on(&other);
    queues.set_failing(true);
    assert!(Stream::new(device(0)).is_err());
    drop((alone, shared));
    {
        let _on_other = StreamGuard::new(&other)?;
        assert_ne!(address(&memory.allocate(64)?), first, "nobody says whether its stream is done");
    }
    queues.set_failing(false);
    assert_eq!(address(&memory.allocate(64)?), first, "its own stream comes later anyway");
    assert_ne!(address(&memory.allocate(128)?), second, "nobody said when the other stream is done");
    assert_eq!(memory.stats().live_blocks, 0);
    Ok(())
}
