//! Secrets whose name is not directly before the value in the same line: block scalars of YAML, and elements and attributes of
//! XML.

use std::ops::Range;

use super::{REMOVED, names_a_secret};

/// No content of an element with a secret is longer, in bytes.
const LONGEST: usize = 4 << 10;

/// The brackets of a tag: plain, escaped in XML, and escaped in JSON.
const BRACKETS: [(&str, &str); 3] = [("<", ">"), ("&lt;", "&gt;"), ("\\u003c", "\\u003e")];

/// Replaces block scalars of YAML, `name: |` or `name: >` and the deeper lines after it, if the name marks a secret. In a
/// journal, each line may have a prefix that ends with `]: `.
pub(super) fn blocks(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    // The column of the key whose block is removed, and whether its line has a prefix.
    let mut block: Option<(usize, bool)> = None;
    for line in text.split_inclusive('\n') {
        if let Some((column, has_prefix)) = block {
            let body = if has_prefix && !line.starts_with(' ') { &line[prefix(line)..] } else { line };
            let indentation = body.len() - body.trim_start_matches([' ', '\t']).len();
            if body.trim().is_empty() || indentation > column {
                continue;
            }
        }
        let start = prefix(line);
        let header = block_header(&line[start..]);
        block = header.map(|(column, _)| (column, start > 0));
        match header {
            Some((_, value)) => {
                clean.push_str(&line[..start + value]);
                clean.push_str(REMOVED);
                clean.push_str(if line.ends_with('\n') { "\n" } else { "" });
            }
            None => clean.push_str(line),
        }
    }
    clean
}

/// The length of a journal's prefix.
fn prefix(line: &str) -> usize {
    line.find("]: ").map_or(0, |at| at + 3)
}

/// The column of a key that marks a secret, and the place of the indicator of its block. `None` for another line.
fn block_header(body: &str) -> Option<(usize, usize)> {
    let content = body.split(" #").next().unwrap_or_default().trim_end();
    let (key, value) = content.rsplit_once(':')?;
    let indicator = value.split_whitespace().next_back()?;
    let (tags, _) = value.rsplit_once(indicator)?;
    let is_block =
        indicator.starts_with(['|', '>']) && indicator[1..].chars().all(|c| c.is_ascii_digit() || "+-".contains(c));
    let are_tags = tags.split_whitespace().all(|tag| tag.starts_with(['!', '&']));
    let is_secret = names_a_secret(key.trim_end().trim_end_matches(['"', '\'']));
    let column = key.len() - key.trim_start_matches([' ', '\t', '-', '?']).len();
    (is_block && are_tags && is_secret).then(|| (column, content.len() - indicator.len()))
}

/// Whether an escaped block scalar follows a name, as in the JSON text `"password: |\n  x"`.
pub(super) fn begins_escaped_block(after_name: &str) -> bool {
    let value = after_name.trim_start_matches(['"', '\'', '\\', ' ']);
    let header = value.strip_prefix(':').and_then(|value| value.trim_start().strip_prefix(['|', '>']));
    let line_end = header.map(|header| header.trim_start_matches(|c: char| c.is_ascii_digit() || "+- ".contains(c)));
    line_end.is_some_and(|end| end.starts_with('\\') && end.trim_start_matches('\\').starts_with('n'))
}

/// Replaces the contents of elements of XML whose names mark a secret, as in `<password>x</password>`. An attribute `key`,
/// `name` or `id` may have the name: `<Property oe:key="password" oe:value="x"/>`.
pub(super) fn elements(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in text.match_indices(['<', '&', '\\']) {
        if at < done {
            continue;
        }
        let Some(tag) = Tag::at(text, at) else { continue };
        for secret in tag.secrets(text) {
            if !secret.is_empty() && &text[secret.clone()] != REMOVED {
                clean.push_str(&text[done..secret.start]);
                clean.push_str(REMOVED);
                done = secret.end;
            }
        }
    }
    clean.push_str(&text[done..]);
    clean
}

