//! The HTML page is well-formed, complete, and loads nothing.

use super::functions::reports;
use crate::values::ramp;
use opfuse::compile::explain::Decision;
use opfuse::{Explain, Reason, Result, Tensor, compile};

/// Tags that have no end.
const VOID: [&str; 2] = ["meta", "input"];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Checks that tags are balanced and attributes quoted; returns how many elements there are of each name.
pub(crate) fn elements(name: &str, page: &str) -> Vec<String> {
    let (mut open, mut all): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap_or_else(|| panic!("{name}: no doctype"));
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>') || matches!(open.last(), Some(&("script" | "style"))), "{name}: stray >");
        rest = &rest[at + 1..];
        // Scripts are no markup.
        if open.last() == Some(&"script") && !rest.starts_with("/script>") {
            continue;
        }
        let end = rest.find('>').unwrap_or_else(|| panic!("{name}: a tag does not end"));
        let tag = &rest[..end];
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "{name}: wrong end at {:.80}", rest);
        } else {
            let element = tag.split_whitespace().next().expect("a tag has a name");
            assert_eq!(tag.matches('"').count() % 2, 0, "{name}: <{tag}>");
            all.push(element.to_string());
            if !VOID.contains(&element) {
                open.push(element);
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "{name}: {open:?} are open");
    all
}

fn check(name: &str, explain: &Explain, page: &str) {
    for group in &explain.groups {
        assert!(page.contains(&format!("<tr data-group=\"{}\">", group.index)), "{name}: no row for {}", group.index);
        assert!(group.code.is_empty() || page.contains(&escaped(&group.code)), "{name}: no code of {}", group.index);
        for source in &group.sources {
            assert!(page.contains(source.name()), "{name}: nothing about {}", source.name());
        }
    }
    for node in explain.nodes.iter().filter(|node| node.group.is_some()) {
        assert!(page.contains(&format!(">{} ", node.id)), "{name}: {} is not drawn", node.id);
        assert!(page.contains(&escaped(&node.node.ty.to_string())), "{name}");
    }
    for edge in &explain.edges {
        let ends = escaped(&format!("{} -> {}: ", edge.producer, edge.consumer));
        assert!(page.contains(&ends), "{name}: no arrow for {ends}");
        if let Decision::Kept { reason, hint, .. } = &edge.decision {
            assert!(page.contains(&escaped(&reason.to_string())) && page.contains(&escaped(hint)), "{name}: {ends}");
        }
    }
}

#[test]
fn pages_say_everything_and_load_nothing() -> Result<()> {
    for (name, explain) in reports()? {
        let page = explain.to_html();
        let elements = elements(name, &page);
        let count = |element: &str| elements.iter().filter(|other| *other == element).count();
        let halves = 1 + usize::from(explain.backward.is_some());
        assert_eq!(page.matches("<div class=\"graph\">").count(), halves, "{name}");
        assert_eq!((count("h1"), count("main"), count("script"), count("style")), (1, 1, 1, 1), "{name}");
        assert_eq!(count("link") + count("img") + count("iframe") + count("image"), 0, "{name}");
        for outside in ["http://", "https://", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{name}: {outside}");
        }
        check(name, &explain, &page);
        explain.backward.iter().for_each(|backward| check(name, backward, &page));
    }
    Ok(())
}

/// Times, rates, lines of the program, and both plans have a place on the page.
#[test]
fn pages_show_times_source_and_plans() -> Result<()> {
    let x = ramp(&[8, 16]);
    let f = compile(|x: &Tensor| x.softmax(-1)?.mul(2.0)); // a line of this file
    f.call(&x)?;
    let unmeasured = f.explain().to_html();
    assert_eq!(unmeasured.matches("<div class=\"lane\">").count(), 1, "{unmeasured}");
    assert!(!unmeasured.contains("data-measured"), "{unmeasured}");
    drop(f.profile(&x)?);
    let explain = f.explain();
    let page = explain.to_html();
    elements("times", &page);
    assert_eq!(page.matches("<div class=\"lane\">").count(), 2, "{page}");
    assert_eq!(page.matches("class=\"slice\"").count(), 2 * explain.groups.len(), "{page}");
    assert_eq!(page.matches(" data-measured=").count(), explain.groups.len(), "{page}");
    assert!(explain.groups.iter().all(|group| group.operations > 0.0), "{explain}");
    assert_eq!(page.matches("<g class=\"dot\"").count(), explain.groups.len(), "{page}");
    let line = line!() - 14;
    assert!(page.contains(&format!("<p class=\"file\">{}</p>", file!())), "{page}");
    assert!(page.contains(&format!("<b>{line:>4} </b>    let f = compile(")), "{page}");
    assert!(page.contains("// a line of this file"), "{page}");
    assert!(page.contains(&escaped(&explain.plan_text())), "{page}");
    assert!(page.contains("amax1 = amax(input1; [-1], true): f32[8,1]\nsub1 = sub(input1, amax1; 1)"), "{page}");
    Ok(())
}

#[test]
fn lines_of_a_file_that_is_not_there_are_named() -> Result<()> {
    let f = compile(|x: &Tensor| x.exp());
    f.call(&ramp(&[4]))?;
    let mut explain = f.explain();
    for place in explain.nodes.iter_mut().filter_map(|node| node.place.as_mut()) {
        place.file = "no such <file>.rs".into();
    }
    let page = explain.to_html();
    elements("lost", &page);
    assert!(
        page.contains("<p class=\"file\">no such &lt;file&gt;.rs</p>\n<p class=\"note\">The file was not"),
        "{page}"
    );
    Ok(())
}

#[test]
fn a_page_without_kernels_says_why() {
    let explain = Explain::eager(Reason::Panicked { message: "a < b && \"c\" > d</script>".into() });
    let page = explain.to_html();
    elements("eager", &page);
    assert!(page.contains("a &lt; b &amp;&amp; &quot;c&quot; &gt; d&lt;/script&gt;"), "{page}");
    assert!(page.contains("What to do: "), "{page}");
}

#[test]
fn a_large_graph_is_drawn_by_kernels() -> Result<()> {
    // Products keep kernels apart.
    let f = compile(|x: &Tensor| (0..120).try_fold(x.clone(), |x, _| x.mm(&x)?.mul(0.01)?.tanh()));
    f.call(&ramp(&[3, 3]))?;
    let explain = f.explain();
    assert!(explain.nodes.len() > 300);
    let page = explain.to_html();
    let boxes = elements("large", &page).iter().filter(|element| *element == "rect").count();
    assert_eq!(boxes, explain.groups.len());
    assert!(page.contains("A box is one kernel"));
    Ok(())
}

/// Boxes of a drawing do not overlap.
#[test]
fn boxes_do_not_overlap() -> Result<()> {
    for (name, explain) in reports()?.into_iter().filter(|(_, explain)| explain.backward.is_none()) {
        let page = explain.to_html();
        let number = |tag: &str, key: &str| -> f64 {
            let from = tag.find(&format!(" {key}=\"")).expect("rects have places") + key.len() + 3;
            tag[from..].split('"').next().and_then(|text| text.parse().ok()).expect("a number")
        };
        let rects: Vec<[f64; 4]> = page
            .split("<rect")
            .skip(1)
            .map(|tag| ["x", "y", "width", "height"].map(|key| number(tag.split('>').next().expect("it ends"), key)))
            .collect();
        assert!(!rects.is_empty(), "{name}");
        for (index, a) in rects.iter().enumerate() {
            for b in &rects[..index] {
                let covers = a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];
                assert!(!covers, "{name}: {a:?} and {b:?}");
            }
        }
    }
    Ok(())
}
