//! The source of a kernel in one of its variants. Each form is written by a file of its own.

use super::source::{Source, Target};
use super::variant::{Form, Variant};
use super::writer::Writer;
use super::{blocks, plan, pointwise, rows, tiles};
use crate::codegen::kernel::Kernel;
use crate::codegen::native::flat::Flat;

impl Source {
    /// Writes the source of a kernel. Its entry is called `name`; several entries have numbers appended.
    pub fn new(kernel: &Kernel, variant: &Variant, name: &str) -> Source {
        let flat = Flat::new(kernel, &variant.classes);
        let passes = plan::passes(kernel, &flat, variant);
        let mut writer = Writer::new(kernel, &flat, variant);
        let entries = match variant.form {
            Form::Pointwise { .. } => {
                pointwise::emit(&mut writer, &passes.passes[0], name);
                vec![name.to_owned()]
            }
            Form::Tiles { .. } => {
                tiles::emit(&mut writer, &passes.passes[0], name);
                vec![name.to_owned()]
            }
            Form::Warps | Form::Columns => {
                rows::emit_whole(&mut writer, &passes, name);
                vec![name.to_owned()]
            }
            Form::Held { held, warps } => {
                rows::emit_held(&mut writer, &passes, name, held, warps);
                vec![name.to_owned()]
            }
            Form::Blocks => {
                let entries = blocks::entries(&passes);
                let named = |number: usize| format!("{name}_{number}");
                for (number, &entry) in entries.iter().enumerate() {
                    blocks::emit(&mut writer, &passes, entry, number + 1 == entries.len(), &named(number));
                }
                (0..entries.len()).map(named).collect()
            }
        };
        Source { n_words: writer.n_words(), code: writer.out, entries, target: Target::Any }
    }
}
