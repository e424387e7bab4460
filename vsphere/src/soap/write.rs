//! Writes elements as text.

use super::element::{Element, Kind};

/// A text with a character that XML 1.0 (§2.2, production 2) does not allow, not even escaped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the character U+{:04X} in {element} cannot be written in XML; remove it", u32::from(*character))]
pub struct ForbiddenCharacter {
    /// The element with this text.
    pub element: String,
    /// The first such character.
    pub character: char,
}

/// Appends an element to a text.
pub(super) fn write(element: &Element, declared: &str, to: &mut String) -> Result<(), ForbiddenCharacter> {
    let name = element.name();
    to.push('<');
    to.push_str(name);
    to.push_str(declared);
    if let Some(of) = element.said_of() {
        attribute("type", "", of, to);
    }
    match element.said_kind() {
        Some(Kind::Vim(kind)) => attribute("xsi:type", "", kind, to),
        Some(Kind::Xsd(kind)) => attribute("xsi:type", "xsd:", kind, to),
        None => {}
    }
    if element.value().is_empty() && element.children().is_empty() {
        to.push_str("/>");
        return Ok(());
    }
    to.push('>');
    text(element, to)?;
    for child in element.children() {
        write(child, "", to)?;
    }
    to.push_str("</");
    to.push_str(name);
    to.push('>');
    Ok(())
}

fn attribute(name: &str, prefix: &str, value: &str, to: &mut String) {
    to.push_str(&format!(" {name}=\"{prefix}"));
    value.chars().for_each(|character| escaped(character, to));
    to.push('"');
}

fn text(element: &Element, to: &mut String) -> Result<(), ForbiddenCharacter> {
    for character in element.value().chars() {
        if matches!(character, '\u{0}'..='\u{8}' | '\u{B}' | '\u{C}' | '\u{E}'..='\u{1F}' | '\u{FFFE}' | '\u{FFFF}') {
            return Err(ForbiddenCharacter { element: element.name().to_owned(), character });
        }
        escaped(character, to);
    }
    Ok(())
}

fn escaped(character: char, to: &mut String) {
    match character {
        '&' => to.push_str("&amp;"),
        '<' => to.push_str("&lt;"),
        '>' => to.push_str("&gt;"),
        '"' => to.push_str("&quot;"),
        // A reader changes an unescaped one to a line feed (XML 1.0 §2.11).
        '\r' => to.push_str("&#13;"),
        plain => to.push(plain),
    }
}
