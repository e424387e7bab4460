//! Reads elements from text.

use roxmltree::{Document, Node, ParsingOptions};

use super::element::{Element, Kind};

const XSI: &str = "http://www.w3.org/2001/XMLSchema-instance";
const XSD: &str = "http://www.w3.org/2001/XMLSchema";
/// The deepest nesting that is read. Snapshots are the deepest known: 32 levels of a few elements each.
const DEEPEST: usize = 200;
/// A limit of nodes, above that of any page of an answer.
const MOST_NODES: u32 = 4_000_000;

/// The text is not an answer in XML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer cannot be read: {0}")]
pub struct Unreadable(pub String);

/// Reads the root of a document.
pub(super) fn read(text: &str) -> Result<Element, Unreadable> {
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| Unreadable(error.to_string()))?;
    element(document.root_element(), 0)
}

fn element(node: Node<'_, '_>, depth: usize) -> Result<Element, Unreadable> {
    if depth > DEEPEST {
        return Err(Unreadable(format!("its elements nest more than {DEEPEST} levels deep")));
    }
    let mut read = Element::new(node.tag_name().name());
    for child in node.children().filter(Node::is_element) {
        read.push(element(child, depth + 1)?);
    }
    let is_leaf = read.children().is_empty();
    let text = node.children().filter(Node::is_text).filter_map(|part| part.text()).collect::<String>();
    let text = if is_leaf { text } else { String::new() };
    let kind = node.attribute((XSI, "type")).map(|said| kind(node, said));
    // A search by the bare name finds the attribute in any namespace, also `xsi:type`.
    let of = node.attributes().find(|attribute| attribute.namespace().is_none() && attribute.name() == "type");
    read.set(kind, of.map(|of| of.value().to_owned()), text);
    Ok(read)
}

/// The type of a qualified name, by the namespaces in scope.
fn kind(node: Node<'_, '_>, said: &str) -> Kind {
    let (prefix, local) =
        said.trim().split_once(':').map_or((None, said.trim()), |(prefix, local)| (Some(prefix), local));
    match node.lookup_namespace_uri(prefix) {
        Some(XSD) => Kind::Xsd(local.to_owned()),
        _ => Kind::Vim(local.to_owned()),
    }
}
