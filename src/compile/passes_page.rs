//! One page of HTML with every graph that the process compiled, after each pass, and what the pass changed.
//!
//! `OPFUSE_DUMP=passes:html` asks for it. Each run of the pipeline appends a section: the traced graph, a part per pass
//! with the lines that it removed and added, and the plan. Passes that changed nothing are folded.
//!
//! The page loads nothing and has no scripts. The file is a whole page after each section. A failure to write it is
//! reported once, and compilation continues.

use crate::debug::{self, PassesPage};
use crate::escaped::Escaped;
use crate::ir::Graph;
use crate::ir::diff::{Change, Line, diff};
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What all pages of this crate look like.
const LOOK: &str = include_str!("../page.css");
const STYLE: &str = include_str!("passes_page.css");

/// What follows the sections.
const END: &str = "</main>\n</body>\n</html>\n";

/// What a graph was traced from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// No function: a test or a measurement gave the graph.
    Graph,
    /// A function, by the name of its type.
    Function(&'static str),
    /// The backward pass of a function.
    Backward(&'static str),
    /// A segment of a function.
    Segment(&'static str),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Graph => f.write_str("a graph"),
            Subject::Function(name) => f.write_str(name),
            Subject::Backward(name) => write!(f, "backward pass of {name}"),
            Subject::Segment(name) => write!(f, "segment of {name}"),
        }
    }
}

/// A graph after a pass.
pub(super) struct Snapshot {
    /// The pass.
    pub(super) name: &'static str,
    /// How long it took.
    pub(super) time: Duration,
    /// What it made.
    pub(super) graph: Graph,
}

/// A run of the pipeline.
pub(super) struct Capture<'a> {
    /// What was traced.
    pub(super) subject: Subject,
    /// The graph before the first pass.
    pub(super) traced: &'a Graph,
    /// The graphs after each pass.
    pub(super) snapshots: &'a [Snapshot],
    /// The plan as text with a remark on times, or why there is none.
    pub(super) plan: std::result::Result<(String, String), String>,
}

/// Adds a section to the page of this process, if one is asked for.
pub(super) fn add(capture: &Capture<'_>) {
    let Some(wanted) = debug::passes_page() else { return };
    let mut page = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if let State::NotBegun = *page {
        *page = begin(wanted);
    }
    let State::Open(open) = &mut *page else { return };
    if let Err(error) = open.add(capture) {
        *page = failed(&open.path, &error);
    }
}

static PAGE: Mutex<State> = Mutex::new(State::NotBegun);

/// The page of this process.
enum State {
    NotBegun,
    Open(Page),
    Failed,
}

struct Page {
    path: PathBuf,
    file: File,
    /// Where the next section begins, in bytes.
    end: u64,
    n_sections: usize,
}

fn begin(wanted: &PassesPage) -> State {
    let path = match wanted {
        PassesPage::Anywhere => Cow::Owned(format!("opfuse-passes-{}.html", std::process::id()).into()),
        PassesPage::At(path) => Cow::Borrowed(path),
    };
    match Page::create(&path) {
        Ok(page) => {
            if *wanted == PassesPage::Anywhere {
                debug::print(&format!("opfuse: OPFUSE_DUMP: passes are written to {}", path.display()));
            }
            State::Open(page)
        }
        Err(error) => failed(&path, &error),
    }
}

fn failed(path: &Path, error: &io::Error) -> State {
    debug::print(&format!("opfuse: OPFUSE_DUMP: passes are not written to {}: {error}", path.display()));
    State::Failed
}

impl Page {
    fn create(path: &Path) -> io::Result<Page> {
        let mut file = File::create(path)?;
        let start = start();
        file.write_all(start.as_bytes())?;
        Ok(Page { path: path.to_path_buf(), file, end: start.len() as u64, n_sections: 0 })
    }

    /// Writes a section over the end of the page, and then the end again.
    fn add(&mut self, capture: &Capture<'_>) -> io::Result<()> {
        let section = section(self.n_sections + 1, capture);
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all((section.clone() + END).as_bytes())?;
        self.end += section.len() as u64;
        self.n_sections += 1;
        Ok(())
    }
}

fn start() -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>opfuse: passes</title>\n<style>\n{LOOK}{STYLE}\
         </style>\n</head>\n<body>\n<main>\n<h1>The graph after each pass</h1>\n<p>A pass removed <del>- these \
         lines</del> and added <ins>+ these</ins>. A line whose values have other names now was kept. Passes that \
         changed nothing are folded.</p>\n"
    )
}

/// The section of a capture.
fn section(number: usize, capture: &Capture<'_>) -> String {
    let mut out = String::new();
    capture.write(&mut out, number).expect("writing to a string works");
    out
}

impl Capture<'_> {
    fn write(&self, out: &mut String, number: usize) -> fmt::Result {
        let subject = self.subject.to_string();
        writeln!(out, "<section>\n<h2>{number}. {}</h2>", Escaped(&subject))?;
        let inputs = self.traced.inputs().iter().map(|&id| format!("{id}: {}", self.traced[id].ty));
        let inputs: Vec<String> = inputs.collect();
        writeln!(out, "<p>Inputs: {}.</p>", Escaped(&inputs.join(", ")))?;
        let traced = self.traced.to_string();
        folded(out, "trace", &format!("nodes: {}", self.traced.len()), &traced)?;
        let mut before = self.traced;
        for snapshot in self.snapshots {
            snapshot.write(out, &diff(before, &snapshot.graph))?;
            before = &snapshot.graph;
        }
        match &self.plan {
            Ok((plan, times)) => folded(out, "plan", times, plan)?,
            Err(why) => writeln!(out, "<p class=\"error\">{}</p>", Escaped(why))?,
        }
        writeln!(out, "</section>")
    }
}

