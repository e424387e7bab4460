//! A descriptor's XML: read within bounds, and searched by namespace and local name, whatever the prefixes.

use quick_xml::events::Event;
use roxmltree::{Document, Node, ParsingOptions};

pub(super) const OVF: &str = "http://schemas.dmtf.org/ovf/envelope/1";
/// The namespace of VMware's draft, before DSP0243.
const OVF_0_9: &str = "http://www.vmware.com/schema/ovf/1/envelope";
/// The namespace of DSP0243 2.0 and 2.1.
const OVF_2: &str = "http://schemas.dmtf.org/ovf/envelope/2";
pub(super) const RASD: &str = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData";
pub(super) const VSSD: &str = "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData";
pub(super) const VMW: &str = "http://www.vmware.com/schema/ovf";

/// A limit of nodes, above that of any descriptor. It bounds the cost of a hostile one.
const MOST_NODES: u32 = 200_000;
/// A limit of attributes, above that of any element. The parser compares each with each.
const MOST_ATTRIBUTES: usize = 1000;
/// A limit of namespaces that are declared for an element and its ancestors. The parser compares each with each, for
/// each element that declares one.
const MOST_NAMESPACES: usize = 100;

/// Why a descriptor cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// It is not XML, or too large.
    #[error("the OVF descriptor is not XML that can be read: {0}")]
    Xml(#[from] roxmltree::Error),
    /// A required part is missing, or a part is invalid.
    #[error("the OVF descriptor cannot be used at line {line}: {reason}")]
    Content {
        /// The line, from 1.
        line: u32,
        /// The problem, as a clause.
        reason: String,
    },
}

/// A problem of an element.
pub(super) fn wrong(node: Node<'_, '_>, reason: impl Into<String>) -> ParseError {
    ParseError::Content { line: node.document().text_pos_at(node.range().start).row, reason: reason.into() }
}

/// Shorthand to search a document.
pub(super) trait Look<'a> {
    fn children_named(self, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>>;
    fn child(self, name: &'static str) -> Option<Node<'a, 'a>>;
    fn need(self, name: &'static str) -> Result<Node<'a, 'a>, ParseError>;
    fn child_text(self, namespace: &str, name: &str) -> Option<String>;
    fn ovf(self, name: &str) -> Option<&'a str>;
    fn need_ovf(self, name: &str) -> Result<&'a str, ParseError>;
}

impl<'a> Look<'a> for Node<'a, 'a> {
    fn children_named(self, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
        self.children().filter(move |child| child.has_tag_name((OVF, name)))
    }

    fn child(self, name: &'static str) -> Option<Node<'a, 'a>> {
        self.children_named(name).next()
    }

    fn need(self, name: &'static str) -> Result<Node<'a, 'a>, ParseError> {
        self.child(name).ok_or_else(|| wrong(self, format!("{} has no {name}", self.tag_name().name())))
    }

    fn child_text(self, namespace: &str, name: &str) -> Option<String> {
        let child = self.children().find(|child| child.has_tag_name((namespace, name)))?;
        Some(child.children().filter_map(|part| part.text()).collect())
    }

    fn ovf(self, name: &str) -> Option<&'a str> {
        self.attribute((OVF, name))
    }

    fn need_ovf(self, name: &str) -> Result<&'a str, ParseError> {
        self.ovf(name).ok_or_else(|| wrong(self, format!("{} has no ovf:{name}", self.tag_name().name())))
    }
}

/// Gives the root element of a descriptor to `read`.
pub(super) fn envelope<T>(
    xml: &str,
    read: impl for<'a> FnOnce(Node<'a, 'a>) -> Result<T, ParseError>,
) -> Result<T, ParseError> {
    check_attributes(xml)?;
    let options = ParsingOptions { allow_dtd: false, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options)?;
    let envelope = document.root_element();
    if !envelope.has_tag_name((OVF, "Envelope")) {
        let other = match envelope.tag_name().namespace() {
            Some(OVF_0_9) => ", but one of the draft OVF 0.9; export the machine again",
            Some(OVF_2) => ", but one of OVF 2, which vSphere does not import; export the machine as OVF 1",
            _ => "",
        };
        return Err(wrong(envelope, format!("it is not an OVF 1 Envelope{other}")));
    }
    read(envelope)
}

/// Checks that no element has so many attributes or namespaces that the parser would take minutes over them.
fn check_attributes(xml: &str) -> Result<(), ParseError> {
    let mut reader = quick_xml::Reader::from_str(xml);
    // Namespaces that are declared for each of the open elements.
    let mut declared = Vec::new();
    loop {
        let before = reader.buffer_position() as usize;
        let content = |reason| {
            let lines = xml.as_bytes()[..before].iter().filter(|&&byte| byte == b'\n').count();
            ParseError::Content { line: lines as u32 + 1, reason }
        };
        let not_xml = |error: &dyn std::fmt::Display| content(format!("it is not XML that can be read: {error}"));
        let event = reader.read_event().map_err(|error| not_xml(&error))?;
        match &event {
            Event::Start(element) | Event::Empty(element) => {
                let mut namespaces = declared.last().copied().unwrap_or(0);
                for (number, attribute) in element.attributes().with_checks(false).enumerate() {
                    let attribute = attribute.map_err(|error| not_xml(&error))?;
                    namespaces += usize::from(attribute.key.as_namespace_binding().is_some());
                    if number == MOST_ATTRIBUTES {
                        return Err(content(format!("an element has more than {MOST_ATTRIBUTES} attributes")));
                    }
                }
                if namespaces > MOST_NAMESPACES {
                    return Err(content(format!("more than {MOST_NAMESPACES} namespaces are declared")));
                }
                if matches!(event, Event::Start(_)) {
                    declared.push(namespaces);
                }
            }
            Event::End(_) => drop(declared.pop()),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

/// A text that is copied for each use: with a bound, so that the copies of a hostile one stay small.
pub(super) fn short<'t>(node: Node<'_, '_>, what: &str, text: &'t str, most: usize) -> Result<&'t str, ParseError> {
    if text.len() > most {
        return Err(wrong(node, format!("{what} has more than {most} bytes")));
    }
    Ok(text)
}

/// The number that a text is.
pub(super) fn number<T: std::str::FromStr>(node: Node<'_, '_>, text: &str) -> Result<T, ParseError> {
    text.trim().parse().map_err(|_| wrong(node, format!("{text:?} is not a number that fits here")))
}
