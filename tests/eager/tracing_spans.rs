//! Spans of the `tracing` crate, as a subscriber sees them.

use crate::values::ramp;
use opfuse::{Result, Tensor, compile};
use std::fmt;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Notes spans as they begin and end.
#[derive(Default)]
struct Notes {
    /// Name and fields of each span.
    spans: Mutex<Vec<String>>,
    /// `+` and the name where a span is entered, `-` and the name where it is left.
    order: Mutex<Vec<String>>,
}

/// Fields as `name=value`.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // The name of a closure ends with its position in the function around it.
        let short = value.rsplit("::").nth(1).unwrap_or(value);
        self.0 += &format!(" {}={short}", field.name());
    }
}

struct Collector(Arc<Notes>);

impl Collector {
    fn name(&self, span: &Id) -> String {
        let spans = self.0.spans.lock().expect("no test panics with it");
        let span = &spans[span.into_u64() as usize - 1];
        span.split(' ').next().unwrap_or_default().into()
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "opfuse"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields(String::new());
        span.record(&mut fields);
        let mut spans = self.0.spans.lock().expect("no test panics with it");
        spans.push(format!("{}{}", span.metadata().name(), fields.0));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        let name = format!("+{}", self.name(span));
        self.0.order.lock().expect("no test panics with it").push(name);
    }

    fn exit(&self, span: &Id) {
        let name = format!("-{}", self.name(span));
        self.0.order.lock().expect("no test panics with it").push(name);
    }
}

/// The spans of what `run` does, and the order in which they are entered and left.
fn spans(run: impl FnOnce() -> Result<()>) -> Result<(Vec<String>, Vec<String>)> {
    let notes = Arc::new(Notes::default());
    tracing::subscriber::with_default(Collector(notes.clone()), run)?;
    let taken = |list: &Mutex<Vec<String>>| std::mem::take(&mut *list.lock().expect("no test panics with it"));
    Ok((taken(&notes.spans), taken(&notes.order)))
}

#[test]
fn a_call_has_its_capture_and_compilation_inside() -> Result<()> {
    let f = compile(|x: &Tensor| x.exp()?.relu());
    let x = ramp(&[3, 4]);
    let (first, order) = spans(|| f.call(&x).map(|_| ()))?;
    let name = "a_call_has_its_capture_and_compilation_inside";
    let call = format!("call function={name}");
    let capture = format!("capture function={name}");
    let compiled = format!("compile function={name} part=function nodes=3");
    assert_eq!(first, [call.clone(), capture, compiled]);
    assert_eq!(order, ["+call", "+capture", "-capture", "+compile", "-compile", "-call"]);
    let (again, order) = spans(|| f.call(&x).map(|_| ()))?;
    assert_eq!((again, order), (vec![call], vec!["+call".into(), "-call".into()]));
    Ok(())
}

#[test]
fn segments_and_backward_passes_are_parts() -> Result<()> {
    let reads = compile(|x: &Tensor| x.div(f64::from(x.exp()?.sum_all()?.item::<f32>()?)));
    let trained = compile(|x: &Tensor| x.exp()?.sum_all());
    let w = ramp(&[3, 4]);
    w.set_requires_grad(true)?;
    let (found, order) = spans(|| {
        reads.call(&ramp(&[3, 4]))?;
        trained.call(&w).map(|_| ())
    })?;
    let count = |part: &str| found.iter().filter(|span| span.contains(part)).count();
    assert_eq!((count("part=segment"), count("part=backward"), count("part=function")), (2, 1, 1), "{found:?}");
    let depth = order.iter().map(|step| if step.starts_with('+') { 1i32 } else { -1 }).sum::<i32>();
    assert_eq!(depth, 0, "{order:?}");
    Ok(())
}

#[test]
fn a_span_ends_by_an_error_too() -> Result<()> {
    let f = compile(|x: &Tensor| x.mm(x));
    let (_, order) = spans(|| {
        assert!(f.call(&ramp(&[3, 4])).is_err());
        Ok(())
    })?;
    assert_eq!(order.first().map(String::as_str), Some("+call"));
    assert_eq!(order.last().map(String::as_str), Some("-call"));
    Ok(())
}