impl Snapshot {
    fn write(&self, out: &mut String, lines: &[Line]) -> fmt::Result {
        let count = |change: Change| lines.iter().filter(|line| line.change == change).count();
        let (n_removed, n_added) = (count(Change::Removed), count(Change::Added));
        let (is_open, what) = match (n_removed, n_added) {
            (0, 0) => ("", "nothing changed".to_string()),
            _ => (" open", format!("lines: {n_removed} removed, {n_added} added")),
        };
        write!(out, "<details{is_open}>\n<summary>{} <span class=\"note\">", self.name)?;
        writeln!(out, "{what}; {:.1?}</span></summary>\n<pre tabindex=\"0\">", self.time)?;
        for line in lines {
            let text = Escaped(&line.text);
            match line.change {
                Change::Kept => writeln!(out, "  {text}")?,
                Change::Removed => writeln!(out, "<del>- {text}</del>")?,
                Change::Added => writeln!(out, "<ins>+ {text}</ins>")?,
            }
        }
        writeln!(out, "</pre>\n</details>")
    }
}

/// A part that is folded at first.
fn folded(out: &mut String, name: &str, note: &str, text: &str) -> fmt::Result {
    let text = Escaped(text);
    let note = format!("<span class=\"note\">{note}</span>");
    writeln!(out, "<details>\n<summary>{name} {note}</summary>\n<pre tabindex=\"0\">\n{text}</pre>\n</details>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::passes::PASSES;

    /// The section of a product with one, of which only `simplify` makes something else.
    fn example(plan: std::result::Result<(String, String), String>) -> String {
        let lines = "n0 = input: f32[2]; n1 = exp(n0): f32[2]; n2 = number 1: i64[]#; n3 = mul(n1, n2): f32[2]; \
                     n4 = tanh(n3): f32[2]; return n4";
        let text = lines.replace("; ", "\n");
        let traced: Graph = text.parse().expect("the graph is legal");
        let mut graph = traced.clone();
        let snapshots: Vec<Snapshot> = PASSES
            .iter()
            .map(|pass| {
                graph = (pass.run)(&graph).expect("the graph is legal");
                Snapshot { name: pass.name, time: Duration::from_micros(3), graph: graph.clone() }
            })
            .collect();
        section(2, &Capture { subject: Subject::Backward("f<A>"), traced: &traced, snapshots: &snapshots, plan })
    }

    #[test]
    fn a_section_shows_what_each_pass_changed() {
        let section = example(Ok(("plan {}\n".into(), "partition 1.0µs".into())));
        let parts: Vec<&str> = section.split("<details").collect();
        assert!(parts[0].contains("<h2>2. backward pass of f&lt;A&gt;</h2>\n<p>Inputs: n0: f32[2].</p>"), "{section}");
        assert_eq!(parts.len(), 3 + PASSES.len(), "{section}");
        let part = |name: &str| {
            let title = format!("<summary>{name} ");
            *parts.iter().find(|part| part.contains(&title)).expect("every stage has a part")
        };
        assert!(part("trace").contains("nodes: 5") && part("trace").contains("n3 = mul(n1, n2): f32[2]"), "{section}");
        assert!(part("fold_constants").starts_with(">\n") && part("fold_constants").contains("nothing changed; 3.0µs"));
        let simplify = part("simplify");
        assert!(simplify.starts_with(" open>\n"), "{section}");
        let lines = [
            "<del>- n3 = mul(n1, n2): f32[2]</del>\n<del>- n4 = tanh(n3): f32[2]</del>\n",
            "<ins>+ n3 = tanh(n1): f32[2]</ins>\n  return n3\n</pre>",
        ];
        assert!(simplify.contains(&lines.concat()), "{section}");
        let dead = part("eliminate_dead");
        assert!(dead.contains("<del>- n2 = number 1: i64[]#</del>\n  n2 = tanh(n1): f32[2]\n"), "{section}");
        assert!(
            part("plan").contains("partition 1.0µs") && part("plan").contains("<pre tabindex=\"0\">\nplan {}\n</pre>"),
            "{section}"
        );
    }

    #[test]
    fn a_section_says_why_there_is_no_plan() {
        let section = example(Err("after `unroll`: n1 < n2".into()));
        assert!(section.contains("<p class=\"error\">after `unroll`: n1 &lt; n2</p>\n</section>"), "{section}");
    }

    #[test]
    fn a_page_is_whole_after_each_section() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("opfuse-passes-page-{}.html", std::process::id()));
        std::fs::write(&path, "what was there before ".repeat(1000))?;
        let traced = Graph::new();
        let plan = || Ok((String::new(), String::new()));
        let capture = |subject: Subject| Capture { subject, traced: &traced, snapshots: &[], plan: plan() };
        let mut page = Page::create(&path)?;
        for (number, name) in ["first", "second"].into_iter().enumerate() {
            page.add(&capture(Subject::Function(name)))?;
            let text = std::fs::read_to_string(&path)?;
            assert!(text.starts_with("<!DOCTYPE html>\n") && text.ends_with(END), "{text}");
            assert_eq!(text.matches("</html>").count(), 1, "{text}");
            assert_eq!(text.matches("<section>").count(), number + 1, "{text}");
            assert!(text.contains(&format!("<h2>{}. {name}</h2>", number + 1)), "{text}");
        }
        std::fs::remove_file(&path)
    }
}
