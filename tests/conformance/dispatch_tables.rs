//! Computed dispatch tables against `_dispatch_table.json`.
//!
//! Each row registers named kernels for one operator and gives the kernel expected in every column. Rows are run with
//! the registrations in both orders. All rows share a dispatcher with its fallbacks, so each row tests that the one
//! before was undone.

use opfuse::dispatch::{DispatchKey, Dispatcher, Kernel, Library, Operator};
use opfuse::internals::dispatch::table::Source;
use serde_json::Value;
use std::path::Path;

/// Runs every row; returns how many pass, and a line per row that does not.
pub(crate) fn run(folder: &Path) -> (usize, Vec<String>) {
    match Tables::read(&folder.join("_dispatch_table.json")) {
        Ok(tables) => tables.run(),
        Err(message) => (0, vec![message]),
    }
}

struct Tables {
    dispatcher: Dispatcher,
    /// Kept alive for the whole run.
    _fallbacks: Vec<Library>,
    registrations: Vec<String>,
    columns: Vec<DispatchKey>,
    rows: Vec<Value>,
}

impl Tables {
    fn read(path: &Path) -> Result<Tables, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let data: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let dispatcher = Dispatcher::new();
        let mut fallbacks = Vec::new();
        for name in names(&data["global_fallbacks"]) {
            let fallback = Kernel::boxed(|_, _, _| Ok(())).named("F");
            let library = Library::impl_block_in(&dispatcher, "_", key(&name)?).and_then(|mut library| {
                library.fallback(fallback)?;
                Ok(library)
            });
            fallbacks.push(library.map_err(|error| error.to_string())?);
        }
        let columns = names(&data["keys"]).iter().map(|name| key(name)).collect::<Result<_, _>>()?;
        let rows = data["rows"].as_array().cloned().unwrap_or_default();
        let registrations = names(&data["registrations"]);
        Ok(Tables { dispatcher, _fallbacks: fallbacks, registrations, columns, rows })
    }

    fn run(&self) -> (usize, Vec<String>) {
        let mut passed = 0;
        let mut failures = Vec::new();
        for row in &self.rows {
            match self.check(row) {
                Ok(()) => passed += 1,
                Err(message) => failures.push(format!("dispatch table row {}: {message}", row[0])),
            }
        }
        if self.rows.is_empty() {
            failures.push("the dispatch tables have no rows".into());
        }
        (passed, failures)
    }

    fn check(&self, row: &Value) -> Result<(), String> {
        let mut registered = names(&row[0]);
        let expected: Vec<&str> = row[1].as_str().unwrap_or_default().split_whitespace().collect();
        for _ in 0..2 {
            let found = self.cells(&registered)?;
            if found != expected {
                return Err(format!("{found:?} instead of {expected:?} with registrations in order {registered:?}"));
            }
            registered.reverse();
        }
        if self.dispatcher.operator_names().is_empty() { Ok(()) } else { Err("the row was not undone".into()) }
    }

    fn cells(&self, registered: &[String]) -> Result<Vec<String>, String> {
        let mut library = Library::fragment_in(&self.dispatcher, "test").map_err(|error| error.to_string())?;
        library.def("op(Tensor x) -> Tensor").map_err(|error| error.to_string())?;
        for name in registered {
            let number = self.registrations.iter().position(|known| known == name);
            let number = number.ok_or_else(|| format!("unknown registration {name}"))?;
            let kernel = Kernel::boxed(|_, _, _| Ok(())).named(number.to_string());
            library.impl_for("op", key(name)?, kernel).map_err(|error| error.to_string())?;
        }
        self.dispatcher.check_invariants().map_err(|error| error.to_string())?;
        let op = self.dispatcher.lookup("test::op").map_err(|error| error.to_string())?;
        Ok(self.columns.iter().map(|&column| cell(&op, column)).collect())
    }
}

fn cell(op: &Operator, column: DispatchKey) -> String {
    let slot = op.slot(column);
    match slot.source {
        Source::Missing => "-".into(),
        Source::AmbiguousAutogradOther => "A".into(),
        Source::Direct
        | Source::DefaultBackend
        | Source::Nested
        | Source::Math
        | Source::Autograd
        | Source::Batched
        | Source::Fallback => slot.kernel,
    }
}

fn key(name: &str) -> Result<DispatchKey, String> {
    name.parse().map_err(|error| format!("{error}"))
}

fn names(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_string).collect()
}