/// The beginning of an element.
struct Tag<'t> {
    name: &'t str,
    open: &'static str,
    /// The names of the attributes, with the places of their values.
    attributes: Vec<(&'t str, Range<usize>)>,
    /// Where the content begins. `None` for an element without content, and for a tag that is cut off.
    content: Option<usize>,
}

impl<'t> Tag<'t> {
    /// The tag that begins at a place. It ends before the next opening bracket.
    fn at(text: &'t str, place: usize) -> Option<Self> {
        let (open, close) = BRACKETS.into_iter().find(|(open, _)| text[place..].starts_with(*open))?;
        let begin = place + open.len();
        let length = text[begin..].find(|c: char| !c.is_alphanumeric() && !"-_.:".contains(c));
        let mut at = length.map_or(text.len(), |length| begin + length);
        let mut tag = Self { name: &text[begin..at], open, attributes: Vec::new(), content: None };
        if tag.name.is_empty() {
            return None;
        }
        let (mut word, mut was_gap) = (at, true);
        while let Some(c) = text[at..].chars().next() {
            if text[at..].starts_with(open) {
                break;
            }
            if text[at..].starts_with(close) {
                tag.content = (!text[..at].ends_with('/')).then_some(at + close.len());
                break;
            }
            if c == '='
                && let Some(value) = attribute_value(text, at + 1, open)
            {
                tag.attributes.push((text[word..at].trim_end(), value.clone()));
                // Behind the closing quote.
                let rest = text[value.end..].trim_start_matches('\\').strip_prefix(['"', '\'']);
                at = rest.map_or(value.end, |rest| text.len() - rest.len());
                (word, was_gap) = (at, true);
                continue;
            }
            let is_gap = c.is_whitespace() || "=\"'\\".contains(c);
            if was_gap && !is_gap {
                word = at;
            }
            was_gap = is_gap;
            at += c.len_utf8();
        }
        Some(tag)
    }

    /// The places of secrets, in order.
    fn secrets(&self, text: &str) -> Vec<Range<usize>> {
        let is = |name: &str, wanted: &[&str]| {
            let local = name.rsplit(':').next().unwrap_or_default();
            wanted.iter().any(|wanted| local.eq_ignore_ascii_case(wanted))
        };
        let names = |(name, value): &(&str, Range<usize>)| {
            is(name, &["key", "name", "id"]) && names_a_secret(&text[value.clone()])
        };
        let is_named = self.attributes.iter().any(names);
        let values = self.attributes.iter().filter(|(name, _)| is_named && is(name, &["value"]));
        let mut secrets: Vec<Range<usize>> = values.map(|(_, value)| value.clone()).collect();
        if is_named || names_a_secret(self.name) {
            secrets.extend(self.content(text));
        }
        secrets
    }

    /// The content, up to the closing tag. Without that, up to the end of the line.
    fn content(&self, text: &str) -> Option<Range<usize>> {
        let begin = self.content?;
        let rest = &text[begin..];
        let near = &rest[..rest.floor_char_boundary(LONGEST)];
        let end = near.find(&format!("{}/{}", self.open, self.name));
        Some(begin..begin + end.unwrap_or_else(|| rest.find('\n').unwrap_or(rest.len())))
    }
}

/// The place of an attribute's value in quotes, which may be escaped. It ends at the closing quote, or before an opening
/// bracket.
fn attribute_value(text: &str, from: usize, open: &str) -> Option<Range<usize>> {
    let rest = &text[from..];
    let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\\']).len();
    let quote = rest[blanks..].chars().next().filter(|c| "\"'".contains(*c))?;
    let begin = from + blanks + 1;
    for (at, c) in text[begin..].char_indices() {
        if c == quote {
            let value = text[begin..begin + at].trim_end_matches('\\');
            return Some(begin..begin + value.len());
        }
        if text[begin + at..].starts_with(open) {
            return Some(begin..begin + at);
        }
    }
    Some(begin..text.len())
}
