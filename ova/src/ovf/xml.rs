//! Writes XML: indented, escaped, with the same bytes each time.

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

pub(super) struct Xml {
    writer: Writer<Vec<u8>>,
    forbidden: Option<ForbiddenCharacter>,
}

/// A text with a character that XML 1.0 (§2.2, production 2) does not allow, not even escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the character U+{:04X} in {text:?} cannot be written in XML; remove it", u32::from(*character))]
pub struct ForbiddenCharacter {
    /// The text.
    pub text: String,
    /// The first such character.
    pub character: char,
}

const INFALLIBLE: &str = "writing to memory does not fail";

impl Xml {
    pub(super) fn new() -> Xml {
        let mut xml = Xml { writer: Writer::new_with_indent(Vec::new(), b' ', 2), forbidden: None };
        xml.event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)));
        xml
    }

    /// Writes an element with others in it.
    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, &str)], content: impl FnOnce(&mut Xml)) {
        let start = self.start(name, attributes);
        self.event(Event::Start(start));
        content(self);
        self.event(Event::End(BytesEnd::new(name)));
    }

    /// Writes an element with text in it.
    pub(super) fn text(&mut self, name: &str, text: &str) {
        self.examine(text);
        self.element(name, &[], |xml| xml.event(Event::Text(BytesText::new(text))));
    }

    /// Writes an element with text in it, if there is a text.
    pub(super) fn optional_text(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// Writes an element without content.
    pub(super) fn empty(&mut self, name: &str, attributes: &[(&str, &str)]) {
        let start = self.start(name, attributes);
        self.event(Event::Empty(start));
    }

    /// Returns the document, with a newline at its end. The error is the first character that XML does not allow.
    pub(super) fn finish(self) -> Result<String, ForbiddenCharacter> {
        match self.forbidden {
            Some(forbidden) => Err(forbidden),
            None => {
                let mut bytes = self.writer.into_inner();
                bytes.push(b'\n');
                Ok(String::from_utf8(bytes).expect("only strings were written"))
            }
        }
    }

    fn start<'n>(&mut self, name: &'n str, attributes: &[(&str, &str)]) -> BytesStart<'n> {
        let mut start = BytesStart::new(name);
        for &(key, value) in attributes {
            self.examine(value);
            start.push_attribute((key, value));
        }
        start
    }

    fn examine(&mut self, text: &str) {
        let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
        if self.forbidden.is_none()
            && let Some(character) = text.chars().find(|&c| !allowed(c))
        {
            self.forbidden = Some(ForbiddenCharacter { text: text.into(), character });
        }
    }

    fn event(&mut self, event: Event<'_>) {
        self.writer.write_event(event).expect(INFALLIBLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_text_survives_or_is_refused(text in "(?s).{0,40}") {
            let mut xml = Xml::new();
            xml.element("a", &[("b", &text)], |xml| xml.text("c", &text));
            match xml.finish() {
                Ok(document) => {
                    let document = roxmltree::Document::parse(&document).unwrap();
                    let root = document.root_element();
                    proptest::prop_assert_eq!(root.attribute("b"), Some(text.as_str()));
                    let inner = root.first_element_child().unwrap();
                    proptest::prop_assert_eq!(inner.text().unwrap_or_default(), text.as_str());
                }
                Err(forbidden) => proptest::prop_assert!(text.contains(forbidden.character)),
            }
        }
    }

    #[test]
    fn control_characters_are_refused() {
        let mut xml = Xml::new();
        xml.text("a", "x\u{1b}[31m");
        let message = xml.finish().unwrap_err().to_string();
        assert!(message.contains("U+001B"), "{message}");
    }
}
